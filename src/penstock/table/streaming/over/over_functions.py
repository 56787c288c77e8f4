"""OVER functions whose value depends on the order of rows: row numbers, ranks, and values of certain rows.

All other functions use the accumulators of group aggregates. Rows are retracted in the order in which they arrived, and
only if the frame is bounded.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from penstock.table.data.errors import TableRuntimeError, ValidationError
from penstock.table.plan.logical import AggregateCall, UserAggregateCall
from penstock.table.streaming.aggregates.accumulators import Accumulator, build_accumulator, check_call, check_unbounded
from penstock.table.streaming.aggregates.counts import CountRows
from penstock.table.user_functions.opened import OpenFunctions

_NOT_IN_STREAMS: Final = ("LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST")
#: Functions whose operand is the column that rows are ordered by.
RANKS: Final = ("RANK", "DENSE_RANK")


class Rank(Accumulator):
    """RANK: (rank, number of rows, sort value of the last row)."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return 0, 0, None

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        rank, rows, last = state
        return (rank if rows and values == last else rows + 1), rows + 1, values

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return state[0]


class DenseRank(Rank):
    """DENSE_RANK, with the same state as `Rank`."""

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        rank, rows, last = state
        return (rank if rows and values == last else rank + 1), rows + 1, values


class Lag(Accumulator):
    """LAG: (offset, default, the last offset + 1 values)."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return 1, None, ()

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        offset = state[0] if len(values) < 2 else values[1]
        if offset < 0:
            raise TableRuntimeError(f"Offset({offset}) should be positive.")
        default = values[2] if len(values) > 2 else None
        return offset, default, (*state[2], values[0])[-offset - 1 :]

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        offset, default, values = state
        return values[0] if len(values) > offset else default


class FirstValue(Accumulator):
    """FIRST_VALUE without retraction: the first value that is not NULL."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return None

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return values[0] if state is None else state


class LastValue(FirstValue):
    """LAST_VALUE without retraction: the last value that is not NULL."""

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return state if values[0] is None else values[0]


class EndValue(Accumulator):
    """FIRST_VALUE and LAST_VALUE with retraction of the oldest rows: all values that are not NULL."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return deque()

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        if values[0] is not None:
            state.append(values[0])
        return state

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        if values[0] is not None:
            state.popleft()
        return state

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        if not state:
            return None
        return state[0] if self.call.function == "FIRST_VALUE" else state[-1]


_ORDERED: Final[dict[str, type[Accumulator]]] = {
    "ROW_NUMBER": CountRows,
    "RANK": Rank,
    "DENSE_RANK": DenseRank,
    "LAG": Lag,
    "FIRST_VALUE": FirstValue,
    "LAST_VALUE": LastValue,
}


def check_over(call: AggregateCall, retracts: bool) -> None:
    """Raise for a call that is not supported over a window. `retracts`: whether the oldest rows are retracted."""
    if not isinstance(call, UserAggregateCall):
        build_over_accumulator(call, retracts)
    elif retracts:
        check_call(call, True)
    else:
        check_unbounded(call, False)


def build_over_accumulator(call: AggregateCall, retracts: bool, functions: OpenFunctions | None = None) -> Accumulator:
    """Return the accumulator of a call over a window. `retracts`: whether the oldest rows are retracted."""
    if call.function in _NOT_IN_STREAMS:
        raise ValidationError(f"{call.function} Function is not supported in stream mode.")
    kind = _ORDERED.get(call.function)
    if kind is None or call.is_distinct:
        return build_accumulator(call, retracts, functions)
    return (EndValue if retracts and kind in (FirstValue, LastValue) else kind)(call)
