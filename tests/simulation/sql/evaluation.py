"""What SQL means, in plain Python over lists of rows: nothing of this knows operators, state or changes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.simulation.sql.tables import Row

ID, K, A, RT = range(4)
NS = 1_000_000


def grouped(rows: Iterable[Row], *columns: int) -> dict[Row, list[Row]]:
    """Rows by their values in columns; NULL is a value like any."""
    found: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[column] for column in columns)].append(row)
    return found


def known(rows: Iterable[Row], column: int) -> list[Any]:
    """The values of a column that are not NULL."""
    return [row[column] for row in rows if row[column] is not None]


def total(values: Sequence[Any]) -> Any:
    """SUM."""
    return sum(values) if values else None


def least(values: Sequence[Any]) -> Any:
    """MIN."""
    return min(values) if values else None


def greatest(values: Sequence[Any]) -> Any:
    """MAX."""
    return max(values) if values else None


def joined(
    left: Sequence[Row], right: Sequence[Row], matches: Callable[[Row, Row], bool], kind: str, widths: tuple[int, int]
) -> list[Row]:
    """A join of any kind, as JOIN, LEFT, RIGHT and FULL name it."""
    pairs = [
        (one, other) for one in range(len(left)) for other in range(len(right)) if matches(left[one], right[other])
    ]
    found = [left[one] + right[other] for one, other in pairs]
    if kind in ("LEFT", "FULL"):
        met = {one for one, _ in pairs}
        found += [row + (None,) * widths[1] for place, row in enumerate(left) if place not in met]
    if kind in ("RIGHT", "FULL"):
        met = {other for _, other in pairs}
        found += [(None,) * widths[0] + row for place, row in enumerate(right) if place not in met]
    return found


def equal(one: Any, other: Any) -> bool:
    """`=`: NULL equals nothing."""
    return one is not None and one == other


def descending(value: Any) -> Any:
    """What to sort by for DESC, where NULL is the least."""
    return (1, 0) if value is None else (0, -value)


def ascending(value: Any) -> Any:
    """What to sort by for ASC."""
    return (0, 0) if value is None else (1, value)


def picked(rows: Iterable[Row], *columns: int) -> Counter[Row]:
    """These columns of rows."""
    return Counter(tuple(row[column] for column in columns) for row in rows)


def windows(kind: str, time_ms: int, size_ms: int, step_ms: int) -> list[tuple[int, int]]:
    """The windows of a time: TUMBLE, HOP and CUMULATE."""
    if kind == "TUMBLE":
        start = time_ms - time_ms % size_ms
        return [(start, start + size_ms)]
    if kind == "HOP":
        last = time_ms - time_ms % step_ms
        return [(start, start + size_ms) for start in range(last, time_ms - size_ms, -step_ms)]
    start = time_ms - time_ms % size_ms
    return [(start, end) for end in range(start + step_ms, start + size_ms + 1, step_ms) if time_ms < end]


def sessions(rows: Sequence[Row], gap_ms: int) -> list[tuple[int, int, list[Row]]]:
    """The sessions of rows of one key."""
    found: list[tuple[int, int, list[Row]]] = []
    for row in sorted(rows, key=lambda one: one[RT]):
        time = row[RT] // NS
        if found and time < found[-1][1]:
            start, _, inside = found.pop()
            found.append((start, time + gap_ms, [*inside, row]))
        else:
            found.append((time, time + gap_ms, [row]))
    return found
