"""Plans of the Table API: builds its operations on existing plans, as the equivalent SQL queries.

**The select list.** `selected` resolves fields to columns and names them. Unnamed columns get Flink's names: `_c0` with
the index of the column, `a-INT` for a cast of `a`, `a$b` for a field of it, and `EXPR$0` for the first aggregate of a
group.

**User-defined functions.** `map` returns one row per row, `flat_map` any number of rows. `aggregate` returns one row
per group, and `flat_aggregate` any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.base.errors import UnsupportedError, WrongTypeError
from penstock.sql.analyzer.aggregates import contains_aggregate, is_aggregate, user_aggregate_call
from penstock.sql.analyzer.calls import Calls, InlineCall, constant, inline_call
from penstock.sql.analyzer.changelog import changelog_table
from penstock.sql.analyzer.expressions import ScalarAnalyser, are_of_both_sides, join_condition, rewritten
from penstock.sql.analyzer.process_tables import process_table
from penstock.sql.analyzer.queries import MethodCalls, PlannedQuery, QueryAnalyser, set_operation
from penstock.sql.analyzer.scopes import build_scope
from penstock.sql.analyzer.select import project
from penstock.sql.catalogs.manager import CatalogManager
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType, RowType
from penstock.sql.expressions.builder import Operand, to_node
from penstock.sql.logical.nodes import Distinct, Node, PlanColumn, RowSchema, Sort, TableAggregate, TimeAttribute
from penstock.sql.logical.properties import allow_expression
from penstock.sql.parser import parse_path, syntax, to_sql
from penstock.sql.parser import syntax as relations
from penstock.sql.parser.syntax import DerivedTable, FunctionTable, GroupItem, Relation, SelectItem
from penstock.sql.typed import Typed
from penstock.sql.user_functions.definition import FunctionKind, UserFunction
from penstock.sql.user_functions.signature import ProcessFunction, define_process
from penstock.table.expression_methods import WINDOW_PARTS
from penstock.table.udf import UserDefinedFunctionWrapper
from penstock.table.window import GroupWindow, OverWindow

#: returns the type of an expression over the table's columns
TypeOf = Callable[[syntax.Expression], DataType]
_RANGES: Final = ("$RANGE", "$WITH_COLUMNS", "$WITHOUT_COLUMNS")


def to_operand(field: object) -> Operand:
    """Return a field as an expression. A string is a column name."""
    if isinstance(field, str):
        return Operand(syntax.Star() if field == "*" else syntax.Reference((field,)))
    if not isinstance(field, Operand):
        raise WrongTypeError(f"a field must be an expression such as col('a'), or the name of a column, not {field!r}")
    allow_expression(field._node)
    return field


def selected(fields: Sequence[object], names: list[str], type_of: TypeOf, calls: Calls) -> list[SelectItem]:
    """Resolve fields to columns of a table with these column names. `calls` knows the functions.

    Raises `ValidationError` for an unknown column in a range, and for duplicate names.
    """
    items: list[SelectItem] = []
    for field in map(to_operand, fields):
        if len(field._names) > 1:
            raise ValidationError(f"{field}: a column has one name; only table functions give several")
        expansion = list(_expanded(field._node, names, type_of))
        if field._names and len(expansion) > 1:
            raise ValidationError(f"{field}: one name is given to {len(expansion)} columns")
        items += [SelectItem(item.expression, field._names[0]) if field._names else item for item in expansion]
    return _named(items, calls)


def expanded(fields: Sequence[object], names: list[str]) -> list[Operand]:
    """Like `selected`, but leave unnamed columns without a name; for grouping keys."""
    return [
        Operand(node, field._names) for field in map(to_operand, fields) for node in _without_ranges(field._node, names)
    ]


# --- several columns at once -----------------------------------------------------------------------------------------


def _expanded(node: syntax.Expression, names: list[str], type_of: TypeOf) -> Iterator[SelectItem]:
    if isinstance(node, syntax.FieldAccess) and node.name == "*":
        row = type_of(node.operand)
        if not isinstance(row, RowType):
            raise ValidationError(f"flatten takes a row apart, and {to_sql(node.operand)} is {row}")
        prefix = _transitive_name(node.operand)
        for name in row.field_names():
            access = syntax.FieldAccess(node.operand, name)
            yield SelectItem(access, name if prefix is None else f"{prefix}${name}")
        return
    for expression in _without_ranges(node, names):
        yield SelectItem(expression)


def _without_ranges(node: syntax.Expression, names: list[str]) -> list[syntax.Expression]:
    """Expand the column ranges in an expression."""

    def change(part: syntax.Expression) -> Iterable[syntax.Expression] | None:
        if isinstance(part, syntax.Star):
            return [syntax.Reference((name,)) for name in names] if part is node else None
        is_range = isinstance(part, syntax.Call) and part.name in _RANGES
        return [syntax.Reference((name,)) for name in _columns(part, names)] if is_range else None

    return rewritten(node, change)


def _columns(node: syntax.Expression, names: list[str]) -> list[str]:
    """Return the names of the columns in a column reference or range."""
    match node:
        case syntax.Reference() | syntax.NumberLiteral():
            return [names[_place(node, names)]]
        case syntax.Star():
            return names
        case syntax.Call(name="$RANGE", operands=(start, end)):
            begin, last = _place(start, names), _place(end, names)
            if begin > last:
                raise ValidationError(f"the range of columns ends with {names[last]!r}, before {names[begin]!r}")
            return names[begin : last + 1]
        case syntax.Call(name="$WITH_COLUMNS", operands=operands):
            return [name for operand in operands for name in _columns(operand, names)]
        case syntax.Call(name="$WITHOUT_COLUMNS", operands=operands):
            left_out = {name for operand in operands for name in _columns(operand, names)}
            return [name for name in names if name not in left_out]
        case _:
            raise ValidationError(f"with_columns and without_columns take columns and ranges, not {to_sql(node)}")


def _with_table(
    user: ProcessFunction, table: syntax.TableArgument, arguments: Sequence[syntax.Expression]
) -> list[syntax.Expression]:
    """Return the arguments of a call with a table for the first argument that takes one."""
    declared = user.signature.arguments
    position = next((index for index, argument in enumerate(declared) if argument.is_table), None)
    if position is None:
        raise ValidationError(f"{user} takes no table: call it by from_call()")
    if any(isinstance(argument, syntax.NamedArgument) for argument in arguments):
        return [syntax.NamedArgument(declared[position].name, table), *arguments]
    return [*arguments[:position], table, *arguments[position:]]


def _place(node: syntax.Expression, names: list[str]) -> int:
    if isinstance(node, syntax.NumberLiteral):
        if not 1 <= int(node.text) <= len(names):
            raise ValidationError(f"there is no column {node.text}: there are {len(names)}")
        return int(node.text) - 1
    if not isinstance(node, syntax.Reference) or node.path[0] not in names:
        raise ValidationError(f"Cannot resolve field [{to_sql(node)}], input field list:[{', '.join(names)}].")
    return names.index(node.path[0])


# --- names -----------------------------------------------------------------------------------------------------------


def _named(items: Sequence[SelectItem], calls: Calls) -> list[SelectItem]:
    aggregates: list[syntax.Expression] = []
    named: list[SelectItem] = []
    for index, item in enumerate(items):
        _collect_aggregates(item.expression, aggregates, calls)
        name = item.alias or _derive_column_name(item.expression, index, aggregates)
        if any(other.alias == name for other in named):
            raise ValidationError(f"Ambiguous column name: {name}; give one of them another with alias")
        named.append(SelectItem(item.expression, name))
    return named


def _derive_column_name(node: syntax.Expression, index: int, aggregates: list[syntax.Expression]) -> str:
    if node in aggregates:
        return f"EXPR${aggregates.index(node)}"
    if isinstance(node, syntax.Cast) and not node.is_try:
        inner = _transitive_name(node.operand)
        return f"_c{index}" if inner is None else f"{inner}-{node.to}"
    return _transitive_name(node) or f"_c{index}"


def _transitive_name(node: syntax.Expression) -> str | None:
    if isinstance(node, syntax.Reference):
        return "$".join(node.path)
    if isinstance(node, syntax.FieldAccess):
        inner = _transitive_name(node.operand)
        return None if inner is None else f"{inner}${node.name}"
    return None


def _collect_aggregates(node: syntax.Expression, aggregates: list[syntax.Expression], calls: Calls) -> None:
    """Collect the aggregates and window properties in an expression, except for aggregates over a window."""

    def change(part: syntax.Expression) -> Iterable[syntax.Expression] | None:
        if isinstance(part, syntax.Over):
            return (part,)
        if is_aggregate(part, calls) or (isinstance(part, syntax.Call) and part.name in WINDOW_PARTS):
            if part not in aggregates:
                aggregates.append(part)
            return (part,)
        return None

    rewritten(node, change)


@dataclass(frozen=True, slots=True)
class Plans:
    """Builds plans from the tables, functions and options that a catalog manager knows. All methods are pure."""

    manager: CatalogManager

    def _analyser(self) -> QueryAnalyser:
        return QueryAnalyser(self.manager, MethodCalls(self.manager.calls()))

    def calls(self) -> Calls:
        """Return the builder of function calls."""
        return self._analyser().calls

    def scalars(self, plan: Node) -> ScalarAnalyser:
        """Return an analyser that types expressions over the columns of a plan."""
        analyser = self._analyser()
        return ScalarAnalyser(build_scope(plan, analyser.calls), analyser.calls)

    def changelog(self, function: str, plan: Node, arguments: Sequence[object]) -> Node:
        """Apply FROM_CHANGELOG or TO_CHANGELOG (`function`) to a plan."""
        call = syntax.Call(function, (syntax.TableArgument(PlannedQuery(plan)), *map(to_node, arguments)), (function,))
        return changelog_table(call, self._analyser())

    def process(self, function: Any, arguments: Sequence[object], table: syntax.TableArgument | None = None) -> Node:
        """Call a process table function, given by its name or as such. `table`: its first table argument.

        Raises:
            ValidationError: if there is no function of this name, or an argument does not fit.
        """
        analyser = self._analyser()
        user: UserFunction | None
        if isinstance(function, str):
            call = syntax.Call(function, (), parse_path(function))
            user = analyser.calls.user_function(call, gives_rows=True)
            if user is None:
                raise ValidationError(f"A function called '{function}' could not be found.")
        else:
            is_defined = isinstance(function, UserDefinedFunctionWrapper)
            user = function.definition if is_defined else define_process(function)
            call = inline_call(user, ())
        if not isinstance(user, ProcessFunction):
            raise ValidationError("Invalid expression. The expression must be a call to a process table function.")
        nodes = list(map(to_node, arguments))
        if table is not None:
            nodes = _with_table(user, table, nodes)
        return process_table(replace(call, operands=tuple(nodes)), user, analyser)

    # --- columns -----------------------------------------------------------------------------------------------------

    def items(self, plan: Node, fields: Sequence[object]) -> list[SelectItem]:
        """Return the columns that `fields` expand to, each with its name."""

        def analyse_type(node: syntax.Expression) -> DataType:
            return self.scalars(plan).typed(node).type

        return selected(fields, plan.schema.names, analyse_type, self.calls())

    def select(self, plan: Node, fields: Sequence[object], windows: Sequence[OverWindow] = ()) -> Node:
        """Select `fields`; aggregates range over `windows`, or over all rows."""
        named = tuple((window.name, window.specification) for window in windows)
        return self._selected(self.items(plan, fields), _rows(plan), windows=named)

    def _selected(
        self,
        items: Iterable[SelectItem],
        source: Relation,
        group: tuple[GroupItem, ...] | None = None,
        windows: tuple[tuple[str, syntax.WindowSpecification], ...] = (),
    ) -> Node:
        return self._analyser().query(relations.Select(tuple(items), source, group=group, windows=windows))

    def added(self, plan: Node, fields: Sequence[object], replaces: bool) -> Node:
        """Add columns; with `replaces`, a new column replaces the existing one of the same name."""
        items = self.items(plan, ["*", *fields] if not replaces else ["*"])
        if replaces:
            for item in self.items(plan, fields):
                same = [index for index, existing in enumerate(items) if existing.alias == item.alias]
                if same:
                    items[same[0]] = item
                else:
                    items.append(item)
        return self._selected(items, _rows(plan))

    def renamed(self, plan: Node, names: Sequence[str]) -> Node:
        """Rename the leading columns; the remaining columns keep their names."""
        if len(names) > len(plan.schema):
            raise ValidationError(
                f"Aliasing more fields than we actually have: {len(names)} names, and the table has {len(plan.schema)}"
            )
        if len(set(names)) < len(names):
            raise ValidationError(f"Duplicate names in alias: {', '.join(names)}")
        return project(plan, plan.schema.fields(), [*names, *plan.schema.names[len(names) :]])

    def columns_renamed(self, plan: Node, fields: Sequence[object]) -> Node:
        """Rename the columns that `fields` alias."""
        new = {}
        for field in map(to_operand, fields):
            if not isinstance(field._node, syntax.Reference) or len(field._names) != 1:
                raise ValidationError(
                    f'rename_columns takes columns and new names, as col("a").alias("b"), not {field}'
                )
            new[_known(field._node.path[0], plan)] = field._names[0]
        return self.renamed(plan, [new.get(name, name) for name in plan.schema.names])

    def dropped(self, plan: Node, fields: Sequence[object]) -> Node:
        """Drop columns."""
        names = set()
        for field in expanded(fields, plan.schema.names):
            if not isinstance(field._node, syntax.Reference):
                raise ValidationError(f"drop_columns takes columns, not {field}")
            names.add(_known(field._node.path[0], plan))
        remaining = [name for name in plan.schema.names if name not in names]
        return self.select(plan, remaining)

    # --- rows --------------------------------------------------------------------------------------------------------

    def filtered(self, plan: Node, condition: object) -> Node:
        """Keep the rows for which a condition is true."""
        names = plan.schema.names

        def are_keys(first: str, second: str) -> bool:
            is_known = first in names and second in names
            return is_known and are_of_both_sides(plan, names.index(first), names.index(second))

        return self._analyser().filtered(plan, join_condition(to_operand(condition)._node, are_keys))

    def distinct(self, plan: Node) -> Node:
        """Remove duplicate rows."""
        return Distinct(schema=plan.schema, input=plan)

    def ordered(self, plan: Node, fields: Sequence[object]) -> Node:
        """Sort the rows."""
        if not fields:
            raise ValidationError("order_by takes at least one expression")
        items = [
            syntax.OrderItem(_no_place(operand._node), operand._is_descending is True)
            for field in fields
            for operand in [to_operand(field)]
        ]
        query: syntax.Query = PlannedQuery(plan)
        if not all(isinstance(item.expression, syntax.Reference) for item in items):
            query = relations.Select((SelectItem(syntax.Star()),), DerivedTable(query))
        return self._analyser().query(relations.Ordered(query, tuple(items)))

    def table_argument(
        self, plan: Node, partition: Sequence[object] = (), order: Sequence[object] = ()
    ) -> syntax.TableArgument:
        """Return a table as an argument of a process table function."""
        items = [(operand._node, operand._is_descending is True) for operand in map(to_operand, order)]
        return syntax.TableArgument(
            PlannedQuery(plan),
            tuple(operand._node for operand in map(to_operand, partition)),
            tuple(syntax.OrderItem(node, is_descending) for node, is_descending in items),
        )

    def offset(self, plan: Node, rows: int) -> Node:
        """Skip the first `rows` rows."""
        _check_count("offset", rows)
        if isinstance(plan, Sort) and not plan.offset and plan.fetch is None:
            return replace(plan, offset=rows)
        return Sort(schema=plan.schema, input=plan, offset=rows)

    def fetch(self, plan: Node, rows: int) -> Node:
        """Keep the first `rows` rows."""
        _check_count("fetch", rows)
        if isinstance(plan, Sort) and plan.fetch is None:
            return replace(plan, fetch=rows)
        return Sort(schema=plan.schema, input=plan, fetch=rows)

    # --- several tables ----------------------------------------------------------------------------------------------

    def joined(self, left: Node, right: Node, join_type: str, condition: object | None) -> Node:
        """Join two tables, on a condition if there is one."""
        both = sorted(set(left.schema.names) & set(right.schema.names))
        if both:
            raise ValidationError(
                f"join relations with ambiguous names: [{', '.join(both)}]; rename columns of one table with alias"
            )
        if condition is not None:
            of_left = set(left.schema.names)
            node = join_condition(
                to_operand(condition)._node, lambda name, other: (name in of_left) != (other in of_left)
            )
            condition = Operand(node)
        return self.related(relations.Join(_rows(left), _rows(right), join_type), condition)

    def related(self, join: relations.Join, condition: object | None) -> Node:
        """Plan a join, on a condition if there is one."""
        node = None if condition is None else to_operand(condition)._node
        return self._analyser().relations.scope(replace(join, condition=node), None).plan

    def combined(self, left: Node, right: Node, operator: str, is_all: bool) -> Node:
        """Combine two tables by UNION, INTERSECT or EXCEPT (`operator`)."""
        calls = MethodCalls(self.manager.calls())
        return set_operation(operator, (left, right), is_all, self._analyser().query, calls)

    # --- groups ------------------------------------------------------------------------------------------------------

    def grouped(self, plan: Node, keys: Sequence[Operand], fields: Sequence[object]) -> Node:
        """Group by keys, with one row for each group."""
        items = _with_keys(self.items(plan, fields), keys)
        return self._selected(items, _rows(plan), tuple(GroupItem("SET", (_no_place(key._node),)) for key in keys))

    def window_grouped(
        self, plan: Node, window: GroupWindow, keys: Sequence[Operand], fields: Sequence[object]
    ) -> Node:
        """Group by keys and window, with one row for each group and window."""
        time = plan.schema.names.index(_known(window.time.path[0], plan))
        parts: set[str] = set()
        items = [
            SelectItem(_of_window(item.expression, window, parts), item.alias)
            for item in _with_keys(self.items(plan, fields), keys)
        ]
        is_processing = plan.schema[time].time is TimeAttribute.PROCTIME
        if ("$ROWTIME" in parts and is_processing) or ("$PROCTIME" in parts and not is_processing):
            raise ValidationError(
                f"window {window.name!r} is on {window.time.path[0]!r}, which is no "
                f"{'event' if is_processing else 'processing'} time: take {'proctime' if is_processing else 'rowtime'}"
            )
        columns = ["window_start", "window_end"]
        columns += ["window_time"] if parts & {"$ROWTIME", "$PROCTIME"} else []
        group = [GroupItem("SET", (_no_place(key._node),)) for key in keys]
        group += [GroupItem("SET", (syntax.Reference((name,)),)) for name in columns]
        return self._selected(items, relations.FunctionTable(_window_call(plan, window, keys)), tuple(group))


def _rows(plan: Node) -> Relation:
    return DerivedTable(PlannedQuery(plan))


def _known(name: str, plan: Node) -> str:
    if name not in plan.schema.names:
        raise ValidationError(f"Cannot resolve field [{name}], input field list:[{', '.join(plan.schema.names)}].")
    return name


def _check_count(method: str, rows: int) -> None:
    if rows < 0:
        raise ValidationError(f"{method} takes a number of rows from 0 on, not {rows}")


def _no_place(node: syntax.Expression) -> syntax.Expression:
    """Type a number literal: a column's position in SQL's GROUP BY and ORDER BY, here the number itself."""
    number = constant(node) if isinstance(node, syntax.NumberLiteral) else None
    return node if number is None else syntax.TypedLiteral(number.value, number.type)


def _with_keys(items: Iterable[SelectItem], keys: Sequence[Operand]) -> list[SelectItem]:
    """Replace references to named keys in the select list by the keys' expressions."""
    named = {key._names[0]: key._node for key in keys if key._names}

    def change(node: syntax.Expression) -> Iterable[syntax.Expression] | None:
        is_key = isinstance(node, syntax.Reference) and node.path[0] in named
        return (named[node.path[0]],) if is_key and isinstance(node, syntax.Reference) else None

    return [SelectItem(rewritten(item.expression, change)[0], item.alias) for item in items]


def _of_window(node: syntax.Expression, window: GroupWindow, parts: set[str]) -> syntax.Expression:
    """Replace window properties in an expression by columns, and add them to `parts`."""

    def change(part: syntax.Expression) -> Iterable[syntax.Expression] | None:
        if not isinstance(part, syntax.Call) or part.name not in WINDOW_PARTS:
            return None
        if part.operands != (syntax.Reference((window.name,)),):
            raise ValidationError(f"{part.name[1:].lower()} belongs to the window {window.name!r} of the group")
        parts.add(part.name)
        return (syntax.Reference((WINDOW_PARTS[part.name],)),)

    return rewritten(node, change)[0]


def _window_call(plan: Node, window: GroupWindow, keys: Sequence[Operand]) -> syntax.Call:
    partition = tuple(key._node for key in keys) if window.function == "SESSION" else ()
    if not all(isinstance(expression, syntax.Reference) for expression in partition):
        raise UnsupportedError("session windows group by columns: add what else you group by with add_columns first")
    table = syntax.TableArgument(PlannedQuery(plan), partition)
    descriptor = syntax.DescriptorArgument((window.time.path,))
    return syntax.Call(window.function, (table, descriptor, *window.sizes), (window.function,))


_SCALAR: Final = (FunctionKind.SCALAR, FunctionKind.ASYNC_SCALAR)


def to_call(plan: Node, function: object, what: str) -> Operand:
    """Return a call of a function; a function given without operands is called with the whole row."""
    if isinstance(function, UserDefinedFunctionWrapper):
        names = tuple(plan.schema.names)
        row = syntax.RowValue(tuple(syntax.Reference((name,)) for name in names), names)
        function = function(Operand(row))
    if not isinstance(function, Operand) or not isinstance(function._node, syntax.Call):
        raise ValidationError(f"{what} takes a function, or a call of one, not {function}")
    return function


def mapped(plans: Plans, plan: Node, function: object) -> Node:
    """Plan `map`: the result of a scalar function for each row."""
    call = to_call(plan, function, "map")
    if isinstance(call._node, InlineCall) and call._node.user.kind not in _SCALAR:
        raise ValidationError("Only a scalar function can be used in the map operator.")
    selected = plans.select(plan, [call if len(call._names) <= 1 else Operand(call._node)])
    (column,) = selected.schema
    if not isinstance(column.type, RowType):
        return selected
    fields = [Operand(syntax.FieldAccess(syntax.Reference((column.name,)), name)) for name in column.type.field_names()]
    names = call._names or column.type.field_names()
    if len(names) != len(fields):
        raise ValidationError(f"{call} gives {len(fields)} columns, and gets {len(names)} names")
    apart = plans.select(selected, fields)
    return project(apart, apart.schema.fields(), names)


def flat_mapped(plans: Plans, plan: Node, function: object) -> Node:
    """Plan `flat_map`: the rows that a table function returns for each row."""
    call = to_call(plan, function, "flat_map")
    correlated = _correlated(plans, plan, call, "INNER", None)
    width = len(plan.schema)
    return project(correlated, correlated.schema.fields()[width:], correlated.schema.names[width:])


def lateral(plans: Plans, plan: Node, function: object, join_type: str, condition: object | None) -> Node:
    """Join each row with the rows that a table function returns for it."""
    correlated = _correlated(plans, plan, to_call(plan, function, "join_lateral"), join_type, condition)
    names, width = correlated.schema.names, len(plan.schema)
    both = sorted(set(names[:width]) & set(names[width:]))
    if both:
        raise ValidationError(
            f"join relations with ambiguous names: [{', '.join(both)}]; name the columns of the function with alias"
        )
    return correlated


def _correlated(plans: Plans, plan: Node, call: Operand, join_type: str, condition: object | None) -> Node:
    table = FunctionTable(call._node, True, alias="$function" if call._names else None, columns=call._names)
    return plans.related(relations.Join(DerivedTable(PlannedQuery(plan)), table, join_type), condition)


#: names of columns that only the next step sees
_VALUE: Final = "$aggregate"
#: default name of the only column of a function
_ONLY: Final = "f0"


def selected_after(plans: Plans, plan: Node, fields: Sequence[object], method: str) -> Node:
    """Select columns from the result of a method. Raises `ValidationError` for aggregates."""
    calls = plans.calls()
    for field in map(to_operand, fields):
        if contains_aggregate(field._node, calls):
            raise ValidationError(
                f"Aggregate functions are not supported in the select right after the {method}: {field}"
            )
    return plans.select(plan, fields)


class Aggregated:
    """An aggregate function applied to groups of a plan's rows, or to their groups in windows."""

    def __init__(
        self, plans: Plans, plan: Node, keys: Sequence[Operand], function: object, window: GroupWindow | None
    ) -> None:
        self._plans = plans
        self._plan = plan
        self._keys = keys
        self._window = window
        self._call = to_call(plan, function, "aggregate")
        calls, node = plans.calls(), self._call._node
        user = calls.user_function(node) if isinstance(node, syntax.Call) else None
        if not is_aggregate(node, calls) or (user is not None and user.kind is not FunctionKind.AGGREGATE):
            raise ValidationError(f"Only an aggregate function can be used in the aggregate operator, not {self._call}")

    def select(self, fields: Sequence[object]) -> Node:
        """Select these columns: keys, columns of the function, and properties of the window."""
        parts: dict[str, Operand] = {}
        moved = [self._of_window(to_operand(field), parts) for field in fields]
        names = [_find_key_name(key) for key in self._keys]
        keys = [Operand(key._node, (name,)) for key, name in zip(self._keys, names, strict=True) if name]
        columns = [*keys, *parts.values(), Operand(self._call._node, (_VALUE,))]
        if self._window is None:
            grouped = self._plans.grouped(self._plan, self._keys, columns)
        else:
            grouped = self._plans.window_grouped(self._plan, self._window, self._keys, columns)
        return selected_after(self._plans, self._taken_apart(grouped), moved, "aggregate")

    def _of_window(self, field: Operand, parts: dict[str, Operand]) -> Operand:
        """Replace the window properties in a field by columns, which are added to `parts`."""

        def change(node: syntax.Expression) -> Iterable[syntax.Expression] | None:
            if self._window is None or not isinstance(node, syntax.Call) or node.name not in WINDOW_PARTS:
                return None
            column = f"${WINDOW_PARTS[node.name]}"
            parts[column] = Operand(node, (column,))
            return (syntax.Reference((column,)),)

        (node,) = rewritten(field._node, change)
        names = field._names
        if isinstance(field._node, syntax.Call) and isinstance(node, syntax.Reference) and not names:
            names = (f"EXPR${list(parts).index(node.path[0])}",)
        return Operand(node, names)

    def _taken_apart(self, plan: Node) -> Node:
        """Replace the value of the function by its columns."""
        (*others, value) = plan.schema.names
        kind = plan.schema[len(others)].type
        if not isinstance(kind, RowType):
            if len(self._call._names) > 1:
                raise ValidationError(f"{self._call} gives one column, and gets {len(self._call._names)} names")
            return _name_columns(plan, [*others, *(self._call._names or (_ONLY,))])
        names = self._call._names or kind.field_names()
        if len(names) != len(kind.fields):
            raise ValidationError(f"{self._call} gives {len(kind.fields)} columns, and gets {len(names)} names")
        fields = [Operand(syntax.FieldAccess(syntax.Reference((value,)), name)) for name in kind.field_names()]
        apart = self._plans.select(plan, [*others, *fields])
        return _name_columns(apart, [*others, *names])


def flat_aggregated(plans: Plans, plan: Node, keys: Sequence[Operand], function: object) -> Node:
    """Return the rows of a table aggregate function for each group: the keys, then the function's columns."""
    call = to_call(plan, function, "flat_aggregate")
    analyser = plans.scalars(plan)
    node = call._node
    assert isinstance(node, syntax.Call)
    user = analyser.calls.user_function(node)
    if user is None or user.kind is not FunctionKind.TABLE_AGGREGATE:
        raise ValidationError(f"Only a table aggregate function can be used in the flatAggregate operator, not {call}")
    if node.is_distinct:
        raise UnsupportedError(f"DISTINCT is not supported for {user}: take the distinct rows of the table first")
    aggregate_call = user_aggregate_call(user, node, analyser, takes_rows=True)
    assert isinstance(user.result_type, RowType)
    names = call._names or user.result_type.field_names()
    if len(names) != len(user.result_type.fields):
        raise ValidationError(f"{call} gives {len(user.result_type.fields)} columns, and gets {len(names)} names")
    expressions: list[Typed] = [analyser.typed(key._node) for key in keys]
    expressions += aggregate_call.operands
    key_names = [_find_key_name(key) or f"$k{index}" for index, key in enumerate(keys)]
    before = project(plan, expressions, [*key_names, *(f"$f{index}" for index in range(len(aggregate_call.operands)))])
    width = len(keys)
    # A group has no single event time.
    columns = [replace(before.schema[index], time=None) for index in range(width)]
    columns += [PlanColumn(name, field.data_type) for name, field in zip(names, user.result_type.fields, strict=True)]
    moved = replace(aggregate_call, operands=tuple(before.schema.fields()[width:]))
    schema = RowSchema(tuple(columns))
    aggregate = TableAggregate(schema=schema, input=before, keys=tuple(range(width)), call=moved)
    return _name_columns(aggregate, [*key_names, *names])


def _find_key_name(key: Operand) -> str | None:
    """Return the name of a key, if it has one."""
    if key._names:
        return key._names[0]
    return key._node.path[-1] if isinstance(key._node, syntax.Reference) else None


def _name_columns(plan: Node, names: Sequence[str]) -> Node:
    """Rename the columns of a plan. Raises `ValidationError` for duplicate names."""
    again = sorted({name for name in names if list(names).count(name) > 1})
    if again:
        raise ValidationError(f"Ambiguous column name: {', '.join(again)}; name the columns of the function with alias")
    return project(plan, plan.schema.fields(), names)
