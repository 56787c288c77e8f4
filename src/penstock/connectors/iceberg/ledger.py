"""Exactly once into a table of Iceberg: how a commit is named, and who remembers it.

Writers leave what a checkpoint covers where no reader sees it, and name it: the run of the writer (a text that no two
runs share) and a number that the run counts. One committer of the sink takes what all writers have prepared for a
checkpoint, and makes one snapshot of it. After a failure nobody knows whether that got through, so it is tried again,
perhaps by another process, perhaps a month later from a savepoint. Then the names must still say that it is done.

**Where the names are kept.** In the summary of the snapshot they are for people. They cannot be the memory, because
snapshots expire. Flink's sink has "the highest checkpoint of this job" there, and looks for it in the ancestors that
are left. That has a second flaw: the numbers of checkpoints come again when a job begins from an older savepoint, and
what is committed then would be taken for what was committed before. The presence of the files cannot be the memory
either: a compaction replaces them, and so does this sink when it writes by key. So the names are in a **property of the
table**, the ledger, which the same commit writes that makes the snapshot: Iceberg swaps the whole metadata at once, so
there is no moment between the two, and no expiry takes it away.

- *Twice.* What the ledger knows is left out. If nothing is left, nothing is committed.
- *Lost answers.* A commit whose answer is lost (or that failed because another one came first) is tried again on the
  table as it is then, whose ledger says whether it got through. So pyiceberg's own retries are off: they would add the
  files to whatever is there without asking.
- *Zombies.* A committer that was given up and lives on commits against the head that it has seen. Either its successor
  came first, and the catalog refuses it because the branch has moved; then it looks again, and finds all names. Or it
  came first, and the successor finds them. Both requirements of a commit (the table's identity, and the head of the
  branch) are checked by the catalog in the same step that swaps the metadata.
- *Other writers.* Two jobs, or Spark, on one table: appends fit together, so the one that comes second looks again and
  commits on top. What is written by key is computed anew on the table as it is then. Each branch has a ledger of its
  own: a commit that changes a ledger also moves the head of its branch, so no two of them can both go through, and none
  overwrites an entry that it has not seen.
- *Old savepoints.* The ledger has an entry a run, not a checkpoint: what is committed of a run is always the beginning
  of what it has prepared, because checkpoints complete in order and a savepoint names all that was not committed before
  it. So the highest number says it all, and a savepoint from which a job begins again finds its own names, whatever
  number its checkpoint had. What that job prepares then has the names of its own runs.
- *Size.* Every attempt adds an entry of some 40 bytes a writer to a file that each commit writes. Entries whose last
  commit is older than `ledger_retention` (30 days) go, once there are more than 256. In micro-batches each epoch is a
  run, and owes nothing when the next one begins: these entries go after ten minutes.
- *When the ledger has forgotten*, or may have, what comes from a savepoint is looked for in the snapshots that are
  still known: in their summaries, and its files in their manifests. Where a file is gone nobody can tell a commit
  whose rows were compacted since from files that a clean-up has removed, so that is an error, which says so; and
  changes by key whose time has passed are not written, because they would put old rows in the place of newer ones.
- *Orphans.* A data file is in the table's directory before it is committed. A writer removes its own on a failure if it
  can. A process that was killed leaves them, and so does an attempt whose checkpoint never completed. No reader sees
  them. Penstock does not remove them, because a savepoint may name them: Iceberg's `remove_orphan_files` does, with an
  age above the savepoints from which jobs may yet begin. Changes by key leave nothing: they are in the checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.core.connector import SinkWriterContext

#: The property of the table, before the name of the branch.
LEDGER: Final = "penstock.ledger."
#: What the summary of a snapshot says: `run=number` of each writer.
SUMMARY: Final = "penstock.commits"
#: How many entries stay whatever their age.
_KEPT: Final = 256
#: For how long (ms) those of epochs stay.
STEP_KEPT_MS: Final = 600_000
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class CommitName:
    """What a writer calls what it has prepared.

    Attributes:
        owner: the job and the sink.
        run: the run of the writer within these.
        number: from 1, counted by the run.
        prepared_ms: when it was prepared.
        is_step: whether earlier runs of the owner owe nothing any more.
    """

    owner: str
    run: str
    number: int
    prepared_ms: int
    is_step: bool

    @property
    def key(self) -> str:
        """The run in a ledger."""
        return f"{_digest(self.owner, 4)}{_digest(f'{self.owner}/{self.run}', 8)}"

    def __str__(self) -> str:
        return f"{self.key}={self.number}"


class Naming:
    """Names what one run of a writer prepares."""

    def __init__(self, context: SinkWriterContext) -> None:
        self._context = context
        self._number = 0

    def next(self) -> CommitName:
        """The next name."""
        context = self._context
        self._number += 1
        return CommitName(
            f"{context.job_id}/{context.operator_id}",
            f"{context.subtask_index}/{context.run}",
            self._number,
            context.now_ms(),
            context.owes_nothing,
        )


@dataclass(frozen=True, slots=True)
class _Entry:
    number: int
    minute: int
    is_step: bool


class Ledger:
    """What was committed to a branch. A value: `noted` gives another one."""

    def __init__(self, entries: Mapping[str, _Entry]) -> None:
        self._entries = dict(entries)

    @staticmethod
    def of(properties: Mapping[str, str], branch: str) -> Ledger:
        """The ledger that a table's properties hold; empty where there is none."""
        text = properties.get(LEDGER + branch)
        found = {} if text is None else json.loads(text)
        return Ledger({run: _Entry(number, minute, bool(step)) for run, (number, minute, step) in found.items()})

    def knows(self, name: CommitName) -> bool:
        """Whether this was committed, as far as the ledger remembers."""
        entry = self._entries.get(name.key)
        return entry is not None and name.number <= entry.number

    def has_others(self, names: Iterable[CommitName]) -> bool:
        """Whether it remembers other runs, or earlier numbers, of the owners of these."""
        firsts = {name.key: name.number for name in reversed(list(names))}
        owners = {_digest(name.owner, 4) for name in names}
        return any(
            run[:8] in owners and (run not in firsts or entry.number < firsts[run])
            for run, entry in self._entries.items()
        )

    def noted(self, names: Iterable[CommitName], now_ms: int, retention_ms: int) -> Ledger:
        """With these as well, and without what is too old."""
        entries, minute = dict(self._entries), now_ms // _MINUTE_MS
        fresh = set()
        for name in names:
            before = entries.get(name.key)
            number = name.number if before is None else max(before.number, name.number)
            entries[name.key] = _Entry(number, minute, name.is_step)
            fresh.add(name.key)
        steps_since = (now_ms - STEP_KEPT_MS) // _MINUTE_MS
        since = (now_ms - retention_ms) // _MINUTE_MS
        entries = {
            run: one for run, one in entries.items() if run in fresh or not one.is_step or one.minute >= steps_since
        }
        if len(entries) > _KEPT:
            newest = sorted(entries, key=lambda run: entries[run].minute, reverse=True)
            kept = {*newest[:_KEPT], *fresh}
            entries = {run: one for run, one in entries.items() if run in kept or one.minute >= since}
        return Ledger(entries)

    def text(self) -> str:
        """As the value of the property."""
        found = {run: [one.number, one.minute, int(one.is_step)] for run, one in sorted(self._entries.items())}
        return json.dumps(found, separators=(",", ":"))

    def __len__(self) -> int:
        return len(self._entries)


def summary_of(names: Iterable[CommitName]) -> str:
    """What the summary of a snapshot says of its commits."""
    return " ".join(map(str, names))


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()
