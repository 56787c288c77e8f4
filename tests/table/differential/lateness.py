"""Sessions of a table with late rows, in plain Python: DuckDB knows no watermarks.

Rows are taken one at a time in the order in which they arrive. A row opens the session [its time, its time + gap). The
session is merged with the open sessions of its key that it overlaps or touches. When the watermark has passed the last
millisecond of a session, the session is closed. A row whose merged session is closed already is late and dropped.

The times of these rows are multiples of 500 ms, and so is the watermark: whether a session closes at its last
millisecond or at its end makes no difference then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.table.differential.tables import MS_NS, Table

_COARSE_NS: Final = 500 * MS_NS


@dataclass
class _Session:
    start: int
    end: int
    rows: list[int] = field(default_factory=list)


def allows_sessions(table: Table) -> bool:
    """Whether all times of a table are multiples of 500 ms."""
    return table.delay_ms is not None and all(
        time % _COARSE_NS == 0 for time in (table.delay_ms * MS_NS, *(row[-1] for row in table.rows))
    )


def sessions_of(
    table: Table, gap_ms: int, keys: Sequence[int], drops_late_rows: bool = True
) -> list[tuple[int, int, int]]:
    """The number of each row that is not late, with start and end (ns) of its session.

    `keys`: the places of the columns that separate sessions. `drops_late_rows`: false for a batch, without late rows.
    """
    watermarks = table.watermarks() if drops_late_rows else [None] * len(table.rows)
    gap = gap_ms * MS_NS
    open_sessions: dict[Any, list[_Session]] = {}
    closed: list[_Session] = []
    for number, (row, watermark) in enumerate(zip(table.rows, watermarks, strict=True)):
        if watermark is not None:
            for key, sessions in open_sessions.items():
                closed += [one for one in sessions if one.end - MS_NS <= watermark]
                open_sessions[key] = [one for one in sessions if one.end - MS_NS > watermark]
        mine = open_sessions.setdefault(tuple(row[place] for place in keys), [])
        merged = _Session(row[-1], row[-1] + gap, [number])
        touched = [one for one in mine if one.start <= merged.end and merged.start <= one.end]
        for one in touched:
            merged.start, merged.end = min(merged.start, one.start), max(merged.end, one.end)
            merged.rows += one.rows
        if watermark is not None and merged.end - MS_NS <= watermark:
            continue
        mine[:] = [*(one for one in mine if one not in touched), merged]
    sessions = [*closed, *(one for several in open_sessions.values() for one in several)]
    return [(number, one.start, one.end) for one in sessions for number in one.rows]
