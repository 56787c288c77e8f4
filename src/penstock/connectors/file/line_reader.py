"""Reads one split of a line-based file, block by block.

A line belongs to the split that contains its first byte. A reader that starts in the middle of a file therefore steps
back one byte and looks for the end of that line. Every reader finishes the line at which its range ends.
"""

from __future__ import annotations

from typing import Any, BinaryIO

from penstock.codecs.messages import BAD_RECORD, format_reason
from penstock.connectors.file.filesystem import open_input
from penstock.connectors.file.split import NOT_BEGUN, Block, FileSplit
from penstock.formats.errors import MalformedRecordError
from penstock.formats.stream_format import DecodedBlock, LineDecoder, StreamFormat

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
