"""Operators that choose among their operands: CASE, COALESCE, AND, OR.

An operand that may fail is evaluated only for the rows that need it, as `CASE WHEN x <> 0 THEN 1 / x END` expects. An
operand that cannot fail is evaluated for all rows at once, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.flat import as_answers, as_mask
from penstock.table.data.values import Datum, to_full_array
from penstock.table.evaluation.choosing import first_that_holds
from penstock.table.evaluation.columns import Columns


class Part(NamedTuple):
    """An expression as a function of columns, and whether it may fail for some values."""

    run: Callable[[Columns], Datum]
    can_fail: bool


def case(parts: Sequence[Part]) -> Callable[[Columns], Datum]:
    """Compile CASE: alternating conditions and values, then the value of all other rows."""
    conditions, values, otherwise = parts[0:-1:2], parts[1:-1:2], parts[-1]
    if any(part.can_fail for part in parts[1:]):
        return partial(_case_by_rows, conditions, values, otherwise)

    def run(columns: Columns) -> Datum:
        answers = [condition.run(columns) for condition in conditions]
        return first_that_holds(answers, [value.run(columns) for value in values], otherwise.run(columns), columns.rows)

    return run


def _case_by_rows(conditions: Sequence[Part], values: Sequence[Part], otherwise: Part, columns: Columns) -> Datum:
    """Evaluate each value only for its rows, then combine the results in row order."""
    positions: list[pa.Array] = []
    pieces: list[pa.Array] = []
    rest = _numbers(columns.rows)
    for condition, value in zip(conditions, values, strict=True):
        left = columns.take(rest)
        holds = to_full_array(pc.fill_null(condition.run(left), False), left.rows)
        _add(positions, pieces, rest.filter(holds), value, columns)
        rest = rest.filter(pc.invert(holds))
    _add(positions, pieces, rest, otherwise, columns)
    return _in_order(positions, pieces, otherwise, columns)


def coalesce(parts: Sequence[Part]) -> Callable[[Columns], Datum]:
    """Compile COALESCE: the first operand that is not NULL."""
    if not any(part.can_fail for part in parts[1:]):
        return lambda columns: pc.coalesce(*[part.run(columns) for part in parts])

    def run(columns: Columns) -> Datum:
        positions: list[pa.Array] = []
        pieces: list[pa.Array] = []
        rest = _numbers(columns.rows)
        for part in parts:
            left = columns.take(rest)
            values = to_full_array(part.run(left), left.rows)
            valid = values.is_valid() if part is not parts[-1] else to_full_array(pa.scalar(True), left.rows)
            positions.append(rest.filter(valid))
            pieces.append(values.filter(valid))
            rest = rest.filter(pc.invert(valid))
        return _in_order(positions, pieces, parts[-1], columns)

    return run


def _logic(
    combine: Callable[[Datum, Datum], Datum], ends_with: bool
) -> Callable[[Sequence[Part]], Callable[[Columns], Datum]]:
    """Compile AND or OR: an operand that may fail is evaluated only where the others have not decided."""

    def make(parts: Sequence[Part]) -> Callable[[Columns], Datum]:
        def run(columns: Columns) -> Datum:
            answers = parts[0].run(columns)
            for part in parts[1:]:
                if not part.can_fail:
                    answers = combine(answers, part.run(columns))
                    continue
                answers = to_full_array(answers, columns.rows)
                # NULL decides nothing.
                undecided = pc.fill_null(pc.invert(answers) if ends_with else answers, True)
                count = undecided.true_count
                if count == columns.rows:
                    answers = combine(answers, part.run(columns))
                elif count:
                    left = columns.where(undecided)
                    more = to_full_array(part.run(left), left.rows)
                    answers = combine(answers, _among_all(more, left.places, columns.rows, ends_with))
            return answers

        return run

    return make


def _among_all(answers: pa.Array, positions: Any, rows: int, otherwise: bool) -> pa.Array:
    """Write answers to their rows, with one answer for all other rows."""
    combined = np.full(rows, otherwise)
    combined[positions] = as_mask(answers)
    if not answers.null_count:
        return as_answers(combined)
    valid = np.ones(rows, bool)
    valid[positions] = as_mask(answers.is_valid())
    return pc.if_else(as_answers(valid), as_answers(combined), None)


def _numbers(rows: int) -> pa.Array:
    return pa.array(np.arange(rows))


def _add(positions: list[pa.Array], pieces: list[pa.Array], rows: pa.Array, value: Part, columns: Columns) -> None:
    if len(rows):
        positions.append(rows)
        pieces.append(to_full_array(value.run(columns.take(rows)), len(rows)))


def _in_order(positions: list[pa.Array], pieces: list[pa.Array], example: Part, columns: Columns) -> pa.Array:
    if not pieces:
        return to_full_array(example.run(columns.take(_numbers(0))), 0)
    order = np.concatenate([array.to_numpy() for array in positions])
    of_row = np.empty_like(order)
    of_row[order] = np.arange(len(order))
    return pa.concat_arrays(pieces).take(pa.array(of_row))


#: compiles an operator to a function of columns, by the name of the operator
LAZY: Final[dict[str, Callable[[Sequence[Part]], Callable[[Columns], Datum]]]] = {
    "CASE": case,
    "COALESCE": coalesce,
    "AND": _logic(pc.and_kleene, False),
    "OR": _logic(pc.or_kleene, True),
}
