"""A source made of several, read one after the other: for example a bounded history first, and then live data (A2).

The next source begins when every reader has read the one before to its end, so no checkpoint holds unfinished splits of
two sources. The enumerator hosts the enumerator of the present source, and the readers host its readers. The protocol
needs no message of its own. Where the present enumerator says that it has no more for a reader, that reader gets an
*end mark* in place of a split. Once the reader has read what it has, it asks for a split again, which says that it is
done.

After a restart the present source's enumerator goes on from its snapshot, and tells readers again that there is no
more.

In batch and in micro-batch execution all splits are dealt out ahead, those of several sources at a time. A reader puts
those of later sources aside, and learns from them that the present source has no more for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.base.errors import ConfigurationError, ContractError
from penstock.core.connector import (
    Boundedness,
    InputStatus,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
    late_split,
)
from penstock.core.records import Batch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HybridSplit:
    """A split of one of the sources, by that source's number; an end mark when `is_end`."""

    source: int
    split: Any
    is_end: bool = False


class HybridSource(Source[Any, HybridSplit]):
    """Reads sources one after the other. Made by `HybridSource.builder(first).add_source(next).build()`.

    Raises:
        ConfigurationError: if any of them but the last never ends.
    """

    # All readers are at the same source; one that went back alone could find the others at a later one.
    restarts_by_reader = False

    def __init__(self, sources: Sequence[Source[Any, Any]]) -> None:
        for number, source in enumerate(sources[:-1], 1):
            if source.boundedness is not Boundedness.BOUNDED:
                raise ConfigurationError(
                    f"source {number} of the {len(sources)} in a HybridSource never ends, so the next would never be "
                    "read; only the last may be unbounded"
                )
        self.sources = tuple(sources)
        self.replayable = all(source.replayable for source in self.sources)

    @staticmethod
    def builder(first_source: Source[Any, Any]) -> HybridSourceBuilder:
        """Starts with the source that is read first."""
        return HybridSourceBuilder(first_source)

    @property
    def boundedness(self) -> Boundedness:
        """The boundedness of the last source."""
        return self.sources[-1].boundedness

    def create_enumerator(
        self, context: SplitEnumeratorContext[HybridSplit], restored: Any | None
    ) -> SplitEnumerator[HybridSplit]:
        """Begins with the first source, or goes on with the one of a snapshot."""
        return _HybridEnumerator(self.sources, context, restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, HybridSplit]:
        """A new reader for one subtask."""
        return _HybridReader(self.sources, context)

    def max_parallelism(self) -> int | None:
        """The lowest limit among the sources' own."""
        limits = [limit for source in self.sources if (limit := source.max_parallelism()) is not None]
        return min(limits) if limits else None


class HybridSourceBuilder:
    """Collects the sources of a `HybridSource`."""

    def __init__(self, first_source: Source[Any, Any]) -> None:
        self._sources: list[Source[Any, Any]] = []
        self.add_source(first_source)

    def add_source(self, source: Source[Any, Any]) -> HybridSourceBuilder:
        """The source to read after those before.

        Raises:
            ConfigurationError: if it is not a source.
        """
        if not isinstance(source, Source):
            raise ConfigurationError(f"a HybridSource consists of sources, not of {source!r}")
        self._sources.append(source)
        return self

    def build(self) -> HybridSource:
        """The source."""
        return HybridSource(self._sources)


class _HybridEnumerator(SplitEnumerator[HybridSplit]):
    def __init__(
        self,
        sources: Sequence[Source[Any, Any]],
        context: SplitEnumeratorContext[HybridSplit],
        restored: tuple[int, Any] | None,
    ) -> None:
        self._sources = sources
        self.context = context
        self.number, state = restored or (0, None)
        #: readers that were told of the end of the present source, and those that have reached it
        self._told: set[int] = set()
        self._done: set[int] = set()
        self._make(state)

    def _make(self, state: Any | None) -> None:
        context = _ForOneEnumerator(self, self.number)
        self._present: SplitEnumerator[Any] = self._sources[self.number].create_enumerator(context, state)

    def start(self) -> None:
        self._present.start()

    def handle_split_request(self, subtask_index: int) -> None:
        if subtask_index not in self._told:
            self._present.handle_split_request(subtask_index)
            return
        self._done.add(subtask_index)
        if len(self._done) == self.context.parallelism and self.number + 1 < len(self._sources):
            self._present.close()
            self.number += 1
            self._told.clear()
            self._done.clear()
            self._make(None)
            self._present.start()
            for reader in range(self.context.parallelism):
                self._present.handle_split_request(reader)

    def must_not_be_told(self, subtask_index: int) -> None:
        """Refuse a split for a reader that may have gone on to the next source."""
        if subtask_index in self._told:
            raise late_split(type(self._sources[self.number]).__name__, subtask_index)

    def tell_end(self, subtask_index: int) -> None:
        """Tell a reader that the present source has no more for it."""
        self._told.add(subtask_index)
        if self.number + 1 < len(self._sources):
            self.context.assign_split(HybridSplit(self.number, None, is_end=True), subtask_index)
        else:
            self.context.signal_no_more_splits(subtask_index)

    def add_splits_back(self, splits: Sequence[HybridSplit], subtask_index: int) -> None:
        self._told.discard(subtask_index)
        self._done.discard(subtask_index)
        back = [split.split for split in splits if split.source == self.number and not split.is_end]
        if back:
            self._present.add_splits_back(back, subtask_index)

    def snapshot_state(self, checkpoint_id: int) -> tuple[int, Any]:
        return self.number, self._present.snapshot_state(checkpoint_id)

    def close(self) -> None:
        self._present.close()


class _ForOneEnumerator:
    """What the enumerator of one of the sources is handed; its calls have no effect once the next source has begun."""

    def __init__(self, host: _HybridEnumerator, number: int) -> None:
        self._host = host
        self._number = number

    @property
    def parallelism(self) -> int:
        return self._host.context.parallelism

    def assign_split(self, split: Any, subtask_index: int) -> None:
        if self._host.number == self._number:
            self._host.must_not_be_told(subtask_index)
            self._host.context.assign_split(HybridSplit(self._number, split), subtask_index)

    def signal_no_more_splits(self, subtask_index: int) -> None:
        if self._host.number == self._number:
            self._host.tell_end(subtask_index)

    def call_async(
        self, work: Callable[[], T], handler: Callable[[T | None, BaseException | None], None], delay_ms: int = 0
    ) -> None:
        def handle(result: T | None, error: BaseException | None) -> None:
            if self._host.number == self._number:
                handler(result, error)

        if self._host.number == self._number:
            self._host.context.call_async(work, handle, delay_ms)


class _HybridReader(SourceReader[Any, HybridSplit]):
    def __init__(self, sources: Sequence[Source[Any, Any]], context: SourceReaderContext) -> None:
        self._sources = sources
        self._context = context
        self._number = 0
        self._present: SourceReader[Any, Any] | None = None
        self._present_context: _ForOneReader | None = None
        self._has_started = False
        self._requested = False
        self._no_more = False
        self._later: list[HybridSplit] = []

    def start(self) -> None:
        self._has_started = True
        if self._present is not None:
            self._present.start()

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        if self._present is None:
            if self._no_more:
                return InputStatus.END_OF_INPUT
            if not self._requested:
                self._requested = True
                self._context.request_split()
            return InputStatus.NOTHING_AVAILABLE
        found = self._present.poll_next(max_records)
        if found is not InputStatus.END_OF_INPUT or (self._no_more and not self._later):
            return found
        self._leave()
        later, self._later = self._later, []
        self.add_splits(later)
        return self.poll_next(max_records)

    def _leave(self) -> None:
        """The present source has been read to its end here; asking for a split says so."""
        assert self._present is not None
        assert self._present_context is not None
        self._present.close()
        self._present_context.close_splits()
        self._present = self._present_context = None
        self._requested = False

    def add_splits(self, splits: Sequence[HybridSplit]) -> None:
        for number in sorted({split.source for split in splits}):
            mine = [split for split in splits if split.source == number]
            if self._present is not None and number > self._number:
                assert self._present_context is not None
                self._later += mine
                self._present_context.has_ended = True
                self._present.no_more_splits()
                continue
            is_new = self._present is None
            if is_new:
                self._number = number
                self._present_context = _ForOneReader(self._context)
                self._present = self._sources[number].create_reader(self._present_context)
            assert self._present is not None
            assert self._present_context is not None
            if number != self._number:
                raise ContractError(f"a split of source {number} came while source {self._number} is being read")
            parts = [split.split for split in mine if not split.is_end]
            if parts:
                self._present.add_splits(parts)
            if is_new and self._has_started:
                self._present.start()
            if len(parts) < len(mine) or (is_new and self._no_more):
                self._present_context.has_ended = True
                self._present.no_more_splits()

    def no_more_splits(self) -> None:
        self._no_more = True
        if self._present is not None:
            self._present.no_more_splits()

    def snapshot_state(self, checkpoint_id: int) -> list[HybridSplit]:
        if self._present is None:
            return []
        present = [HybridSplit(self._number, split) for split in self._present.snapshot_state(checkpoint_id)]
        return present + self._later

    def pause_or_resume_splits(self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]) -> None:
        if self._present is not None:
            self._present.pause_or_resume_splits(splits_to_pause, splits_to_resume)

    def retry_after_ms(self) -> int:
        if self._present is None:
            return super().retry_after_ms()
        self._present.polls_in_vain = self.polls_in_vain
        return self._present.retry_after_ms()

    def held_back_ms(self) -> int | None:
        return None if self._present is None else self._present.held_back_ms()

    def begin_at(self, time_ms: int) -> None:
        if self._present is not None:
            self._present.begin_at(time_ms)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._present is not None:
            self._present.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        if self._present is not None:
            self._present.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        if self._present is not None:
            self._present.close()


class _ForOneReader:
    """What the reader of one of the sources is handed; its requests end with its source."""

    def __init__(self, context: SourceReaderContext) -> None:
        self._context = context
        self._open: dict[str, None] = {}
        self.subtask_index = context.subtask_index
        self.parallelism = context.parallelism
        self.now_ms = context.now_ms
        self.count = context.count
        self.gauge = context.gauge
        self.collect_side = context.collect_side
        self.has_ended = False

    def request_split(self) -> None:
        if not self.has_ended:
            self._context.request_split()

    def open_split(self, split_id: str) -> None:
        self._open[split_id] = None
        self._context.open_split(split_id)

    def close_split(self, split_id: str) -> None:
        self._open.pop(split_id, None)
        self._context.close_split(split_id)

    def close_splits(self) -> None:
        """Close the reader, and with it all that it had open."""
        for split_id in list(self._open):
            self.close_split(split_id)
