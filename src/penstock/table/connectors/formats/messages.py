"""A source of columns that a format decodes from the messages of another source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from penstock.connectors.messages import refuse_or_skip
from penstock.core.columns.batch import ColumnBatch
from penstock.core.connector import (
    Boundedness,
    InputStatus,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.core.records import Batch
from penstock.table.connectors.formats.format import MessageDecoder
from penstock.table.connectors.tables import column_names

SplitT = TypeVar("SplitT")


class MessagesSource(Source[Any, SplitT], Generic[SplitT]):
    """Emits columns named c0, c1 and so on, decoded from the messages (text or bytes) of another source.

    Args:
        inner: the source of the messages.
        decoder: turns messages into columns.
        name: the name of the source in errors.
        skips_bad: whether invalid messages are skipped and counted; otherwise they fail the job.
    """

    def __init__(self, inner: Source[Any, SplitT], decoder: MessageDecoder, name: str, *, skips_bad: bool) -> None:
        self._inner = inner
        self._decoder = decoder
        self._name = name
        self._skips_bad = skips_bad
        self.replayable = inner.replayable
        self.restarts_by_reader = inner.restarts_by_reader

    @property
    def boundedness(self) -> Boundedness:
        """The boundedness of the message source."""
        return self._inner.boundedness

    def max_parallelism(self) -> int | None:
        """Return the maximum parallelism of the message source."""
        return self._inner.max_parallelism()

    def check_tempo(self, mode: str, is_local: bool) -> None:
        """Check the execution mode against the message source."""
        self._inner.check_tempo(mode, is_local)

    def create_enumerator(
        self, context: SplitEnumeratorContext[SplitT], restored: Any | None
    ) -> SplitEnumerator[SplitT]:
        """Create the enumerator of the message source."""
        return self._inner.create_enumerator(context, restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, SplitT]:
        """Create a reader."""
        inner = self._inner.create_reader(context)
        return _MessagesReader(context, inner, self._decoder, self._name, self._skips_bad)


class _MessagesReader(SourceReader[Any, SplitT]):
    def __init__(
        self,
        context: SourceReaderContext,
        inner: SourceReader[Any, SplitT],
        decoder: MessageDecoder,
        name: str,
        skips_bad: bool,
    ) -> None:
        self._context = context
        self._inner = inner
        self._decoder = decoder
        self._name = name
        self._skips_bad = skips_bad
        self._seen = 0

    def start(self) -> None:
        self._inner.start()

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        answer = self._inner.poll_next(max_records)
        if not isinstance(answer, Batch):
            return answer
        messages = [message.encode() if isinstance(message, str) else message for message in answer.values]
        decoded = self._decoder.decode(messages)
        first_offset = self._seen
        if decoded.bad:
            refuse_or_skip(
                decoded.bad,
                messages,
                lambda position: (self._name, first_offset + position),
                self._context,
                "skip" if self._skips_bad else "fail",
            )
        self._seen += len(messages)
        if not decoded.values:
            return InputStatus.NOTHING_AVAILABLE
        columns = decoded.columns
        named = pa.RecordBatch.from_arrays(columns.columns, column_names(columns.num_columns))
        batch = ColumnBatch(named, None, decoded.kinds)
        name, positions = self._name, decoded.places
        batch.origin = lambda index: (
            f"{name}, offset {first_offset + (index if positions is None else positions[index])}"
        )
        return batch

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        self._inner.add_splits(splits)

    def no_more_splits(self) -> None:
        self._inner.no_more_splits()

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        return self._inner.snapshot_state(checkpoint_id)

    def retry_after_ms(self) -> int:
        return self._inner.retry_after_ms()

    def held_back_ms(self) -> int | None:
        return self._inner.held_back_ms()

    def begin_at(self, time_ms: int) -> None:
        self._inner.begin_at(time_ms)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._inner.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._inner.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        self._inner.close()
