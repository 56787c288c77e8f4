"""Watermarks: making them from timestamps, and combining those of several channels (C2)."""

from __future__ import annotations

from typing import Any

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch


class AssignerError(Exception):
    """The user's timestamp assigner raised on a record."""

    def __init__(self, record: Any) -> None:
        super().__init__(record)
        self.record = record


class WatermarkGenerator:
    """Assigns timestamps and follows the highest one: the watermark is that minus the bound minus 1 ms.

    A watermark is given out once a batch, so it depends on the records alone and not on a clock. Idleness is the one
    thing that needs processing time: a stream without records for `idleness_ms` stops holding others back.
    """

    def __init__(self, strategy: WatermarkStrategy) -> None:
        if strategy.kind == "custom":
            raise NotImplementedError("custom watermark generators are not available yet")
        if strategy.alignment is not None:
            raise NotImplementedError("watermark alignment is not available yet")
        self._assigner = strategy.timestamp_assigner
        self._emits = strategy.kind == "bounded"
        self._delay_ms = (strategy.out_of_orderness_ms or 0) + 1
        self._idleness_ms = strategy.idleness_ms
        self._watermark = MIN_TIMESTAMP
        self._last_record_ms: int | None = None
        self.idle = False

    def assign(self, batch: Batch) -> Batch:
        """The batch with the timestamps that the strategy gives its records."""
        if self._assigner is None:
            return batch
        timestamps: list[int] = []
        try:
            self._assigner.extend(timestamps, batch.values, batch.timestamps)
            if len(timestamps) != len(batch.values):
                raise RuntimeError("the timestamp assigner raised StopIteration")
        except Exception as error:
            raise AssignerError(batch.values[len(timestamps)]) from error
        return Batch(batch.values, timestamps)

    def advance(self, batch: Batch) -> int | None:
        """The watermark behind these records, or None when it has not advanced."""
        if not self._emits or not batch.timestamps:
            return None
        watermark = max(batch.timestamps) - self._delay_ms
        if watermark <= self._watermark:
            return None
        self._watermark = watermark
        return watermark

    def saw_records(self, now_ms: int) -> bool:
        """Note activity; True when the stream had been idle until now."""
        self._last_record_ms = now_ms
        was_idle, self.idle = self.idle, False
        return was_idle

    @property
    def tracks_idleness(self) -> bool:
        """Whether the strategy asks for idleness."""
        return self._idleness_ms is not None

    def idle_deadline_ms(self) -> int | None:
        """When (ms) the stream becomes idle if nothing comes."""
        if self._idleness_ms is None or self.idle or self._last_record_ms is None:
            return None
        return self._last_record_ms + self._idleness_ms

    def check_idle(self, now_ms: int) -> bool:
        """True when the stream becomes idle just now."""
        if self._last_record_ms is None:
            self._last_record_ms = now_ms
        deadline = self.idle_deadline_ms()
        if deadline is None or now_ms < deadline:
            return False
        self.idle = True
        return True


class WatermarkValve:
    """The watermark of a task: the lowest of its active channels, and never falling.

    The end of time comes when every channel has reached it: an idle channel does not hold others back, but it may
    become active again, so time does not end for it.
    """

    def __init__(self, channels: int) -> None:
        self._watermarks = [MIN_TIMESTAMP] * channels
        self._active = [True] * channels
        self._output = MIN_TIMESTAMP
        self._idle = False

    def on_watermark(self, channel: int, timestamp: int) -> int | None:
        """A channel's watermark; returns the task's new one when it advances."""
        if timestamp <= self._watermarks[channel] or not self._active[channel]:
            return None
        self._watermarks[channel] = timestamp
        return self._advance()

    def on_status(self, channel: int, idle: bool) -> tuple[int | None, bool | None]:
        """A channel became idle or active; returns the task's new watermark and its new status, where they change."""
        self._active[channel] = not idle
        watermark = self._advance() if idle else None
        now_idle = not any(self._active)
        if now_idle:
            # Nobody holds anybody back any more: event time is where the one furthest ahead was.
            watermark = self._reach(max(self._watermarks)) or watermark
        if now_idle == self._idle:
            return watermark, None
        self._idle = now_idle
        return watermark, now_idle

    def _advance(self) -> int | None:
        active = [w for w, is_active in zip(self._watermarks, self._active, strict=True) if is_active]
        if not active:
            return None
        return self._reach(min(active))

    def _reach(self, lowest: int) -> int | None:
        if lowest <= self._output or (lowest == MAX_WATERMARK and min(self._watermarks) != MAX_WATERMARK):
            return None
        self._output = lowest
        return lowest
