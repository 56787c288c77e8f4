"""Parts of files, and how far a reader is in one."""

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
    """A range of bytes of a file, and the position in it (G8).

    A record belongs to the split in whose range it begins. The position is a place where reading can begin, and how
    many records after it were handed out. The place is the offset of a line, or for Parquet the ordinal of a row group.

    Attributes:
        path: the file.
        start: the first byte of the range.
        end: the byte after the range; None for a file that is read as a whole.
        offset: where to begin, or `NOT_BEGUN`.
        skip_records: records after `offset` that were handed out before.
        skip_malformed: malformed records after `offset` that were reported before.
    """

    path: str
    start: int
    end: int | None
    offset: int = NOT_BEGUN
    skip_records: int = 0
    skip_malformed: int = 0

    @property
    def split_id(self) -> str:
        """Names the split; the same at every position."""
        return f"{self.path}:{self.start}-{'' if self.end is None else self.end}"

    @property
    def order(self) -> tuple[str, int]:
        """Sorts splits by path and start."""
        return self.path, self.start


@dataclass(slots=True)
class Block:
    """Records read in one go, with the position before the first of them.

    Attributes:
        values: the records, as a list or as columns.
        offset: a `FileSplit.offset`.
        records_before: records between `offset` and the first of `values`.
        malformed: malformed records among and before the values that were not reported before.
        malformed_total: all malformed records from `offset` on, reported before or in this block.
        kinds: what each record does to a table, as in `Batch.kinds`.
        end: of a file of lines, the offset of the byte after the block.
    """

    values: list[Any] | ColumnData
    offset: int
    records_before: int
    malformed: Sequence[Malformed] = ()
    malformed_total: int = 0
    kinds: bytes | None = None
    end: int = 0


def plan_splits(file: FileInfo, splittable: bool, split_bytes: int | None, parallelism: int) -> list[FileSplit]:
    """The splits of one file; none for an empty one.

    Args:
        file: the file.
        splittable: whether its format lets it be read from the middle; a compressed file never does.
        split_bytes: bytes per split; None to give each of `parallelism` readers one, of 1 to 16 MiB.
        parallelism: how many readers there are.
    """
    if not file.size_bytes:
        return []
    if not splittable or is_compressed(file.path):
        return [FileSplit(file.path, 0, None)]
    step = split_bytes or min(max(-(-file.size_bytes // parallelism), SPLIT_BYTES_MIN), SPLIT_BYTES_MAX)
    starts = range(0, file.size_bytes, step)
    return [FileSplit(file.path, start, min(start + step, file.size_bytes)) for start in starts]
