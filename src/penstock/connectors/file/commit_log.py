"""Atomic commits of batch jobs: a file beside the part files lists the files that a run is about to make visible (G9).

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
import json
from collections.abc import Sequence
from typing import Any, BinaryIO

from penstock.connectors.file.committer import CommitError, FileCommittable
from penstock.connectors.file.filesystem import (
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
from penstock.runtime.connector import CommitLog

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
        self._staging = Staging(staging)
        self._directory = join(base_path, STAGING)
        self._prefix = f".{digest}-"
        self._path = join(self._directory, f"{self._prefix}{staging.rpartition('/')[2]}")
        self._held: BinaryIO | None = None
        self._written: Sequence[FileCommittable] = ()

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
        files = _read(stem + _COMMIT)
        if files is not None:
            missing = _remove(files)
            lines.append(
                f"a run of job {self._job_name!r} died while committing {len(files)} files; they were rolled back"
                + (f"; {missing} of them had already been removed, so their rows may appear twice" if missing else "")
            )
        name = stem.rpartition("/")[2].removeprefix(self._prefix)
        Staging(join(self._directory, name)).remove_unpinned()
        remove([stem + _COMMIT])
        return lines

    def write(self, committables: Sequence[FileCommittable]) -> None:
        """Write the list."""
        self._written = committables
        files = [[c.hidden_path, c.final_path, c.size_bytes] for c in committables]
        write_whole(self._path + _COMMIT, json.dumps({"job": self._job_name, "files": files}).encode())

    def take_back(self) -> None:
        """Remove the files of the list, and then the list.

        Rewrites the list first if it was removed, either by a failed `close_commit` or by the log of another sink.
        """
        files = _read(self._path + _COMMIT)
        if files is None and self._written:
            self.write(self._written)
        _remove(self._written if files is None else files)
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
        self._staging.remove_unpinned()


def _read(path: str) -> list[FileCommittable] | None:
    """Return the files of a list, or None if the list does not exist.

    Raises:
        CommitError: if the list names anything but part files.
    """
    try:
        files: Any = json.loads(read_bytes(path))["files"]
    except FileNotFoundError:
        return None
    committables = [FileCommittable(*file) for file in files]
    for committable in committables:
        hidden, final = (p.rpartition("/")[2] for p in (committable.hidden_path, committable.final_path))
        if not (is_part(hidden) and hidden.startswith(f".{final}.")):
            raise CommitError(f"{path} is not a list of part files: it names {committable.final_path}")
    return committables


def _remove(files: Sequence[FileCommittable]) -> int:
    """Remove the files durably, hidden ones first so that no run can show them again; return how many were missing."""
    missing = 0
    for file in files:
        is_there = hidden_size(file.hidden_path) is not None or size_or_none(file.final_path) is not None
        discard([file.hidden_path])
        remove([file.final_path])
        missing += not is_there
    sync_names(file.final_path for file in files)  # if a power failure restored a file, no list would name it
    return missing
