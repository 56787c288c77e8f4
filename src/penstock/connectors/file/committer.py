"""The second phase of a file sink's commit, which makes part files visible, and the commit log of batch jobs (G9).

`FileCommitLog` makes the commit of a batch job atomic: a file beside the part files lists the files that a run is about
to make visible. A run of a batch has two files in the directory `.penstock` of a sink's base path, named after the job
and the run:

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
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from penstock.base.errors import PenstockError
from penstock.connectors.file import filesystem, part_files
from penstock.runtime.connector import CommitLog, Committer

_log = logging.getLogger("penstock.connectors.file")

IGNORE: Final = "ignore"
FAIL: Final = "fail"


class CommitError(PenstockError, RuntimeError):
    """Raised when a prepared part file is missing or truncated and cannot be made visible. A restart does not help."""

    suppresses_restart = True


@dataclass(frozen=True, slots=True)
class FileCommittable:
    """A closed part file: its hidden path, final path and length."""

    hidden_path: str
    final_path: str
    size_bytes: int


class FileCommitter(Committer[FileCommittable]):
    """Makes part files visible under their final names; repeating a commit has no effect.

    | hidden file | final file | first commit | commit of restored state |
    | --- | --- | --- | --- |
    | complete | none | rename | rename |
    | none | complete | already committed | the same |
    | complete | complete | a move by copy and delete was interrupted: delete the hidden file | the same |
    | complete | truncated | a copy was interrupted: rename again | the same |
    | truncated | any, or both none | CommitError | CommitError |
    | none | truncated | CommitError | committed earlier, and changed since |
    | none | none | CommitError | committed earlier, and removed since |

    Within Penstock, a hidden file is removed only by its commit, or by an attempt that knows that no snapshot names it.
    So if a file of restored state is missing, the failed attempt or an earlier job had committed it, and a reader of
    the output has moved or deleted it: the committer logs a warning. Alternatively someone removed the hidden file,
    which looks the same. If `missing` is FAIL, both are errors.

    The same committer may retry a failed commit. It remembers which files it has already made visible, because readers
    may have removed these.

    Args:
        staging: the directory with this job's hidden files; None if they have no common directory.
        missing: how to handle a missing file of restored state.
    """

    def __init__(self, staging: str | None = None, missing: str = IGNORE) -> None:
        self._staging = None if staging is None else part_files.Staging(staging)
        self._missing = missing
        #: the final paths of the files already made visible
        self._made_visible: set[str] = set()

    def commit(self, committables: Sequence[FileCommittable]) -> None:
        """Commit all in order, for the first time; a failed call may be repeated with the same committables.

        Raises:
            CommitError: if a part file is missing or does not have the expected length.
        """
        for committable in committables:
            self._commit(committable, is_first=committable.final_path not in self._made_visible)
            self._made_visible.add(committable.final_path)
        filesystem.sync_names(committable.final_path for committable in committables)
        self._made_visible.clear()

    def recommit(self, committables: Sequence[FileCommittable]) -> None:
        """Commit all in order, although some or all may have been committed long ago.

        Raises:
            CommitError: if a hidden file does not have the expected length; with FAIL also if a part file is missing or
                has changed since it was committed.
        """
        for committable in committables:
            self._commit(committable, is_first=False)
        filesystem.sync_names(committable.final_path for committable in committables)

    def _commit(self, committable: FileCommittable, is_first: bool) -> None:
        hidden, final, size_bytes = committable.hidden_path, committable.final_path, committable.size_bytes
        hidden_bytes = part_files.hidden_size(hidden)
        final_bytes = filesystem.size_or_none(final)
        if final_bytes == size_bytes:
            if hidden_bytes is not None:
                part_files.discard([hidden])
        elif hidden_bytes == size_bytes:
            self._show(hidden, final)
        elif hidden_bytes is not None:
            raise CommitError(f"cannot commit {final}: {hidden} has {hidden_bytes} bytes, expected {size_bytes}")
        else:
            problem = "it is missing" if final_bytes is None else f"it has {final_bytes} bytes"
            self._on_missing(f"{problem}, expected {size_bytes} bytes, and {hidden} is gone", final, is_first)

    @staticmethod
    def _show(hidden: str, final: str) -> None:
        try:
            part_files.show(hidden, final)
        except part_files.UploadGoneError as error:
            raise CommitError(
                f"cannot commit {final}: {error}. The job stood still for longer than a rule of the bucket keeps "
                "incomplete uploads, or somebody has aborted it, and its rows are lost: start from a checkpoint before "
                "this one, which writes them again, and let the rule wait for longer"
            ) from error

    def _on_missing(self, problem: str, final: str, is_first: bool) -> None:
        if is_first:
            raise CommitError(
                f"cannot commit {final}: {problem}. Somebody else has moved or removed it before it was committed. Put "
                "it back and start from the last checkpoint, or start from one before that, which writes its rows "
                "again; a batch writes all rows again when it is run again"
            )
        if self._missing == FAIL:
            raise CommitError(
                f"cannot commit {final} again: {problem}. It was committed before and has since been changed or "
                "removed; "
                "set with_missing_part_files('ignore') on the sink's builder to continue without it"
            )
        _log.warning("%s was committed before, and has since been changed or removed: %s", final, problem)

    def end_job(self) -> None:
        """Remove the job's remaining hidden files, except files that a savepoint names.

        Also removes the open files of dead processes of any job, because writers see no difference between the first
        epoch of a job that starts from a savepoint and any other epoch.
        """
        if self._staging is not None:
            self._staging.remove_unpinned()
            part_files.remove_what_died(self._staging.base_path)


_RUN, _COMMIT = ".run", ".commit"


class FileCommitLog(CommitLog):
    """The commit log of one run.

    Args:
        base_path: the base path of the sink.
        staging: the staging directory of the run.
        job_name: the job whose earlier runs to roll back.
    """

    def __init__(self, base_path: str, staging: str, job_name: str) -> None:
        digest = hashlib.blake2b(job_name.encode(), digest_size=8).hexdigest()
        self._job_name = job_name
        self._base_path = base_path
        self._staging = part_files.Staging(staging)
        self._directory = filesystem.join(base_path, part_files.STAGING)
        self._prefix = f".{digest}-"
        self._path = filesystem.join(self._directory, f"{self._prefix}{staging.rpartition('/')[2]}")
        self._held: BinaryIO | None = None
        self._written: Sequence[FileCommittable] = ()

    def begin(self) -> list[str]:
        """Roll back dead runs and lock this run's file."""
        lines = [line for stem in self._dead() for line in self._take_back(stem)]
        part_files.remove_what_died(self._base_path)
        if filesystem.is_local(self._directory):
            self._held = filesystem.create_held(self._path + _RUN)
        return lines

    def _dead(self) -> list[str]:
        """Return the paths of dead runs, without their suffixes."""
        mine = [
            path for path in filesystem.list_all(self._directory) if path.rpartition("/")[2].startswith(self._prefix)
        ]
        stems = sorted({path.rpartition(".")[0] for path in mine if path.endswith((_RUN, _COMMIT))})
        return [stem for stem in stems if not filesystem.is_local(stem) or filesystem.remove_unless_held(stem + _RUN)]

    def _take_back(self, stem: str) -> list[str]:
        lines = []
        files = _read(stem + _COMMIT)
        if files is not None:
            missing = _remove(files)
            lines.append(
                f"a run of job {self._job_name!r} died while committing {len(files)} files; they were rolled back"
                + (f"; {missing} of them had already been removed, so their rows may appear twice" if missing else "")
            )
        name = stem.rpartition("/")[2].removeprefix(self._prefix)
        part_files.Staging(filesystem.join(self._directory, name)).remove_unpinned()
        filesystem.remove([stem + _COMMIT])
        return lines

    def write(self, committables: Sequence[FileCommittable]) -> None:
        """Write the list."""
        self._written = committables
        files = [[c.hidden_path, c.final_path, c.size_bytes] for c in committables]
        filesystem.write_whole(self._path + _COMMIT, json.dumps({"job": self._job_name, "files": files}).encode())

    def take_back(self) -> None:
        """Remove the files of the list, and then the list.

        Rewrites the list first if it was removed, either by a failed `close_commit` or by the log of another sink.
        """
        files = _read(self._path + _COMMIT)
        if files is None and self._written:
            self.write(self._written)
        _remove(self._written if files is None else files)
        filesystem.remove([self._path + _COMMIT])

    def close_commit(self) -> None:
        """Remove the list."""
        if filesystem.size_or_none(self._path + _COMMIT) is None:
            raise CommitError(
                f"another run of job {self._job_name!r} has rolled back what this one committed under "
                f"{self._base_path}: do not run two at a time, or give them different names"
            )
        filesystem.remove([self._path + _COMMIT])
        filesystem.sync_names(
            [self._path + _COMMIT]
        )  # if a power failure restored the list, the next run would act on it

    def end(self) -> None:
        """Remove all hidden files of the run."""
        if self._held is not None:
            self._held.close()
            self._held = None
        filesystem.remove([self._path + _RUN])
        self._staging.remove_unpinned()


def _read(path: str) -> list[FileCommittable] | None:
    """Return the files of a list, or None if the list does not exist.

    Raises:
        CommitError: if the list names anything but part files.
    """
    try:
        files: Any = json.loads(filesystem.read_bytes(path))["files"]
    except FileNotFoundError:
        return None
    committables = [FileCommittable(*file) for file in files]
    for committable in committables:
        hidden, final = (p.rpartition("/")[2] for p in (committable.hidden_path, committable.final_path))
        if not (part_files.is_part(hidden) and hidden.startswith(f".{final}.")):
            raise CommitError(f"{path} is not a list of part files: it names {committable.final_path}")
    return committables


def _remove(files: Sequence[FileCommittable]) -> int:
    """Remove the files durably, hidden ones first so that no run can show them again; return how many were missing."""
    missing = 0
    for file in files:
        is_there = (
            part_files.hidden_size(file.hidden_path) is not None or filesystem.size_or_none(file.final_path) is not None
        )
        part_files.discard([file.hidden_path])
        filesystem.remove([file.final_path])
        missing += not is_there
    filesystem.sync_names(
        file.final_path for file in files
    )  # if a power failure restored a file, no list would name it
    return missing
