"""Whether what a sink has committed stands for the rows of a query, told change by change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.simulation.sql.tables import Row

from penstock.drivers.simulation.oracle import SHOWN_MAX
from penstock.sql.logical.nodes import SHORT

#: (the byte of a kind, a row)
Told = tuple[int, Row]
COMES = ("+I", "+U")


def flaws_of_changes(told: Iterable[Told], expected: Counter[Row], is_ordered: bool) -> list[str]:
    """What is wrong with changes of whole rows: each is taken back as it was; `is_ordered`: and not before it came."""
    found: list[str] = []
    rows: Counter[Row] = Counter()
    for byte, row in told:
        kind = SHORT[byte]
        rows[row] += 1 if kind in COMES else -1
        if is_ordered and rows[row] < 0 and not found:
            found.append(f"order: {kind}{row} takes back a row that is not there")
    return found + _difference(rows, expected)


def flaws_of_upserts(told: Iterable[Told], expected: Counter[Row], key: Sequence[int]) -> list[str]:
    """What is wrong with changes of which each one stands for all that its key has."""
    found: list[str] = []
    rows: dict[Row, Row] = {}
    for byte, row in told:
        kind, name = SHORT[byte], tuple(row[column] for column in key)
        if kind in COMES:
            rows[name] = row
        elif rows.pop(name, None) is None and not found:
            found.append(f"order: {kind}{row} deletes a key that is not there")
    return found + _difference(Counter(rows.values()), expected)


def _difference(rows: Counter[Row], expected: Counter[Row]) -> list[str]:
    lost = {row: count for row in expected if (count := expected[row] - rows[row]) > 0}
    more = {row: count for row in rows if (count := rows[row] - expected[row]) > 0}
    if not lost and not more:
        return []
    return [f"output: lacks {len(lost)} rows: {_some(lost)}; has {len(more)} too many: {_some(more)}"]


def _some(rows: dict[Row, int]) -> str:
    shown = sorted(rows.items(), key=repr)[:SHOWN_MAX]
    return ", ".join(f"{row}{f' x {count}' if count != 1 else ''}" for row, count in shown) or "none"
