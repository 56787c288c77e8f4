"""`FileCommitCoordinator`: which files a checkpoint makes visible, and which partitions it declares complete.

A sink that merges files, or commits partitions, commits in one place. The coordinator gets the files of all writers,
and after those of each checkpoint the `WriterProgress` of each writer. For a checkpoint it returns

- the files that become visible, merged or as they are (`compaction`); others wait in its state;
- the partitions that are complete (`CompletePartition`): all their files are visible, and their trigger fires.

Its decisions are in the committables, and so in the checkpoint. A commit that is repeated does the same again.

**When a partition is complete.** By processing time: a delay after its first file. By event time: when the watermarks
of all writers have passed the partition's time, which is made of the values of its columns, by a delay. A partition
that gets rows later is committed again. At the end of the input every partition is.

Source: Flink's filesystem SQL connector, "Partition Commit".
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from penstock.base.errors import OperationError, PenstockError
from penstock.connectors.file import part_files
from penstock.connectors.file.committer import IGNORE, CommitError, FileCommittable, FileCommitter
from penstock.connectors.file.compaction import Compaction, MergedFile
from penstock.connectors.file.filesystem import (
    close_durably,
    create_held,
    join,
    open_input,
    rename,
    size_or_none,
    sync_names,
    write_whole,
)
from penstock.runtime.connector import SinkWriter, SinkWriterContext
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP

SUCCESS_FILE: Final = "_SUCCESS"


@dataclass(frozen=True, slots=True)
class WriterProgress:
    """What a writer reports at each checkpoint.

    Attributes:
        subtask_index: its subtask.
        parallelism: how many writers there are.
        watermark_ms: how far event time has come; the maximum once its input has ended.
    """

    subtask_index: int
    parallelism: int
    watermark_ms: int


class PartitionCommitPolicy(ABC):
    """What happens to a partition when it is complete. May happen again: after a failure, and when rows come late.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.datastream.connectors.file_system import PartitionCommitPolicy
        >>> class Log(PartitionCommitPolicy):
        ...     def commit(self, path, values):
        ...         Path("complete.txt").write_text(f"{values['day']} is complete")
        >>> Log().commit("orders/day=2020-01-01", {"day": "2020-01-01"})
        >>> Path("complete.txt").read_text()
        '2020-01-01 is complete'
    """

    @abstractmethod
    def commit(self, path: str, values: Mapping[str, str]) -> None:
        """Commit the partition in the directory `path`. `values` has the text of each partition column."""


@dataclass(frozen=True, slots=True)
class SuccessFilePolicy(PartitionCommitPolicy):
    """Writes an empty file into the directory of a complete partition.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.datastream.connectors.file_system import SuccessFilePolicy
        >>> SuccessFilePolicy("done").commit("orders/day=2020-01-01", {"day": "2020-01-01"})
        >>> Path("orders/day=2020-01-01/done").exists()
        True
    """

    file_name: str = SUCCESS_FILE

    def commit(self, path: str, values: Mapping[str, str]) -> None:
        """Write the file."""
        write_whole(join(path, self.file_name), b"")


class PartitionTime(ABC):
    """The time of a partition."""

    @abstractmethod
    def get_time_ms(self, bucket_id: str) -> int:
        """Return the time (ms) with which watermarks are compared. Raises `FormatError` if the values have none."""


@dataclass(frozen=True, slots=True)
class PartitionCommit:
    """When a partition is complete, and what happens then.

    Attributes:
        policies: what happens, in order.
        delay_ms: how long after its time, or after its first file, a partition is complete.
        time: the times of partitions, compared with watermarks; None to go by processing time.
    """

    policies: tuple[PartitionCommitPolicy, ...]
    delay_ms: int = 0
    time: PartitionTime | None = None


@dataclass(frozen=True, slots=True)
class CompletePartition:
    """A partition, by its directory below the base path, whose files are all visible or about to be."""

    bucket_id: str


@dataclass(slots=True)
class _Bucket:
    """The files of a bucket that wait, and for how many checkpoints."""

    files: list[FileCommittable]
    checkpoints: int = 0


class FileCommitCoordinator(SinkWriter[Any, Any]):
    """See the module docstring. Its state is a dict.

    Args:
        context: the context of the committing task.
        base_path: the base path of the sink.
        compaction: when files are merged; None to commit them as they come.
        partition_commit: when partitions are complete; None for sinks that do not declare it.
        state: the restored state, at most one item.
    """

    def __init__(
        self,
        context: SinkWriterContext,
        base_path: str,
        compaction: Compaction | None,
        partition_commit: PartitionCommit | None,
        state: Sequence[Any] = (),
    ) -> None:
        restored = state[0] if state else {}
        self._context = context
        self._base_path = base_path
        self._compaction = compaction
        self._partition_commit = partition_commit
        self._buckets: dict[str, _Bucket] = {
            bucket_id: _Bucket([FileCommittable(*file) for file in files], checkpoints)
            for bucket_id, (files, checkpoints) in restored.get("buckets", {}).items()
        }
        #: partitions with files since they were last committed, and the time (ms) of the first of these
        self._partitions: dict[str, int] = dict(restored.get("partitions", {}))
        self._watermarks: dict[int, int] = dict(restored.get("watermarks", {}))
        self._parallelism: int = restored.get("parallelism", 0)
        self._has_ended = False
        #: the staging directories of former jobs: once this job has a checkpoint, what is not pinned there is removed
        self._former = [directory for directory in self._find_waiting() if not self._is_own(directory)]
        if self._former:
            self.pin(context.restored_checkpoint_id or 0, ())

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Take files and reports of writers."""
        for value in values:
            if isinstance(value, WriterProgress):
                self._note(value)
            else:
                bucket_id = value.final_path.rpartition("/")[0].removeprefix(self._base_path).strip("/")
                self._buckets.setdefault(bucket_id, _Bucket([])).files.append(value)
                if self._partition_commit is not None:
                    self._partitions.setdefault(bucket_id, self._context.now_ms())

    def _note(self, progress: WriterProgress) -> None:
        if progress.parallelism != self._parallelism:
            self._parallelism = progress.parallelism
            self._watermarks.clear()  # by subtasks of before
        self._watermarks[progress.subtask_index] = progress.watermark_ms

    def flush(self, end_of_input: bool) -> None:
        """Note whether the input has ended."""
        self._has_ended = self._has_ended or end_of_input

    def prepare_commit(self) -> list[Any]:
        """Return the files that become visible, then the partitions that are complete."""
        complete = [bucket_id for bucket_id in sorted(self._partitions) if self._is_complete(bucket_id)]
        committables: list[Any] = []
        for bucket_id in sorted(self._buckets):
            bucket = self._buckets[bucket_id]
            bucket.checkpoints += 1
            if self._compaction is None:
                committables += bucket.files
            elif self._has_ended or bucket_id in complete or self._is_due(self._compaction, bucket):
                committables += self._compaction.split(bucket.files)
            else:
                continue
            del self._buckets[bucket_id]
        for bucket_id in complete:
            del self._partitions[bucket_id]
            committables.append(CompletePartition(bucket_id))
        return committables

    @staticmethod
    def _is_due(compaction: Compaction, bucket: _Bucket) -> bool:
        strategy = compaction.strategy
        if strategy.checkpoints is not None and bucket.checkpoints >= strategy.checkpoints:
            return True
        size_bytes = sum(file.size_bytes for file in bucket.files)
        return strategy.size_threshold is not None and size_bytes >= strategy.size_threshold

    def _is_complete(self, bucket_id: str) -> bool:
        settings = self._partition_commit
        if settings is None:
            return False
        if self._has_ended:
            return True
        if settings.time is None:
            elapsed_ms = self._context.now_ms() - self._partitions[bucket_id]
            return not settings.delay_ms or elapsed_ms > settings.delay_ms
        watermark_ms = min(
            (self._watermarks.get(subtask, MIN_TIMESTAMP) for subtask in range(self._parallelism)),
            default=MIN_TIMESTAMP,
        )
        return watermark_ms == MAX_WATERMARK or watermark_ms > settings.time.get_time_ms(bucket_id) + settings.delay_ms

    def snapshot_state(self, checkpoint_id: int) -> list[dict[str, Any]]:
        """Return what waits."""
        buckets = {
            bucket_id: ([astuple(file) for file in bucket.files], bucket.checkpoints)
            for bucket_id, bucket in self._buckets.items()
        }
        return [
            {
                "buckets": buckets,
                "partitions": dict(self._partitions),
                "watermarks": dict(self._watermarks),
                "parallelism": self._parallelism,
            }
        ]

    def pin(self, checkpoint_id: int, committables: Sequence[Any]) -> None:
        """Record that a savepoint names these files and those that wait."""
        named = [file for committable in committables for file in find_files(committable)]
        for directory, hidden_paths in self._find_waiting(named).items():
            part_files.Staging(directory).pin(
                join(directory, f".pins-0-{self._context.attempt}-{checkpoint_id}"), hidden_paths
            )

    def _find_waiting(self, others: Sequence[FileCommittable] = ()) -> dict[str, list[str]]:
        """Return the hidden paths of files that wait, and of others, by their staging directories."""
        by_staging: dict[str, list[str]] = {}
        for file in (*others, *(file for bucket in self._buckets.values() for file in bucket.files)):
            by_staging.setdefault(file.hidden_path.rpartition("/")[0], []).append(file.hidden_path)
        return by_staging

    def _is_own(self, directory: str) -> bool:
        own = part_files.staging_directory(self._base_path, self._context.job_id, "", part_files.MERGED)
        return directory.rpartition("/")[2].partition("-")[0] == own.rpartition("/")[2].partition("-")[0]

    def close(self) -> None:
        """Clear the directories of this job and of former ones at the end of the input, when all is committed."""
        if self._has_ended:
            for directory in self._former:
                part_files.Staging(directory).remove_unpinned()
            own = part_files.staging_directory(self._base_path, self._context.job_id, "", part_files.MERGED)
            for directory in part_files.find_stagings(own):
                part_files.Staging(directory).remove_needless_pins()


Committable: TypeAlias = FileCommittable | MergedFile | CompletePartition


def find_files(committable: Committable) -> tuple[FileCommittable, ...]:
    """Return the hidden files that a committable names."""
    if isinstance(committable, MergedFile):
        return committable.inputs
    return (committable,) if isinstance(committable, FileCommittable) else ()


class CoordinatedCommitter(FileCommitter):
    """Makes files visible, merges others, and commits partitions; repeating a commit has no effect.

    Args:
        base_path: the base path of the sink.
        staging: a staging directory of the job, whose leftovers `end_job` removes.
        missing: how to handle a missing file of restored state, see `FileCommitter`.
        compaction: how files are merged, if they are.
        partition_commit: what happens to complete partitions, if anything does.
    """

    def __init__(
        self,
        base_path: str,
        staging: str,
        missing: str = IGNORE,
        compaction: Compaction | None = None,
        partition_commit: PartitionCommit | None = None,
    ) -> None:
        super().__init__(None, missing)
        self._base_path = base_path
        self._job_staging = staging
        self._compaction = compaction
        self._policies = () if partition_commit is None else partition_commit.policies

    def commit(self, committables: Sequence[Any]) -> None:
        """Commit all, for the first time; a failed call may be repeated with the same committables.

        Raises:
            CommitError: if a file is missing or does not have the expected length.
            OperationError: if files cannot be merged, or a policy raises.
        """
        self._commit_all(committables, super().commit, is_first=True)

    def recommit(self, committables: Sequence[Any]) -> None:
        """Commit all, although some or all may have been committed long ago. Raises the errors of `commit`."""
        self._commit_all(committables, super().recommit, is_first=False)

    def _commit_all(
        self, committables: Sequence[Committable], commit: Callable[[Sequence[FileCommittable]], None], is_first: bool
    ) -> None:
        merged = [item for item in committables if isinstance(item, MergedFile)]
        if merged:
            assert self._compaction is not None
            with ThreadPoolExecutor(self._compaction.strategy.compact_threads) as threads:
                list(threads.map(lambda item: self._merge(item, is_first), merged))
        commit([item for item in committables if isinstance(item, FileCommittable)])
        for item in committables:
            if isinstance(item, CompletePartition):
                self._complete(item.bucket_id)

    def _merge(self, item: MergedFile, is_first: bool) -> None:
        final_path = item.final_path
        sizes = [size_or_none(file.hidden_path) for file in item.inputs]
        if sizes == [file.size_bytes for file in item.inputs]:
            self._write_merged(item)
            self._made_visible.add(final_path)
        elif size_or_none(final_path) is None:
            file, size_bytes = next(
                (file, size) for file, size in zip(item.inputs, sizes, strict=True) if size != file.size_bytes
            )
            if size_bytes is not None:
                raise CommitError(
                    f"cannot merge {file.hidden_path} into {final_path}: it has {size_bytes} bytes, expected "
                    f"{file.size_bytes}"
                )
            problem = f"it is missing, and so is {file.hidden_path}, which was to be merged into it"
            self._on_missing(problem, final_path, is_first and final_path not in self._made_visible)
        part_files.discard(file.hidden_path for file in item.inputs)

    def _write_merged(self, item: MergedFile) -> None:
        assert self._compaction is not None
        hidden_path, final_path = item.hidden_path, item.final_path
        open_path = f".{part_files.OPEN}.".join(hidden_path.rsplit(f".{part_files.CLOSED}.", 1))
        with contextlib.ExitStack() as files:
            inputs = [open_input(file.hidden_path, decompress=False) for file in item.inputs]
            for file in inputs:
                files.callback(file.close)
            output = create_held(open_path)
            files.callback(output.close)
            try:
                self._compaction.compactor.compact(inputs, output)
            except PenstockError:
                raise
            except Exception as error:
                raise OperationError(
                    f"{len(inputs)} files cannot be merged into {final_path}: {type(error).__name__}: {error}"
                ) from error
            close_durably(output)
        rename(open_path, final_path)
        sync_names([final_path])

    def _complete(self, bucket_id: str) -> None:
        path = join(self._base_path, bucket_id) if bucket_id else self._base_path
        parts = (part.partition("=") for part in bucket_id.split("/"))
        values = {unquote(name): unquote(value) for name, equals, value in parts if equals}
        for policy in self._policies:
            try:
                policy.commit(path, values)
            except Exception as error:
                raise OperationError(
                    f"partition {bucket_id or path} cannot be committed: {policy} raised {type(error).__name__}: "
                    f"{error}"
                ) from error

    def end_job(self) -> None:
        """Remove the job's remaining hidden files, except files that a savepoint names."""
        for directory in part_files.find_stagings(self._job_staging):
            part_files.Staging(directory).remove_unpinned()
        part_files.remove_what_died(self._base_path)
