"""Plans that write into a table: map a query's columns to the table's, with implicit casts.

`accepts` decides which types a sink column accepts. `without_not_null` is for comparing types without NOT NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.base.errors import UnsupportedError
from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.scopes import build_scope
from penstock.sql.analyzer.select import project
from penstock.sql.catalogs.catalog import CatalogBaseTable
from penstock.sql.catalogs.columns import Column, ResolvedSchema, list_metadata_columns, row_schema
from penstock.sql.data import types
from penstock.sql.data.errors import UnknownNameError, ValidationError
from penstock.sql.functions.type_rules import can_cast_implicitly
from penstock.sql.logical.nodes import Node, RowSchema, Values, Write
from penstock.sql.parser.syntax import Expression
from penstock.sql.typed import Constant, Typed


def accepts(source: types.DataType, to: types.DataType) -> bool:
    """Return whether values of one type can be written into a column of another without an explicit cast."""
    if isinstance(source, types.NumericType) and isinstance(to, types.DecimalType):
        return True
    if isinstance(source, types.TimestampType | types.LocalZonedTimestampType) and isinstance(
        to, types.DateType | types.TimeType
    ):
        return isinstance(source, types.TimestampType)
    if type(source) is type(to) and isinstance(to, types.ArrayType | types.MapType | types.RowType):
        mine, wanted = list(source.children()), list(to.children())
        return len(mine) == len(wanted) and all(map(accepts, mine, wanted))
    return can_cast_implicitly(source, to)


def without_not_null(data_type: types.DataType) -> types.DataType:
    """Return the type made nullable at every level. Field names are kept."""
    match data_type:
        case types.MultisetType(element_type=element):
            return types.MultisetType(without_not_null(element))
        case types.ArrayType(element_type=element) if type(data_type) is types.ArrayType:
            return types.ArrayType(without_not_null(element))
        case types.MapType(key_type=key, value_type=item) if type(data_type) is types.MapType:
            return types.MapType(without_not_null(key), without_not_null(item))
        case types.RowType(fields=fields):
            inner = [
                types.RowField(field.name, without_not_null(field.data_type), field.description) for field in fields
            ]
            named = isinstance(data_type, types.StructuredType)
            return types.StructuredType(data_type.class_name, inner) if named else types.RowType(inner)  # type: ignore[attr-defined]
        case _:
            return data_type.nullable()


Path = tuple[str, str, str]


class Sinks(Protocol):
    """Resolves the tables that are written."""

    def resolved(self, table: CatalogBaseTable) -> ResolvedSchema:
        """Return the resolved schema of a table."""

    def calls(self) -> Calls:
        """Return a builder of typed function calls with the session's current options."""


def write_plan(
    sinks: Sinks,
    path: Path,
    table: CatalogBaseTable,
    plan: Node,
    names: Sequence[str] = (),
    partition: Sequence[tuple[str, Expression]] = (),
    options: tuple[tuple[str, str], ...] = (),
    overwrites: bool = False,
    conflict: str | None = None,
) -> Write:
    """Return the plan that writes the rows of a query into a table.

    `names`: the columns that the query fills, in its order; without them it fills all columns by position. `partition`:
    static values of partition columns that the query does not have.
    """
    if table.distribution is not None:
        raise UnsupportedError(
            f"Table '{'.'.join(path)}' is distributed into buckets (DISTRIBUTED BY), which its connector "
            f"'{table.options.get('connector', '')}' does not support for writing"
        )
    columns = [column for column in sinks.resolved(table).columns if column.is_persisted()]
    static = find_static_values(sinks, path, table, partition)
    filled = _filled(path, columns, plan, names, static)
    expressions, written = _expressions(columns, plan, filled, static)
    _check(".".join(path), columns, expressions)
    calls = sinks.calls()
    casts = [_cast(calls.implicit, expression, column) for expression, column in zip(expressions, columns, strict=True)]
    if casts != plan.schema.fields():
        plan = project(plan, casts, [column.name for column in columns])
    key = table.schema.primary_key
    return Write(
        schema=row_schema(columns).without_time(),
        input=plan,
        path=path,
        options=tuple({**table.options_for_connector(), **dict(options)}.items()),
        key=tuple(index for index, column in enumerate(columns) if column.name in key),
        columns=() if len(written) == len(columns) else tuple(written),
        overwrites=overwrites,
        conflict=conflict,
        static_partition=_find_static_texts(columns, casts, static),
        metadata=list_metadata_columns(columns),
        partition_keys=tuple(table.partition_keys),
        zone=calls.session.zone,
    )


def _find_static_texts(
    columns: Sequence[Column], casts: Sequence[Typed], static: dict[str, Constant]
) -> tuple[tuple[str, str], ...]:
    """Return the internal values of PARTITION (…) in the types of their columns, as text."""
    cast = {column.name: expression for column, expression in zip(columns, casts, strict=True)}
    constants = {name: value if isinstance(value := cast[name], Constant) else static[name] for name in static}
    return tuple((name, str(constant.value)) for name, constant in constants.items())


def find_static_values(
    sinks: Sinks, path: Path, table: CatalogBaseTable, partition: Sequence[tuple[str, Expression]]
) -> dict[str, Constant]:
    """Return the constants of PARTITION (…). Raises `ValidationError` for a name that is no partition column."""
    constants: dict[str, Constant] = {}
    calls = sinks.calls()
    analyser = ScalarAnalyser(build_scope(Values(schema=RowSchema(()), rows=()), calls), calls)
    for name, expression in partition:
        if name not in table.partition_keys:
            keys = ", ".join(table.partition_keys) or "none"
            raise ValidationError(
                f"'{name}' is no partition column of table '{'.'.join(path)}'. Its partition columns: {keys}"
            )
        value = analyser.typed(expression)
        if not isinstance(value, Constant):
            raise ValidationError(f"the value of partition column '{name}' must be a constant")
        constants[name] = value
    return constants


def _filled(
    path: Path, columns: Sequence[Column], plan: Node, names: Sequence[str], static: dict[str, Constant]
) -> list[str]:
    """Return the names of the columns that the plan fills, in its order."""
    if not names:
        filled = [column.name for column in columns if column.name not in static]
        if len(filled) != len(plan.schema):
            raise _mismatch(".".join(path), "Different number of columns.", list(plan.schema.fields()), columns)
        return filled
    known = [column.name for column in columns]
    for name in names:
        if name not in known:
            raise UnknownNameError(f"Unknown target column '{name}'. The table has {', '.join(known)}", name=name)
        if list(names).count(name) > 1 or name in static:
            raise ValidationError(f"Target column '{name}' is assigned more than once")
    if len(names) != len(plan.schema):
        raise ValidationError(
            f"Number of INSERT target columns ({len(names)}) does not equal number of source items ({len(plan.schema)})"
        )
    return list(names)


def _expressions(
    columns: Sequence[Column], plan: Node, filled: Sequence[str], static: dict[str, Constant]
) -> tuple[list[Typed], list[int]]:
    """Return the expression for each column, and the positions of the columns that are assigned."""
    expressions: list[Typed] = []
    written = []
    for index, column in enumerate(columns):
        if column.name in filled:
            expressions.append(plan.schema.field(filled.index(column.name)))
        elif column.name in static:
            expressions.append(static[column.name])
        elif column.data_type.is_nullable:
            expressions.append(Constant(types.NullType(), None))
            continue
        else:
            raise ValidationError(f"Column '{column.name}' has no default value and does not allow NULLs")
        written.append(index)
    return expressions, written


def _check(table: str, columns: Sequence[Column], expressions: Sequence[Typed]) -> None:
    for index, (expression, column) in enumerate(zip(expressions, columns, strict=True)):
        if not accepts(expression.type, column.data_type):
            cause = f"Incompatible types for sink column '{column.name}' at position {index}."
            raise _mismatch(table, cause, expressions, columns)


def _mismatch(table: str, cause: str, expressions: Sequence[Typed], columns: Sequence[Column]) -> ValidationError:
    query = ", ".join(f"{getattr(expression, 'name', '') or 'EXPR'}: {expression.type}" for expression in expressions)
    sink = ", ".join(f"{column.name}: {column.data_type}" for column in columns)
    return ValidationError(
        f"Column types of query result and sink for '{table}' do not match.\nCause: {cause}\n\n"
        f"Query schema: [{query}]\nSink schema:  [{sink}]"
    )


def _cast(implicit: Callable[[Typed, Any], Typed], expression: Typed, column: Column) -> Typed:
    """Cast an expression to the type of its column. The sink checks for NULL at run time."""
    target = without_not_null(column.data_type)
    if without_not_null(expression.type) == target:
        return expression
    return implicit(expression, target if expression.type.is_nullable else target.not_null())
