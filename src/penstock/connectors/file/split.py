"""Splits of files, and the read positions in them.

Discovers the files of a file source and hands out their splits.

Splits are assigned in order of path and offset, each to the next reader that requests one. If files are named by time,
readers therefore stay close together in time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from penstock.codecs.column_data import ColumnData
from penstock.connectors.file.filesystem import FileInfo, is_compressed, list_files
from penstock.formats.file_format import Malformed
from penstock.runtime.connector import SplitEnumerator, SplitEnumeratorContext

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


class FileEnumerator(SplitEnumerator[FileSplit]):
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
        context: SplitEnumeratorContext[FileSplit],
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
