"""Queues of asynchronous calls in the order of their records, with the watermarks between them.

Both queues hand out results and watermarks that may be emitted, in order, and never let a result cross a watermark:

- `OrderedCalls`: in the order of the input.
- `UnorderedCalls`: results between two watermarks in the order of their completion. A *segment* is the calls between
  two watermarks. Only the first segment's results go out; its watermark follows when all its calls have completed.
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
        #: The current attempt, from 1; 0 before the first.
        self.attempt = 0
        self.cancel: Callable[[], None] | None = None
        self.deadline_ms: int | None = None


class Mark:
    """A watermark (ms) and a change of idleness that wait for all earlier calls.

    If no call has come in between, later values replace the values of the waiting mark.
    """

    __slots__ = ("idle", "watermark")

    def __init__(self) -> None:
        self.watermark: int | None = None
        self.idle: bool | None = None


Ready: TypeAlias = "Call | Mark"


class OrderedCalls:
    """A queue in the order of the input; see the module docstring."""

    def __init__(self) -> None:
        self._entries: deque[Call | Mark] = deque()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, call: Call) -> None:
        """Append a call."""
        self._entries.append(call)

    def last_mark(self) -> Mark:
        """Return the mark after all calls, and create it if needed. The queue must not be empty."""
        last = self._entries[-1]
        if not isinstance(last, Mark):
            last = Mark()
            self._entries.append(last)
        return last

    def on_done(self, call: Call) -> None:
        """Note that a call has its results."""

    def take_ready(self) -> Iterator[Ready]:
        """Remove and yield the entries that may go out now."""
        entries = self._entries
        while entries:
            entry = entries[0]
            if type(entry) is Call and not entry.is_done:
                return
            yield entries.popleft()

    def calls(self) -> Iterator[Call]:
        """Return all calls that have not gone out, in the order of their records."""
        return (entry for entry in self._entries if isinstance(entry, Call))


class _Segment:
    __slots__ = ("calls", "done", "mark")

    def __init__(self) -> None:
        #: an ordered set, in the order of the records
        self.calls: dict[Call, None] = {}
        self.done: deque[Call] = deque()
        self.mark: Mark | None = None


class UnorderedCalls:
    """A queue in the order of completion between watermarks; see the module docstring."""

    def __init__(self) -> None:
        self._segments: deque[_Segment] = deque()
        #: the segment of each call outside the first segment
        self._later: dict[Call, _Segment] = {}

    def __bool__(self) -> bool:
        return bool(self._segments)

    def add(self, call: Call) -> None:
        """Append a call."""
        segments = self._segments
        if not segments or segments[-1].mark is not None:
            segments.append(_Segment())
        segments[-1].calls[call] = None
        if len(segments) > 1:
            self._later[call] = segments[-1]

    def last_mark(self) -> Mark:
        """Return the mark after all calls, and create it if needed. The queue must not be empty."""
        last = self._segments[-1]
        if last.mark is None:
            last.mark = Mark()
        return last.mark

    def on_done(self, call: Call) -> None:
        """Note that a call has its results."""
        self._later.pop(call, self._segments[0]).done.append(call)

    def take_ready(self) -> Iterator[Ready]:
        """Remove and yield the entries that may go out now."""
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
        """Return all calls that have not gone out, in the order of their records."""
        return (call for segment in self._segments for call in segment.calls)
