"""A small source that keeps all rules, and many that break one each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.runtime.connector import (
    Boundedness,
    InputStatus,
    Source,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
)
from penstock.runtime.records import Batch


@dataclass(frozen=True)
class Range:
    """Ten numbers from ten times `tens` on, read up to `position`."""

    tens: int
    position: int = 0


class Queue(SplitEnumerator[Any]):
    def __init__(self, source: Numbers, context: Any, restored: Any) -> None:
        self.context = context
        self.splits: list[Any] = source.splits() if restored is None else list(restored)

    def start(self) -> None: ...

    def handle_split_request(self, subtask_index: int) -> None:
        if self.splits:
            self.context.assign_split(self.splits.pop(0), subtask_index)
        else:
            self.context.signal_no_more_splits(subtask_index)

    def add_splits_back(self, splits: Sequence[Any], subtask_index: int) -> None:
        self.splits = [*splits, *self.splits]

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return list(self.splits)


class Reader(SourceReader[Any, Any]):
    def __init__(self, context: Any) -> None:
        self.context = context
        self.splits: list[Any] = []
        self.has_asked = self.is_last = False

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        if self.splits:
            return self.read(max_records)
        return self.end()

    def read(self, max_records: int) -> Batch:
        split = self.splits[0]
        stop = min(split.position + max_records, 10)
        if stop == 10:
            self.splits.pop(0)
        else:
            self.splits[0] = replace(split, position=stop)
        return Batch([10 * split.tens + i for i in range(split.position, stop)])

    def end(self) -> InputStatus:
        if self.is_last:
            return InputStatus.END_OF_INPUT
        if not self.has_asked:
            self.has_asked = True
            self.context.request_split()
        return InputStatus.NOTHING_AVAILABLE

    def add_splits(self, splits: Sequence[Any]) -> None:
        self.splits += splits
        self.has_asked = False

    def no_more_splits(self) -> None:
        self.is_last = True

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return list(self.splits)


class Numbers(Source[Any, Any]):
    """The numbers 0 to 39 in four splits."""

    boundedness = Boundedness.BOUNDED
    enumerator: type[Queue] = Queue
    reader: type[Reader] = Reader

    def splits(self) -> list[Any]:
        return [Range(tens) for tens in range(4)]

    def create_enumerator(self, context: Any, restored: Any) -> SplitEnumerator[Any]:
        return self.enumerator(self, context, restored)

    def create_reader(self, context: Any) -> SourceReader[Any, Any]:
        return self.reader(context)


# --- readers --------------------------------------------------------------------------------------------------------


class TooEarly(Reader):
    """A batch is in the snapshot until the next poll."""

    before: Any = None

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        self.before = list(self.splits) or None
        return super().poll_next(max_records)

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return self.splits if self.before is None else self.before


class TooLate(Reader):
    """It reads ahead, and its snapshot is where it has read to."""

    ahead: Any = None

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        found = super().poll_next(max_records) if self.ahead is None else self.ahead
        self.ahead = super().poll_next(max_records) if isinstance(found, Batch) and self.splits else None
        return found


@dataclass
class MutableRange:
    tens: int
    position: int = 0


class Aliasing(Reader):
    """Its snapshot is the very objects that it changes."""

    def read(self, max_records: int) -> Batch:
        split = self.splits[0]
        start, split.position = split.position, min(split.position + max_records, 10)
        if split.position == 10:
            self.splits.pop(0)
        return Batch([10 * split.tens + i for i in range(start, split.position)])


class Locked(Reader):
    """Its snapshot holds a lock."""

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return [(split, threading.Lock()) for split in self.splits]


class OnlyItsOwn(Reader):
    """It reads only splits that carry its own number."""

    def add_splits(self, splits: Sequence[Any]) -> None:
        fresh = [s if hasattr(s, "owner") else Owned(s.tens, s.position, self.context.subtask_index) for s in splits]
        super().add_splits([split for split in fresh if split.owner == self.context.subtask_index])


@dataclass(frozen=True)
class Owned(Range):
    owner: int = 0


class EndsEarly(Reader):
    """It ends when it has read one split."""

    has_read = False

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        self.has_read |= bool(self.splits)
        return InputStatus.END_OF_INPUT if self.has_read and not self.splits else super().poll_next(max_records)


class AsksAgain(Reader):
    """It asks at every poll."""

    def end(self) -> InputStatus:
        self.has_asked = False
        return super().end()


class AsksInStartToo(Reader):
    def start(self) -> None:
        self.context.request_split()


class NeverEnds(Reader):
    def end(self) -> InputStatus:
        super().end()
        return InputStatus.NOTHING_AVAILABLE


class TakesAll(Reader):
    """It returns a whole split, however few records it is asked for."""

    def read(self, max_records: int) -> Batch:
        return super().read(10)


class Empty(Reader):
    """It returns an empty batch where it has nothing."""

    def end(self) -> Any:
        status = super().end()
        return Batch([]) if status is InputStatus.NOTHING_AVAILABLE else status


class OneSplitOnly(Reader):
    """It drops the splits that it has when it gets others."""

    def add_splits(self, splits: Sequence[Any]) -> None:
        self.splits = list(splits)[-1:]
        self.has_asked = False


class Backwards(Reader):
    def read(self, max_records: int) -> Batch:
        return Batch(super().read(max_records).values[::-1])


class KeepsWhatIsRead(Reader):
    """Its snapshot has splits that are read to their ends."""

    done: Any = None

    def read(self, max_records: int) -> Batch:
        split = self.splits[0]
        found = super().read(max_records)
        if split not in self.splits and len(self.splits) < 1:
            self.done = replace(split, position=10)
        return found

    def add_splits(self, splits: Sequence[Any]) -> None:
        super().add_splits([split for split in splits if split.position < 10])

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return [*self.splits, *([self.done] if self.done is not None else [])]


READ_SO_FAR = [0]


class Different(Reader):
    """What it reads depends on how often it was read."""

    def read(self, max_records: int) -> Batch:
        READ_SO_FAR[0] += 1
        values = super().read(max_records).values
        return Batch([value if READ_SO_FAR[0] < 60 else -value for value in values])


class ClosesOnce(Reader):
    is_closed = False

    def close(self) -> None:
        if self.is_closed:
            raise ValueError("I am closed")
        self.is_closed = True


class CannotCloseUnstarted(Reader):
    connection: Any = None

    def start(self) -> None:
        self.connection = []

    def close(self) -> None:
        self.connection.clear()


# --- readers of several splits at a time -----------------------------------------------------------------------------


class Interleaving(Reader):
    """It keeps all rules, and reads its splits in turn."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.paused: set[str] = set()
        self.ended: list[str] = []

    def add_splits(self, splits: Sequence[Any]) -> None:
        super().add_splits(splits)
        for split in splits:
            self.context.open_split(str(split.tens))

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        while self.ended:
            self.context.close_split(self.ended.pop())
        if len(self.splits) < 2:
            self.end()
        for index, split in enumerate(self.splits):
            if str(split.tens) not in self.paused:
                self.splits.insert(0, self.splits.pop(index))
                return self.batch(split, max_records)
        return InputStatus.NOTHING_AVAILABLE if self.splits else self.end()

    def batch(self, split: Any, max_records: int) -> Batch:
        name = str(split.tens)
        values = self.read(max_records).values
        if any(other.tens == split.tens for other in self.splits):
            self.splits.append(self.splits.pop(0))
        else:
            self.ended.append(name)
        return SplitBatch(values, None, name)

    def pause_or_resume_splits(self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]) -> None:
        self.paused = (self.paused | set(splits_to_pause)) - set(splits_to_resume)


class DoesNotPause(Interleaving):
    def pause_or_resume_splits(self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]) -> None: ...


class DoesNotOpenRestored(Interleaving):
    """It opens splits that it gets from the enumerator, which it takes for those that are at their beginning."""

    def add_splits(self, splits: Sequence[Any]) -> None:
        Reader.add_splits(self, splits)
        for split in splits:
            if not split.position:
                self.context.open_split(str(split.tens))


class ClosesTooSoon(Interleaving):
    def batch(self, split: Any, max_records: int) -> Batch:
        found = super().batch(split, max_records)
        while self.ended:
            self.context.close_split(self.ended.pop())
        return found


class Nameless(Interleaving):
    def batch(self, split: Any, max_records: int) -> Batch:
        return Batch(super().batch(split, max_records).values)


# --- enumerators ----------------------------------------------------------------------------------------------------


class ForgetsWhatComesBack(Queue):
    def add_splits_back(self, splits: Sequence[Any], subtask_index: int) -> None: ...


class LosesWhatComesBackInSnapshots(Queue):
    """A snapshot between the failure of a reader and its next request lacks the splits that came back."""

    back: Any = ()

    def add_splits_back(self, splits: Sequence[Any], subtask_index: int) -> None:
        self.back = (*self.back, *splits)

    def handle_split_request(self, subtask_index: int) -> None:
        super().add_splits_back(self.back, subtask_index)
        self.back = ()
        super().handle_split_request(subtask_index)


class RemembersWhoAsked(Queue):
    """It answers each reader with the end once, and does not forget that when the reader begins again."""

    told: Any = ()

    def handle_split_request(self, subtask_index: int) -> None:
        if self.splits or subtask_index not in self.told:
            if not self.splits:
                self.told = (*self.told, subtask_index)
            super().handle_split_request(subtask_index)


class KeepsWhatIsAssigned(Queue):
    def __init__(self, source: Numbers, context: Any, restored: Any) -> None:
        super().__init__(source, context, restored)
        self.all = list(self.splits)

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return self.all


class BeginsAnewFromNothing(Queue):
    """An empty list in its snapshot is as good as none."""

    def __init__(self, source: Numbers, context: Any, restored: Any) -> None:
        super().__init__(source, context, restored or None)


class SpeaksAfterTheEnd(Queue):
    """It tells a reader of the end, and finds another split."""

    def handle_split_request(self, subtask_index: int) -> None:
        if len(self.splits) == 1:
            self.context.signal_no_more_splits(subtask_index)
        super().handle_split_request(subtask_index)


class Silent(Queue):
    """It answers only while it has splits."""

    def handle_split_request(self, subtask_index: int) -> None:
        if self.splits:
            super().handle_split_request(subtask_index)


class ShowsItsQueue(Queue):
    """Its snapshot is the queue itself, which goes on."""

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return self.splits


class WithHandle(Numbers):
    """It holds what cannot be pickled."""

    def __init__(self) -> None:
        self.handle = threading.Lock()


class MutableNumbers(Numbers):
    reader = Aliasing

    def splits(self) -> list[Any]:
        return [MutableRange(tens) for tens in range(4)]


def numbers(reader: type[Reader] = Reader, enumerator: type[Queue] = Queue) -> Numbers:
    """A source of these parts."""
    source = Numbers()
    source.reader, source.enumerator = reader, enumerator
    return source
