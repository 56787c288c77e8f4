"""Rows between the tasks of a batch job, by column.

A row is either one record for a keyed operator, or a batch of records for any other. A consumer receives the rows whose
`target` is its subtask, sorted by (`place`, `timestamp`, `edge`, `sequence`), None first. `place` is the subtask
followed by a hash of the record's key, the same for equal keys and never negative. A row without a key has place -1. A
broadcast row has -2, so that it precedes all records. Watermarks, which only epochs have, are at -4. A row without key
and payload is empty, and the consumer skips it. A row with a key but without a payload has its record in `records`.
Place -3 holds accumulators of upstream operators whose own rows do not reach the client: the consumer passes them on.
"""

from __future__ import annotations

from typing import Any, Final

#: In place of an edge: a sink's committables, and bytes for the client. `target` is the operator's index in its chain.
COMMITTABLES: Final = -1
CLIENT: Final = -2
#: Also in place of an edge: accumulators of an operator's function, as pairs of name and pickled accumulator.
ACCUMULATORS: Final = -4
#: Metrics of a task and its functions, as a pickled `TaskMetrics`; `target` does not refer to an operator.
METRICS: Final = -5
NO_KEY_PLACE: Final = -1
BROADCAST_PLACE: Final = -2
PASSED_ON_PLACE: Final = -3
WATERMARK_PLACE: Final = -4
#: The place of an epoch's watermark whose sender had nothing to read, although others of its vertex may have had.
IDLE_PLACE: Final = -5
#: Likewise, for a producer without records whose strategy asks for idleness: no other input waits for it.
SILENT_PLACE: Final = -6
#: The place of an empty row that identifies its subtask, minus that subtask; used if no other column identifies it.
MARK_PLACE: Final = -16


class Rows:
    """See the module docstring; columns are parallel lists."""

    __slots__ = ("edges", "payloads", "places", "records", "sequences", "targets", "timestamps")

    def __init__(self) -> None:
        self.edges: list[int] = []
        self.targets: list[int] = []
        self.places: list[int] = []
        self.timestamps: list[int | None] = []
        self.sequences: list[int] = []
        self.payloads: list[bytes] = []
        self.records: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.edges)

    def columns(self) -> tuple[list[Any], ...]:
        """Return all columns that are transmitted, in order."""
        return self.edges, self.targets, self.places, self.timestamps, self.sequences, self.payloads

    def take(self) -> Rows:
        """Remove and return the rows so far."""
        taken = Rows()
        for mine, theirs in zip(self.columns(), taken.columns(), strict=True):
            theirs.extend(mine)
            mine.clear()
        return taken

    def append(
        self,
        edge: int,
        target: int,
        sequence: int,
        payload: bytes,
        timestamp: int | None = None,
        place: int = NO_KEY_PLACE,
    ) -> None:
        """Add a row without a key."""
        self.edges.append(edge)
        self.targets.append(target)
        self.places.append(place)
        self.timestamps.append(timestamp)
        self.sequences.append(sequence)
        self.payloads.append(payload)
