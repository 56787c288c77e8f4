"""The output of an operator under test."""

from __future__ import annotations

from penstock.core.records import MIN_TIMESTAMP, Batch
from penstock.testing.elements import Record


class CapturedOutput:
    """Implements `Output` by recording everything in order, and checks the invariants of each batch."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.sides: dict[str, list[Record]] = {}
        self.watermarks: list[int] = []
        #: the last watermark (ms) before the restore; watermarks up to this one are dropped
        self.restored_watermark = MIN_TIMESTAMP
        self.idle_changes: list[bool] = []
        #: records, watermarks (ms) and idleness (bool) in the order of emission
        self.order: list[Record | int | bool] = []

    def collect(self, batch: Batch) -> None:
        """Record a batch of the main output."""
        records = _records(batch)
        self.records += records
        self.order += records

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        """Record a batch of a side output."""
        self.sides.setdefault(tag_id, []).extend(_records(batch))

    def emit_watermark(self, timestamp: int) -> None:
        """Record a watermark, which must not fall."""
        if timestamp <= self.restored_watermark:
            return
        if self.watermarks and timestamp < self.watermarks[-1]:
            raise AssertionError(f"the watermark fell from {self.watermarks[-1]} to {timestamp}")
        self.watermarks.append(timestamp)
        self.order.append(timestamp)

    @property
    def watermark(self) -> int:
        """The last watermark (ms), or that of the restored run if none has been emitted since."""
        return self.watermarks[-1] if self.watermarks else self.restored_watermark

    def emit_status(self, idle: bool) -> None:
        """Idleness."""
        self.idle_changes.append(idle)
        self.order.append(idle)


def _records(batch: Batch) -> list[Record]:
    if batch.timestamps is None:
        return [Record(value) for value in batch.values]
    if len(batch.timestamps) != len(batch.values):
        raise AssertionError(f"a batch of {len(batch.values)} values has {len(batch.timestamps)} timestamps")
    return [Record(value, timestamp) for value, timestamp in zip(batch.values, batch.timestamps, strict=True)]
