"""A source and a sink that time the work between them, and a place where subtasks in several processes meet.

All processes are on one machine, whose monotonic clock they share. The place is a directory: a source's subtasks make
their events before they say in it that they are ready, and emit nothing before all are, so neither making events nor
the start of a job is counted. The sink's subtasks leave there what they have seen.
"""

from __future__ import annotations

import json
import os
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.events import share_of
from penstock.connectors.split_reader import PositionedReader, SplitQueue
from penstock.runtime.connector import Boundedness, InputStatus, Sink, SinkWriter, SinkWriterContext, Source
from penstock.runtime.records import Batch

#: How long (ms) subtasks wait between two looks whether all are there.
MEETING_POLL_MS = 5


@dataclass(frozen=True)
class MeetingPlace:
    """A directory in which subtasks leave word."""

    path: str

    def say(self, word: str, subtask: int, content: Any) -> None:
        """Leave a word, whole at once."""
        name = os.path.join(self.path, f"{word}-{subtask}")
        Path(f"{name}.part").write_text(json.dumps(content))
        os.rename(f"{name}.part", name)

    def heard(self, word: str) -> list[Any]:
        """What subtasks said under this word."""
        return [json.loads(p.read_text()) for p in sorted(Path(self.path).glob(f"{word}-*")) if p.suffix != ".part"]


class _Gathering:
    """One reader's wait for the others."""

    def __init__(self, place: MeetingPlace, subtask: int, parallelism: int) -> None:
        self._place = place
        self._subtask = subtask
        self._parallelism = parallelism
        self._is_complete = False
        self._said = False

    def is_complete(self) -> bool:
        """Whether all are ready; the first call says that this one is."""
        if not self._said:
            self._said = True
            self._place.say("ready", self._subtask, 0)
        if not self._is_complete and len(self._place.heard("ready")) == self._parallelism:
            self._is_complete = True
            self._place.say("begun", self._subtask, [time.monotonic_ns(), time.process_time_ns()])
        return self._is_complete


class _Splits(Source[Any, int]):
    """One split a subtask; a split is a position."""

    boundedness = Boundedness.BOUNDED

    def __init__(self, place: MeetingPlace) -> None:
        self._place = place

    def create_enumerator(self, context: Any, restored: Any | None) -> Any:
        return SplitQueue(context, [0] * context.parallelism, restored)


class MemorySource(_Splits):
    """`count` events out of memory: subtask i of n has the events i, i + n, i + 2n, … of `make(count)`."""

    def __init__(self, place: MeetingPlace, make: Callable[[int], list[Any]], count: int) -> None:
        super().__init__(place)
        self._make = make
        self._count = count

    def create_reader(self, context: Any) -> Any:
        events = share_of(self._make, self._count, context.subtask_index, context.parallelism)
        return _MemoryReader(context, events, _Gathering(self._place, context.subtask_index, context.parallelism))


class _MemoryReader(PositionedReader[int]):
    def __init__(self, context: Any, events: list[Any], gathering: _Gathering) -> None:
        super().__init__(context)
        self._events = events
        self._gathering = gathering

    def read(self, split: int, max_records: int) -> tuple[Batch, int] | None:
        values = self._events[split : split + max_records]
        return (Batch(values), split + len(values)) if values else None

    def allowance(self, max_records: int) -> int:
        return max_records if not self._splits or self._gathering.is_complete() else 0

    def retry_after_ms(self) -> int:
        return MEETING_POLL_MS


class PacedSource(_Splits):
    """Events `make(index, due_ns)` at a rate, each with the monotonic time (ns) at which it was due to be emitted.

    What is due goes out at the next chance, however late that is: a source that is held up does not slow its own clock.
    """

    def __init__(
        self, place: MeetingPlace, make: Callable[[int, int], Any], rate_per_second: float, seconds: float
    ) -> None:
        super().__init__(place)
        self._make = make
        self._rate_per_second = rate_per_second
        self._seconds = seconds

    def create_reader(self, context: Any) -> Any:
        gathering = _Gathering(self._place, context.subtask_index, context.parallelism)
        interval_ns = 1e9 * context.parallelism / self._rate_per_second
        phase_ns = interval_ns * context.subtask_index / context.parallelism
        return _PacedReader(context, self._make, interval_ns, phase_ns, int(self._seconds * 1e9), gathering)


class _PacedReader(PositionedReader[int]):
    def __init__(
        self,
        context: Any,
        make: Callable[[int, int], Any],
        interval_ns: float,
        phase_ns: float,
        length_ns: int,
        gathering: _Gathering,
    ) -> None:
        super().__init__(context)
        self._make = make
        self._interval_ns = interval_ns
        self._phase_ns = phase_ns
        self._stop = int((length_ns - phase_ns) // interval_ns)
        self._gathering = gathering
        self._begin_ns: float | None = None
        self._position = 0

    def read(self, split: int, max_records: int) -> tuple[Batch, int] | None:
        begin_ns, interval_ns, make = self._begin_ns, self._interval_ns, self._make
        stop = min(split + max_records, self._stop)
        if stop <= split or begin_ns is None:
            return None
        self._position = stop
        return Batch([make(index, int(begin_ns + index * interval_ns)) for index in range(split, stop)]), stop

    def allowance(self, max_records: int) -> int:
        if not self._splits:
            return max_records
        if self._begin_ns is None:
            if not self._gathering.is_complete():
                return 0
            self._begin_ns = time.monotonic_ns() + self._phase_ns
        if self._position >= self._stop:
            return max_records
        due = int((time.monotonic_ns() - self._begin_ns) // self._interval_ns) + 1
        return min(max_records, max(0, due - self._position))

    def retry_after_ms(self) -> int:
        if self._begin_ns is None:
            return MEETING_POLL_MS
        return max(1, int((self._begin_ns + self._position * self._interval_ns - time.monotonic_ns()) // 1_000_000))


class SilentSource(_Splits):
    """Never has a record, and never ends; asked every `retry_ms`, or, with 0, as often as readers are by default."""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(self, place: MeetingPlace, retry_ms: int) -> None:
        super().__init__(place)
        self._retry_ms = retry_ms

    def create_reader(self, context: Any) -> Any:
        self._place.say("worker", context.subtask_index, os.getpid())
        return _SilentReader(context, self._retry_ms)


class _SilentReader(PositionedReader[int]):
    def __init__(self, context: Any, retry_ms: int) -> None:
        super().__init__(context)
        self._retry_ms = retry_ms

    def read(self, split: int, max_records: int) -> tuple[Batch, int] | None:
        return None

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        return InputStatus.NOTHING_AVAILABLE

    def retry_after_ms(self) -> int:
        return self._retry_ms or super().retry_after_ms()


class MeetingSink(Sink[Any]):
    """Says at the end how many records came, when the last did, and what processor time the process has taken.

    With `due_of`, it leaves the latencies as well.

    `due_of` gives the monotonic time (ns) at which a record was due; latencies are in µs.
    """

    def __init__(self, place: MeetingPlace, due_of: Callable[[Any], int] | None = None) -> None:
        self._place = place
        self._due_of = due_of

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        return _MeetingWriter(self._place, context.subtask_index, self._due_of)


class _MeetingWriter(SinkWriter[Any, Any]):
    def __init__(self, place: MeetingPlace, subtask: int, due_of: Callable[[Any], int] | None) -> None:
        self._place = place
        self._subtask = subtask
        self._due_of = due_of
        self._count = 0
        self._last_ns = 0
        #: when due (µs of the monotonic clock), and how late (µs)
        self._times = array("q")

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        now = self._last_ns = time.monotonic_ns()
        self._count += len(values)
        due_of = self._due_of
        if due_of is not None:
            for value in values:
                due = due_of(value)
                self._times.append(due // 1_000)
                self._times.append((now - due) // 1_000)

    def flush(self, end_of_input: bool) -> None:
        if end_of_input:
            Path(self._place.path, f"latencies-{self._subtask}.bin").write_bytes(self._times.tobytes())
            self._place.say("ended", self._subtask, [self._count, self._last_ns, time.process_time_ns()])
