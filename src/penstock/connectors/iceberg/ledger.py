"""Exactly-once commits to an Iceberg table: how commits are named, and where the names are remembered.

Writers store the data of a checkpoint where no reader sees it, and name it by the run of the writer (a string unique to
the run) and a number that the run counts. One committer per sink takes everything that the writers prepared for a
checkpoint and makes one snapshot of it. After a failure it is unknown whether the commit succeeded, so it is retried,
perhaps by another process, perhaps a month later from a savepoint. Then the names must still show that it is done.

**Where the names are kept.** The names in the summary of the snapshot are for people. They cannot be the memory,
because snapshots expire. Flink's sink stores "the highest checkpoint of this job" there, and looks for it in the
remaining ancestors. That has a second flaw: checkpoint numbers repeat when a job starts from an older savepoint, so new
commits would be mistaken for earlier ones. The presence of the files cannot be the memory either: a compaction replaces
them, and so does this sink when it writes by key. The names are therefore in a **table property**, the ledger, written
by the same commit that makes the snapshot: Iceberg swaps the whole metadata at once, so there is no moment between the
two, and expiry does not remove the ledger.

- *Repetition.* Committables that the ledger knows are skipped. If none are left, nothing is committed.
- *Lost answers.* A commit whose answer is lost (or that failed because another one came first) is retried on the
  current table, whose ledger shows whether it succeeded. pyiceberg's own retries are therefore off: they would add the
  files to the current table without checking.
- *Zombies.* A committer that was given up but still lives commits against the head that it has seen. Either its
  successor came first, and the catalog rejects the zombie because the branch has moved; it then looks again, and finds
  all names. Or the zombie came first, and the successor finds the names. The catalog checks both requirements of a
  commit (the table's identity, and the head of the branch) in the same step that swaps the metadata.
- *Other writers.* Two jobs, or Spark, may write to one table. Appends are compatible, so the second one looks again and
  commits on top. Changes by key are recomputed on the current table. Each branch has its own ledger: a commit that
  changes a ledger also moves the head of its branch, so no two of them can both succeed, and none overwrites an entry
  that it has not seen.
- *Old savepoints.* The ledger has one entry per run, not per checkpoint: the committed part of a run is always a prefix
  of the prepared part, because checkpoints complete in order and a savepoint names everything not committed before it.
  The highest number is therefore enough, and a job that starts from a savepoint finds the savepoint's names, whatever
  the number of its checkpoint was. Its new commits carry the names of its own runs.
- *Size.* Every attempt adds an entry of some 40 bytes per writer to a file that each commit writes. Entries whose last
  commit is older than `ledger_retention` (30 days) are removed once there are more than 256. In micro-batches each
  epoch is a run, and owes nothing when the next one begins: these entries are removed after ten minutes.
- *When the ledger has forgotten*, or may have, the committables of a savepoint are looked up in the snapshots that
  still exist: by name in their summaries, and by file in their manifests. If a file is missing, a commit whose rows
  were compacted since cannot be distinguished from files that a clean-up has removed, so that is an error, which says
  so. Changes by key older than the retention are not written, because they could replace newer rows by old ones.
- *Orphans.* A data file is in the table's directory before it is committed. After a failure a writer removes its own
  files if it can. A process that was killed leaves them, and so does an attempt whose checkpoint never completed. No
  reader sees them. Penstock does not remove them, because a savepoint may name them: Iceberg's `remove_orphan_files`
  does, with an age above that of the savepoints from which jobs may still start. Changes by key leave nothing: they are
  in the checkpoint.

Committables that writers hand to the committer: data files, or changes by key.

Looks up an earlier commit in a table's snapshots when the ledger does not know it, or no longer does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.base.errors import PenstockError
from penstock.connectors.iceberg.data_files import StoredFile
from penstock.runtime.connector import SinkWriterContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


#: The prefix of the table property, followed by the name of the branch.
LEDGER: Final = "penstock.ledger."
#: The entry in the summary of a snapshot: `run=number` for each writer.
SUMMARY: Final = "penstock.commits"
#: The number of entries kept whatever their age.
_KEPT: Final = 256
#: How long (ms) entries of epochs are kept.
STEP_KEPT_MS: Final = 600_000
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class CommitName:
    """A writer's name for a committable.

    Attributes:
        owner: the job and the sink.
        run: the run of the writer within the owner.
        number: counts from 1 within the run.
        prepared_ms: the time of preparation.
        is_step: whether earlier runs of the owner have nothing left to commit.
    """

    owner: str
    run: str
    number: int
    prepared_ms: int
    is_step: bool

    @property
    def key(self) -> str:
        """The ledger's key for the run."""
        return f"{_digest(self.owner, 4)}{_digest(f'{self.owner}/{self.run}', 8)}"

    def __str__(self) -> str:
        return f"{self.key}={self.number}"


class Naming:
    """Names the committables of one run of a writer."""

    def __init__(self, context: SinkWriterContext) -> None:
        self._context = context
        self._number = 0

    def next(self) -> CommitName:
        """Return the next name."""
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
    """The commits to a branch. Immutable: `noted` returns a new ledger."""

    def __init__(self, entries: Mapping[str, _Entry]) -> None:
        self._entries = dict(entries)

    @staticmethod
    def of(properties: Mapping[str, str], branch: str) -> Ledger:
        """Parse the ledger in a table's properties; it is empty if the property is missing."""
        text = properties.get(LEDGER + branch)
        entries = {} if text is None else json.loads(text)
        return Ledger({run: _Entry(number, minute, bool(step)) for run, (number, minute, step) in entries.items()})

    def knows(self, name: CommitName) -> bool:
        """Return whether this was committed, as far as the ledger remembers."""
        entry = self._entries.get(name.key)
        return entry is not None and name.number <= entry.number

    def has_others(self, names: Iterable[CommitName]) -> bool:
        """Return whether the ledger has other runs, or earlier numbers, of the owners of these names."""
        firsts = {name.key: name.number for name in reversed(list(names))}
        owners = {_digest(name.owner, 4) for name in names}
        return any(
            run[:8] in owners and (run not in firsts or entry.number < firsts[run])
            for run, entry in self._entries.items()
        )

    def noted(self, names: Iterable[CommitName], now_ms: int, retention_ms: int) -> Ledger:
        """Return a ledger with these names added and expired entries removed."""
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
            run: entry
            for run, entry in entries.items()
            if run in fresh or not entry.is_step or entry.minute >= steps_since
        }
        if len(entries) > _KEPT:
            newest = sorted(entries, key=lambda run: entries[run].minute, reverse=True)
            retained = {*newest[:_KEPT], *fresh}
            entries = {run: entry for run, entry in entries.items() if run in retained or entry.minute >= since}
        return Ledger(entries)

    def text(self) -> str:
        """Return the ledger as the value of the table property."""
        entries = {
            run: [entry.number, entry.minute, int(entry.is_step)] for run, entry in sorted(self._entries.items())
        }
        return json.dumps(entries, separators=(",", ":"))

    def __len__(self) -> int:
        return len(self._entries)


def format_summary(names: Iterable[CommitName]) -> str:
    """Return the names of commits for the summary of a snapshot."""
    return " ".join(map(str, names))


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


#: The boolean column of staged changes that marks deleted rows.
KIND: Final = "__penstock_kind"


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Data files that are written but not in the table yet.

    Attributes:
        name: the name of the commit.
        spec_id: the id of the partition spec under which they were written.
        files: the data files as plain values.
    """

    name: CommitName
    spec_id: int
    files: tuple[StoredFile, ...]


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """The last change of each key, as columns, with an additional column that marks deleted rows.

    Attributes:
        name: the name of the commit.
        message: a compressed Arrow stream.
    """

    name: CommitName
    message: bytes

    @staticmethod
    def of(name: CommitName, changes: pa.Table) -> StagedChanges:
        """Encode changes under a name."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, changes.schema, options=options) as writer:
            writer.write_table(changes)
        return StagedChanges(name, sink.getvalue().to_pybytes())

    def changes(self) -> pa.Table:
        """Decode the changes."""
        with pa.ipc.open_stream(self.message) as reader:
            return reader.read_all()


Staged = StagedFiles | StagedChanges


#: How far the clocks of two hosts may differ (ms).
SKEW_MS: Final = 3_600_000


class CommitError(PenstockError, RuntimeError):
    """Prepared files or changes cannot be committed, and retrying does not help."""

    suppresses_restart = True


def was_committed(table: Table, staged: Staged, now_ms: int, retention_ms: int, title: str) -> bool:
    """Return whether a snapshot that still exists contains this committable.

    Raises:
        CommitError: if this can no longer be determined.
    """
    since = _snapshots_since(table, staged.name.prepared_ms - SKEW_MS)
    if any(_mentions_commit(snapshot, staged.name) for snapshot in since):
        return True
    if isinstance(staged, StagedFiles):
        paths = {file["file_path"] for file in staged.files}
        if _has_any(table, since, paths):
            return True
        missing = sorted(path for path in paths if not table.io.new_input(path).exists())
        if missing:
            raise CommitError(
                f"cannot commit to table {title}: {len(missing)} data files that a checkpoint or savepoint names are "
                f"gone, and no snapshot that is still known has them ({missing[0]}). Either they were committed, "
                "rewritten by a compaction and removed with expired snapshots, or somebody has removed files that were "
                "not committed yet. Start from a later checkpoint or savepoint; let remove_orphan_files and "
                "expire_snapshots keep what is younger than the oldest savepoint from which jobs begin"
            )
        return False
    if staged.name.prepared_ms < now_ms - retention_ms:
        raise CommitError(
            f"cannot commit changes by key to table {title}: they were prepared {_days(now_ms, staged)} days ago, and "
            "neither the table's ledger nor its snapshots remember that long, so they may be in the table and replaced "
            "since. Start from a later savepoint, or set a longer ledger_retention on the sink"
        )
    return False


def _days(now_ms: int, staged: Staged) -> int:
    return (now_ms - staged.name.prepared_ms) // 86_400_000


def _snapshots_since(table: Table, since_ms: int) -> Sequence[Snapshot]:
    return [snapshot for snapshot in table.metadata.snapshots if snapshot.timestamp_ms >= since_ms]


def _mentions_commit(snapshot: Snapshot, name: CommitName) -> bool:
    text = None if snapshot.summary is None else snapshot.summary.get(SUMMARY)
    return text is not None and str(name) in text.split(" ")


def _has_any(table: Table, snapshots: Sequence[Snapshot], paths: set[str]) -> bool:
    """Return whether one of these snapshots contains or has removed one of the files.

    Skips manifests added by an older snapshot that the table still knows. An expired snapshot may be as recent as
    these.
    """
    older = {known.snapshot_id for known in table.metadata.snapshots} - {recent.snapshot_id for recent in snapshots}
    seen: set[str] = set()
    for snapshot in snapshots:
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen or manifest.added_snapshot_id in older:
                continue
            seen.add(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                if entry.data_file.file_path in paths:
                    return True
    return False
