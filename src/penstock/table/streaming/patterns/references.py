"""Evaluates references for a partial or complete match: values of its rows, and aggregates over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.table.plan.logical import AggregateCall
from penstock.table.plan.patterns import ALL_ROWS, Aggregated, Navigation, RowReference
from penstock.table.streaming.aggregates.accumulators import build_accumulator
from penstock.table.streaming.patterns.kept_rows import KeptRows
from penstock.table.typed.nodes import Constant

#: the kept values of a row
Row: TypeAlias = tuple[Any, ...]
_MILLISECOND_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Matched:
    """The rows of a match by variable. `current`: the row that is tested as the next row.

    `time_ms`: when the match was completed; only complete matches have it.
    """

    rows: Mapping[str, Sequence[Row]]
    current: Row | None = None
    time_ms: int | None = None


#: returns the value of a reference
Reader: TypeAlias = Callable[[Matched], Any]


def build_reader(reference: RowReference, names: Sequence[str], defined: str | None, kept: KeptRows) -> Reader:
    """Return a function that evaluates a reference.

    Args:
        reference: a reference over columns of the input.
        names: the variables of the pattern in order.
        defined: the variable that the current row would belong to.
        kept: the positions of values in kept rows.
    """
    if isinstance(reference, Navigation):
        return _navigated(
            reference, _build_row_selector(reference.variable, names, defined), kept.column(reference.column)
        )
    if isinstance(reference, Aggregated):
        return _aggregated(reference.call, _build_row_selector(reference.variable, names, defined), kept)
    return lambda matched: None if matched.time_ms is None else matched.time_ms * _MILLISECOND_NS


def _build_row_selector(variable: str, names: Sequence[str], defined: str | None) -> Callable[[Matched], Sequence[Row]]:
    if variable == ALL_ROWS:

        def all_rows(matched: Matched) -> Sequence[Row]:
            rows = [row for name in names for row in matched.rows.get(name, ())]
            return rows if matched.current is None else [*rows, matched.current]

        return all_rows
    if variable == defined:

        def with_current(matched: Matched) -> Sequence[Row]:
            assert matched.current is not None
            return [*matched.rows.get(variable, ()), matched.current]

        return with_current
    return lambda matched: matched.rows.get(variable, ())


def _navigated(reference: Navigation, rows_of: Callable[[Matched], Sequence[Row]], position: int) -> Reader:
    offset = reference.offset
    index = offset if reference.is_first else -1 - offset

    def read(matched: Matched) -> Any:
        rows = rows_of(matched)
        return rows[index][position] if len(rows) > offset else None

    def read_current(matched: Matched) -> Any:
        return read(matched) if matched.current is None else matched.current[position]

    return read_current if reference.is_current else read


def _aggregated(call: AggregateCall, rows_of: Callable[[Matched], Sequence[Row]], kept: KeptRows) -> Reader:
    accumulator = build_accumulator(call, False)
    positions = [None if isinstance(operand, Constant) else kept.place(operand) for operand in call.operands]
    constants = [operand.value if isinstance(operand, Constant) else None for operand in call.operands]
    condition = None if call.condition is None else kept.place(call.condition)

    def read(matched: Matched) -> Any:
        state = accumulator.create()
        for row in rows_of(matched):
            if condition is None or row[condition]:
                pairs = zip(positions, constants, strict=True)
                state = accumulator.add(
                    state, tuple([value if position is None else row[position] for position, value in pairs])
                )
        return accumulator.value(state)

    return read
