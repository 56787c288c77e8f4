"""Selects the accumulator for an aggregate call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.base.errors import UnsupportedError, WrongTimeError
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import CharType, IntegralType, VarCharType
from penstock.sql.logical.nodes import AggregateCall, UserAggregateCall
from penstock.sql.stream.aggregates import numbers, user_aggregates, values
from penstock.sql.stream.aggregates.columns import (
    AccumulatorColumn,
    CallColumn,
    ColumnAverage,
    ColumnCount,
    ColumnExtreme,
    ColumnSum,
    ColumnTextExtreme,
)
from penstock.sql.stream.aggregates.functions import Accumulator, Distinct
from penstock.sql.stream.aggregates.pairs import IN_MEMORY, StateMemory, is_coded, is_whole
from penstock.sql.typed import Field
from penstock.sql.user_functions.definition import GENERAL, FunctionKind, OpenFunctions

__all__ = ["Accumulator", "build_accumulator", "check_call", "check_unbounded", "check_windowed"]

_Make = Callable[[AggregateCall], Accumulator]

_MAKE: Final[dict[str, _Make]] = {
    "SUM": numbers.Sum,
    "SUM0": numbers.Sum,
    "$SUM0": numbers.Sum,
    "AVG": numbers.Average,
    **dict.fromkeys(("STDDEV_POP", "STDDEV_SAMP", "STDDEV", "VAR_POP", "VAR_SAMP", "VARIANCE"), numbers.Variance),
    "MIN": values.Extreme,
    "MAX": values.Extreme,
    "PERCENTILE": values.Percentile,
    "SINGLE_VALUE": numbers.SingleValue,
    "FIRST_VALUE": values.FirstOrLast,
    "LAST_VALUE": values.FirstOrLast,
    "COLLECT": values.Collect,
    "ARRAY_AGG": values.ArrayAgg,
    "LISTAGG": values.ListAgg,
    **{f"JSON_OBJECTAGG{rule}": values.JsonObjectAgg for rule in ("", "_NULL_ON_NULL", "_ABSENT_ON_NULL")},
    **{f"JSON_ARRAYAGG{rule}": values.JsonArrayAgg for rule in ("", "_NULL_ON_NULL", "_ABSENT_ON_NULL")},
    **{
        f"BITMAP_{word}{cardinality}_AGG": values.BitmapCombined
        for word in ("AND", "OR", "XOR")
        for cardinality in ("", "_CARDINALITY")
    },
}
#: replacements for inputs with retractions
_RETRACTABLE: Final[dict[_Make, _Make]] = {
    numbers.Sum: numbers.retractable_sum,
    numbers.Average: numbers.retractable_average,
    numbers.Variance: numbers.RetractableVariance,
    values.Extreme: values.RetractableExtreme,
    values.FirstOrLast: values.RetractableFirstOrLast,
    values.ListAgg: values.RetractableListAgg,
    values.BitmapCombined: values.RetractableCombined,
}
#: functions that ignore duplicate values
_ALIKE_IF_DISTINCT: Final = frozenset(("MIN", "MAX"))


def build_accumulator(call: AggregateCall, retracts: bool, functions: OpenFunctions | None = None) -> Accumulator:
    """Return the accumulator for a call. Raises `UnsupportedError` if the function has no accumulator.

    Args:
        call: the aggregate call.
        retracts: whether the input may contain retractions.
        functions: the user-defined functions, while the job runs.
    """
    if isinstance(call, UserAggregateCall):
        inner = _of_program(call, retracts, functions)
        return Distinct(call, inner) if call.is_distinct else inner
    if call.function == "APPROX_COUNT_DISTINCT":
        return Distinct(call, numbers.CountValues(call))
    accumulator = _plain(call, retracts)
    return Distinct(call, accumulator) if call.is_distinct and call.function not in _ALIKE_IF_DISTINCT else accumulator


def _plain(call: AggregateCall, retracts: bool) -> Accumulator:
    if call.function == "COUNT":
        return (
            (numbers.CountRows, numbers.CountValues)[len(call.operands)](call)
            if len(call.operands) < 2
            else numbers.CountOf(call)
        )
    if call.function in ("BITMAP_BUILD_AGG", "BITMAP_BUILD_CARDINALITY_AGG"):
        return values.BitmapBuild(call, retracts)
    make = _MAKE.get(call.function)
    if make is None:
        raise UnsupportedError(f"{call.function} is not supported in streams yet")
    if retracts:
        make = values.RetractableXor if call.function.startswith("BITMAP_XOR") else _RETRACTABLE.get(make, make)
    return make(call)


def _of_program(call: UserAggregateCall, retracts: bool, functions: OpenFunctions | None) -> Accumulator:
    if functions is None:
        raise WrongTimeError(f"{call.user} runs in jobs alone, and not while a query is planned")
    if call.user.func_type != GENERAL:
        return user_aggregates.VectorAccumulator(call, functions)
    gives_rows = call.user.kind is FunctionKind.TABLE_AGGREGATE
    return (user_aggregates.UserTableAccumulator if gives_rows else user_aggregates.UserAccumulator)(
        call, retracts, functions
    )


def build_call_column(call: AggregateCall, retracts: bool, memory: StateMemory = IN_MEMORY) -> CallColumn:
    """Return the column of a call that is not user-defined. DISTINCT is left to a view if `is_distinct_by_view`.

    `memory`: where the state lies, except that of an accumulator.
    """
    kinds = [operand.type for operand in call.operands if isinstance(operand, Field)]
    is_plain = not call.is_distinct or call.function in _ALIKE_IF_DISTINCT or is_distinct_by_view(call)
    if is_plain and len(kinds) == len(call.operands):
        if call.function == "COUNT":
            return ColumnCount(call, memory)
        are_whole = isinstance(call.type, IntegralType) and isinstance(kinds[0], IntegralType)
        if call.function == "AVG" and are_whole:
            return ColumnAverage(call, memory)
        if call.function in ("SUM", "SUM0", "$SUM0") and are_whole:
            return ColumnSum(call, retracts, memory)
        if call.function in _ALIKE_IF_DISTINCT and not retracts:
            if isinstance(kinds[0], CharType | VarCharType):
                return ColumnTextExtreme(call, memory)
            if is_whole(kinds[0]):
                return ColumnExtreme(call, memory)
    return AccumulatorColumn(call, build_accumulator(call, retracts))


def is_distinct_by_view(call: AggregateCall) -> bool:
    """Return whether a `DistinctView` can tell which rows of a call are the first with their value."""
    if not call.is_distinct or call.function in _ALIKE_IF_DISTINCT or len(call.operands) != 1:
        return False
    (operand,) = call.operands
    return isinstance(operand, Field) and is_coded(operand.type)


def check_call(call: AggregateCall, retracts: bool) -> None:
    """Check that a function can be maintained incrementally. `retracts`: whether the input may contain retractions."""
    if not isinstance(call, UserAggregateCall):
        build_accumulator(call, retracts)
    elif retracts:
        user_aggregates.check_retracts(call.user)


def check_windowed(call: AggregateCall, kind: str, retracts: bool) -> None:
    """Check that a function can be maintained in windows of a kind: TUMBLE, HOP, CUMULATE or SESSION."""
    if isinstance(call, UserAggregateCall) and call.user.func_type != GENERAL and kind == "SESSION":
        raise ValidationError(
            f"Session Group Window is currently not supported for Pandas UDAF: {call.user} is of func_type "
            f"'{call.user.func_type}'. Take TUMBLE or HOP, or write a function of func_type 'general'"
        )
    check_call(call, retracts)


def check_unbounded(call: AggregateCall, retracts: bool) -> None:
    """Check that a function can be maintained for unbounded groups. Raises `ValidationError` if not."""
    if isinstance(call, UserAggregateCall) and call.user.func_type != GENERAL:
        raise ValidationError(
            f"Pandas UDAFs are not supported in streaming mode without windows: {call.user} is of func_type "
            f"'{call.user.func_type}', so all rows of a group would be kept for ever. Group by a window too, call it "
            "over a window with a bound, or write a function of func_type 'general'"
        )
    if call.function == "APPROX_COUNT_DISTINCT":
        raise ValidationError("APPROX_COUNT_DISTINCT cannot be kept up in a stream without windows")
    check_call(call, retracts)
