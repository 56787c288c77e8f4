"""A bounded stream cached in files: the sink that writes it and the source that reads it back (`DataStream.cache`).

Each subtask appends pickled batches to hidden files that a commit makes visible. At the end of its input it writes an
empty marker file. The result is complete when every subtask has a marker file. Without checkpoints a subtask writes one
file, which another attempt overwrites. With checkpoints it writes one file per checkpoint.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from penstock.codecs.column_data import ColumnData
from penstock.codecs.pickling import dumps
from penstock.connectors.file.committer import FileCommittable, FileCommitter
from penstock.connectors.file.filesystem import close_durably, create, join, list_all, open_input, remove
from penstock.connectors.split_reader import PositionedReader, SplitQueue
from penstock.runtime import connector
from penstock.runtime.columns import make_batch
from penstock.runtime.records import Batch

_PART, _END = "part", "end"


def is_whole(directory: str) -> bool:
    """Return whether all subtasks have written all their records to the directory."""
    ends = [_name(path).split("-") for path in list_all(directory) if _name(path).startswith(_END)]
    return bool(ends) and {int(end[1]) for end in ends} >= set(range(int(ends[0][2])))


def remove_cached(directory: str) -> None:
    """Delete all files that were written to the directory."""
    remove(list_all(directory))


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


class CachingSink(connector.Sink[Any]):
    """Writes records to files in a directory that nothing else uses."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def create_writer(self, context: connector.SinkWriterContext) -> connector.SinkWriter[Any, FileCommittable]:
        """Create a writer for one subtask."""
        return _CachingWriter(self._directory, context, 0)

    def restore_writer(
        self, context: connector.SinkWriterContext, state: Sequence[Any]
    ) -> connector.SinkWriter[Any, FileCommittable]:
        """Create a writer that continues with the next file number."""
        return _CachingWriter(self._directory, context, max(state, default=0))

    def create_committer(self, context: connector.SinkWriterContext) -> connector.Committer[FileCommittable]:
        """Create the committer, which makes files visible."""
        return FileCommitter()


class JobCachingSink(CachingSink):
    """A `CachingSink` for consecutive jobs, each with its own directory; see `directory_of_job`."""

    def create_writer(self, context: connector.SinkWriterContext) -> connector.SinkWriter[Any, FileCommittable]:
        """Create a writer for one subtask."""
        return _CachingWriter(directory_of_job(self._directory, context.job_id), context, 0)


def directory_of_job(directory: str, job_id: str) -> str:
    """Return the directory to which a job's `JobCachingSink` writes."""
    return join(directory, job_id)


class _CachingWriter(connector.SinkWriter[Any, FileCommittable]):
    def __init__(self, directory: str, context: connector.SinkWriterContext, number: int) -> None:
        self._directory = directory
        self._context = context
        self._number = number
        self._file: BinaryIO | None = None
        self._ended = False

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self._write(values, timestamps)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        self._write(data, rowtimes)

    def _write(self, values: Any, timestamps: Any) -> None:
        if self._file is None:
            self._file = create(self._hidden(_PART))
        self._file.write(dumps((values, timestamps)))

    def flush(self, end_of_input: bool) -> None:
        self._ended = self._ended or end_of_input

    def prepare_commit(self) -> list[FileCommittable]:
        prepared = []
        if self._file is not None:
            prepared.append(self._closed(self._file, _PART, f"{_PART}-{self._context.subtask_index}-{self._number}"))
            self._file = None
            self._number += 1
        if self._ended:
            self._ended = False
            name = f"{_END}-{self._context.subtask_index}-{self._context.parallelism}"
            prepared.append(self._closed(create(self._hidden(_END)), _END, name))
        return prepared

    def _closed(self, file: BinaryIO, kind: str, name: str) -> FileCommittable:
        size_bytes = file.tell()
        close_durably(file)
        return FileCommittable(self._hidden(kind), join(self._directory, name), size_bytes)

    def _hidden(self, kind: str) -> str:
        context = self._context
        return join(self._directory, f".{kind}-{context.subtask_index}-{self._number}-{context.run}")

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return [self._number]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True, slots=True)
class CachedSplit:
    """One file and the read position in bytes."""

    path: str
    position: int = 0


class CachedSource(connector.Source[Any, CachedSplit]):
    """Reads the records that a `CachingSink` wrote, with their timestamps."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded."""
        return connector.Boundedness.BOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[CachedSplit], restored: Any | None
    ) -> connector.SplitEnumerator[CachedSplit]:
        """Create the enumerator, which hands out the files."""
        paths = sorted(path for path in list_all(self._directory) if _name(path).startswith(_PART))
        return SplitQueue(context, [CachedSplit(path) for path in paths], restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, CachedSplit]:
        """Create a reader."""
        return _CachedReader(context)


class _CachedReader(PositionedReader[CachedSplit]):
    def __init__(self, context: connector.SourceReaderContext) -> None:
        super().__init__(context)
        self._file: BinaryIO | None = None
        self._open_path = ""

    def read(self, split: CachedSplit, max_records: int) -> tuple[Batch, CachedSplit] | None:
        # A batch is handed out whole, as it was written: it fits into a buffer.
        if self._file is None or self._open_path != split.path:
            self.close()
            self._file, self._open_path = open_input(split.path, decompress=False), split.path
            self._file.seek(split.position)
        try:
            values, timestamps = pickle.load(self._file)
        except EOFError:
            self.close()
            return None
        return make_batch(values, timestamps), replace(split, position=self._file.tell())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
