"""Reads one split of a file that consists of large units, such as Parquet row groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from penstock.base.errors import FormatError
from penstock.connectors.file.filesystem import open_input
from penstock.connectors.file.split import Block, FileSplit
from penstock.formats.bulk_format import BulkFile, BulkFormat


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
