"""`FileSink`: writes files to any file system that fsspec supports, exactly once.

`FileWriter` writes hidden part files: the first phase of the commit (G9). A new writer removes the files that earlier
attempts left and no snapshot names. `part_files` has the rules and explains why they are safe.

Atomic commits of batch jobs: a file beside the part files lists the files that a run is about to make visible (G9).

A run of a batch has two files in the directory `.penstock` of a sink's base path, named after the job and the run:

- `….run`, locked by the process that drives the job for as long as it lives (`filesystem.create_held`);
- `….commit`, written atomically before the first part file becomes visible, and removed once all of them are visible.

A run whose `.run` is no longer locked is therefore dead. If it has no `.commit`, all its output is still hidden.
Otherwise the files in that list are removed, visible or not. In both cases nothing of the run remains, and the job's
next run writes all rows once.

Where files cannot be locked (only local file systems support it), the only sign of another run is a `.commit` of the
same job name. It is rolled back even though that run may be alive. That run then finds its list removed, and fails
rather than silently losing its rows.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Sequence
from copy import copy
from typing import Any, BinaryIO, Final, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from penstock.base.durable_files import check_outlives, errors_name
from penstock.base.errors import ConfigurationError, MissingPathError
from penstock.base.lineage import LineageDataset, name_location
from penstock.base.typeinfo import TypeInformation
from penstock.codecs.column_data import ColumnData
from penstock.codecs.serialization import BulkWriterFactory, Encoder, SerializationSchema
from penstock.connectors.file import part_files
from penstock.connectors.file.buckets import BucketAssigner, OutputFileConfig, RollingPolicy, check_bucket_id
from penstock.connectors.file.commit_coordinator import (
    CoordinatedCommitter,
    FileCommitCoordinator,
    PartitionCommit,
    SuccessFilePolicy,
    WriterProgress,
)
from penstock.connectors.file.committer import FAIL, IGNORE, CommitError, FileCommittable, FileCommitter
from penstock.connectors.file.compaction import Compaction, FileCompactor, FileCompactStrategy, MergedFile
from penstock.connectors.file.filesystem import (
    absolute_path,
    create_held,
    is_local,
    join,
    list_all,
    read_bytes,
    remove,
    remove_unless_held,
    size_or_none,
    sync_names,
    write_whole,
)
from penstock.connectors.file.part_files import STAGING, Staging, discard, hidden_size, is_part, remove_what_died
from penstock.formats.file_format import BatchWriter
from penstock.runtime.connector import CommitLog, Committer, RecordError, Sink, SinkWriter, SinkWriterContext, call_each
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP

_RUN, _COMMIT = ".run", ".commit"
_WITH_PARTITIONS: Final = "partitions"


class FileCommitLog(CommitLog):
    """The commit log of one run.

    Args:
        base_path: the base path of the sink.
        staging: the staging directory of the run.
        job_name: the job whose earlier runs to roll back.
        partition_commit: what the run does to complete partitions, if it does anything.
    """

    def __init__(
        self, base_path: str, staging: str, job_name: str, partition_commit: PartitionCommit | None = None
    ) -> None:
        digest = hashlib.blake2b(job_name.encode(), digest_size=8).hexdigest()
        self._job_name = job_name
        self._base_path = base_path
        self._staging = staging
        self._policies = () if partition_commit is None else partition_commit.policies
        self._directory = join(base_path, STAGING)
        self._prefix = f".{digest}-"
        self._path = join(self._directory, f"{self._prefix}{staging.rpartition('/')[2]}")
        self._held: BinaryIO | None = None
        self._written: _Listed | None = None

    def begin(self) -> list[str]:
        """Roll back dead runs and lock this run's file."""
        lines = [line for stem in self._dead() for line in self._take_back(stem)]
        remove_what_died(self._base_path)
        if is_local(self._directory):
            self._held = create_held(self._path + _RUN)
        return lines

    def _dead(self) -> list[str]:
        """Return the paths of dead runs, without their suffixes."""
        mine = [path for path in list_all(self._directory) if path.rpartition("/")[2].startswith(self._prefix)]
        stems = sorted({path.rpartition(".")[0] for path in mine if path.endswith((_RUN, _COMMIT))})
        return [stem for stem in stems if not is_local(stem) or remove_unless_held(stem + _RUN)]

    def _take_back(self, stem: str) -> list[str]:
        lines = []
        listed = _read(stem + _COMMIT)
        if listed is not None:
            missing = _remove(listed)
            lines.append(
                f"a run of job {self._job_name!r} died while committing {len(listed.files)} files; "
                "they were rolled back"
                + (f"; {missing} of them had already been removed, so their rows may appear twice" if missing else "")
            )
        name = stem.rpartition("/")[2].removeprefix(self._prefix)
        _remove_hidden(join(self._directory, name))
        remove([stem + _COMMIT])
        return lines

    def write(self, committables: Sequence[Any]) -> None:
        """Write the list."""
        self._write(self._list(committables))

    def _list(self, committables: Sequence[Any]) -> _Listed:
        files, inputs, marks = [], [], []
        for item in committables:
            if isinstance(item, FileCommittable):
                files.append(item)
            elif isinstance(item, MergedFile):
                files.append(FileCommittable(item.hidden_path, item.final_path, _UNKNOWN_BYTES))
                inputs += [file.hidden_path for file in item.inputs]
            else:
                directory = join(self._base_path, item.bucket_id) if item.bucket_id else self._base_path
                marks += [join(directory, p.file_name) for p in self._policies if isinstance(p, SuccessFilePolicy)]
        return _Listed(files, inputs, marks)

    def _write(self, listed: _Listed) -> None:
        self._written = listed
        content = {
            "job": self._job_name,
            "files": [[file.hidden_path, file.final_path, file.size_bytes] for file in listed.files],
            "inputs": listed.inputs,
            "marks": listed.marks,
        }
        write_whole(self._path + _COMMIT, json.dumps(content).encode())

    def take_back(self) -> None:
        """Remove the files of the list, and then the list.

        Rewrites the list first if it was removed, either by a failed `close_commit` or by the log of another sink.
        """
        listed = _read(self._path + _COMMIT)
        if listed is None and self._written is not None:
            listed = self._written
            self._write(listed)
        if listed is not None:
            _remove(listed)
        remove([self._path + _COMMIT])

    def close_commit(self) -> None:
        """Remove the list."""
        if size_or_none(self._path + _COMMIT) is None:
            raise CommitError(
                f"another run of job {self._job_name!r} has rolled back what this one committed under "
                f"{self._base_path}: do not run two at a time, or give them different names"
            )
        remove([self._path + _COMMIT])
        sync_names([self._path + _COMMIT])  # if a power failure restored the list, the next run would act on it

    def end(self) -> None:
        """Remove all hidden files of the run."""
        if self._held is not None:
            self._held.close()
            self._held = None
        remove([self._path + _RUN])
        _remove_hidden(self._staging)


class _Listed(NamedTuple):
    """What a run commits: files that become visible, hidden files that are merged into some of them, and marks."""

    files: list[FileCommittable]
    inputs: list[str]
    marks: list[str]


#: the size in a list of a file that is still to be written
_UNKNOWN_BYTES: Final = -1


def _remove_hidden(staging: str) -> None:
    for directory in part_files.find_stagings(staging):
        Staging(directory).remove_unpinned()


def _read(path: str) -> _Listed | None:
    """Return the content of a list, or None if the list does not exist.

    Raises:
        CommitError: if the list names anything but part files.
    """
    try:
        content: Any = json.loads(read_bytes(path))
    except FileNotFoundError:
        return None
    committables = [FileCommittable(*file) for file in content["files"]]
    for committable in committables:
        hidden, final = (p.rpartition("/")[2] for p in (committable.hidden_path, committable.final_path))
        if not (is_part(hidden) and hidden.startswith(f".{final}.")):
            raise CommitError(f"{path} is not a list of part files: it names {committable.final_path}")
    inputs, marks = content.get("inputs", []), content.get("marks", [])
    base_path = path.rpartition(f"/{STAGING}/")[0]
    for other in (*inputs, *marks):
        if not (is_part(other.rpartition("/")[2]) if other in inputs else other.startswith(f"{base_path}/")):
            raise CommitError(f"{path} is not a list of part files: it names {other}")
    return _Listed(committables, inputs, marks)


def _remove(listed: _Listed) -> int:
    """Remove the files durably, hidden ones first so that no run can show them again; return how many were missing."""
    missing = 0
    discard(listed.inputs)
    remove(listed.marks)
    for file in listed.files:
        is_there = hidden_size(file.hidden_path) is not None or size_or_none(file.final_path) is not None
        discard([file.hidden_path])
        remove([file.final_path])
        missing += not is_there and file.size_bytes != _UNKNOWN_BYTES
    sync_names(
        [*listed.marks, *(file.final_path for file in listed.files)]
    )  # if a power failure restored a file, no list would name it
    return missing


#: The name of an encoder or serialization schema in error messages.
ENCODER: Final = "the encoder"


class PartFormat(Protocol):
    """Writes records into one part file."""

    def write(self, values: Sequence[Any] | ColumnData) -> None:
        """Write records in order."""
        ...

    def finish(self) -> None:
        """Write the end of the file."""
        ...

    def discard(self) -> None:
        """Release all resources; the file will be removed."""
        ...


class RowPartFormat:
    """Writes records with an encoder, or with a schema and a line feed after each record."""

    def __init__(self, encoder: Encoder[Any] | SerializationSchema[Any], stream: BinaryIO) -> None:
        self._encoder = encoder
        self._stream = stream

    def write(self, values: Sequence[Any] | ColumnData) -> None:
        """Write records in order, with a single write to the file."""
        encoder = self._encoder
        encode_batch = getattr(encoder, "encode_batch", None)
        if encode_batch is not None:
            self._stream.write(encode_batch(values))
        elif isinstance(encoder, SerializationSchema):
            self._stream.write(b"".join([line + b"\n" for line in _serialized(encoder, values)]))
        else:
            buffer = io.BytesIO()
            for value in values:
                try:
                    encoder.encode(value, buffer)
                except Exception as error:
                    raise RecordError(value, ENCODER) from error
            self._stream.write(buffer.getbuffer())

    def finish(self) -> None:
        """Do nothing, because no record is buffered."""

    def discard(self) -> None:
        """Do nothing, because it holds no resources."""


def _serialized(schema: SerializationSchema[Any], values: Sequence[Any] | ColumnData) -> list[bytes]:
    """Serialize all records at once; after a failure one by one, to find the record at fault."""
    try:
        lines = schema.serialize_batch(values)
        if len(lines) == len(values):
            return lines
    except Exception:  # noqa: BLE001 - of the program; the call below raises it again, with the record
        pass
    return call_each(schema.serialize, values, ENCODER)


class BulkPartFormat:
    """Writes records with a bulk writer."""

    def __init__(self, factory: BulkWriterFactory[Any], stream: BinaryIO) -> None:
        self._writer = factory.create(stream)

    def write(self, values: Sequence[Any] | ColumnData) -> None:
        """Pass records on, all at once if the writer supports it."""
        if isinstance(self._writer, BatchWriter):
            if isinstance(values, ColumnData):
                self._writer.add_columns(values)
            else:
                self._writer.add_elements(values)
        else:
            for value in values:
                self._writer.add_element(value)

    def finish(self) -> None:
        """Write the end of the file."""
        self._writer.finish()

    def discard(self) -> None:
        """Release the writer's resources."""
        if isinstance(self._writer, BatchWriter):
            self._writer.discard()


class _Part:
    """An open part file."""

    def __init__(self, open_path: str, closed_path: str, final_path: str, now_ms: int) -> None:
        self.open_path = open_path
        self.closed_path = closed_path
        self.final_path = final_path
        self.begun_ms = now_ms
        self.written_ms = now_ms
        self.stream = part_files.create_part(open_path, final_path)
        self.format: PartFormat | None = None


class FileWriter(SinkWriter[Any, FileCommittable]):
    """Writes the records of one subtask into hidden part files, with one open file per bucket.

    Args:
        context: the context of the writer's task.
        base_path: the directory below which the files are written.
        encoding: an encoder or schema for rows, or a factory of bulk writers.
        buckets: assigns records to buckets.
        rolling_policy: decides when to close a part file before the next checkpoint.
        names: names the files.
        counter: the first number to use in file names.
        stage: that of a sink that commits in one place, see `part_files.staging_directory`; empty for others.
    """

    def __init__(
        self,
        context: SinkWriterContext,
        base_path: str,
        encoding: Encoder[Any] | SerializationSchema[Any] | BulkWriterFactory[Any],
        buckets: BucketAssigner,
        rolling_policy: RollingPolicy,
        names: part_files.PartNames,
        counter: int = 0,
        stage: str = "",
    ) -> None:
        self._context = context
        self._base_path = base_path
        self._encoding = encoding
        self._buckets = buckets
        self._rolling_policy = rolling_policy
        self._names = names
        self._counter = counter
        self._open: dict[str, _Part] = {}
        self._closed: list[FileCommittable] = []  # not yet returned by prepare_commit
        self._since = context.restored_checkpoint_id or 0
        self._staging = part_files.Staging(names.staging)
        self._stage = stage
        self._watermark_ms = MIN_TIMESTAMP
        self._has_ended = False
        if context.attempt > 0:  # what waits to be merged is not committed, although checkpoints name it
            owes_nothing = context.owes_nothing and stage != part_files.MERGED
            self._staging.remove_stale(names, 0 if owes_nothing else self._since)
        if context.subtask_index == 0 and (context.attempt == 0 or not self._since):
            part_files.remove_what_died(base_path)
        for job_id in context.forerunners:
            former = part_files.Staging(part_files.staging_directory(base_path, job_id, context.operator_id, stage))
            former.remove_stale(names, self._since, of_forerunner=True)
            former.remove_if_empty()

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Write records in order into the part files of their buckets."""
        now_ms = self._context.now_ms()
        self._roll_by_policy(now_ms)
        if self._has_one_bucket:
            self._write(self._find_bucket(now_ms), values, now_ms)
        else:
            for bucket_id, members in self._group(values, timestamps, now_ms).items():
                self._write(bucket_id, members, now_ms)
        self._roll_by_policy(now_ms)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """Write columns, without converting them to rows if the format accepts columns."""
        now_ms = self._context.now_ms()
        self._roll_by_policy(now_ms)
        if self._has_one_bucket:
            self._write(self._find_bucket(now_ms), data, now_ms)
        else:
            for bucket_id, positions in self._positions(data, rowtimes, now_ms).items():
                self._write(bucket_id, ColumnData(data.columns.take(pa.array(positions))), now_ms)
        self._roll_by_policy(now_ms)

    @property
    def _has_one_bucket(self) -> bool:
        """Whether all records of a batch go to one bucket."""
        return self._buckets.is_constant or self._buckets.goes_by_clock

    def _find_bucket(self, now_ms: int) -> str:
        return self._buckets.bucket_id(None, now_ms) if self._buckets.goes_by_clock else ""

    def _positions(self, data: ColumnData, rowtimes: Any, now_ms: int) -> dict[str, Any]:
        """Return the positions of each bucket's records."""
        times = np.full(len(data), now_ms) if rowtimes is None else rowtimes
        names = np.array(list(map(self._buckets.bucket_id, data.rows(), times.tolist())))
        unique_names, codes = np.unique(names, return_inverse=True)
        return {str(name): np.flatnonzero(codes == code) for code, name in enumerate(unique_names)}

    def flush(self, end_of_input: bool) -> None:
        """Note whether the input has ended; no record is buffered."""
        self._has_ended = self._has_ended or end_of_input

    def write_watermark(self, watermark_ms: int) -> None:
        """Note how far event time has come, for partitions that are complete by it."""
        self._watermark_ms = watermark_ms

    def prepare_commit(self) -> list[Any]:
        """Close every part file; the files stay hidden until they are committed. Report progress to a coordinator."""
        for bucket_id in list(self._open):
            self._close_part(bucket_id)
        committables, self._closed = self._closed, []
        sync_names(committable.hidden_path for committable in committables)
        if not self._stage:
            return committables
        watermark_ms = MAX_WATERMARK if self._has_ended else self._watermark_ms
        context = self._context
        return [*committables, WriterProgress(context.subtask_index, context.parallelism, watermark_ms)]

    def snapshot_state(self, checkpoint_id: int) -> list[int]:
        """Return the next number to use in file names."""
        self._since = checkpoint_id
        return [self._counter]

    def pin(self, checkpoint_id: int, committables: Sequence[FileCommittable]) -> None:
        """Record that a savepoint names these files."""
        if committables:
            hidden_paths = [committable.hidden_path for committable in committables]
            self._staging.pin(self._names.pins(checkpoint_id), hidden_paths)

    def close(self) -> None:
        """Remove the files that were not prepared for commit."""
        leftover = [committable.hidden_path for committable in self._closed]
        parts, self._open, self._closed = list(self._open.values()), {}, []
        for part in parts:
            if part.format is not None:
                part.format.discard()
            part_files.discard_part(part.stream, part.open_path)
        part_files.discard(leftover)
        if self._has_ended:  # not after every epoch, while readers may be listing the output
            self._staging.remove_if_empty()

    def _group(self, values: list[Any], timestamps: list[int] | None, now_ms: int) -> dict[str, list[Any]]:
        groups: dict[str, list[Any]] = {}
        bucket_id = self._buckets.bucket_id
        for i, value in enumerate(values):
            try:
                key = bucket_id(value, now_ms if timestamps is None else timestamps[i])
            except Exception as error:
                raise RecordError(value, "the bucket assigner") from error
            groups.setdefault(key, []).append(value)
        return groups

    def _write(self, bucket_id: str, values: list[Any] | ColumnData, now_ms: int) -> None:
        if not len(values):
            return
        part = self._open.get(bucket_id) or self._begin_part(bucket_id, now_ms)
        assert part.format is not None
        with errors_name(part.open_path):
            part.format.write(values)
        part.written_ms = now_ms

    def _begin_part(self, bucket_id: str, now_ms: int) -> _Part:
        directory = join(self._base_path, check_bucket_id(bucket_id)) if bucket_id else self._base_path
        counter, self._counter = self._counter, self._counter + 1
        names, since = self._names, self._since
        final = join(directory, names.final(counter))
        part = self._open[bucket_id] = _Part(names.open(counter, since), names.closed(counter, since), final, now_ms)
        if isinstance(self._encoding, BulkWriterFactory):
            part.format = BulkPartFormat(self._encoding, part.stream)
        else:
            part.format = RowPartFormat(self._encoding, part.stream)
        return part

    def _roll_by_policy(self, now_ms: int) -> None:
        should_roll = self._rolling_policy.should_roll
        for bucket_id, part in list(self._open.items()):
            if should_roll(part.stream.tell(), part.begun_ms, part.written_ms, now_ms):
                self._close_part(bucket_id)

    def _close_part(self, bucket_id: str) -> None:
        part = self._open[bucket_id]
        assert part.format is not None
        with errors_name(part.open_path):
            part.format.finish()
        size_bytes = part.stream.tell()
        self._context.count("numBytesSend", size_bytes)
        try:
            part_files.close_part(part.stream, part.open_path, part.closed_path)
        except FileNotFoundError as error:
            raise MissingPathError(
                f"{part.open_path} is gone: somebody else has removed it while it was being written. Its rows are "
                "written again when the job restarts; leave what is hidden below the base path of a sink to the job"
            ) from error
        del self._open[bucket_id]
        self._closed.append(FileCommittable(part.closed_path, part.final_path, size_bytes))


T = TypeVar("T")
RecordT = TypeVar("RecordT")
Encoding = Encoder[Any] | SerializationSchema[Any] | BulkWriterFactory[Any]


class FileSink(Sink[T]):
    """Writes records to files below a directory, each exactly once (G9).

    Create one with `for_row_format` or `for_bulk_format`.

    A file is written in the hidden directory `.penstock` below the base path, and renamed once its checkpoint has
    completed. Readers that skip hidden files therefore see only complete files, and each record once. Files end at
    every checkpoint at the latest, so the checkpoint interval determines how many there are. Without checkpoints all
    files appear at the end of the input; in a batch, all of them or none.

    A killed job may leave hidden files. Its next attempt removes files that no checkpoint or savepoint names. Any other
    job with a sink at this path removes files that were never closed.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.common import Encoder
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import BucketAssigner, FileSink
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> rows = FileSink.for_row_format("words", Encoder.simple_string_encoder())
        >>> sink = rows.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
        >>> _ = env.from_elements("tea").sink_to(sink)
        >>> result = env.execute()
        >>> [path.read_text().strip() for path in Path("words").glob("part-*")]
        ['tea']
    """

    def __init__(
        self,
        base_path: str,
        encoding: Encoding,
        bucket_assigner: BucketAssigner,
        rolling_policy: RollingPolicy,
        file_config: OutputFileConfig,
        missing: str = IGNORE,
        compaction: Compaction | None = None,
        partition_commit: PartitionCommit | None = None,
    ) -> None:
        self._base_path = base_path
        self._encoding = encoding
        self._bucket_assigner = bucket_assigner
        self._rolling_policy = rolling_policy
        self._file_config = file_config
        self._missing = missing
        self._compaction = compaction
        self._partition_commit = partition_commit
        self._stage = "" if partition_commit is None else _WITH_PARTITIONS
        if compaction is not None:
            self._stage = part_files.MERGED
        self.commits_globally = bool(self._stage)

    def describe_lineage(self) -> tuple[LineageDataset, ...]:
        """Return the folder."""
        return self.lineage or (LineageDataset(*name_location(str(self._base_path))),)

    @staticmethod
    def for_row_format(
        base_path: str | os.PathLike[str], encoder: Encoder[T] | SerializationSchema[T]
    ) -> FileSink.RowFormatBuilder[T]:
        """Return a builder of a sink that writes record by record; a line feed follows each message of a schema.

        Raises:
            ConfigurationError: if `encoder` is neither an encoder nor a schema.
        """
        if not isinstance(encoder, Encoder | SerializationSchema):
            raise ConfigurationError(f"for_row_format takes an Encoder or a SerializationSchema, not {encoder!r}")
        return FileSink.RowFormatBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(
        base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory[T]
    ) -> FileSink.BulkFormatBuilder[T]:
        """Return a builder of a sink that uses bulk writers, such as those of CSV or Parquet.

        Raises:
            ConfigurationError: if `writer_factory` is not a writer factory.
        """
        if not isinstance(writer_factory, BulkWriterFactory):
            raise ConfigurationError(f"for_bulk_format takes a BulkWriterFactory, not {writer_factory!r}")
        return FileSink.BulkFormatBuilder(base_path, writer_factory)

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[T, FileCommittable]:
        """Create a writer for one subtask."""
        return self._writer(context, 0)

    def restore_writer(self, context: SinkWriterContext, state: Sequence[Any]) -> SinkWriter[T, FileCommittable]:
        """Create a writer after a recovery, which does not reuse the file numbers of the checkpoint's writer."""
        return self._writer(context, max(state, default=0))

    def create_commit_coordinator(
        self, context: SinkWriterContext, state: Sequence[Any]
    ) -> SinkWriter[Any, Any] | None:
        """Create the coordinator of a sink that merges files or commits partitions."""
        if not self._stage:
            return None
        return FileCommitCoordinator(context, self._base_path, self._compaction, self._partition_commit, state)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any]:
        """Create the committer, which renames files."""
        staging = part_files.staging_directory(self._base_path, context.job_id, context.operator_id, self._stage)
        if self._stage:
            return CoordinatedCommitter(
                self._base_path, staging, self._missing, self._compaction, self._partition_commit
            )
        return FileCommitter(staging, self._missing)

    def create_commit_log(self, context: SinkWriterContext, job_name: str) -> CommitLog:
        """Create the commit log, a list of part files beside them."""
        staging = part_files.staging_directory(self._base_path, context.job_id, context.operator_id, self._stage)
        return FileCommitLog(self._base_path, staging, job_name, self._partition_commit)

    def for_type(self, type_info: TypeInformation | None) -> FileSink[T]:
        """Return the sink for a declared record type, which defines the text (`Encoder.simple_string_encoder`)."""
        if not isinstance(self._encoding, Encoder):
            return self
        sink: FileSink[T] = copy(self)
        sink._encoding = self._encoding.for_type(type_info)
        return sink

    def _writer(self, context: SinkWriterContext, counter: int) -> FileWriter:
        config = self._file_config
        names = part_files.PartNames.of(context, self._base_path, config.part_prefix, config.part_suffix, self._stage)
        return FileWriter(
            context,
            self._base_path,
            self._encoding,
            self._bucket_assigner,
            self._rolling_policy,
            names,
            counter,
            self._stage,
        )

    class BaseBuilder(Generic[RecordT]):
        """Collects the settings of a `FileSink`."""

        def __init__(self, base_path: str | os.PathLike[str], encoding: Encoding) -> None:
            check_outlives(os.fspath(base_path))
            self._base_path = absolute_path(base_path)
            self._encoding = encoding
            self._bucket_assigner = BucketAssigner.date_time_bucket_assigner()
            self._rolling_policy: RollingPolicy = RollingPolicy.default_rolling_policy()
            self._file_config = OutputFileConfig()
            self._missing = IGNORE
            self._compaction: Compaction | None = None

        def build(self) -> FileSink[RecordT]:
            """Build the sink."""
            return FileSink(
                self._base_path,
                self._encoding,
                self._bucket_assigner,
                self._rolling_policy,
                self._file_config,
                self._missing,
                self._compaction,
            )

        def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Self:
            """Merge the files of each bucket before they become visible.

            One task merges the files of all writers. Until then they are in checkpoints, and no reader sees them.
            """
            self._compaction = Compaction(strategy, compactor)
            return self

        def disable_compact(self) -> Self:
            """Do not merge files, which is the default."""
            self._compaction = None
            return self

        def with_missing_part_files(self, missing: str) -> Self:
            """Set how to handle a missing or changed file of the checkpoint that the job starts from.

            `ignore`, the default, assumes that the file became visible and a reader of the output removed it; the job
            continues and logs a warning. `fail` fails the job.

            Raises:
                ConfigurationError: for any other value.
            """
            if missing not in (IGNORE, FAIL):
                raise ConfigurationError(f"with_missing_part_files takes {IGNORE!r} or {FAIL!r}, not {missing!r}")
            self._missing = missing
            return self

        def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
            """Set how records are assigned to directories; by the hour of writing by default."""
            self._bucket_assigner = bucket_assigner
            return self

        def with_bucket_check_interval(self, interval: int) -> Self:
            """Accept PyFlink's setting (ms) without effect. Time limits are checked with every batch instead."""
            return self

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
            """Set when a file ends before the next checkpoint."""
            self._rolling_policy = rolling_policy
            return self

        def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
            """Set the names of part files."""
            self._file_config = output_file_config
            return self

    class RowFormatBuilder(BaseBuilder[RecordT]):
        """Collects the settings of a row-format sink."""

    class BulkFormatBuilder(BaseBuilder[RecordT]):
        """Collects the settings of a bulk-format sink, whose files end only at checkpoints by default."""

        def __init__(self, base_path: str | os.PathLike[str], encoding: Encoding) -> None:
            super().__init__(base_path, encoding)
            self._rolling_policy = RollingPolicy.on_checkpoint_rolling_policy()
