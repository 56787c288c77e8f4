"""What windows should give, in plain Python: event by event, without panes, heaps or timers."""

from typing import Any

MIN = -(2**63)
MAX = 2**63 - 1

Event = tuple[str, int] | int  # a record (key, timestamp), or a watermark


def find_windows(timestamp: int, size: int, slide: int, offset: int = 0) -> list[tuple[int, int]]:
    """All [start, end) with start = offset + n * slide that contain the timestamp, found by looking at each."""
    first = (timestamp - size - offset) // slide - 1
    last = (timestamp - offset) // slide + 1
    starts = [offset + n * slide for n in range(first, last + 1)]
    return [(s, s + size) for s in starts if s <= timestamp < s + size]


class AlignedModel:
    """Fires (key, start, end, sorted timestamps); late records go to `late`."""

    def __init__(self, size: int, slide: int, offset: int = 0, lateness: int = 0) -> None:
        self.size, self.slide, self.offset, self.lateness = size, slide, offset, lateness
        self.contents: dict[tuple[int, int, str], list[int]] = {}
        self.watermark = MIN
        self.fired: list[Any] = []
        self.late: list[Any] = []

    def record(self, key: str, timestamp: int) -> None:
        windows = find_windows(timestamp, self.size, self.slide, self.offset)
        alive = [w for w in windows if w[1] - 1 + self.lateness > self.watermark]
        if windows and not alive:
            self.late.append((key, timestamp))
        for start, end in alive:
            contents = self.contents.setdefault((end, start, key), [])
            contents.append(timestamp)
            if end - 1 <= self.watermark:
                self.fired.append((key, start, end, sorted(contents)))

    def advance(self, watermark: int) -> list[Any]:
        """The windows that fire, in no order within one window."""
        due = [w for w in sorted(self.contents) if self.watermark < w[0] - 1 <= watermark]
        self.watermark = watermark
        fired = [(key, start, end, sorted(self.contents[end, start, key])) for end, start, key in due]
        self.contents = {w: c for w, c in self.contents.items() if w[0] - 1 + self.lateness > watermark}
        self.fired += fired
        return fired


class SessionModel:
    """One list of (timestamps, fired) a key; all sessions are computed again at every event.

    A session is over once a record at its end would be late.
    """

    def __init__(self, gap: int, lateness: int = 0) -> None:
        self.gap, self.lateness = gap, lateness
        self.sessions: dict[str, list[list[int]]] = {}
        self.watermark = MIN
        self.fired: list[Any] = []
        self.late: list[Any] = []

    def record(self, key: str, timestamp: int) -> None:
        touched = [
            s for s in self.sessions.get(key, []) if min(s) <= timestamp + self.gap and timestamp <= max(s) + self.gap
        ]
        merged = sorted([timestamp, *(t for s in touched for t in s)])
        end = merged[-1] + self.gap
        if end + self.lateness <= self.watermark:
            self.late.append((key, timestamp))
            return
        self.sessions[key] = [s for s in self.sessions.get(key, []) if s not in touched] + [merged]
        if end <= self.watermark:
            self.fired.append((key, merged[0], end, merged))

    def advance(self, watermark: int) -> None:
        for key, sessions in self.sessions.items():
            for s in sessions:
                if self.watermark < s[-1] + self.gap <= watermark:
                    self.fired.append((key, s[0], s[-1] + self.gap, s))
        self.watermark = watermark
        self.sessions = {
            key: [s for s in sessions if s[-1] + self.gap + self.lateness > watermark]
            for key, sessions in self.sessions.items()
        }
