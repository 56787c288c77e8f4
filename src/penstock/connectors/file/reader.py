"""The reader of a file source: reads splits one after the other and returns their records in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from penstock.codecs.column_data import ColumnData
from penstock.connectors.file.bulk_reader import BulkSplitReader
from penstock.connectors.file.line_reader import BLOCK_BYTES, LineSplitReader
from penstock.connectors.file.split import Block, FileSplit
from penstock.core.columns.batch import ColumnBatch
from penstock.core.connector import InputStatus, SourceReader, SourceReaderContext
from penstock.core.records import Batch
from penstock.formats.bulk_format import BulkFormat
from penstock.formats.errors import MalformedRecordError
from penstock.formats.stream_format import StreamFormat

MALFORMED_COUNTER = "malformed_records"
# How many splits and blocks one call may pass without finding a record.
_STEPS_MAX = 16


class SplitReader(Protocol):
    """Reads one split."""

    def next_block(self) -> Block | None:
        """Return the next block; None at the end of the split."""
        ...

    def line_number(self, block: Block, line: int) -> int:
        """Return the file-wide number, from 1, of a line in the block just read."""
        ...

    def record_place(self, block: Block, index: int) -> str:
        """Return the location in the file of the record at `index` of `block.values`, for errors."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class FileSourceReader(SourceReader[Any, FileSplit]):
    """Reads file splits in one subtask (G8: a snapshot points just past the last record handed out).

    Args:
        context: the runtime context of the reader.
        file_format: the format of the files.
        block_bytes: how much of a line-based file to decode at a time, which bounds the time of one `poll_next`.
    """

    def __init__(
        self,
        context: SourceReaderContext,
        file_format: StreamFormat[Any] | BulkFormat[Any],
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._context = context
        self._format = file_format
        self._block_bytes = block_bytes
        self._splits: deque[FileSplit] = deque()
        self._reader: SplitReader | None = None  # the reader of the first split
        self._block: Block | None = None
        self._origin: Callable[[int], str] | None = None  # the origin of the block's records
        self._index = 0  # how many records of the block were handed out
        self._requested = False
        self._no_more = False
        self._more_at_once = False

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """Return at most `max_records` records, a whole batch of columns, or why no records are available."""
        self._more_at_once = False
        for _ in range(_STEPS_MAX):
            block = self._block
            if block is not None and self._index < len(block.values):
                if isinstance(block.values, ColumnData):
                    self._index = len(block.values)
                    batch = ColumnBatch(block.values, None, block.kinds)
                    batch.origin = self._origin
                    return batch
                start, self._index = self._index, self._index + max_records
                if start == 0 and len(block.values) <= max_records:
                    return Batch(block.values)
                return Batch(block.values[start : self._index])
            if not self._splits:
                return self._without_splits()
            self._advance()
        self._more_at_once = True
        return InputStatus.NOTHING_AVAILABLE

    def retry_after_ms(self) -> int:
        """Return 0 if the last call merely reached its step limit, since there is nothing to wait for."""
        return 0 if self._more_at_once else super().retry_after_ms()

    def add_splits(self, splits: Sequence[FileSplit]) -> None:
        """Append splits after the current ones, in the enumerator's order.

        Splits that readers of another parallelism had begun arrive unordered. If they were read as they arrive, the
        latest might come first and advance the watermark.
        """
        self._splits.extend(sorted(splits, key=lambda split: split.order))
        self._requested = False

    def no_more_splits(self) -> None:
        """Note that no further splits will come."""
        self._no_more = True

    def snapshot_state(self, checkpoint_id: int) -> list[FileSplit]:
        """Return the splits not fully read, with their positions."""
        splits = list(self._splits)
        block = self._block
        if block is not None:
            handed_out = min(self._index, len(block.values))
            splits[0] = replace(
                splits[0],
                offset=block.offset,
                skip_records=block.records_before + handed_out,
                skip_malformed=block.malformed_total,
            )
        return splits

    def close(self) -> None:
        """Close the open file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _without_splits(self) -> InputStatus:
        if self._no_more:
            return InputStatus.END_OF_INPUT
        if not self._requested:
            self._requested = True
            self._context.request_split()
        return InputStatus.NOTHING_AVAILABLE

    def _advance(self) -> None:
        """Read the next block of the first split, or drop that split at its end."""
        if self._reader is None:
            self._reader = self._open(self._splits[0])
        block = self._reader.next_block()
        if block is None:
            self.close()
            self._block = None
            self._splits.popleft()
            return
        if block.malformed:
            self._report(block, self._reader)
        self._block = block
        self._index = 0
        reader, path = self._reader, self._splits[0].path
        self._origin = lambda index: f"{path}, {reader.record_place(block, index)}"

    def _open(self, split: FileSplit) -> SplitReader:
        if isinstance(self._format, BulkFormat):
            return BulkSplitReader(split, self._format)
        return LineSplitReader(split, self._format, self._block_bytes)

    def _report(self, block: Block, reader: SplitReader) -> None:
        """Fail on the block's first malformed record, or count them all and send them to the side output."""
        assert isinstance(self._format, StreamFormat)
        path = self._splits[0].path
        if self._format.on_error == "fail":
            first = block.malformed[0]
            raise MalformedRecordError(path, reader.line_number(block, first.line), first.reason, first.text)
        self._context.count(MALFORMED_COUNTER, len(block.malformed))
        tag = self._format.malformed_output
        if tag is not None:
            lines_before = reader.line_number(block, 0)
            rows = [(path, lines_before + record.line, record.reason, record.text) for record in block.malformed]
            self._context.collect_side(tag.tag_id, Batch(rows))
