"""The watermark of a task, from those of its channels (C2)."""

from __future__ import annotations

from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP


class WatermarkValve:
    """The watermark of a task: the lowest of its active channels, and never falling.

    The end of time comes when every channel has reached it. An idle channel does not hold others back, but time does
    not end without it, because it may become active again.
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
            # No channel holds another back any more: event time is where the channel furthest ahead was.
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
