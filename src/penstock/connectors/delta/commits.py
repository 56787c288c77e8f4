"""Exactly once into Delta Lake: what is prepared, under which names, and how one commit a checkpoint shows it.

A Delta table is its log: version n is the file `_delta_log/n.json`, which exactly one writer can make. A data file that
no version names is seen by nobody. So the writers write Parquet files where they stay, and a checkpoint holds their
names. When it is complete, the committer makes one version that adds the files of all subtasks. The question is what
happens when that is tried a second time.

**The names.** The log has a place for that: a version may hold *application transactions*, pairs of a name and a
number, and readers of the log know the last number of each name. A version is made only if no version since the one
that its writer had read holds one of its names. Flink's connector uses the name of the job with the number of the
checkpoint. That loses data here: a job that starts again from an older savepoint counts its checkpoints from there
again, finds its numbers in the log, and would take new rows for committed ones. So a name stands for one *run* of one
writer, which no other attempt, job, or double of a task shares (`SinkWriterContext.run`), and the number counts what
this run has prepared, from 1. A committable is done if the log has its number, or a greater one, for its run. All
committables of a commit go into one version, with the last number of each run.

- *Twice.* Files and numbers are in one version, so there is no moment between. A second commit finds the numbers.
- *Lost answers.* Whoever does not know whether a version was made reads the log and finds the numbers, or not. delta-rs
  itself tries again when it gets no answer; it then meets its own version, whose names are the same, and says that
  there is a conflict. The committer reads the log and finds that all is done.
- *Zombies.* A committer that was given up and lives on may commit while its successor does. Both name the same runs,
  so one of the two versions is refused, and who made it finds the numbers of the other.
- *Order.* "The number or a greater one" is right because numbers of a run are committed in their order: they come to
  the one committer through one channel, what was in flight comes before what is new, and all that was restored is
  committed before a new attempt has its first checkpoint.
- *Old savepoints.* The committables of a savepoint carry the names of the runs that made them. What was committed is
  found so, years later. What the new job writes has new names, whatever its checkpoints are called.
- *A savepoint beside the job* names files that the job's next checkpoint commits. If the job fails before that, its
  next attempt writes those rows again under another name. A job that starts from the savepoint commits the files then.
- *Micro-batches* run each epoch in new tasks, so names of runs would grow with epochs. There all that epochs before
  have prepared is committed before an epoch begins (`owes_nothing`). So one name, of the job and the operator, with the
  number of the epoch is enough: an epoch is prepared as a whole, stored, and only then committed.
- *Size.* The log keeps the last number of each name: one line a writer and attempt.
  `delta.setTransactionRetentionDuration` lets go of names that are older; set it to no less than the age of the oldest
  savepoint that is kept.

**Other writers.** Adding files conflicts with nobody but a change of the table's columns or protocol, and with a commit
of the same names. delta-rs takes the next version if another writer was faster. What it refuses is tried again on the
newest version, after a look at the numbers. Two jobs on one table share no names.

**Files left behind.** Files that were written, and whose checkpoint was never completed, stay: a writer that is closed
removes its own, a process that is killed does not. They are the same to the table as files that were deleted from it,
and the same tool removes both: VACUUM, which takes files that no version names when they are older than a week. So a
savepoint that is older than that may name files that are gone, if they were never committed. The commit of restored
state therefore looks whether its files are there, and fails with a sentence if not: a version that names a missing
file would break the table.

**Upserts.** Changes of rows by their key are written into files of the same kind, with a column for what each does,
which no version ever names. The commit reads them, keeps the last change of each key, and merges them into the table,
in one version with the numbers. It removes them afterwards; what a failure leaves, VACUUM does. A merge depends on all
rows of the table, so it conflicts with everybody who adds or removes files, and is done again on the newest version.
A merge that changes nothing makes no version; then a version is made that has the numbers alone. Otherwise a deletion
that met no row could be repeated later, when there is one.

**What it costs.** One listing and one new file in the log a checkpoint, and a look at the files that restored state
names. The committer holds the changes of an upsert between two checkpoints in memory.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.connectors.delta.data_files import DataFile
from penstock.connectors.delta.errors import CommitError
from penstock.connectors.delta.target import Target, make_if_missing
from penstock.core.connector import Committer, SinkWriterContext

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_LOG: Final = logging.getLogger("penstock.connectors.delta")
#: How often a version is tried to be made, while others are faster.
_TRIES: Final = 30
_WAIT_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class PreparedFiles:
    """A committable: files that are to be shown, under a name that only they have.

    Attributes:
        run: the name of the application transaction.
        number: of what the run has prepared.
        files: data files, or files of changes.
    """

    run: str
    number: int
    files: tuple[DataFile, ...]


def run_name(context: SinkWriterContext) -> str:
    """The name of a run: no two jobs, operators, subtasks, attempts or doubles of a task share one."""
    return f"penstock/{context.job_id}/{context.operator_id}/{context.subtask_index}/{context.run}"


def names_of(context: SinkWriterContext) -> tuple[str, int]:
    """The name under which a writer prepares files, and the number of the first; see the module's text."""
    if context.owes_nothing:
        return f"penstock/{context.job_id}/{context.operator_id}", context.attempt
    return run_name(context), 1


#: Makes the next version of a table, with these properties; raises delta-rs's errors.
Apply = Callable[["DeltaTable", Sequence[PreparedFiles], "CommitProperties"], None]


class DeltaCommitter(Committer[PreparedFiles]):
    """Makes one version of all that a checkpoint has prepared; doing so again changes nothing.

    Args:
        target: the table.
        apply: how files become rows of the table.
        compact_after: after how many versions of the table small files are put together; None for never.
        forget: removes files that are of no use after the commit.
    """

    def __init__(
        self,
        target: Target,
        apply: Apply,
        compact_after: int | None = None,
        forget: Callable[[Sequence[PreparedFiles]], None] | None = None,
    ) -> None:
        self._target = target
        self._apply = apply
        self._compact_after = compact_after
        self._forget = forget
        self._table: DeltaTable | None = None

    def commit(self, committables: Sequence[PreparedFiles]) -> None:
        """See `Committer`."""
        self._commit(committables, looks=False)

    def recommit(self, committables: Sequence[PreparedFiles]) -> None:
        """See `Committer`. Raises `CommitError` if a file is gone that was not committed."""
        self._commit(committables, looks=True)

    def _commit(self, committables: Sequence[PreparedFiles], looks: bool) -> None:
        from deltalake.exceptions import CommitFailedError, DeltaError

        if not committables:
            return
        for tries_left in reversed(range(_TRIES)):
            table = self.newest()
            due = _not_in_log(table, committables)
            if not due:
                break
            try:
                if looks:
                    self._check_files(due)
                version = table.version()
                self._apply(table, due, _properties(due))
                self._compact(version)
                break
            except FileNotFoundError as error:
                # A double of this committer may have committed, and removed, changes since the log was read.
                self._table = None
                if not _not_in_log(self.newest(), due):
                    continue
                raise self._gone(error) from error
            except (CommitFailedError, DeltaError) as error:
                self._table = None
                if not tries_left or not _is_conflict(error):
                    raise
                _LOG.info("%s: another writer was faster, trying again: %s", self._target.place.path, _line(error))
                time.sleep(_WAIT_S * random.uniform(0.5, 2))
        if self._forget is not None:
            self._forget(committables)

    def newest(self) -> DeltaTable:
        """The table as it is now."""
        if self._table is None:
            make_if_missing(self._target)
            self._table = self._target.place.open()
        else:
            self._table.update_incremental()
        return self._table

    def _check_files(self, due: Sequence[PreparedFiles]) -> None:
        """Raise `FileNotFoundError` for a file that is not there as it was written."""
        files = self._target.place.files()
        sizes = {one.path: one.size_bytes for prepared in due for one in prepared.files}
        for info in files.get_file_info(list(sizes)):
            if info.size != sizes[info.path]:
                found = "is gone" if info.size is None else f"has {info.size} bytes, expected {sizes[info.path]}"
                raise FileNotFoundError(f"{info.path} {found}")

    def _gone(self, error: FileNotFoundError) -> CommitError:
        return CommitError(
            f"cannot commit to the Delta table {self._target.place.path}: {error}. The file was written for a "
            "checkpoint or savepoint, and never committed; VACUUM may have removed it. Start from a checkpoint before "
            "that, which writes its rows again"
        )

    def _compact(self, version: int) -> None:
        """Put small files together, without any change of rows, if a multiple of so many versions is reached.

        `version`: before this commit. Committers of epochs live for one commit, so the table has to count.
        """
        if self._compact_after is None:
            return
        table = self.newest()
        if table.version() // self._compact_after == version // self._compact_after:
            return
        from deltalake.exceptions import DeltaError

        try:
            table.optimize.compact()
        except DeltaError as error:
            _LOG.info("%s: small files stay for now: %s", self._target.place.path, _line(error))
        self._table = None

    def close(self) -> None:
        """Let go of the table."""
        self._table = None


def add_files(target: Target) -> Apply:
    """Shows data files as they are."""

    def apply(table: DeltaTable, due: Sequence[PreparedFiles], properties: CommitProperties) -> None:
        from deltalake.transaction import AddAction, RemoveAction

        names = list(table.metadata().partition_columns)
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                one.path,
                one.size_bytes,
                dict(zip(names, one.partition, strict=True)),
                one.written_ms,
                True,
                one.statistics,
            )
            for prepared in due
            for one in prepared.files
        ]
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            names,
            commit_properties=properties,
        )

    return apply


def _not_in_log(table: DeltaTable, committables: Sequence[PreparedFiles]) -> list[PreparedFiles]:
    """Those of which the table has neither the number nor a greater one."""
    last: dict[str, int] = {}
    for one in committables:
        if one.run not in last:
            last[one.run] = table.transaction_version(one.run) or 0
    return [one for one in committables if one.number > last[one.run]]


def _properties(due: Sequence[PreparedFiles]) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    numbers: dict[str, int] = {}
    for one in due:
        numbers[one.run] = max(one.number, numbers.get(one.run, 0))
    return CommitProperties(app_transactions=[Transaction(run, number) for run, number in sorted(numbers.items())])


def _is_conflict(error: Exception) -> bool:
    """Whether another version came between, and the next try may go through."""
    from deltalake.exceptions import CommitFailedError

    text = str(error).lower()
    return isinstance(error, CommitFailedError) and any(
        word in text for word in ("concurrent", "conflict", "version", "metadata changed", "protocol")
    )


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
