"""A source that reads several sources in sequence, for example a bounded history and then live data (A2).

The next source starts when every reader has finished the previous one, so no checkpoint holds unfinished splits of two
sources. The enumerator hosts the enumerator of the current source, and the readers host its readers. The protocol needs
no message of its own. When the current enumerator has no more splits for a reader, that reader gets an *end mark* in
place of a split. When the reader has finished its splits, it requests another one, which signals that it is done.

After a restart the current source's enumerator resumes from its snapshot, and signals the end to readers again.

In BATCH and MICRO_BATCH execution all splits are assigned up front, from several sources at a time. A reader sets the
splits of later sources aside; their arrival means that the current source has no more splits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, ContractError
from penstock.base.lineage import LineageDataset
from penstock.runtime import connector
from penstock.runtime.records import Batch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HybridSplit:
    """A split of one of the sources, identified by the source's number; an end mark if `is_end`."""

    source: int
    split: Any
    is_end: bool = False


class HybridSource(connector.Source[Any, HybridSplit]):
    """Reads several sources in sequence. Create it with `HybridSource.builder(first).add_source(next).build()`.

    Raises:
        ConfigurationError: if a source other than the last is unbounded.

    Examples:
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import NumberSequenceSource
        >>> from penstock.datastream.connectors.hybrid_source import HybridSource
        >>> builder = HybridSource.builder(NumberSequenceSource(1, 2))
        >>> source = builder.add_source(NumberSequenceSource(8, 9)).build()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").collect()
        [1, 2, 8, 9]
    """

    # All readers are at the same source; a reader restarted alone could find the others at a later one.
    restarts_by_reader = False

    def __init__(self, sources: Sequence[connector.Source[Any, Any]]) -> None:
        for number, source in enumerate(sources[:-1], 1):
            if source.boundedness is not connector.Boundedness.BOUNDED:
                raise ConfigurationError(
                    f"source {number} of the {len(sources)} in a HybridSource never ends, so the next would never be "
                    "read; only the last may be unbounded"
                )
        self.sources = tuple(sources)
        self.replayable = all(source.replayable for source in self.sources)

    @staticmethod
    def builder(first_source: connector.Source[Any, Any]) -> HybridSourceBuilder:
        """Return a builder that starts with the source to read first."""
        return HybridSourceBuilder(first_source)

    @property
    def boundedness(self) -> connector.Boundedness:
        """The boundedness of the last source."""
        return self.sources[-1].boundedness

    def configure(self, configuration: Configuration) -> None:
        """Configure each source."""
        for source in self.sources:
            source.configure(configuration)
        self.replayable = all(source.replayable for source in self.sources)

    def describe_lineage(self) -> tuple[LineageDataset, ...]:
        """Return the datasets of all sources."""
        return self.lineage or tuple(it for source in self.sources for it in source.describe_lineage())

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[HybridSplit], restored: Any | None
    ) -> connector.SplitEnumerator[HybridSplit]:
        """Return an enumerator that starts with the first source, or resumes at the source of a snapshot."""
        return _HybridEnumerator(self.sources, context, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, HybridSplit]:
        """Return a new reader for one subtask."""
        return _HybridReader(self.sources, context)

    def max_parallelism(self) -> int | None:
        """Return the lowest limit among the sources."""
        limits = [limit for source in self.sources if (limit := source.max_parallelism()) is not None]
        return min(limits) if limits else None


class HybridSourceBuilder:
    """Builder for `HybridSource`.

    Examples:
        >>> from penstock.datastream.connectors import NumberSequenceSource
        >>> from penstock.datastream.connectors.hybrid_source import HybridSource
        >>> builder = HybridSource.builder(NumberSequenceSource(1, 2))
        >>> builder.add_source(NumberSequenceSource(8, 9)).build().boundedness.name
        'BOUNDED'
    """

    def __init__(self, first_source: connector.Source[Any, Any]) -> None:
        self._sources: list[connector.Source[Any, Any]] = []
        self.add_source(first_source)

    def add_source(self, source: connector.Source[Any, Any]) -> HybridSourceBuilder:
        """Append a source, to be read after the previous ones.

        Raises:
            ConfigurationError: if it is not a source.
        """
        if not isinstance(source, connector.Source):
            raise ConfigurationError(f"a HybridSource consists of sources, not of {source!r}")
        self._sources.append(source)
        return self

    def build(self) -> HybridSource:
        """Build the source."""
        return HybridSource(self._sources)


class _HybridEnumerator(connector.SplitEnumerator[HybridSplit]):
    def __init__(
        self,
        sources: Sequence[connector.Source[Any, Any]],
        context: connector.SplitEnumeratorContext[HybridSplit],
        restored: tuple[int, Any] | None,
    ) -> None:
        self._sources = sources
        self.context = context
        self.number, state = restored or (0, None)
        #: readers that were notified of the current source's end, and readers that have reached it
        self._told: set[int] = set()
        self._done: set[int] = set()
        self._make(state)

    def _make(self, state: Any | None) -> None:
        context = _ForOneEnumerator(self, self.number)
        self._present: connector.SplitEnumerator[Any] = self._sources[self.number].create_enumerator(context, state)

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
        """Refuse a split for a reader that may have moved on to the next source."""
        if subtask_index in self._told:
            raise connector.late_split(type(self._sources[self.number]).__name__, subtask_index)

    def tell_end(self, subtask_index: int) -> None:
        """Signal to a reader that the current source has no more splits for it."""
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
    """The context of one source's enumerator; its calls have no effect once the next source has started."""

    receives_source_events = False

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


class _HybridReader(connector.SourceReader[Any, HybridSplit]):
    def __init__(self, sources: Sequence[connector.Source[Any, Any]], context: connector.SourceReaderContext) -> None:
        self._sources = sources
        self._context = context
        self._number = 0
        self._present: connector.SourceReader[Any, Any] | None = None
        self._present_context: _ForOneReader | None = None
        self._has_started = False
        self._requested = False
        self._no_more = False
        self._later: list[HybridSplit] = []

    def start(self) -> None:
        self._has_started = True
        if self._present is not None:
            self._present.start()

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        if self._present is None:
            if self._no_more:
                return connector.InputStatus.END_OF_INPUT
            if not self._requested:
                self._requested = True
                self._context.request_split()
            return connector.InputStatus.NOTHING_AVAILABLE
        result = self._present.poll_next(max_records)
        if result is not connector.InputStatus.END_OF_INPUT or (self._no_more and not self._later):
            return result
        self._leave()
        later, self._later = self._later, []
        self.add_splits(later)
        return self.poll_next(max_records)

    def _leave(self) -> None:
        """Close the current source's reader, which has finished; the next split request signals that."""
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
    """The context of one source's reader; it stops passing on split requests when its source ends."""

    def __init__(self, context: connector.SourceReaderContext) -> None:
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

    def send_source_event(self, event: Any) -> None:
        raise ContractError("sources of a HybridSource send no events to their enumerators")

    def open_split(self, split_id: str) -> None:
        self._open[split_id] = None
        self._context.open_split(split_id)

    def close_split(self, split_id: str) -> None:
        self._open.pop(split_id, None)
        self._context.close_split(split_id)

    def close_splits(self) -> None:
        """Close all splits that the reader has open."""
        for split_id in list(self._open):
            self.close_split(split_id)
