"""TUMBLE, HOP and SESSION in GROUP BY, the legacy window syntax: they become window tables.

`GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)` groups by the start and the end of a window; TUMBLE_START, TUMBLE_END and
TUMBLE_ROWTIME are its columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from penstock.table.analyser.rewriting import rewritten
from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.scopes import Part, RelationScope
from penstock.table.analyser.select import project
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DayTimeIntervalType, LocalZonedTimestampType, TimestampType
from penstock.table.plan.logical import WindowTable
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.sql import relations, syntax
from penstock.table.typed.nodes import Constant, Field

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
        spread = [more for key in item.expressions for more in (edges if key == window else (one(key),))]
        return replace(item, expressions=tuple(spread))

    def one(expression: syntax.Expression) -> syntax.Expression:
        return rewritten(expression, change)[0]

    def named(item: relations.SelectItem, index: int) -> relations.SelectItem:
        """Rewrite an item, and keep the name that it had before."""
        expression = one(item.expression)
        is_other = isinstance(expression, syntax.Reference) and not isinstance(item.expression, syntax.Reference)
        return replace(item, expression=expression, alias=item.alias or (f"EXPR${index}" if is_other else None))

    return replace(
        select,
        items=tuple(named(item, index) for index, item in enumerate(select.items)),
        group=tuple(map(group, select.group or ())),
        having=None if select.having is None else one(select.having),
        qualify=None if select.qualify is None else one(select.qualify),
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
