"""Exactly-once commits to an Iceberg table: the names of commits, the ledger that keeps them, and changes by key.

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
- *Refused commits.* If SQLite refuses a COMMIT because another process reads, the connection still shows the change.
  So the next attempt opens the catalog again.
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

**Lookup in snapshots.** `was_committed` looks up an earlier commit in the table's snapshots when the ledger does not
contain it, or no longer does.

**Changes by key.** Data files that contain a changed key are rewritten without its rows. pyiceberg cannot write
equality deletes, which Flink's sink uses to delete rows without reading them. Candidate files are therefore found by
their partitions and column bounds, and their keys are read. Files that contain a changed key are replaced by files
without its rows, in the same snapshot that adds the new rows. The cost depends on the number of files with changed
keys: partitioning or clustering the table so that rows that change together share files keeps it low.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.base.errors import PenstockError, UnsupportedError
from penstock.connectors.iceberg.data_files import LOG, FileWriting, StoredFile, conformed, remove, restored
from penstock.connectors.iceberg.replacement import Replacement, RowReplacement
from penstock.connectors.iceberg.tables import MissingTableError, SinkSettings, TableLoader, arrow_schema
from penstock.runtime.connector import Committer, SinkWriterContext

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
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


#: The number of attempts when other commits come first, and the pauses between attempts (s).
ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 5.0
#: The table property that makes pyiceberg retry commits by itself.
_RETRIES: Final = "commit.retry.num-retries"
_MERGES: Final = "commit.manifest-merge.enabled"


class IcebergCommitter(Committer[Staged]):
    """Commits to one branch of one table."""

    def __init__(self, settings: SinkSettings, context: SinkWriterContext) -> None:
        self._settings = settings
        self._context = context
        self._opened: Catalog | None = None

    def commit(self, committables: Sequence[Staged]) -> None:
        """See `Committer`.

        Raises:
            CommitError: if something can no longer be committed.
        """
        now_ms = self._context.now_ms()
        # This long after the preparation the ledger may have dropped entries of epochs.
        is_late = any(now_ms - committable.name.prepared_ms > STEP_KEPT_MS // 2 for committable in committables)
        self._commit(committables, is_late)

    def recommit(self, committables: Sequence[Staged]) -> None:
        """See `Committer`; raises as `commit`."""
        self._commit(committables, True)

    def _commit(self, committables: Sequence[Staged], is_in_doubt: bool) -> None:
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError

        for attempt in itertools.count(1):
            existing = self._table()
            table = self._new_table(existing) or existing
            assert table is not None
            if not committables and self._settings.overwrites:
                name = Naming(self._context).next()
                committables = [StagedFiles(name, table.metadata.default_spec_id, ())]  # replaces by no rows
            left = self._left(table, committables, is_in_doubt)
            if not left and table is existing:
                return  # a new table is created even without rows
            try:
                self._apply(table, left, existing)
            except (CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError) as error:
                if attempt == ATTEMPTS:
                    raise
                LOG.info("a commit to table %s is tried again: %s", self._settings.loader.title, error)
                time.sleep(random.uniform(0.5, 1) * min(_PAUSE_S * 2**attempt, _PAUSE_MAX_S))
            except BaseException:
                self.close()  # its connection may show a commit that the database has refused
                raise
            else:
                return

    def _table(self) -> Table | None:
        """Return the table; None if it does not exist, and this commit creates it."""
        if self._opened is None:
            self._opened = self._settings.loader.catalog.load_catalog()
        try:
            table = self._settings.loader.load_table(self._opened)
        except MissingTableError:
            if self._settings.new is None or self._settings.new.updates:
                raise
            return None
        _without_retries(table)
        return table

    def _new_table(self, existing: Table | None) -> Table | None:
        """Return the table that this commit creates or replaces; None if that has happened, or is not to happen."""
        new = self._settings.new
        if new is None or (existing is not None and new.is_in(existing)):
            return None
        if existing is not None and not new.updates:
            raise CommitError(
                f"table {self._settings.loader.title} was created by another writer while this job made its rows: drop "
                "that table, or create one of another name"
            )
        if existing is not None and not new.fits(existing):
            raise CommitError(
                f"table {self._settings.loader.title} was altered by another writer while this job made the rows that "
                "replace its own: run the statement again"
            )
        assert self._opened is not None
        return new.open(self._settings.loader, self._opened)

    def _left(self, table: Table, committables: Sequence[Staged], is_in_doubt: bool) -> list[Staged]:
        """Return the committables that are not in the table yet."""
        settings = self._settings
        ledger = Ledger.of(table.metadata.properties, settings.branch)
        left = [committable for committable in committables if not ledger.knows(committable.name)]
        if is_in_doubt:
            now_ms, retention_ms = self._context.now_ms(), settings.retention_ms
            title = settings.loader.title
            left = [
                committable
                for committable in left
                if not was_committed(table, committable, now_ms, retention_ms, title)
            ]
        return left

    def _apply(self, table: Table, staged: Sequence[Staged], existing: Table | None) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        removed, added, own = self._files(table, staged)
        settings = self._settings
        if table is not existing and existing is not None and existing.current_snapshot() is not None:
            removed = [task.file for task in existing.scan().plan_files()]
        if table is existing and not removed and not added:
            return  # replaces nothing by nothing
        names = [committable.name for committable in staged]
        snapshot_properties = {
            **dict(settings.properties),
            **({SUMMARY: format_summary(names)} if names else {}),
            "penstock.job-id": self._context.job_id,
        }
        ledger = Ledger.of(table.metadata.properties, settings.branch)
        noted = ledger.noted(names, self._context.now_ms(), settings.retention_ms)
        is_new = table is not existing and settings.new is not None
        transaction = settings.new.transaction(existing, table) if is_new and settings.new else table.transaction()
        update = transaction.update_snapshot(snapshot_properties=snapshot_properties, branch=settings.branch)
        if removed:
            producer: Any = update.overwrite()
        elif table.metadata.properties.get(_MERGES, "").lower() == "true":
            producer = update.merge_append()
        else:
            producer = update.fast_append()
        with producer:
            for file in removed:
                producer.delete_data_file(file)
            for file in added:
                producer.append_data_file(file)
        _keep_retention(transaction, table, settings.branch)
        transaction.set_properties({LEDGER + settings.branch: noted.text()})
        try:
            transaction.commit_transaction()
        except (CommitFailedException, TableAlreadyExistsError):
            remove(table.io, own)  # certainly not in any snapshot
            raise

    def _files(self, table: Table, staged: Sequence[Staged]) -> tuple[list[DataFile], list[DataFile], list[str]]:
        """Return the files to remove, the files to add, and the paths of added files that this attempt wrote."""
        settings = self._settings
        changes = [committable for committable in staged if isinstance(committable, StagedChanges)]
        ready = [committable for committable in staged if isinstance(committable, StagedFiles)]
        if changes and ready:
            raise CommitError(
                f"the sink of table {settings.loader.title} begins from a savepoint in which it added rows, and some "
                "of them are not committed yet, but now it writes by key: let it begin without equality fields first"
            )
        if changes:
            replacement = (
                RowReplacement(table, settings.branch, settings.base, settings.loader.title)
                if settings.changes
                else Replacement(table, settings.branch, settings.equality, settings.loader.title)
            )
            replacement.plan(pa.concat_tables([each.changes() for each in changes], promote_options="default"))
            return replacement.removed, replacement.added, [file.file_path for file in replacement.added]
        added, own = self._partitioned(table, ready)
        removed = self._replaced(table, added, ready) if settings.overwrites else []
        return removed, added, own

    def _partitioned(self, table: Table, ready: Sequence[StagedFiles]) -> tuple[list[DataFile], list[str]]:
        """Return the data files and the paths of rewritten ones; files with an outdated partitioning are rewritten."""
        added: list[DataFile] = []
        own: list[str] = []
        current = table.metadata.default_spec_id
        for committable in ready:
            files = [restored(file, committable.spec_id) for file in committable.files]
            if committable.spec_id != current:
                files = [again for file in files for again in self._written_again(table, file)]
                own += [file.file_path for file in files]
            added += files
        return added, own

    def _written_again(self, table: Table, file: DataFile) -> list[DataFile]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import FileScanTask

        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        rows: pa.Table = scan.to_table([FileScanTask(file)])
        rows = conformed(rows, arrow_schema(table), self._settings.loader.title)
        return FileWriting(table.metadata, table.io).write(rows)

    def _replaced(self, table: Table, added: Sequence[DataFile], ready: Sequence[StagedFiles]) -> list[DataFile]:
        """Return the files to replace: those in the same partitions, or all if the table is unpartitioned."""
        settings = self._settings
        title = settings.loader.title
        if Ledger.of(table.metadata.properties, settings.branch).has_others(
            [committable.name for committable in ready]
        ):
            raise CommitError(
                f"the sink of table {title} replaces what is there, and has done so for an earlier checkpoint: the "
                "next one would remove what the job itself has written. Run it in BATCH, or without checkpoints"
            )
        if table.metadata.snapshot_by_name(settings.branch) is None:
            return []
        existing = [task.file for task in table.scan().use_ref(settings.branch).plan_files()]
        if table.spec().is_unpartitioned():
            return existing
        if settings.replaced:
            return [file for file in existing if _contains(table, file, settings.replaced)]
        if any(file.spec_id != table.metadata.default_spec_id for file in existing):
            raise UnsupportedError(
                f"table {title} has files of an earlier partitioning, so it cannot be told which of them are in the "
                "partitions that are replaced: rewrite its data files first"
            )
        partitions = {_values(file) for file in added}
        return [file for file in existing if _values(file) in partitions]

    def close(self) -> None:
        """Close the catalog."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def remove_rows(loader: TableLoader, branch: str, row_filter: BooleanExpression) -> int:
    """Remove the rows that satisfy a condition, in one commit; return their number, or -1 if it is unknown.

    Files all of whose rows are removed are not read.
    """
    from pyiceberg.exceptions import CommitFailedException

    for attempt in itertools.count(1):
        with loader.opened() as table:
            _without_retries(table)
            before_ids = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
            head = table.metadata.snapshot_by_name(branch)
            if head is None:
                return 0
            transaction = table.transaction()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Delete operation did not match any records")
                transaction.delete(row_filter, branch=branch)
            _keep_retention(transaction, table, branch)
            new = [each for each in transaction.table_metadata.snapshots if each.snapshot_id not in before_ids]
            try:
                transaction.commit_transaction()
            except CommitFailedException:
                if attempt == ATTEMPTS:
                    raise
                time.sleep(random.uniform(0.5, 1) * min(_PAUSE_S * 2**attempt, _PAUSE_MAX_S))
                continue
        if head.summary is not None and head.summary.get("total-delete-files", "0") != "0":
            return -1  # the figures count rows that were deleted before
        figures = [each.summary for each in new if each.summary is not None]
        return sum(
            int(figure.get("deleted-records") or 0) - int(figure.get("added-records") or 0) for figure in figures
        )
    raise AssertionError


def _without_retries(table: Table) -> None:
    """Keep pyiceberg from retrying commits by itself. Only this object changes, not the table in the catalog."""
    properties = {**table.metadata.properties, _RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})


def _keep_retention(transaction: Any, table: Table, branch: str) -> None:
    """Keep how long the branch keeps snapshots: pyiceberg's commits forget that."""
    ref = table.metadata.refs.get(branch)
    if ref is None:
        return
    ages = {name: getattr(ref, name) for name in ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")}
    transaction._updates = tuple(
        update.model_copy(update=ages) if getattr(update, "ref_name", None) == branch else update
        for update in transaction._updates
    )


def _contains(table: Table, file: DataFile, partition: Iterable[tuple[str, str]]) -> bool:
    """Return whether a file is in a partition, given by names of columns and the texts of their values."""
    spec, schema = table.specs()[file.spec_id], table.schema()
    texts = {
        schema.find_column_name(field.source_id): str(file.partition[index])
        for index, field in enumerate(spec.fields)
        if str(field.transform) == "identity"
    }
    missing = [name for name, _ in partition if name not in texts]
    if missing:
        raise UnsupportedError(
            f"table {table.name()} has files that are not partitioned by column {missing[0]!r}, so it cannot be told "
            "which of them are in the partition that is replaced: rewrite its data files first"
        )
    return all(texts[name] == text for name, text in partition)


def _values(file: DataFile) -> tuple[Any, ...]:
    return tuple(file.partition[index] for index in range(len(file.partition)))
