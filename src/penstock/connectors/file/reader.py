"""Splits of files, the enumerator that discovers files and hands splits out, and the readers of the splits.

A `FileSplit` is a byte range of a file with a read position. `FileEnumerator` assigns splits in order of path and
offset, each to the next reader that requests one. If files are named by time, readers therefore stay close together in
time.

`LineSplitReader` reads a split of a line-based file, block by block. A line belongs to the split that contains its
first byte. A reader that starts in the middle of a file therefore steps back one byte and looks for the end of that
line. Every reader finishes the line at which its range ends. `BulkSplitReader` reads a split of a file that consists of
large units, such as Parquet row groups.

`FileSourceReader` reads splits one after the other and returns their records in batches.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Protocol, TypedDict

from penstock.base.errors import FormatError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.serialization import BAD_RECORD, format_reason
from penstock.connectors.file.filesystem import FileInfo, is_compressed, list_files, open_input
from penstock.formats.file_format import (
    BulkFile,
    BulkFormat,
    DecodedBlock,
    LineDecoder,
    Malformed,
    MalformedRecordError,
    StreamFormat,
)
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import Batch

NOT_BEGUN = -1
SPLIT_BYTES_MIN = 1 << 20
SPLIT_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A byte range of a file, and a read position in it (G8).

    A record belongs to the split in whose range it begins. A position is an offset where reading can start, plus the
    number of records after it that were already emitted. The offset is that of a line, or for Parquet the ordinal of a
    row group.

    Attributes:
        path: the file.
        start: the first byte of the range.
        end: the byte after the range; None for a file that is read as a whole.
        offset: where to start reading, or `NOT_BEGUN`.
        skip_records: the number of records after `offset` already emitted.
        skip_malformed: the number of malformed records after `offset` already reported.
    """

    path: str
    start: int
    end: int | None
    offset: int = NOT_BEGUN
    skip_records: int = 0
    skip_malformed: int = 0

    @property
    def split_id(self) -> str:
        """The name of the split, which is the same at every position."""
        return f"{self.path}:{self.start}-{'' if self.end is None else self.end}"

    @property
    def order(self) -> tuple[str, int]:
        """The sort key of the split: its path, then its start."""
        return self.path, self.start


@dataclass(slots=True)
class Block:
    """Records read together, and the position before the first of them.

    Attributes:
        values: the records, as a list or as columns.
        offset: where to start reading again, as in `FileSplit.offset`.
        records_before: the number of records between `offset` and the first of `values`.
        malformed: malformed records in and before `values` that were not reported yet.
        malformed_total: the number of malformed records since `offset`, reported earlier or in this block.
        kinds: the row kind of each record, as in `Batch.kinds`.
        end: for a file of lines, the offset of the byte after the block.
    """

    values: list[Any] | ColumnData
    offset: int
    records_before: int
    malformed: Sequence[Malformed] = ()
    malformed_total: int = 0
    kinds: bytes | None = None
    end: int = 0


def plan_splits(file: FileInfo, splittable: bool, split_bytes: int | None, parallelism: int) -> list[FileSplit]:
    """Return the splits of one file; an empty file has none.

    Args:
        file: the file.
        splittable: whether the format can be read from the middle; compressed files are never split.
        split_bytes: bytes per split; None for an equal share per reader, limited to 1 to 16 MiB.
        parallelism: the number of readers.
    """
    if not file.size_bytes:
        return []
    if not splittable or is_compressed(file.path):
        return [FileSplit(file.path, 0, None)]
    step = split_bytes or min(max(-(-file.size_bytes // parallelism), SPLIT_BYTES_MIN), SPLIT_BYTES_MAX)
    starts = range(0, file.size_bytes, step)
    return [FileSplit(file.path, start, min(start + step, file.size_bytes)) for start in starts]


_LOG = logging.getLogger(__name__)


class FileEnumeratorState(TypedDict):
    """The state of an enumerator: unassigned splits, and every discovered file with its modification time (ms)."""

    pending: list[FileSplit]
    seen: dict[str, int | None]
    listed: bool


class FileEnumerator(connector.SplitEnumerator[FileSplit]):
    """Hands out the splits of a fixed set of files, or of all files that appear in monitored paths (G8).

    Args:
        context: the runtime context of the enumerator.
        paths: files, directories and glob patterns.
        splittable: whether the format lets a file be read from the middle.
        split_bytes: the split size in bytes; None for a size that gives each reader one split.
        interval_ms: the time between two discoveries; None to discover files once.
        restored: the state to resume from.

    A failed discovery fails the job, because it raises in the job master. In a bounded source, a path that matches
    nothing is such a failure; a monitored path may still be empty.
    """

    def __init__(
        self,
        context: connector.SplitEnumeratorContext[FileSplit],
        paths: Sequence[str],
        splittable: bool,
        split_bytes: int | None,
        interval_ms: int | None,
        restored: FileEnumeratorState | None = None,
    ) -> None:
        self._context = context
        self._paths = tuple(paths)
        self._splittable = splittable
        self._split_bytes = split_bytes
        self._interval_ms = interval_ms
        self._pending: deque[FileSplit] = deque(restored["pending"] if restored else ())
        self._given_back: deque[FileSplit] = deque()
        self._seen: dict[str, int | None] = dict(restored["seen"]) if restored else {}
        self._listed = restored is not None and restored["listed"]
        self._waiting: dict[int, None] = {}  # an ordered set of subtasks

    def start(self) -> None:
        """Start discovering files."""
        if not self._listed or self._interval_ms is not None:
            self._context.call_async(self._look, self._found)

    def handle_split_request(self, subtask_index: int) -> None:
        """Assign the next split as soon as one is available."""
        self._waiting[subtask_index] = None
        self._assign()

    def add_splits_back(self, splits: Sequence[FileSplit], subtask_index: int) -> None:
        """Return splits to the front of the queue, in order even if they come from several readers."""
        self._waiting.pop(subtask_index, None)
        self._given_back = deque(sorted([*splits, *self._given_back], key=lambda split: split.order))
        self._assign()

    def snapshot_state(self, checkpoint_id: int) -> FileEnumeratorState:
        """Return the unassigned splits and the discovered files."""
        pending = [*self._given_back, *self._pending]
        return FileEnumeratorState(pending=pending, seen=dict(self._seen), listed=self._listed)

    def _look(self) -> list[FileInfo]:
        """List all files. Runs in the background, so it accesses no mutable state."""
        watching = self._interval_ms is not None
        files: dict[str, FileInfo] = {}
        for path in self._paths:
            try:
                files.update((file.path, file) for file in list_files(path))
            except FileNotFoundError:
                if not watching:
                    raise
        return [files[path] for path in sorted(files)]

    def _found(self, files: list[FileInfo] | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        for file in files or ():
            self._take(file)
        self._listed = True
        self._assign()
        if self._interval_ms is not None:
            self._context.call_async(self._look, self._found, self._interval_ms)

    def _take(self, file: FileInfo) -> None:
        if file.path in self._seen:
            if self._seen[file.path] != file.modified_ms:
                _LOG.warning("%s changed after it was discovered; data added since then is not read", file.path)
                self._seen[file.path] = file.modified_ms
            return
        self._seen[file.path] = file.modified_ms
        self._pending.extend(plan_splits(file, self._splittable, self._split_bytes, self._context.parallelism))

    def _next(self) -> FileSplit | None:
        """Remove the next split from the queue and return it."""
        left = self._given_back or self._pending
        return left.popleft() if left else None

    def _assign(self) -> None:
        while self._waiting and (split := self._next()) is not None:
            subtask_index = next(iter(self._waiting))
            del self._waiting[subtask_index]
            self._context.assign_split(split, subtask_index)
        if self._listed and self._interval_ms is None and not self._given_back and not self._pending:
            for subtask_index in self._waiting:
                self._context.signal_no_more_splits(subtask_index)
            self._waiting.clear()


BLOCK_BYTES = 256 << 10
RECORD_BYTES_MAX = 64 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_FEED = b"\n"


class LineSplitReader:
    """Reads the blocks of a split of lines.

    Args:
        split: the split and the position to resume from.
        stream_format: the format of the file.
        block_bytes: how much to read at a time.

    Raises:
        MalformedRecordError: if the file's header is invalid; also later, for a record that exceeds 64 MiB.
    """

    def __init__(self, split: FileSplit, stream_format: StreamFormat[Any], block_bytes: int = BLOCK_BYTES) -> None:
        self._split = split
        self._block_bytes = block_bytes
        self._file: BinaryIO = open_input(split.path)
        self._buffer = b""
        self._at_end = False
        # Where to resume counting lines: an offset and the number of line feeds before it.
        self._counted = (0, 0)
        self._skip_records = split.skip_records
        self._skip_malformed = split.skip_malformed
        try:
            header = self._read_header(stream_format.header_lines)
            self._decoder = self._make_decoder(stream_format, header)
            self._position = split.offset if split.offset != NOT_BEGUN else self._find_start(len(header))
            self._file.seek(self._position)
        except BaseException:
            self.close()
            raise

    def next_block(self) -> Block | None:
        """Return the next block with records or newly found malformed ones; None at the end of the split."""
        while True:
            offset = self._position
            decoded = self._next_decoded()
            if decoded is None:
                return None
            skipped = min(self._skip_records, len(decoded.values))
            known = min(self._skip_malformed, len(decoded.malformed))
            self._skip_records -= skipped
            self._skip_malformed -= known
            values = decoded.values[skipped:] if skipped else decoded.values
            malformed = decoded.malformed[known:]
            if values or malformed:
                kinds = None if decoded.kinds is None else decoded.kinds[skipped:]
                total = len(decoded.malformed)
                return Block(values, offset, skipped, malformed, total, kinds, self._position)

    def record_place(self, block: Block, index: int) -> str:
        """Return the line of a block's record, for errors. Reads the file again, and works after it is closed."""
        assert self._decoder is not None
        with open_input(self._split.path) as file:
            file.seek(block.offset)
            data = file.read(block.end - block.offset)
        data = data.removeprefix(_BYTE_ORDER_MARK) if block.offset == 0 else data
        lines = [line + b"\n" for line in data.removesuffix(b"\n").split(b"\n")]
        before, upto = 0, len(lines)
        # Invariant: the record is not among the first `before` lines, but is among the first `upto`.
        while upto - before > 1:
            middle = (before + upto) // 2
            if len(self._decode_first(lines, middle).values) > block.records_before + index:
                upto = middle
            else:
                before = middle
        # A multi-line record begins after the lines that are consumed without its last line.
        consumed = self._decode_first(lines, before).consumed_bytes
        return f"line {self.line_number(block, data.count(_LINE_FEED, 0, consumed))}"

    def _decode_first(self, lines: list[bytes], count: int) -> DecodedBlock:
        assert self._decoder is not None
        return self._decoder.decode(b"".join(lines[:count]), False)

    def line_number(self, block: Block, line: int) -> int:
        """Return the file-wide number, from 1, of a line in a block. Reads the file again to count."""
        offset, lines = self._counted if self._counted[0] <= block.offset else (0, 0)
        file = open_input(self._split.path)
        try:
            file.seek(offset)
            while offset < block.offset:
                data = file.read(min(block.offset - offset, self._block_bytes))
                if not data:
                    break
                offset += len(data)
                lines += data.count(b"\n")
        finally:
            file.close()
        self._counted = (offset, lines)
        return lines + line + 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _make_decoder(self, stream_format: StreamFormat[Any], header: bytes) -> LineDecoder[Any] | None:
        """Return a decoder that knows the header; None if the format needs a header but the file is empty."""
        if stream_format.header_lines and not header:
            return None
        try:
            return stream_format.create_decoder(header.removeprefix(_BYTE_ORDER_MARK))
        except BAD_RECORD as error:
            text = header.decode("utf-8", "replace").rstrip("\r\n")
            raise MalformedRecordError(self._split.path, 1, format_reason(error), text) from error

    def _next_decoded(self) -> DecodedBlock | None:
        """Decode complete lines from the position on, and advance the position past them."""
        if self._decoder is None:
            return None
        want = self._block_bytes
        while True:
            cut = self._cut(want)
            if cut == 0:
                return None
            last = self._at_end and cut == len(self._buffer)
            block = self._buffer[:cut]
            if self._position == 0:
                mark = len(_BYTE_ORDER_MARK) if block.startswith(_BYTE_ORDER_MARK) else 0
                decoded = self._decoder.decode(block[mark:], last)
                decoded = decoded._replace(consumed_bytes=decoded.consumed_bytes + mark)
            else:
                decoded = self._decoder.decode(block, last)
            if decoded.consumed_bytes or last:
                break
            want = 2 * len(self._buffer)  # more than is buffered, or the next cut might be the same
            self._check_record(cut)
        consumed = len(block) if last else decoded.consumed_bytes
        self._buffer = self._buffer[consumed:]
        self._position += consumed
        return decoded

    def _cut(self, want: int) -> int:
        """Buffer at least `want` bytes and a complete line; return how many bytes are lines of the split."""
        end = self._split.end
        limit = None if end is None else end - self._position
        if limit is not None and limit <= 0:
            return 0
        while True:
            while len(self._buffer) < want and not self._at_end:
                self._fill(want - len(self._buffer))
            if limit is not None and len(self._buffer) >= limit:
                cut = self._buffer.find(b"\n", limit - 1) + 1
            else:
                cut = self._buffer.rfind(b"\n") + 1
            if cut and not (self._at_end and limit is None):
                return cut
            if self._at_end:
                return cut if cut and limit is not None and len(self._buffer) >= limit else len(self._buffer)
            self._check_record(len(self._buffer))
            want = 2 * len(self._buffer)

    def _fill(self, size: int) -> None:
        data = self._file.read(size)
        self._at_end = not data
        self._buffer += data

    def _check_record(self, size: int) -> None:
        if size > RECORD_BYTES_MAX:
            line = self.line_number(Block([], self._position, 0), 0)
            excerpt = self._buffer[:200].decode("utf-8", "replace")
            raise MalformedRecordError(self._split.path, line, f"the record exceeds {RECORD_BYTES_MAX} bytes", excerpt)

    def _read_header(self, lines: int) -> bytes:
        """Return the first lines of the file, including their line ends."""
        header = b""
        while lines and header.count(b"\n") < lines and len(header) <= RECORD_BYTES_MAX:
            data = self._file.read(4096)
            if not data:
                return header
            header += data
        end = 0
        for _ in range(lines):
            end = header.find(b"\n", end) + 1 or len(header)
        return header[:end]

    def _find_start(self, header_bytes: int) -> int:
        """Return the offset of the first line that begins in the split, or an offset at or after its end."""
        start, end = self._split.start, self._split.end
        if start == 0:
            return header_bytes
        position = start - 1
        self._file.seek(position)
        while end is None or position < end:
            data = self._file.read(min(self._block_bytes, 8192))
            newline = data.find(b"\n")
            if newline >= 0:
                return max(position + newline + 1, header_bytes)
            if not data:
                break
            position += len(data)
        return position if end is None else max(position, end)


class BulkSplitReader:
    """Reads the blocks of a split of units; a position is a unit and a number of records within it.

    Raises:
        FormatError: if the file does not have the format; the message names the file.
    """

    def __init__(self, split: FileSplit, bulk_format: BulkFormat[Any]) -> None:
        self._split = split
        self._file: BinaryIO = open_input(split.path, decompress=False)
        try:
            self._blocks = self._read(bulk_format.open(self._file))
        except FormatError as error:
            self.close()
            raise FormatError(f"{split.path}: {error}") from error
        except BaseException:
            self.close()
            raise

    def next_block(self) -> Block | None:
        """Return the next block of records; None at the end of the split."""
        try:
            return next(self._blocks, None)
        except FormatError as error:
            raise FormatError(f"{self._split.path}: {error}") from error

    def line_number(self, block: Block, line: int) -> int:
        """Return the number of a record of the block, from 1, because the file has no lines."""
        return block.records_before + line + 1

    def record_place(self, block: Block, index: int) -> str:
        """Return the number of a record and of its unit, such as a Parquet row group, for errors."""
        record = f"record {block.records_before + index + 1}"
        return record if block.offset == 0 else f"{record} of block {block.offset + 1}"

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, file: BulkFile[Any]) -> Iterator[Block]:
        split = self._split
        for unit in file.units(split.start, split.end):
            if unit < split.offset:
                continue
            before = split.skip_records if unit == split.offset else 0
            for values in file.read(unit, before):
                if values:
                    yield Block(values, unit, before)
                before += len(values)


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


class FileSourceReader(connector.SourceReader[Any, FileSplit]):
    """Reads file splits in one subtask (G8: a snapshot points just past the last record handed out).

    Args:
        context: the runtime context of the reader.
        file_format: the format of the files.
        block_bytes: how much of a line-based file to decode at a time, which bounds the time of one `poll_next`.
    """

    def __init__(
        self,
        context: connector.SourceReaderContext,
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

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
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
        return connector.InputStatus.NOTHING_AVAILABLE

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

    def _without_splits(self) -> connector.InputStatus:
        if self._no_more:
            return connector.InputStatus.END_OF_INPUT
        if not self._requested:
            self._requested = True
            self._context.request_split()
        return connector.InputStatus.NOTHING_AVAILABLE

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
