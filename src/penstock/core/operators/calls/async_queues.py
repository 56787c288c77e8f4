"""Calls in the order of their records, with the watermarks between them; what may be emitted, and when.

Both queues hand out what is ready, in the order in which it may go out, and never let a result cross a watermark:

- `OrderedCalls`: in the order of the input.
- `UnorderedCalls`: results between two watermarks in the order in which they came. A *segment* is the calls between two
  watermarks. Only the first segment's results go out; its watermark follows when none of its calls is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias


class Call:
    """One record on its way through an asynchronous function."""

    __slots__ = ("attempt", "cancel", "deadline_ms", "is_done", "results", "timestamp", "value")

    def __init__(self, value: Any, timestamp: int | None) -> None:
        self.value = value
        self.timestamp = timestamp
        self.results: list[Any] = []
        self.is_done = False
        #: The attempt that is out, from 1; 0 before the first.
        self.attempt = 0
        self.cancel: Callable[[], None] | None = None
        self.deadline_ms: int | None = None


class Mark:
    """A watermark (ms) and a change of idleness that wait for the calls ahead of them.

    When no call lies between them, later values replace those of the mark that waits.
    """

    __slots__ = ("idle", "watermark")

    def __init__(self) -> None:
        self.watermark: int | None = None
        self.idle: bool | None = None


Ready: TypeAlias = "Call | Mark"


class OrderedCalls:
    """See the module's text."""

    def __init__(self) -> None:
        self._entries: deque[Call | Mark] = deque()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, call: Call) -> None:
        """Append a record."""
        self._entries.append(call)

    def last_mark(self) -> Mark:
        """The mark after all calls, made when there is none; only while there is anything here."""
        last = self._entries[-1]
        if not isinstance(last, Mark):
            last = Mark()
            self._entries.append(last)
        return last

    def on_done(self, call: Call) -> None:
        """A call has its results."""

    def take_ready(self) -> Iterator[Ready]:
        """What goes out now; it is gone from here once it was handed out."""
        entries = self._entries
        while entries:
            entry = entries[0]
            if type(entry) is Call and not entry.is_done:
                return
            yield entries.popleft()

    def calls(self) -> Iterator[Call]:
        """All calls that have not gone out, in the order of their records."""
        return (entry for entry in self._entries if isinstance(entry, Call))


class _Segment:
    __slots__ = ("calls", "done", "mark")

    def __init__(self) -> None:
        #: a set in the order of the records
        self.calls: dict[Call, None] = {}
        self.done: deque[Call] = deque()
        self.mark: Mark | None = None


class UnorderedCalls:
    """See the module's text."""

    def __init__(self) -> None:
        self._segments: deque[_Segment] = deque()
        #: the segment of each call; those of the first one need none
        self._later: dict[Call, _Segment] = {}

    def __bool__(self) -> bool:
        return bool(self._segments)

    def add(self, call: Call) -> None:
        """Append a record."""
        segments = self._segments
        if not segments or segments[-1].mark is not None:
            segments.append(_Segment())
        segments[-1].calls[call] = None
        if len(segments) > 1:
            self._later[call] = segments[-1]

    def last_mark(self) -> Mark:
        """The mark after all calls, made when there is none; only while there is anything here."""
        last = self._segments[-1]
        if last.mark is None:
            last.mark = Mark()
        return last.mark

    def on_done(self, call: Call) -> None:
        """A call has its results."""
        self._later.pop(call, self._segments[0]).done.append(call)

    def take_ready(self) -> Iterator[Ready]:
        """What goes out now; it is gone from here once it was handed out."""
        segments = self._segments
        while segments:
            first = segments[0]
            while first.done:
                call = first.done.popleft()
                del first.calls[call]
                yield call
            if first.calls:
                return
            segments.popleft()
            if segments:
                for call in segments[0].calls:
                    self._later.pop(call, None)
            if first.mark is not None:
                yield first.mark

    def calls(self) -> Iterator[Call]:
        """All calls that have not gone out, in the order of their records."""
        return (call for segment in self._segments for call in segment.calls)
