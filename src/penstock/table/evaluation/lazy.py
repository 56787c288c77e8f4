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
from penstock.table.data.values import Datum, array_of
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
        answers = [one.run(columns) for one in conditions]
        return first_that_holds(answers, [one.run(columns) for one in values], otherwise.run(columns), columns.rows)

    return run


def _case_by_rows(conditions: Sequence[Part], values: Sequence[Part], otherwise: Part, columns: Columns) -> Datum:
    """Evaluate each value only for its rows, then combine the results in row order."""
    places: list[pa.Array] = []
    pieces: list[pa.Array] = []
    rest = _numbers(columns.rows)
    for condition, value in zip(conditions, values, strict=True):
        left = columns.take(rest)
        holds = array_of(pc.fill_null(condition.run(left), False), left.rows)
        _add(places, pieces, rest.filter(holds), value, columns)
        rest = rest.filter(pc.invert(holds))
    _add(places, pieces, rest, otherwise, columns)
    return _in_order(places, pieces, otherwise, columns)


def coalesce(parts: Sequence[Part]) -> Callable[[Columns], Datum]:
    """Compile COALESCE: the first operand that is not NULL."""
    if not any(part.can_fail for part in parts[1:]):
        return lambda columns: pc.coalesce(*[part.run(columns) for part in parts])

    def run(columns: Columns) -> Datum:
        places: list[pa.Array] = []
        pieces: list[pa.Array] = []
        rest = _numbers(columns.rows)
        for part in parts:
            left = columns.take(rest)
            found = array_of(part.run(left), left.rows)
            valid = found.is_valid() if part is not parts[-1] else array_of(pa.scalar(True), left.rows)
            places.append(rest.filter(valid))
            pieces.append(found.filter(valid))
            rest = rest.filter(pc.invert(valid))
        return _in_order(places, pieces, parts[-1], columns)

    return run


def _logic(
    combine: Callable[[Datum, Datum], Datum], ends_with: bool
) -> Callable[[Sequence[Part]], Callable[[Columns], Datum]]:
    """Compile AND or OR: an operand that may fail is evaluated only where the others have not decided."""

    def make(parts: Sequence[Part]) -> Callable[[Columns], Datum]:
        def run(columns: Columns) -> Datum:
            found = parts[0].run(columns)
            for part in parts[1:]:
                if not part.can_fail:
                    found = combine(found, part.run(columns))
                    continue
                found = array_of(found, columns.rows)
                # NULL decides nothing.
                undecided = pc.fill_null(pc.invert(found) if ends_with else found, True)
                count = undecided.true_count
                if count == columns.rows:
                    found = combine(found, part.run(columns))
                elif count:
                    left = columns.where(undecided)
                    more = array_of(part.run(left), left.rows)
                    found = combine(found, _among_all(more, left.places, columns.rows, ends_with))
            return found

        return run

    return make


def _among_all(answers: pa.Array, places: Any, rows: int, otherwise: bool) -> pa.Array:
    """Write answers to their rows, with one answer for all other rows."""
    found = np.full(rows, otherwise)
    found[places] = as_mask(answers)
    if not answers.null_count:
        return as_answers(found)
    valid = np.ones(rows, bool)
    valid[places] = as_mask(answers.is_valid())
    return pc.if_else(as_answers(valid), as_answers(found), None)


def _numbers(rows: int) -> pa.Array:
    return pa.array(np.arange(rows))


def _add(places: list[pa.Array], pieces: list[pa.Array], rows: pa.Array, value: Part, columns: Columns) -> None:
    if len(rows):
        places.append(rows)
        pieces.append(array_of(value.run(columns.take(rows)), len(rows)))


def _in_order(places: list[pa.Array], pieces: list[pa.Array], example: Part, columns: Columns) -> pa.Array:
    if not pieces:
        return array_of(example.run(columns.take(_numbers(0))), 0)
    order = np.concatenate([one.to_numpy() for one in places])
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
