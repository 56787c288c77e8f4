"""The names of a file sink's part files, and the left-over files that a new writer may remove.

A part file is written in a directory of its job and operator, the *staging* directory below the base path, and
committed by renaming it:

    {base path}/.penstock/{owner}/.{prefix}-{subtask}-{counter}-{run}{suffix}.{stage}.{subtask}-{attempt}-{since}
    {base path}/{bucket}/{prefix}-{subtask}-{counter}-{run}{suffix}

`owner` stands for the job and the operator, `run` for these and the run of the task. No two writers ever use the same
name (G9). Within a run of a subtask the counter tells names apart. Between runs (attempts, epochs, tasks that Spark
runs twice at a time), jobs and operators, `run` does.

**Who owns a hidden file.** `since` is the last snapshot that the writer had taken part in when it began the file, or
the one that it was restored from. Part files end at every snapshot, so only snapshots after `since` name a file. Of
these, for an attempt that is restored from checkpoint n:

- checkpoints up to n: the file is in them if `since` < n; it was committed, or will be before n is released;
- checkpoints after n never completed, or were passed over because they are damaged: no job can begin from them;
- savepoints after n: a job may begin from them at any time. The writer notes what they name, in a file of *pins* beside
  the part files, before it acknowledges the savepoint.

An attempt may therefore remove the files of earlier attempts with `since` >= n that are not pinned, and nothing else.
It looks only into the staging directory, which holds what is under way, however much the output holds. In micro-batches
every checkpoint up to n is committed before the attempt begins. A file that is still hidden is one of a task that Spark
ran twice, of which the other run counts. So there all files of earlier attempts go that are not pinned.

The same holds for the files of jobs that this one continues. Their drivers were deposed, so their checkpoints after n
do not count. What their checkpoints up to n name may have to be committed yet. So the files of micro-batches go in two
steps: those with `since` >= n as the job begins, all others when it has a checkpoint of its own (`Committer.end_job`).

**Other jobs.** The retained checkpoints of another job may name its files. Only a file that was never closed is in no
checkpoint. Its stage is `open`, and its process holds it as long as the process lives (`filesystem.create_held`). Once
it is not held any more, any job may remove it. A closed file is renamed to the stage `closed`. This is so in local file
systems. In object stores there is no file before it is closed; in S3 the hidden file then names an upload, see
`hidden_files`. In other file systems there is no way to tell which process has died, and a person has to remove what is
left there.
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
    """Where the part files of an operator of a job lie until they are committed."""
    return join(join(base_path, STAGING), _digest(job_id, operator_id))


def is_open_part(name: str) -> bool:
    """Whether a file of a staging directory has that name because it was not closed."""
    match = _HIDDEN.match(name)
    return match is not None and match[1] == OPEN


def is_part(name: str) -> bool:
    """Whether a file of a staging directory is a part file."""
    return _HIDDEN.match(name) is not None


def is_pins(name: str) -> bool:
    """Whether a file of a staging directory names files that belong to a savepoint."""
    return _PINS.match(name) is not None


@dataclass(frozen=True, slots=True)
class PartNames:
    """Names for the part files of one writer."""

    prefix: str
    suffix: str
    staging: str
    subtask_index: int
    parallelism: int
    attempt: int
    run: str
    #: Whether open files have other names than closed ones.
    has_stages: bool

    @staticmethod
    def of(context: SinkWriterContext, base_path: str, prefix: str, suffix: str) -> PartNames:
        """The names for a writer with that context."""
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
        """The name under which a part becomes visible."""
        return f"{self.prefix}-{self.subtask_index}-{counter}-{self.run}{self.suffix}"

    def open(self, counter: int, since: int) -> str:
        """The path under which it is written."""
        return self._staged(counter, OPEN if self.has_stages else CLOSED, since)

    def closed(self, counter: int, since: int) -> str:
        """The path under which it waits for its commit."""
        return self._staged(counter, CLOSED, since)

    def pins(self, checkpoint_id: int) -> str:
        """The path of the file that names what a savepoint needs."""
        return join(self.staging, f".pins-{self.subtask_index}-{self.attempt}-{checkpoint_id}")

    def _staged(self, counter: int, stage: str, since: int) -> str:
        name = f".{self.final(counter)}.{stage}.{self.subtask_index}-{self.attempt}-{since}"
        return join(self.staging, name)

    def is_stale(self, name: str, since: int, pinned: set[str], of_forerunner: bool = False) -> bool:
        """Whether a file of a staging directory was left by an earlier attempt or job, and no snapshot can name it.

        `since`: the least one of which that can be said; 0 where what snapshots name is committed.
        One of today's subtasks looks after each subtask beyond today's parallelism.
        """
        match = _HIDDEN.match(name)
        if match is None or name in pinned:
            return False
        if not of_forerunner and int(match["attempt"]) >= self.attempt:
            return False
        return int(match["since"]) >= since and self._looks_after(match)

    def stale_pins(self, pins: dict[str, set[str]], listed: Sequence[str]) -> list[str]:
        """The files of pins whose part files are all gone: they have been committed."""
        there = set(listed)
        return [
            name
            for name, pinned in pins.items()
            if (match := _PINS.match(name)) and self._looks_after(match) and not pinned & there
        ]

    def _looks_after(self, match: re.Match[str]) -> bool:
        return int(match["subtask"]) % self.parallelism == self.subtask_index


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
