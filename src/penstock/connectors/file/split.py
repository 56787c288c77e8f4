"""Splits of files, and the read positions in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.codecs.column_data import ColumnData
from penstock.connectors.file.filesystem import FileInfo, is_compressed
from penstock.formats.stream_format import Malformed

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
