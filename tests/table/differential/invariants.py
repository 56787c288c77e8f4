"""What each result has to keep to: the rows that are left, and how its changes led there.

- The rows that are left are those of the oracle.
- A change that retracts a row names a row that was sent and is still there, bit for bit.
- A plan that sends inserts alone sends nothing else, and no row twice whose columns the planner says are unique: no
  window is emitted twice.
- The columns that the planner says tell rows apart do so in the rows that are left; a table that is kept up by key has
  the rows that the oracle has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.table.differential.kinds import NAN, Canonical, comparable, identity
from tests.table.differential.oracle import Rows
from tests.table.differential.outputs import Result, cut_to_microseconds
from tests.table.differential.plans import PlanFacts

from penstock.sql.data.types import ArrayType, DataType

_ADDS: Final = ("+I", "+U")


@dataclass(frozen=True)
class Expected:
    """The rows of the oracle, and the types of its columns."""

    types: tuple[DataType, ...]
    rows: list[tuple[Any, ...]]


def faults_of(result: Result, expected: Expected, facts: PlanFacts | None) -> list[str]:
    """What is wrong with a result. `facts`: None where no stream was planned."""
    if len(result.types) != len(expected.types):
        return [f"there are {len(result.types)} columns, and not {len(expected.types)}"]
    faults = list(result.faults)
    if result.has_changes and result.key is None:
        faults += _retractions(result)
    if facts is not None and facts.is_append_only:
        faults += _inserts(result, facts)
    rows = rows_left(result)
    if facts is not None:
        faults += _unique_keys(rows, facts, result)
    return [*faults, *_differences(result, rows, expected)]


def rows_left(result: Result) -> list[tuple[Any, ...]]:
    """The rows that are left once all changes are made."""
    if result.key is None:
        return _rows_by_value(result)
    rows: dict[Any, tuple[Any, ...]] = {}
    converters = [comparable(result.types[place]) for place in result.key]
    for kind, values in result.changes:
        key = tuple(convert(values[place]) for convert, place in zip(converters, result.key, strict=True))
        if kind in _ADDS:
            rows[key] = values
        else:
            rows.pop(key, None)
    return list(rows.values())


def _rows_by_value(result: Result) -> list[tuple[Any, ...]]:
    same = _row_converter(result.types, comparable)
    rows: dict[Any, list[tuple[Any, ...]]] = {}
    for kind, values in result.changes:
        known = rows.setdefault(same(values), [])
        if kind in _ADDS:
            known.append(values)
        elif known:
            known.pop()
    return [values for several in rows.values() for values in several]


def _row_converter(types: Sequence[DataType], of: Callable[[DataType], Canonical]) -> Canonical:
    converters = [of(kind) for kind in types]
    return lambda row: tuple(convert(value) for convert, value in zip(converters, row, strict=True))


def _retractions(result: Result) -> list[str]:
    same = _row_converter(result.types, identity)
    there: Counter[Any] = Counter()
    for number, (kind, values) in enumerate(result.changes):
        row = same(values)
        if kind in _ADDS:
            there[row] += 1
        elif there[row]:
            there[row] -= 1
        else:
            return [f"change {number}, {kind}{shown(values)}, retracts a row that is not there"]
    return []


def _inserts(result: Result, facts: PlanFacts) -> list[str]:
    others = [kind for kind, _ in result.changes if kind != "+I"]
    if others:
        return [f"the plan sends inserts alone, but {others[0]} came"]
    for key in _told_apart(facts, result):
        same = _row_converter([result.types[place] for place in key], comparable)
        seen: set[Any] = set()
        for _, values in result.changes:
            found = same([values[place] for place in key])
            if found in seen:
                names = ", ".join(result.names[place] for place in key)
                return [f"a plan that sends inserts alone emits ({names}) = {shown(found)} twice"]
            seen.add(found)
    return []


def _told_apart(facts: PlanFacts, result: Result) -> list[tuple[int, ...]]:
    """The keys without columns of which the output shows different values alike: NULL as NaN, or times cut short."""
    alike = set(result.null_is_nan)
    if result.has_microseconds:
        alike |= result.places_with_nanoseconds()
    return [key for key in facts.upsert_keys if alike.isdisjoint(key)]


def _unique_keys(rows: list[tuple[Any, ...]], facts: PlanFacts, result: Result) -> list[str]:
    for key in _told_apart(facts, result):
        same = _row_converter([result.types[place] for place in key], comparable)
        counts = Counter(same([values[place] for place in key]) for values in rows)
        several = [found for found, count in counts.items() if count > 1]
        if several:
            return [f"the planner says that columns {key} tell rows apart, but several have {shown(several[0])}"]
    return []


def _differences(result: Result, rows: list[tuple[Any, ...]], expected: Expected) -> list[str]:
    key = result.key if result.key is not None and result.drops_null_keys else ()
    expected_rows = [row for row in expected.rows if all(row[place] is not None for place in key)]
    found, wanted = _counted(result, rows, result.types), _counted(result, expected_rows, expected.types)
    if found == wanted:
        return []
    missing, more = wanted - found, found - wanted
    return [f"missing {_listed(missing)}; unexpected {_listed(more)}"]


def _counted(result: Result, rows: list[tuple[Any, ...]], types: Sequence[DataType]) -> Rows:
    same = _row_converter(types, comparable)
    return Counter(
        same([_as_collected(result, place, value, types[place]) for place, value in enumerate(row)]) for row in rows
    )


def _as_collected(result: Result, place: int, value: Any, kind: DataType) -> Any:
    """A value as the output of the result has it."""
    if place in result.null_is_nan:
        if isinstance(value, list):
            return [NAN if element is None else element for element in value]
        return NAN if value is None and not isinstance(kind, ArrayType) else value
    return cut_to_microseconds(value, kind) if result.has_microseconds else value


def _listed(rows: Rows) -> str:
    if not rows:
        return "nothing"
    texts = [f"{shown(row)}{f' {count} times' if count > 1 else ''}" for row, count in rows.most_common(6)]
    return ", ".join(texts) + (f" and {len(rows) - 6} more" if len(rows) > 6 else "")


def shown(row: Any) -> str:
    """A row as text."""
    return f"({', '.join(map(repr, row))})" if isinstance(row, tuple | list) else repr(row)
