"""When windows end: their edges are wall-clock times, while watermarks and timers are instants."""

from __future__ import annotations

from datetime import tzinfo
from typing import Final

from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.table.data.zones import local_ns, moment_ns

_MILLISECOND_NS: Final = 1_000_000
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


class WindowEnds:
    """Converts between the ends of windows and event time or processing time.

    A window that ends in an hour that the clock shows twice is due the second time.

    Args:
        zone: the time zone of a time attribute that is an instant (TIMESTAMP_LTZ); None for other time attributes.
    """

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone

    def due_ms(self, end: int) -> int:
        """Return the watermark that fires a window."""
        last = end - 1
        if self._zone is None:
            return last
        due = moment_ns(last * _MILLISECOND_NS, self._zone) // _MILLISECOND_NS
        return due + _HOUR_MS if self._shown(due + _HOUR_MS, self._zone) == last else due

    def time_ms(self, end: int) -> int:
        """Return the value of a window's time attribute: the first instant at which the clock shows its last ms."""
        last = end - 1
        return last if self._zone is None else moment_ns(last * _MILLISECOND_NS, self._zone) // _MILLISECOND_NS

    def reached(self, watermark: int) -> int:
        """Return the wall-clock time at a watermark: exactly the windows that end by then are due."""
        if self._zone is None or watermark in (MIN_TIMESTAMP, MAX_WATERMARK):
            return watermark
        clock_ms = self._shown(watermark, self._zone)
        if self.due_ms(clock_ms + 1) <= watermark:
            return clock_ms
        due, later = clock_ms - _DAY_MS, clock_ms
        while later - due > 1:
            middle = (due + later) // 2
            if self.due_ms(middle + 1) <= watermark:
                due = middle
            else:
                later = middle
        return due

    @staticmethod
    def _shown(moment: int, zone: tzinfo) -> int:
        return local_ns(moment * _MILLISECOND_NS, zone) // _MILLISECOND_NS
