"""TUMBLE, HOP, CUMULATE and SESSION as table functions."""

from __future__ import annotations

from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.scopes import build_scope
from penstock.table.analyser.seams import Queries
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DayTimeIntervalType, LocalZonedTimestampType, TimestampType
from penstock.table.plan.logical import Node, WindowTable
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.sql import syntax
from penstock.table.typed.nodes import Constant, Field

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
