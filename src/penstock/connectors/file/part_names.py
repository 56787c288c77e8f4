"""Names a file sink's part files, and identifies the leftover files that a new writer may remove.

A part file is written to the *staging* directory of its job and operator, below the base path, and committed by
renaming it:

    {base path}/.penstock/{owner}/.{prefix}-{subtask}-{counter}-{run}{suffix}.{stage}.{subtask}-{attempt}-{since}
    {base path}/{bucket}/{prefix}-{subtask}-{counter}-{run}{suffix}

`owner` identifies the job and the operator, `run` these and the run of the task. No two writers ever use the same name
(G9). The counter distinguishes names within a run of a subtask. `run` distinguishes them between runs (attempts,
epochs, duplicate tasks that Spark runs concurrently), jobs and operators.

**Who owns a hidden file.** `since` is the last snapshot in which the writer had taken part when it began the file, or
the one from which it was restored. Part files end at every snapshot, so only snapshots after `since` name a file. For
an attempt that is restored from checkpoint n, these are:

- checkpoints up to n: they contain the file if `since` < n; it was committed, or will be before n is released;
- checkpoints after n: they never completed, or were skipped because they are damaged, so no job can start from them;
- savepoints after n: a job may start from them at any time. Before the writer acknowledges a savepoint, it records the
  files that the savepoint names in a *pins* file beside the part files.

An attempt may therefore remove exactly the unpinned files of earlier attempts with `since` >= n. It lists only the
staging directory, which contains only uncommitted files, however large the output is. In micro-batches every checkpoint
up to n is committed before the attempt begins. A file that is still hidden then belongs to a task that Spark ran twice
and whose other run counts. There an attempt removes all unpinned files of earlier attempts.

The same applies to the files of jobs that this one continues. Their drivers were deposed, so their checkpoints after n
do not count. The files that their checkpoints up to n name may still have to be committed. In micro-batches the files
are therefore removed in two steps: files with `since` >= n when the job begins, and all others when it has a checkpoint
of its own (`Committer.end_job`).

**Other jobs.** The retained checkpoints of another job may name its files. Only a file that was never closed is in no
checkpoint. Its stage is `open`, and its process holds a lock on it for as long as it lives (`filesystem.create_held`).
Once the lock is released, any job may remove the file. A closed file is renamed to the stage `closed`. This applies to
local file systems. Object stores create no file before it is closed; in S3 the hidden file then names an upload, see
`hidden_files`. In other file systems nothing shows which process has died, so leftover files must be removed manually.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.connectors.file.filesystem import is_local, join
from penstock.core.connector import SinkWriterContext

STAGING = ".penstock"
OPEN, CLOSED = "open", "closed"
_HIDDEN = re.compile(rf"\..*\.({OPEN}|{CLOSED})\.(?P<subtask>\d+)-(?P<attempt>\d+)-(?P<since>\d+)$")
_PINS = re.compile(r"\.pins-(?P<subtask>\d+)-\d+-\d+$")


def staging_directory(base_path: str, job_id: str, operator_id: str) -> str:
    """Return the directory that holds the part files of a job's operator until they are committed."""
    return join(join(base_path, STAGING), _digest(job_id, operator_id))


def is_open_part(name: str) -> bool:
    """Return whether a file of a staging directory has the name of an unclosed part file."""
    match = _HIDDEN.match(name)
    return match is not None and match[1] == OPEN


def is_part(name: str) -> bool:
    """Return whether a file of a staging directory is a part file."""
    return _HIDDEN.match(name) is not None


def is_pins(name: str) -> bool:
    """Return whether a file of a staging directory is a pins file, which names the files of a savepoint."""
    return _PINS.match(name) is not None


@dataclass(frozen=True, slots=True)
class PartNames:
    """The names of one writer's part files."""

    prefix: str
    suffix: str
    staging: str
    subtask_index: int
    parallelism: int
    attempt: int
    run: str
    #: Whether open files have different names from closed ones.
    has_stages: bool

    @staticmethod
    def of(context: SinkWriterContext, base_path: str, prefix: str, suffix: str) -> PartNames:
        """Return the names for a writer with this context."""
        return PartNames(
            prefix,
            suffix,
            staging_directory(base_path, context.job_id, context.operator_id),
            context.subtask_index,
            context.parallelism,
            context.attempt,
            _digest(context.job_id, context.operator_id, context.run),
            is_local(base_path),
        )

    def final(self, counter: int) -> str:
        """Return the name under which a part becomes visible."""
        return f"{self.prefix}-{self.subtask_index}-{counter}-{self.run}{self.suffix}"

    def open(self, counter: int, since: int) -> str:
        """Return the path to which a part is written."""
        return self._staged(counter, OPEN if self.has_stages else CLOSED, since)

    def closed(self, counter: int, since: int) -> str:
        """Return the path at which a closed part waits for its commit."""
        return self._staged(counter, CLOSED, since)

    def pins(self, checkpoint_id: int) -> str:
        """Return the path of the pins file of a savepoint."""
        return join(self.staging, f".pins-{self.subtask_index}-{self.attempt}-{checkpoint_id}")

    def _staged(self, counter: int, stage: str, since: int) -> str:
        name = f".{self.final(counter)}.{stage}.{self.subtask_index}-{self.attempt}-{since}"
        return join(self.staging, name)

    def is_stale(self, name: str, since: int, pinned: set[str], of_forerunner: bool = False) -> bool:
        """Return whether an earlier attempt or job left this staging file and no snapshot can name it.

        `since` is the lowest `since` of such files; 0 if everything that snapshots name is committed. Each subtask
        beyond the current parallelism is handled by one of the current subtasks.
        """
        match = _HIDDEN.match(name)
        if match is None or name in pinned:
            return False
        if not of_forerunner and int(match["attempt"]) >= self.attempt:
            return False
        return int(match["since"]) >= since and self._looks_after(match)

    def stale_pins(self, pins: dict[str, set[str]], listed: Sequence[str]) -> list[str]:
        """Return the pins files whose part files have all been committed, so that none is left."""
        existing = set(listed)
        return [
            name
            for name, pinned in pins.items()
            if (match := _PINS.match(name)) and self._looks_after(match) and not pinned & existing
        ]

    def _looks_after(self, match: re.Match[str]) -> bool:
        return int(match["subtask"]) % self.parallelism == self.subtask_index


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
