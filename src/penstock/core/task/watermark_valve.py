"""The watermark of a task, derived from its channels (C2)."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP


class TimeChange(NamedTuple):
    """A task's new watermark (ms) and its new idleness; None if unchanged.

    A task becomes active before its watermark advances, and idle after that.
    """

    watermark: int | None = None
    idle: bool | None = None


NO_CHANGE = TimeChange()


class WatermarkValve:
    """The watermark of a task: the lowest of its active channels. It never decreases.

    A channel is active, idle or ended. It has ended once its watermark is MAX_WATERMARK, whether it was active or idle
    before. Only active channels hold the watermark back.

    While some channels are idle and all others have ended, the task is idle. Its watermark is then the highest of the
    idle channels. Event time ends only when all channels have ended, because an idle one may become active again.
    """

    def __init__(self, channels: int, restored: int = MIN_TIMESTAMP) -> None:
        self._watermarks = [MIN_TIMESTAMP] * channels
        self._is_idle = [False] * channels
        self._output = restored
        self._idle = False

    def on_watermark(self, channel: int, timestamp: int) -> TimeChange:
        """Handle a channel's watermark; ignore that of an idle channel until it ends or becomes active."""
        has_ended = timestamp == MAX_WATERMARK
        if timestamp <= self._watermarks[channel] or (self._is_idle[channel] and not has_ended):
            return NO_CHANGE
        self._watermarks[channel] = timestamp
        if has_ended:
            self._is_idle[channel] = False
            return self._settle()
        return TimeChange(self._reach(min(self.active())))

    def on_status(self, channel: int, idle: bool) -> TimeChange:
        """Handle a channel that became idle or active; an ended channel stays ended."""
        if self._watermarks[channel] == MAX_WATERMARK or self._is_idle[channel] is idle:
            return NO_CHANGE
        self._is_idle[channel] = idle
        return self._settle()

    @property
    def watermark(self) -> int:
        """The task's watermark (ms)."""
        return self._output

    def mark(self, channel: int) -> tuple[int, bool]:
        """Return the watermark (ms) of a channel, and whether it is idle."""
        return self._watermarks[channel], self._is_idle[channel]

    def validate(self) -> None:
        """Assert the invariants that hold between steps. The simulator calls this; a running job never does."""
        if not self._watermarks:
            return
        active, idle = self.active(), self._idle_ones()
        assert self._idle is (bool(idle) and not active), (
            "a task is idle exactly while some of its channels are idle, and all others have ended"
        )
        lowest = min(active or (max(idle, default=MAX_WATERMARK),))
        assert self._output >= lowest, f"event time stands at {self._output}, and may go on to {lowest}"
        assert self._output < MAX_WATERMARK or not (active or idle), "event time ends when all channels have ended"

    def active(self) -> list[int]:
        """Return the watermarks (ms) of the channels that hold others back."""
        both = zip(self._watermarks, self._is_idle, strict=True)
        return [mark for mark, is_idle in both if not is_idle and mark != MAX_WATERMARK]

    def _idle_ones(self) -> list[int]:
        both = zip(self._watermarks, self._is_idle, strict=True)
        return [mark for mark, is_idle in both if is_idle]

    def _settle(self) -> TimeChange:
        """Compute the task's watermark and idleness after a channel has changed its state."""
        active, idle = self.active(), self._idle_ones()
        watermark = self._reach(min(active) if active else max(idle, default=MAX_WATERMARK))
        is_idle = bool(idle) and not active
        if is_idle is self._idle:
            return TimeChange(watermark)
        self._idle = is_idle
        return TimeChange(watermark, is_idle)

    def _reach(self, watermark: int) -> int | None:
        if watermark <= self._output:
            return None
        self._output = watermark
        return watermark
