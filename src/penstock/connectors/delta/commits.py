"""Exactly-once commits to Delta Lake: how writes are prepared and named, and how each checkpoint commits them once.

A Delta table is defined by its log: version n is the file `_delta_log/n.json`, which exactly one writer can create. A
data file that no version names is invisible. So the writers create Parquet files in their final location, and a
checkpoint holds their names. When the checkpoint is complete, the committer creates one version that adds the files of
all subtasks. The following explains why a repeated commit has no effect.

**Names.** The log supports this directly: a version may contain *application transactions*, pairs of a name and a
number, and readers of the log know the last number of each name. A version is created only if no version since the one
that its writer read contains one of its names. Flink's connector uses the job name with the checkpoint number. That
can lose data: a job that restarts from an older savepoint counts its checkpoints from there, finds its numbers in the
log, and would treat new rows as already committed. Here a name therefore identifies one *run* of one writer, which no
other attempt, job or duplicate task shares (`SinkWriterContext.run`), and the number counts the commits that this run
has prepared, from 1. A committable is done if the log contains its number, or a greater one, for its run. All
committables of a commit go into one version, with the last number of each run.

- *Repeated commits.* Files and numbers are written in one version, so they become visible together. A second commit
  finds the numbers.
- *Lost responses.* A committer that does not know whether its version was created reads the log and looks for the
  numbers. delta-rs itself retries if it gets no response; it then finds its own version, which has the same names, and
  reports a conflict. The committer reads the log and finds that everything is committed.
- *Zombies.* A committer that was replaced but is still alive may commit at the same time as its successor. Both name
  the same runs, so one of the two versions is rejected, and its committer finds the numbers of the other.
- *Order.* "The number or a greater one" is sufficient because the numbers of a run are committed in order: they reach
  the only committer through one channel, in-flight commits precede new ones, and all restored commits are done before
  a new attempt completes its first checkpoint.
- *Old savepoints.* The committables of a savepoint carry the names of the runs that created them. Committed ones are
  recognized by these, even years later. The new job's own commits have new names, whatever its checkpoint numbers are.
- *A savepoint of a running job* names files that the job's next checkpoint commits. If the job fails before that, its
  next attempt writes those rows again under another name. A job that starts from the savepoint commits the files then.
- *Micro-batches* run each epoch in new tasks, so the number of run names would grow with the epochs. However, all
  commits that earlier epochs prepared are done before an epoch begins (`owes_nothing`). A single name, of the job and
  the operator, with the epoch number is therefore enough: an epoch is prepared as a whole, stored, and only then
  committed.
- *Size.* The log keeps the last number of each name: one line per writer and attempt.
  `delta.setTransactionRetentionDuration` expires older names; set it to at least the age of the oldest retained
  savepoint.

**Other writers.** Adding files conflicts only with changes to the table's columns or protocol, and with commits of the
same names. delta-rs takes the next version if another writer was faster. A rejected commit is retried on the newest
version, after checking the numbers. Two jobs on one table share no names.

**Orphaned files.** Files whose checkpoint never completed remain: a writer removes its own when it is closed, but a
killed process does not. To the table they are like deleted files, and VACUUM removes both: it deletes files that no
version names once they are more than a week old. An older savepoint may therefore name files that VACUUM has removed,
if they were never committed. The commit of restored state therefore checks that its files exist and fails with a clear
message if not: a version that names a missing file would break the table.

**Upserts.** Keyed changes are written to the same kind of files, with an additional row kind column, and no version
ever names these files. The commit reads them, keeps the last change of each key, and merges the changes into the table,
in one version with the numbers. It then removes the files; VACUUM removes any that a failure leaves. A merge depends on
all rows of the table, so it conflicts with every writer that adds or removes files, and is retried on the newest
version. A merge that changes nothing creates no version, so the committer then creates one that contains only the
numbers. Otherwise a deletion that matched no row could be repeated later, when such a row exists.

**Cost.** Each checkpoint costs one listing and one new file in the log, and a check of the files that restored state
names. The committer holds an upsert's changes between two checkpoints in memory.

**Target.** `prepare` creates the target table if it is missing, and compares its columns with the columns to write.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.base import is_gone, last_of_each
from penstock.connectors.delta.log import check_writable
from penstock.connectors.delta.table import (
    TARGET_BYTES,
    CommitError,
    DataFile,
    DataFilesWriter,
    TablePlace,
    check_partition_type,
    is_same,
    list_invariants,
    parse_value,
    read_arrow_schema,
    stored_schema,
    to_log_texts,
)
from penstock.runtime.connector import Committer, SinkWriterContext

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


_LOG: Final = logging.getLogger("penstock.connectors.delta")
#: How many times to re-read the table when other writers change it concurrently.
_READ_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that one commit creates or replaces together with its rows, so that no reader sees half of it.

    Attributes:
        schema: the columns as Delta Lake's JSON.
        comment: the description of the table, if any.
        replaces: whether an existing table, with its columns and rows, is replaced.
        properties: the properties of the table.
    """

    schema: str
    comment: str | None
    replaces: bool
    properties: tuple[tuple[str, str], ...]

    @staticmethod
    def from_text(text: str) -> NewTable:
        """Return the table in a text of `text`."""
        schema, comment, replaces, properties = json.loads(text)
        return NewTable(schema, comment, replaces, tuple(map(tuple, properties)))

    def text(self) -> str:
        """Return everything as one text, which an option can have."""
        return json.dumps([self.schema, self.comment, self.replaces, self.properties])

    def check(self, title: str) -> None:
        """Raise `UnsupportedError` for a property that delta-rs does not take together with rows."""
        own = [key for key, _ in self.properties if not key.startswith("delta.")]
        if own:
            raise UnsupportedError(
                f"table {title} cannot be created with its rows and the property '{own[0]}' in one commit, because "
                "delta-rs then takes only properties of Delta Lake: set it afterwards by ALTER TABLE"
            )


@dataclass(frozen=True, slots=True)
class Target:
    """The table and columns that a sink writes.

    Attributes:
        place: the table's location.
        columns: the columns, in the table's types.
        partition_columns: the partition columns of a new table; None for those of the existing table.
        key: the columns of the upsert key; empty if rows are only appended.
        merge_schema: whether to add columns that the table lacks.
        properties: the properties of a new table, such as `delta.enableChangeDataFeed`.
        creates: whether a missing table is created; otherwise it is an error.
        new: the table that the only commit creates or replaces.
        overwrites: whether the rows of the only commit replace the partitions that they belong to, or all rows.
        replaced: the partition that is replaced whatever is written: names of columns with the texts of their values.
        base: the version whose rows are changed by value (`penstock.connectors.row_changes`).
    """

    place: TablePlace
    columns: pa.Schema
    partition_columns: tuple[str, ...] | None
    key: tuple[str, ...] = ()
    merge_schema: bool = False
    properties: tuple[tuple[str, str], ...] = ()
    creates: bool = True
    new: NewTable | None = None
    overwrites: bool = False
    replaced: tuple[tuple[str, str], ...] = ()
    base: int | None = None

    def check(self) -> None:
        """Raise `ConfigurationError` for unknown partition or key columns and for reserved column names."""
        for role, names in (("partition", self.partition_columns or ()), ("key", self.key)):
            for name in names:
                if name not in self.columns.names:
                    raise ConfigurationError(
                        f"{role} column {name!r} is none of the columns {', '.join(self.columns.names)} that go into "
                        f"the Delta table {self.place.path}"
                    )
        hidden = [name for name in self.columns.names if name.startswith("_penstock_")]
        if hidden:
            raise ConfigurationError(f"column {hidden[0]!r} has a name that the sink uses itself: call it otherwise")
        for name in self.partition_columns or ():
            check_partition_type(name, self.columns.field(name).type)
        if self.partition_columns and len(self.partition_columns) == len(self.columns):
            raise ConfigurationError(
                f"the Delta table {self.place.path} needs a column that it is not partitioned by, too"
            )


def make_if_missing(target: Target) -> None:
    """Create the table if it does not exist."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError

    location = target.place
    if location.exists():
        return
    if not target.creates:
        location.open()  # raises
    location.files()
    try:
        created = DeltaTable.create(
            location.path,
            Schema.from_arrow(target.columns),
            mode="error",
            partition_by=list(target.partition_columns or ()),
            configuration=dict(target.properties) or None,
            storage_options=dict(location.options),
        )
        list_invariants(created)
        _LOG.info("made the Delta table %s", location.path)
    except DeltaError:
        if not location.exists():  # another writer may have created it in the meantime
            raise


class Prepared(NamedTuple):
    """A table that accepts a sink's columns: their schema there, in the sink's order, and the partition columns."""

    columns: pa.Schema
    partition_columns: tuple[str, ...]


def prepare(target: Target) -> Prepared:
    """Make sure that the table accepts the columns.

    Raises:
        ConfigurationError: for columns that do not fit; the message names them.
        UnsupportedTableError: for a table with rules that the sink does not support.
    """
    from deltalake.exceptions import DeltaError

    if target.new is not None:
        return Prepared(_columns_of_new(target), target.partition_columns or ())
    make_if_missing(target)
    for tries_left in reversed(range(_READ_TRIES)):
        table = target.place.open()
        missing = _compared(target, table)
        if not missing:
            return Prepared(_as_stored(target, table), tuple(table.metadata().partition_columns))
        if not target.merge_schema:
            raise ConfigurationError(
                f"the Delta table {target.place.path} has no columns {', '.join(column.name for column in missing)}: "
                "add "
                "them, leave them out, or let the sink add them by with_merge_schema(True), 'mergeSchema' = 'true'"
            )
        try:
            table.alter.add_columns(to_delta_fields(missing))
            _LOG.info("added columns %s to %s", ", ".join(column.name for column in missing), target.place.path)
        except DeltaError:
            if not tries_left:
                raise
    raise AssertionError


def _columns_of_new(target: Target) -> pa.Schema:
    assert target.new is not None
    fields = {field["name"]: field for field in json.loads(target.new.schema)["fields"]}
    return pa.schema([column.with_nullable(fields[column.name]["nullable"]) for column in target.columns])


def to_delta_fields(missing: list[pa.Field]) -> list[Any]:
    """Return columns as delta-rs takes them."""
    from deltalake import Schema

    return list(Schema.from_arrow(stored_schema(pa.schema(missing))).fields)


def _compared(target: Target, table: DeltaTable) -> list[pa.Field]:
    """Return the columns that the table lacks. Raises for any other mismatch."""
    path = target.place.path
    check_writable(target.place, table, bool(target.key) or target.overwrites)
    schema = read_arrow_schema(table)
    keys = tuple(table.metadata().partition_columns)
    if target.partition_columns is not None and target.partition_columns != keys:
        raise ConfigurationError(
            f"the Delta table {path} is partitioned by {', '.join(keys) or 'nothing'}, and the sink by "
            f"{', '.join(target.partition_columns) or 'nothing'}: name the columns that the table has"
        )
    lacking = [name for name in keys if name not in target.columns.names]
    if lacking:
        raise ConfigurationError(
            f"the Delta table {path} is partitioned by {', '.join(lacking)}, which is not among the columns of the "
            f"sink: {', '.join(target.columns.names)}"
        )
    for field in target.columns:
        if field.name in schema.names and not is_same(schema.field(field.name).type, field.type):
            raise ConfigurationError(
                f"column {field.name!r} is {schema.field(field.name).type} in the Delta table {path}, and {field.type} "
                "in the sink: cast it"
            )
    needed = [column.name for column in schema if not column.nullable and column.name not in target.columns.names]
    if needed:
        raise ConfigurationError(
            f"columns {', '.join(needed)} of the Delta table {path} may not be NULL, and the sink does not have them"
        )
    return [column for column in target.columns if column.name not in schema.names]


def _as_stored(target: Target, table: DeltaTable) -> pa.Schema:
    schema = read_arrow_schema(table)
    return pa.schema(
        [
            target.columns.field(column.name).with_nullable(schema.field(column.name).nullable)
            for column in target.columns
        ]
    )


#: How many times to try to create a version while other writers are faster.
TRIES: Final = 30
WAIT_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class PreparedFiles:
    """A committable: files to add to the table, under a unique name.

    Attributes:
        run: the name of the application transaction.
        number: the number of the commit within its run.
        files: data files or change files.
    """

    run: str
    number: int
    files: tuple[DataFile, ...]


def run_name(context: SinkWriterContext) -> str:
    """Return the name of a run, unique across jobs, operators, subtasks, attempts and duplicate tasks."""
    return f"penstock/{context.job_id}/{context.operator_id}/{context.subtask_index}/{context.run}"


def build_transaction_name(context: SinkWriterContext) -> tuple[str, int]:
    """Return the transaction name of a writer and the first number; see the module docstring."""
    if context.owes_nothing:
        return f"penstock/{context.job_id}/{context.operator_id}", context.attempt
    return run_name(context), 1


#: Creates the next version of a table with these properties; raises delta-rs's errors.
Apply = Callable[["DeltaTable", Sequence[PreparedFiles], "CommitProperties"], None]


class DeltaCommitter(Committer[PreparedFiles]):
    """Commits everything that a checkpoint has prepared as one version; repeating a commit has no effect.

    Args:
        target: the table.
        apply: how to add the files to the table.
        compact_after: compact small files after this many versions of the table; None for never.
        forget: removes files that are no longer needed after the commit.
        run: the name of a commit without rows, for a table that the commit creates.
    """

    def __init__(
        self,
        target: Target,
        apply: Apply,
        compact_after: int | None = None,
        forget: Callable[[Sequence[PreparedFiles]], None] | None = None,
        run: str = "",
    ) -> None:
        self._run = run
        self._target = target
        self._apply = apply
        self._compact_after = compact_after
        self._forget = forget
        self._table: DeltaTable | None = None

    def commit(self, committables: Sequence[PreparedFiles]) -> None:
        """See `Committer`."""
        self._commit(committables, looks=False)

    def recommit(self, committables: Sequence[PreparedFiles]) -> None:
        """See `Committer`. Raises `CommitError` if an uncommitted file is missing."""
        self._commit(committables, looks=True)

    def _commit(self, committables: Sequence[PreparedFiles], looks: bool) -> None:
        from deltalake.exceptions import CommitFailedError, DeltaError

        if self._target.new is not None:
            _commit_new(self._target, committables, self._run)
            if self._forget is not None:
                self._forget(committables)
            return
        if not committables and self._target.overwrites:
            committables = [PreparedFiles(self._run, 1, ())]
        if not committables:
            return
        for tries_left in reversed(range(TRIES)):
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
                # A duplicate of this committer may have committed changes and removed their files in the meantime.
                self._table = None
                if not _not_in_log(self.newest(), due):
                    continue
                raise self._gone(error) from error
            except (CommitFailedError, DeltaError) as error:
                self._table = None
                if not tries_left or not is_conflict(error):
                    raise
                _LOG.info("%s: another writer was faster, trying again: %s", self._target.place.path, line(error))
                time.sleep(WAIT_S * random.uniform(0.5, 2))
        if self._forget is not None:
            self._forget(committables)

    def newest(self) -> DeltaTable:
        """Return the table at its newest version."""
        if self._table is None:
            make_if_missing(self._target)
            self._table = self._target.place.open()
        else:
            self._table.update_incremental()
        return self._table

    def _check_files(self, due: Sequence[PreparedFiles]) -> None:
        """Raise `FileNotFoundError` for a file that is missing or has another size than was written."""
        files = self._target.place.files()
        sizes = {file.path: file.size_bytes for prepared in due for file in prepared.files}
        for info in files.get_file_info(list(sizes)):
            if info.size != sizes[info.path]:
                problem = "is gone" if info.size is None else f"has {info.size} bytes, expected {sizes[info.path]}"
                raise FileNotFoundError(f"{info.path} {problem}")

    def _gone(self, error: FileNotFoundError) -> CommitError:
        return CommitError(
            f"cannot commit to the Delta table {self._target.place.path}: {error}. The file was written for a "
            "checkpoint or savepoint, and never committed; VACUUM may have removed it. Start from a checkpoint before "
            "that, which writes its rows again"
        )

    def _compact(self, version: int) -> None:
        """Compact small files, which changes no rows, if a multiple of `compact_after` versions has been reached.

        `version` is the version before this commit. An epoch's committer lives for one commit, so the table's versions
        count.
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
            _LOG.info("%s: small files stay for now: %s", self._target.place.path, line(error))
        self._table = None

    def close(self) -> None:
        """Release the table."""
        self._table = None


def _commit_new(target: Target, committables: Sequence[PreparedFiles], run: str) -> None:
    """Create or replace the table with these rows, unless that has happened; `run` names a commit without rows.

    Raises:
        CommitError: if another writer has created the table.
    """
    from deltalake import Schema
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.transaction import create_table_with_add_actions

    new, table_place = target.new, target.place
    assert new is not None
    committables = committables or [PreparedFiles(run, 1, ())]
    names = list(target.partition_columns or ())
    actions: list[Any] | None = None
    for tries_left in reversed(range(TRIES)):
        if table_place.exists():
            if not _not_in_log(table_place.open(), committables):
                return
            if not new.replaces:
                raise CommitError(
                    f"the Delta table {table_place.path} was created by another writer while this job made its rows: "
                    "drop that table, or create one of another name"
                )
        if actions is None:
            actions = _add_actions(names, _files_of_new(target, committables))
        try:
            create_table_with_add_actions(
                table_place.path,
                Schema.from_json(new.schema),
                actions,
                mode="overwrite" if new.replaces else "error",
                partition_by=names,
                description=new.comment,
                configuration=dict(new.properties),
                storage_options=dict(table_place.options),
                commit_properties=_properties(committables),
            )
        except (CommitFailedError, DeltaError) as error:
            if not tries_left or not (is_conflict(error) or "already exists" in str(error)):
                raise
            time.sleep(WAIT_S * random.uniform(0.5, 2))
        else:
            list_invariants(table_place.open())
            return


def _files_of_new(target: Target, committables: Sequence[PreparedFiles]) -> list[DataFile]:
    """Return the data files of a new table; those with its last rows by key are written here."""
    prepared = [file for committable in committables for file in committable.files]
    if not target.key or not prepared:
        return prepared
    files = target.place.files()
    parts = [pq.read_table(file.path, filesystem=files, schema=changes_schema(target.columns)) for file in prepared]
    last = last_of_each_key(pa.concat_tables(parts), target.key)
    rows = last.filter(pc.invert(last.column(_GONE))).drop_columns([_GONE]).combine_chunks()
    stem = f"part-{uuid.uuid4()}"
    writer = DataFilesWriter(target.place, target.columns, target.partition_columns or (), stem, TARGET_BYTES)
    for batch in rows.to_batches():
        writer.write(batch, prepared[0].written_ms)
    return list(writer.finish(prepared[0].written_ms))


def _add_actions(names: Sequence[str], files: Sequence[DataFile]) -> list[Any]:
    from deltalake.transaction import AddAction

    return [
        AddAction(
            file.path,
            file.size_bytes,
            dict(zip(names, file.partition, strict=True)),
            file.written_ms,
            True,
            file.statistics,
        )
        for file in files
    ]


def add_files(target: Target) -> Apply:
    """Return a function that adds data files to the table unchanged."""

    def apply(table: DeltaTable, due: Sequence[PreparedFiles], properties: CommitProperties) -> None:
        names = list(table.metadata().partition_columns)
        table.create_write_transaction(
            _add_actions(names, [file for prepared in due for file in prepared.files]),
            "append",
            table.schema(),
            names,
            commit_properties=properties,
        )

    return apply


def overwrite_files(target: Target) -> Apply:
    """Return a function that adds data files and removes the replaced ones, in one version."""

    def apply(table: DeltaTable, due: Sequence[PreparedFiles], properties: CommitProperties) -> None:
        names = list(table.metadata().partition_columns)
        files = [file for prepared in due for file in prepared.files]
        table.create_write_transaction(
            [*_remove_actions(table, target, files), *_add_actions(names, files)],
            "append",
            table.schema(),
            names,
            commit_properties=properties,
        )

    return apply


def _remove_actions(table: DeltaTable, target: Target, files: Sequence[DataFile]) -> list[Any]:
    """Return the removals of the files that are replaced. delta-rs encodes a path again that it has read."""
    from deltalake.transaction import RemoveAction

    names, schema = list(table.metadata().partition_columns), read_arrow_schema(table)

    def parsed(texts: Iterable[tuple[str, str | None]]) -> tuple[Any, ...]:
        return tuple(parse_value(text, schema.field(name).type, name).as_py() for name, text in texts)

    replaced = dict(target.replaced)
    keys = list(replaced) or names
    wanted = {parsed(replaced.items())} if replaced or not names else set()
    wanted |= {parsed(zip(names, file.partition, strict=True)) for file in files if not replaced}
    actions = pa.table(table.get_add_actions(flatten=False))
    present = [pa.nulls(actions.num_rows, pa.string()) for _ in names]
    if names:
        values = actions.column("partition").combine_chunks()
        present = [to_log_texts(values.field(name)) for name in names]
    texts = zip(*(column.to_pylist() for column in present), strict=True) if names else [()] * actions.num_rows
    partitions = [dict(zip(names, values, strict=True)) for values in texts]
    rows = zip(actions.select(["path", "size_bytes"]).to_pylist(), partitions, strict=True)
    now_ms = int(time.time() * 1_000)
    return [
        RemoveAction(unquote(row["path"]), True, now_ms, row["size_bytes"], partition)
        for row, partition in rows
        if parsed((name, partition[name]) for name in keys) in wanted
    ]


def _not_in_log(table: DeltaTable, committables: Sequence[PreparedFiles]) -> list[PreparedFiles]:
    """Return the committables for whose run the table has neither their number nor a greater one."""
    last: dict[str, int] = {}
    for prepared in committables:
        if prepared.run not in last:
            last[prepared.run] = table.transaction_version(prepared.run) or 0
    return [committable for committable in committables if committable.number > last[committable.run]]


def _properties(due: Sequence[PreparedFiles]) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    numbers: dict[str, int] = {}
    for prepared in due:
        numbers[prepared.run] = max(prepared.number, numbers.get(prepared.run, 0))
    return CommitProperties(app_transactions=[Transaction(run, number) for run, number in sorted(numbers.items())])


def is_conflict(error: Exception) -> bool:
    """Return whether another version was created in the meantime, so that a retry may succeed."""
    from deltalake.exceptions import CommitFailedError

    text = str(error).lower()
    return isinstance(error, CommitFailedError) and any(
        word in text for word in ("concurrent", "conflict", "version", "metadata changed", "protocol")
    )


def line(error: Exception) -> str:
    """Return the first line of an error."""
    return str(error).partition("\n")[0]


#: The column of a change file that holds each row's kind, as the value of its `RowKind`.
KIND: Final = "_penstock_kind"
#: The column of the merged rows that marks deletions.
_GONE: Final = "_penstock_gone"


def with_kinds(batch: pa.RecordBatch, kinds: bytes | None) -> pa.RecordBatch:
    """Add the row kinds as a column; `kinds` is None if all rows are inserts."""
    codes = bytes(batch.num_rows) if kinds is None else kinds
    column = pa.array(np.frombuffer(codes, np.uint8))
    return pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, KIND])


def changes_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of a change file."""
    return pa.schema([*columns, pa.field(KIND, pa.uint8())])


def merge_changes(target: Target) -> Apply:
    """Return a function that merges the last change of each key into the table."""

    def apply(table: DeltaTable, due: Sequence[PreparedFiles], properties: CommitProperties) -> None:
        files = target.place.files()
        names = [file.path for prepared in due for file in prepared.files]
        parts = [pq.read_table(path, filesystem=files, schema=changes_schema(target.columns)) for path in names]
        _merge_noted(table, target, last_of_each_key(pa.concat_tables(parts), target.key), properties)

    return apply


def merge_rows(
    table: DeltaTable, target: Target, rows: pa.Table, is_deleted: str, properties: CommitProperties
) -> None:
    """Merge rows into the table, in one version with the properties even if nothing changes.

    Args:
        table: the table.
        target: its columns and its key.
        rows: the last change of each key.
        is_deleted: the column of `rows` that marks deletions.
        properties: the numbers of the commit.
    """
    flags = rows.column(is_deleted)
    rows = rows.drop_columns([is_deleted]).select(target.columns.names)
    columns = pa.schema([column.with_nullable(True) for column in target.columns])  # a deletion has a key only
    _merge_noted(table, target, rows.cast(columns).append_column(_GONE, flags), properties)


def _merge_noted(table: DeltaTable, target: Target, rows: pa.Table, properties: CommitProperties) -> None:
    """Merge rows; a merge that changes nothing creates no version, so create one with the numbers."""
    before = table.version()
    _merge(table, target, rows, properties)
    if table.version() == before:
        write_nothing(table, properties)


def write_nothing(table: DeltaTable, properties: CommitProperties) -> None:
    """Create a version that contains only the numbers of a commit."""
    table.create_write_transaction(
        [], "append", table.schema(), list(table.metadata().partition_columns), commit_properties=properties
    )


def last_of_each_key(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last row of each key, given rows in order, with a column that marks deletions."""
    changes = changes.combine_chunks()
    last_changes = changes.take(last_of_each(changes, key))
    deleted = pa.array(is_gone(last_changes.column(KIND).to_numpy()), pa.bool_())
    return last_changes.drop_columns([KIND]).append_column(_GONE, deleted)


def _merge(table: DeltaTable, target: Target, rows: pa.Table, properties: CommitProperties) -> None:
    sets: dict[str, str] = {quoted(name): f"s.{quoted(name)}" for name in target.columns.names}
    matches = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in target.key)
    builder: Any = table.merge(
        rows, predicate=matches, source_alias="s", target_alias="t", commit_properties=properties
    )
    (
        builder.when_matched_delete(f"s.{_GONE}")
        .when_matched_update(sets, predicate=f"NOT s.{_GONE}")
        .when_not_matched_insert(sets, predicate=f"NOT s.{_GONE}")
        .execute()
    )


def forget_changes(target: Target, prepared: Sequence[PreparedFiles]) -> None:
    """Remove merged change files; VACUUM removes any that remain."""
    with contextlib.suppress(Exception):
        files = target.place.files()
        for info in files.get_file_info([file.path for each in prepared for file in each.files]):
            if info.size is not None:
                files.delete_file(info.path)


def quoted(text: str, mark: str = '"') -> str:
    """Return text in quotation marks, as delta-rs's SQL has names, or with the other marks its strings."""
    return mark + text.replace(mark, mark * 2) + mark
