"""Makes part files visible: the second phase of a file sink's commit (G9)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.base.errors import PenstockError
from penstock.connectors.file.filesystem import size_or_none, sync_names
from penstock.connectors.file.part_files import Staging, UploadGoneError, discard, hidden_size, remove_what_died, show
from penstock.runtime.connector import Committer

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
        self._staging = None if staging is None else Staging(staging)
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
        sync_names(committable.final_path for committable in committables)
        self._made_visible.clear()

    def recommit(self, committables: Sequence[FileCommittable]) -> None:
        """Commit all in order, although some or all may have been committed long ago.

        Raises:
            CommitError: if a hidden file does not have the expected length; with FAIL also if a part file is missing or
                has changed since it was committed.
        """
        for committable in committables:
            self._commit(committable, is_first=False)
        sync_names(committable.final_path for committable in committables)

    def _commit(self, committable: FileCommittable, is_first: bool) -> None:
        hidden, final, size_bytes = committable.hidden_path, committable.final_path, committable.size_bytes
        hidden_bytes = hidden_size(hidden)
        final_bytes = size_or_none(final)
        if final_bytes == size_bytes:
            if hidden_bytes is not None:
                discard([hidden])
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
            show(hidden, final)
        except UploadGoneError as error:
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
            remove_what_died(self._staging.base_path)
