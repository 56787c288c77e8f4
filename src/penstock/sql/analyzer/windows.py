"""Windows in queries: TUMBLE, HOP, CUMULATE and SESSION as table functions, and the legacy windows in GROUP BY.

The legacy syntax (TUMBLE, HOP and SESSION) becomes window tables. `GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)` groups by
the start and the end of a window; TUMBLE_START, TUMBLE_END and TUMBLE_ROWTIME are its columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.sql.analyzer.expressions import ScalarAnalyser, rewritten
from penstock.sql.analyzer.scopes import Part, Queries, RelationScope, build_scope
from penstock.sql.analyzer.select import project
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DayTimeIntervalType, LocalZonedTimestampType, TimestampType
from penstock.sql.logical.nodes import Node, PlanColumn, RowSchema, WindowTable
from penstock.sql.parser import syntax
from penstock.sql.parser import syntax as relations
from penstock.sql.typed import Constant, Field

#: the arguments of each function after the table and the time column, in order; OFFSET is optional
WINDOW_FUNCTIONS: Final[dict[str, tuple[str, ...]]] = {
    "TUMBLE": ("SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
}


def window_table(call: syntax.Call, queries: Queries) -> Node:
    """Return the plan of a call. Raises `ValidationError` for invalid arguments."""
    arguments = _arguments(call)
    table = arguments.get("DATA")
    if isinstance(table, syntax.Subquery):
        table = syntax.TableArgument(table.query)
    if not isinstance(table, syntax.TableArgument):
        raise ValidationError(f"{call.name} takes a table first: TABLE name, or (query)")
    plan = queries.query(table.query)
    scope = build_scope(plan, queries.calls)
    analyser = ScalarAnalyser(scope, queries.calls)
    time = _time_column(call.name, arguments.get("TIMECOL"), analyser, plan)
    if table.order:
        raise ValidationError(f"{call.name} takes no ORDER BY: rows come in the order of their time")
    partition = []
    for expression in table.partition:
        column = analyser.typed(expression)
        if not isinstance(column, Field):
            raise UnsupportedError("PARTITION BY of a table argument takes columns alone")
        partition.append(column.index)
    if partition and call.name != "SESSION":
        raise ValidationError(f"{call.name} takes no PARTITION BY")
    names = WINDOW_FUNCTIONS[call.name]
    sizes = [_length(call.name, name, arguments, analyser) for name in names if name != "OFFSET"]
    offset = _length(call.name, "OFFSET", arguments, analyser) if "OFFSET" in arguments else 0
    _check(call.name, sizes)
    timed = plan.schema[time]
    edges = [PlanColumn(name, TimestampType(3, False)) for name in ("window_start", "window_end")]
    is_local = isinstance(timed.type, LocalZonedTimestampType)
    moment = LocalZonedTimestampType(3, False) if is_local else TimestampType(3, False)
    schema = RowSchema((*plan.schema.columns, *edges, PlanColumn("window_time", moment, timed.time)))
    return WindowTable(
        schema=schema,
        input=plan,
        kind=call.name,
        time=time,
        sizes=tuple(sizes),
        offset=offset,
        partition=tuple(partition),
    )


def _arguments(call: syntax.Call) -> dict[str, syntax.Expression]:
    names = ("DATA", "TIMECOL", *WINDOW_FUNCTIONS[call.name])
    if any(isinstance(operand, syntax.NamedArgument) for operand in call.operands):
        arguments = {}
        for argument in call.operands:
            if not isinstance(argument, syntax.NamedArgument) or argument.name.upper() not in names:
                raise ValidationError(f"{call.name} takes the arguments {', '.join(names)}")
            arguments[argument.name.upper()] = argument.value
        return arguments
    if len(call.operands) > len(names):
        raise ValidationError(f"{call.name} takes the arguments {', '.join(names)}, not {len(call.operands)}")
    return dict(zip(names, call.operands, strict=False))


def _time_column(name: str, argument: syntax.Expression | None, analyser: ScalarAnalyser, plan: Node) -> int:
    if not isinstance(argument, syntax.DescriptorArgument) or not argument.columns:
        raise ValidationError(f"{name} takes the time column second: DESCRIPTOR(column)")
    column = analyser.typed(syntax.Reference(argument.columns[0]))
    if not isinstance(column, Field) or not isinstance(column.type, TimestampType | LocalZonedTimestampType):
        raise ValidationError(
            f"The window function requires the timecol is a time attribute type, but is {column.type}."
        )
    return column.index


def _length(name: str, argument: str, arguments: dict[str, syntax.Expression], analyser: ScalarAnalyser) -> int:
    if argument not in arguments:
        raise ValidationError(f"{name} takes {argument}: an interval such as INTERVAL '10' MINUTE")
    interval = analyser.typed(arguments[argument])
    if not isinstance(interval, Constant) or not isinstance(interval.type, DayTimeIntervalType):
        raise ValidationError(f"{argument} of {name} must be an interval of days to seconds, not {interval.type}")
    return int(interval.value)  # type: ignore[call-overload, no-any-return]


def _check(name: str, sizes: list[int]) -> None:
    if any(size <= 0 for size in sizes):
        raise ValidationError(f"{name} table function requires sizes above 0")
    if name == "CUMULATE" and sizes[1] % sizes[0]:
        raise ValidationError(f"CUMULATE requires size to be a multiple of step: {sizes[1]} ms and {sizes[0]} ms")


#: number of intervals that each function takes
WINDOWS: Final = {"TUMBLE": 1, "HOP": 2, "SESSION": 1}
_NAMES: Final = {"START": "$window_start", "END": "$window_end", "ROWTIME": "$window_time"}


def with_windows(select: relations.Select, scope: RelationScope, rows: ScalarAnalyser) -> relations.Select:
    """Replace the window in GROUP BY, if any, by columns of the input, and add these to the scope."""
    windows = [key for item in select.group or () for key in item.expressions if _is_window(key)]
    if not windows:
        return select
    if len(windows) > 1:
        raise ValidationError("GROUP BY can have one window: TUMBLE, HOP or SESSION")
    window = windows[0]
    assert isinstance(window, syntax.Call)
    other_keys = [key for item in select.group or () for key in item.expressions if key != window]
    computed: dict[str, syntax.Expression] = {}
    partition: tuple[int, ...] = ()
    if window.name == "SESSION":
        partition = _partition(other_keys, rows, scope, computed)
    _add(window, scope, rows, partition)
    edges = [syntax.Reference((_NAMES[word],), at=window.at) for word in ("START", "END", "ROWTIME")]

    def change(node: syntax.Expression) -> Iterable[syntax.Expression] | None:
        for key, expression in computed.items():
            if node == expression:
                return [syntax.Reference((key,), at=node.at)]
        name = _find_window_property(node, window)
        if name is None:
            return None
        return [syntax.Reference((_NAMES[name],)) if name in _NAMES else syntax.Call("PROCTIME", path=("PROCTIME",))]

    def group(item: relations.GroupItem) -> relations.GroupItem:
        spread = [more for key in item.expressions for more in (edges if key == window else (convert(key),))]
        return replace(item, expressions=tuple(spread))

    def convert(expression: syntax.Expression) -> syntax.Expression:
        return rewritten(expression, change)[0]

    def named(item: relations.SelectItem, index: int) -> relations.SelectItem:
        """Rewrite an item, and keep the name that it had before."""
        expression = convert(item.expression)
        is_other = isinstance(expression, syntax.Reference) and not isinstance(item.expression, syntax.Reference)
        return replace(item, expression=expression, alias=item.alias or (f"EXPR${index}" if is_other else None))

    return replace(
        select,
        items=tuple(named(item, index) for index, item in enumerate(select.items)),
        group=tuple(map(group, select.group or ())),
        having=None if select.having is None else convert(select.having),
        qualify=None if select.qualify is None else convert(select.qualify),
    )


def _is_window(node: syntax.Expression) -> bool:
    return isinstance(node, syntax.Call) and node.name in WINDOWS and len(node.operands) == WINDOWS[node.name] + 1


def _find_window_property(node: syntax.Expression, window: syntax.Call) -> str | None:
    """Return START, END, ROWTIME or PROCTIME for a call that reads this window, otherwise None."""
    if not isinstance(node, syntax.Call):
        return None
    kind, _, name = node.name.partition("_")
    return name if kind == window.name and name and node.operands == window.operands else None


def _partition(
    keys: Iterable[syntax.Expression],
    rows: ScalarAnalyser,
    scope: RelationScope,
    computed: dict[str, syntax.Expression],
) -> tuple[int, ...]:
    """Return the columns that partition sessions: the other grouping keys. Computed keys become columns."""
    columns = []
    for key in keys:
        column = rows.typed(key)
        if isinstance(column, Field):
            columns.append(column.index)
            continue
        name, width, plan = f"$session_key{len(computed)}", len(scope.plan.schema), scope.plan
        computed[name] = key
        scope.plan = project(plan, [*plan.schema.fields(), column], [*plan.schema.names, name])
        scope.parts.append(Part(None, (), width, RowSchema((PlanColumn(name, column.type),))))
        columns.append(width)
    return tuple(dict.fromkeys(columns))


def _add(window: syntax.Call, scope: RelationScope, rows: ScalarAnalyser, partition: tuple[int, ...]) -> None:
    time = rows.typed(window.operands[0])
    if not isinstance(time, Field) or not isinstance(time.type, TimestampType | LocalZonedTimestampType):
        raise ValidationError(f"Window aggregate can only be defined over a time attribute column, but is {time.type}")
    sizes = []
    for operand in window.operands[1:]:
        size = rows.typed(operand)
        if not isinstance(size, Constant) or not isinstance(size.type, DayTimeIntervalType):
            raise ValidationError(f"{window.name} window takes intervals of days to seconds, not {size.type}")
        sizes.append(int(size.value))  # type: ignore[call-overload]
    plan = scope.plan
    column = plan.schema[time.index]
    kind = LocalZonedTimestampType if isinstance(time.type, LocalZonedTimestampType) else TimestampType
    edges = (
        PlanColumn(_NAMES["START"], TimestampType(3, False)),
        PlanColumn(_NAMES["END"], TimestampType(3, False)),
        PlanColumn(_NAMES["ROWTIME"], kind(3), column.time),
    )
    width = len(plan.schema)
    scope.parts.append(Part(None, (), width, RowSchema(edges)))
    scope.plan = WindowTable(
        schema=RowSchema((*plan.schema.columns, *edges)),
        input=plan,
        kind=window.name,
        time=time.index,
        sizes=tuple(sizes),
        partition=partition,
        is_group=True,
    )
