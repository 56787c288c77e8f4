r"""Transforms: the rules of the section `transform`, compiled for the schema of a table.

`Transforms.compile` returns a `TableTransform`, which computes the schema and the rows after the transform. A table is
compiled again after each schema change.

**Projection.** `*` (also written `\*`) is all columns of the table. An expression needs a name (`AS name`); one that
has the name of a column of `*` replaces it. A projection without `*` does not add new columns of the table.
`__schema_name__`, `__table_name__` and `__namespace_name__` name the table, `__data_event_type__` is +I, -U, +U or -D.

**Filter.** It sees the columns of the table, and the computed ones by their names; where both have a name it means the
column of the table. An update whose row does not satisfy the filter any more deletes the row, and one whose row begins
to satisfy it inserts the row.

**Several rules for a table.** The first one whose filter a row satisfies computes it, and a row that satisfies none is
left out. The table then has the columns of all its rules: each with the narrowest type that holds the values of all,
and nullable where a rule lacks it.

**Keys.** The sink table has the key of the source table if all its columns are still there by their names, else none;
`primary-keys` replaces it.

Source: the page "Transform" of Flink CDC 3.x.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.base.errors import PenstockError
from penstock.base.types import RowKind
from penstock.cdc.definition import DefinitionError, FunctionRule, TransformRule
from penstock.cdc.expressions import (
    Expressions,
    RowFunction,
    make_column,
    parse_condition,
    parse_items,
    read_type,
)
from penstock.cdc.schemas import nullable, widest_column
from penstock.connectors.cdc.events import Column, DataChangeEvent, TableId, TableSchema
from penstock.sql import parser, typed
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import BooleanType, DataType, VarCharType
from penstock.sql.parser import syntax
from penstock.sql.user_functions.declare import load

if TYPE_CHECKING:
    from penstock.sql.user_functions.definition import OpenFunctions

#: The columns that only an expression sees.
METADATA: Final = ("__namespace_name__", "__schema_name__", "__table_name__", "__data_event_type__")
_NAME: Final = VarCharType(2147483647, False)
_ESCAPED_STAR: Final = re.compile(r"\\\*")


class TransformError(PenstockError, RuntimeError):
    """An expression of a transform fails for a row; the message names the rule, the table and the row."""


@dataclass(frozen=True)
class Environment:
    """Where row functions run: the time zone, the clock (ns since 1970), and the Python functions."""

    zone: tzinfo
    now_ns: Callable[[], int]
    functions: OpenFunctions | None = None


class _Projected(NamedTuple):
    """A table after a rule: its columns, their expressions, and the filter over the same input."""

    columns: tuple[Column, ...]
    expressions: tuple[typed.Typed, ...]
    condition: typed.Typed | None


class TableTransform:
    """The rules of one table, for one schema of it.

    Attributes:
        schema: the schema of the transformed rows.
    """

    def __init__(
        self,
        table_id: TableId,
        schema: TableSchema,
        rules: Sequence[tuple[TransformRule, _Projected]],
        input_types: Sequence[DataType],
        environment: Environment,
    ) -> None:
        self._table_id = table_id
        self._names = ("", table_id.schema, table_id.table)
        self.schema = schema
        self._projected, self._input_types, self._environment = rules, input_types, environment

    @cached_property
    def _rules(self) -> list[tuple[TransformRule, RowFunction | None, RowFunction]]:
        """The rules with the functions of their conditions and rows. Python functions are opened here, in the job."""
        environment = self._environment
        calls = Expressions(environment.zone).calls()
        rules: list[tuple[TransformRule, RowFunction | None, RowFunction]] = []
        for rule, projected in self._projected:
            at = {column.name: index for index, column in enumerate(projected.columns)}
            merged: list[typed.Typed] = []
            for column in self.schema.columns:
                if column.name not in at:
                    merged.append(typed.Constant(read_type(nullable(column)), None))
                    continue
                expression = projected.expressions[at[column.name]]
                if projected.columns[at[column.name]].sql_type != column.sql_type:
                    expression = calls.cast(expression, read_type(column).nullable())
                merged.append(expression)
            condition = None if projected.condition is None else self._function([projected.condition])
            rules.append((rule, condition, self._function(merged)))
        return rules

    def _function(self, expressions: Sequence[typed.Typed]) -> RowFunction:
        environment = self._environment
        return RowFunction(expressions, self._input_types, environment.zone, environment.now_ns, environment.functions)

    def apply(self, event: DataChangeEvent) -> DataChangeEvent | None:
        """Transform the change of a row; return None if it is filtered out.

        Raises:
            TransformError: if an expression fails for the row.
        """
        if not self._rules:
            return event
        if event.kind is RowKind.DELETE:
            row, rule = self._compute(event.before, "-D")
            if row is None or rule is None:
                return None
            if rule.soft_deletes:
                return replace(event, kind=RowKind.INSERT, before=None, after=row)
            return replace(event, before=row)
        is_update = event.kind is RowKind.UPDATE_AFTER
        before, _ = self._compute(event.before, "-U")
        after, _ = self._compute(event.after, "+U" if is_update else "+I")
        if after is not None:
            begins = is_update and event.before is not None and before is None
            return replace(event, kind=RowKind.INSERT if begins else event.kind, before=before, after=after)
        if is_update and before is None and event.before is None and event.after is not None:
            # The log lacks the row before: delete by the key of the row after.
            before = self._rules[0][2](self._full(event.after, "-U"))
        return None if before is None else replace(event, kind=RowKind.DELETE, before=before, after=None)

    def _full(self, row: tuple[Any, ...], kind: str) -> tuple[Any, ...]:
        return (*row, *self._names, kind)

    def _compute(self, row: tuple[Any, ...] | None, kind: str) -> tuple[tuple[Any, ...] | None, TransformRule | None]:
        """Return the computed row with its rule; None if no rule matches."""
        if row is None:
            return None, None
        full = self._full(row, kind)
        for rule, condition, project in self._rules:
            try:
                if condition is None or condition(full)[0]:
                    return project(full), rule
            except (TableRuntimeError, PenstockError) as error:
                raise TransformError(
                    f"{rule.place}: an expression fails for a row of {self._table_id}: {error}. The row: {row!r}"
                ) from error
        return None, None


class Transforms:
    r"""The rules of a pipeline.

    Args:
        rules: the rules, in order.
        functions: the Python functions.
        zone: the time zone of time functions.

    Examples:
        >>> from datetime import timezone
        >>> import pyarrow as pa
        >>> from penstock.base.types import RowKind
        >>> from penstock.cdc.definition import parse_definition
        >>> from penstock.cdc.transform import Environment, Transforms
        >>> from penstock.connectors.cdc.events import Column, DataChangeEvent, TableId, TableSchema
        >>> pipeline = parse_definition(r'''
        ... source: {type: values, path: events}
        ... sink: {type: print}
        ... transform:
        ...   - source-table: shop.\.*
        ...     projection: \*, UPPER(name) AS title
        ...     filter: id > 1
        ... ''')
        >>> cups = TableId("shop", "cups")
        >>> columns = (Column("id", pa.int64(), "BIGINT", False), Column("name", pa.string(), "STRING"))
        >>> transforms = Transforms(pipeline.transforms, pipeline.functions, timezone.utc)
        >>> transform = transforms.compile(cups, TableSchema(columns, ("id",)), Environment(timezone.utc, lambda: 0))
        >>> transform.schema.names
        ('id', 'name', 'title')
        >>> transform.apply(DataChangeEvent(cups, RowKind.INSERT, None, (2, "mug"))).after
        (2, 'mug', 'MUG')
    """

    def __init__(self, rules: Sequence[TransformRule], functions: Sequence[FunctionRule], zone: tzinfo) -> None:
        self._rules = tuple(rules)
        self._expressions = Expressions(zone, dict(map(_load, functions)))
        for rule in self._rules:
            for text, parse in ((rule.projection, parse_items), (rule.condition, parse_condition)):
                if text is not None:
                    _parsed(rule, text, parse)

    def compile(self, table_id: TableId, schema: TableSchema, environment: Environment) -> TableTransform:
        """Return the transform of a table with this schema.

        Raises:
            DefinitionError: if a rule does not fit the schema.
        """
        rules = [rule for rule in self._rules if rule.selector.selects(table_id)]
        columns = [(column.name, read_type(column)) for column in schema.columns]
        columns += [(name, _NAME) for name in METADATA]
        if not rules:
            return TableTransform(table_id, schema, (), [data_type for _, data_type in columns], environment)
        projected = [self._project(rule, table_id, schema, columns) for rule in rules]
        merged = _merge_columns([each.columns for each in projected])
        first = rules[0]
        names = [column.name for column in merged]
        key = first.primary_keys or (schema.primary_key if set(schema.primary_key) <= set(names) else ())
        for title, keys in (("primary-keys", key), ("partition-keys", first.partition_keys)):
            missing = [name for name in keys if name not in names]
            if missing:
                raise DefinitionError(
                    f"{first.place}.{title}: table {table_id} has no column {missing[0]!r} behind the transform; "
                    f"there are {', '.join(names)}"
                )
        merged = [replace(column, is_nullable=False) if column.name in key else column for column in merged]
        after = TableSchema(tuple(merged), tuple(key), schema.comment, first.partition_keys, first.options)
        types = [data_type for _, data_type in columns]
        return TableTransform(table_id, after, list(zip(rules, projected, strict=True)), types, environment)

    def _project(
        self, rule: TransformRule, table_id: TableId, schema: TableSchema, columns: list[tuple[str, DataType]]
    ) -> _Projected:
        analyser = self._expressions.analyser(columns)
        items = (
            (syntax.SelectItem(syntax.Star()),)
            if rule.projection is None
            else _parsed(rule, rule.projection, parse_items)
        )
        chosen: dict[str, tuple[Column, typed.Typed]] = {}
        computed: dict[str, typed.Typed] = {}
        for item in items:
            if isinstance(item.expression, syntax.Star):
                for index, column in enumerate(schema.columns):
                    field = typed.Field(columns[index][1], index, column.name)
                    chosen.setdefault(column.name, (column, field))
                continue
            name = item.alias
            if name is None and isinstance(item.expression, syntax.Reference):
                name = item.expression.path[-1]
            if name is None:
                text = parser.to_sql(item.expression)
                raise DefinitionError(f"{rule.place}.projection: {text} needs a name: write {text} AS name")
            try:
                expression = analyser.typed(item.expression)
            except ValidationError as error:
                raise DefinitionError(f"{rule.place}.projection: table {table_id}: {error}") from error
            if isinstance(expression, typed.Field) and expression.index < len(schema.columns):
                column = replace(schema.columns[expression.index], name=name)
            else:
                column = make_column(name, expression.type)
            chosen[name] = (column, expression)
            computed[name] = expression
        condition = None if rule.condition is None else self._condition(rule, table_id, columns, computed)
        return _Projected(
            tuple(column for column, _ in chosen.values()), tuple(each for _, each in chosen.values()), condition
        )

    def _condition(
        self,
        rule: TransformRule,
        table_id: TableId,
        columns: list[tuple[str, DataType]],
        computed: dict[str, typed.Typed],
    ) -> typed.Typed:
        """Return the condition over the input: names of computed columns are replaced by their expressions."""
        assert rule.condition is not None
        names = {name for name, _ in columns}
        more = {name: expression for name, expression in computed.items() if name not in names}
        visible = [*columns, *((name, expression.type) for name, expression in more.items())]
        expressions = list(more.values())
        try:
            condition = self._expressions.analyser(visible).typed(_parsed(rule, rule.condition, parse_condition))
        except ValidationError as error:
            raise DefinitionError(f"{rule.place}.filter: table {table_id}: {error}") from error
        if not isinstance(condition.type, BooleanType):
            raise DefinitionError(f"{rule.place}.filter: {rule.condition!r} is {condition.type}, and no condition")

        def replaced(node: typed.Typed) -> typed.Typed:
            if isinstance(node, typed.Field) and node.index >= len(columns):
                return expressions[node.index - len(columns)]
            return node

        return typed.transformed(condition, replaced)


def _parsed(rule: TransformRule, text: str, parse: Callable[[str], Any]) -> Any:
    key = "projection" if parse is parse_items else "filter"
    try:
        return parse(_ESCAPED_STAR.sub("*", text) if parse is parse_items else text)
    except parser.SqlParserError as error:
        raise DefinitionError(f"{rule.place}.{key}: {text!r} is no {key}: {error}") from error


def _load(rule: FunctionRule) -> tuple[str, Any]:
    module, sign, attribute = rule.target.partition(":")
    try:
        return rule.name.lower(), load(f"{module}.{attribute}" if sign else rule.target, rule.name)
    except (ValidationError, PenstockError) as error:
        raise DefinitionError(f"{rule.place}.classpath: {error}") from error


def _merge_columns(rules: Iterable[Sequence[Column]]) -> list[Column]:
    """Return the columns of all rules: each with the narrowest type that fits, nullable where a rule lacks it."""
    merged: dict[str, Column] = {}
    for index, columns in enumerate(rules):
        names = {column.name for column in columns}
        for column in columns:
            known = merged.get(column.name)
            if known is None:
                merged[column.name] = nullable(column) if index else column
            elif known.sql_type != column.sql_type or known.is_nullable != column.is_nullable:
                merged[column.name] = widest_column(known, column)
        for name, column in merged.items():
            if name not in names:
                merged[name] = nullable(column)
    return list(merged.values())
