"""All or nothing for batches: a file beside the part files lists those that a run is about to make visible (G9).

A run of a batch has two files in the directory `.penstock` of a sink's base path, named after the job and the run:

- `….run`, held by the process that drives the job as long as that lives (`filesystem.create_held`);
- `….commit`, written whole before the first part file is made visible, and removed when all of them are.

A run whose `.run` is no longer held is therefore dead. If it has no `.commit`, all that it wrote is still hidden.
Otherwise the files in that list are removed, visible or not. Either way nothing of the run is left, and the job's next
run writes all rows once.

Where files cannot be held (they can in local file systems), only a `.commit` of the same job's name tells of another
run. It is taken back although that run may be alive. That run then finds its list gone, and fails rather than lose its
rows silently.
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
from penstock.connectors.file.hidden_files import discard, hidden_size
from penstock.connectors.file.part_names import STAGING, is_part
from penstock.connectors.file.staging import Staging, remove_what_died
from penstock.core.connector import CommitLog

_RUN, _COMMIT = ".run", ".commit"


class FileCommitLog(CommitLog):
    """The commit log of one run.

    Args:
        base_path: the sink's.
        staging: the staging directory of the run.
        job_name: the job whose earlier runs are looked for.
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
        """Takes back runs that died; holds this run's file."""
        lines = [line for stem in self._dead() for line in self._take_back(stem)]
        remove_what_died(self._base_path)
        if is_local(self._directory):
            self._held = create_held(self._path + _RUN)
        return lines

    def _dead(self) -> list[str]:
        """The paths of runs, without their ending."""
        mine = [path for path in list_all(self._directory) if path.rpartition("/")[2].startswith(self._prefix)]
        stems = sorted({path.rpartition(".")[0] for path in mine if path.endswith((_RUN, _COMMIT))})
        return [stem for stem in stems if not is_local(stem) or remove_unless_held(stem + _RUN)]

    def _take_back(self, stem: str) -> list[str]:
        lines = []
        files = _read(stem + _COMMIT)
        if files is not None:
            gone = _remove(files)
            lines.append(
                f"a run of job {self._job_name!r} died while committing {len(files)} files; they were rolled back"
                + (f"; {gone} of them had already been removed, so their rows may appear twice" if gone else "")
            )
        name = stem.rpartition("/")[2].removeprefix(self._prefix)
        Staging(join(self._directory, name)).remove_unpinned()
        remove([stem + _COMMIT])
        return lines

    def write(self, committables: Sequence[FileCommittable]) -> None:
        """Writes the list."""
        self._written = committables
        files = [[c.hidden_path, c.final_path, c.size_bytes] for c in committables]
        write_whole(self._path + _COMMIT, json.dumps({"job": self._job_name, "files": files}).encode())

    def take_back(self) -> None:
        """Removes the files of the list, and then the list.

        It is written again if it was removed: by `close_commit`, which then failed, or the log of another sink did.
        """
        files = _read(self._path + _COMMIT)
        if files is None and self._written:
            self.write(self._written)
        _remove(self._written if files is None else files)
        remove([self._path + _COMMIT])

    def close_commit(self) -> None:
        """Removes the list."""
        if size_or_none(self._path + _COMMIT) is None:
            raise CommitError(
                f"another run of job {self._job_name!r} has rolled back what this one committed under "
                f"{self._base_path}: do not run two at a time, or give them different names"
            )
        remove([self._path + _COMMIT])
        sync_names([self._path + _COMMIT])  # were the list back after a power cut, the next run would act on it

    def end(self) -> None:
        """Removes all hidden files of the run."""
        if self._held is not None:
            self._held.close()
            self._held = None
        remove([self._path + _RUN])
        self._staging.remove_unpinned()


def _read(path: str) -> list[FileCommittable] | None:
    """The files of a list; None when there is no list.

    Raises:
        CommitError: if it names anything but part files.
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
    """Removes the files for good, hidden ones first, so that no run shows them again; returns how many were gone."""
    gone = 0
    for file in files:
        is_there = hidden_size(file.hidden_path) is not None or size_or_none(file.final_path) is not None
        discard([file.hidden_path])
        remove([file.final_path])
        gone += not is_there
    sync_names(file.final_path for file in files)  # were one back after a power cut, no list would name it any more
    return gone
