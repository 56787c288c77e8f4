"""Commits everything prepared for a checkpoint as one snapshot; `ledger` explains why that is exactly once.

Changes by key: data files that contain a changed key are rewritten without its rows.

pyiceberg cannot write equality deletes, which Flink's sink uses to delete rows without reading them. Candidate files
are therefore found by their partitions and column bounds, and their keys are read. Files that contain a changed key are
replaced by files without its rows, in the same snapshot that adds the new rows. The cost depends on the number of files
with changed keys: partitioning or clustering the table so that rows that change together share files keeps it low.
"""

from __future__ import annotations

import bisect
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.connectors.base import has_key, last_of_each
from penstock.connectors.iceberg.columns import conformed
from penstock.connectors.iceberg.data_files import LOG, FileWriting, remove, restored
from penstock.connectors.iceberg.ledger import (
    KIND,
    LEDGER,
    STEP_KEPT_MS,
    SUMMARY,
    CommitError,
    Ledger,
    Staged,
    StagedChanges,
    StagedFiles,
    format_summary,
    was_committed,
)
from penstock.connectors.iceberg.tables import SinkSettings, arrow_schema
from penstock.runtime.connector import Committer, SinkWriterContext

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table


#: Up to this number of keys pyiceberg looks up each key in the bounds of files; above it, their range.
_KEYS_MAX: Final = 200


class Replacement:
    """The files to remove from a table and to add to it for the changes of one commit."""

    def __init__(self, table: Table, branch: str, key: Sequence[str], title: str) -> None:
        self._table = table
        self._branch = branch
        self._key = list(key)
        self._title = title
        self._schema = arrow_schema(table)
        self._writing = FileWriting(table.metadata, table.io)
        self.removed: list[DataFile] = []
        self.added: list[DataFile] = []

    def plan(self, staged: Sequence[StagedChanges]) -> None:
        """Write the new files. `staged` is in the order of preparation."""
        changes = pa.concat_tables(
            [committable.changes() for committable in staged], promote_options="default"
        ).combine_chunks()
        last = changes.take(last_of_each(changes, self._key))
        keys = conformed(
            last.select(self._key), pa.schema([self._schema.field(name) for name in self._key]), self._title
        )
        upserts = last.filter(pc.invert(last.column(KIND))).drop_columns([KIND])
        for task in self._tasks(keys):
            self._rewrite(task, keys)
        self.added += self._writing.write(conformed(upserts, self._schema, self._title))

    def _tasks(self, keys: pa.Table) -> Iterator[FileScanTask]:
        if self._table.metadata.snapshot_by_name(self._branch) is None:
            return
        values = sorted(set(keys.column(0).drop_null().to_pylist()))
        scan = self._table.scan(row_filter=self._condition(keys, values), selected_fields=tuple(self._key))
        for task in scan.use_ref(self._branch).plan_files():
            if keys.column(0).null_count or self._may_have(task.file, values):
                yield task

    def _condition(self, keys: pa.Table, values: Sequence[Any]) -> BooleanExpression:
        from pyiceberg import expressions

        untyped: Any = expressions  # its classes accept names, contrary to their type annotations
        if keys.column(0).null_count or not values:
            return expressions.AlwaysTrue()
        name = self._key[0]
        if len(values) <= _KEYS_MAX:
            return cast("BooleanExpression", untyped.In(name, values))
        return expressions.And(untyped.GreaterThanOrEqual(name, values[0]), untyped.LessThanOrEqual(name, values[-1]))

    def _may_have(self, file: DataFile, values: Sequence[Any]) -> bool:
        """Return whether one of the sorted values lies within the bounds of a file."""
        from pyiceberg.conversions import from_bytes
        from pyiceberg.types import IntegerType, LongType

        field = self._table.schema().find_field(self._key[0])
        if not isinstance(field.field_type, IntegerType | LongType):
            return True  # bounds of other types are truncated, or encoded differently
        lower = (file.lower_bounds or {}).get(field.field_id)
        upper = (file.upper_bounds or {}).get(field.field_id)
        if lower is None or upper is None:
            return True
        index = bisect.bisect_left(values, from_bytes(field.field_type, lower))
        return index < len(values) and bool(values[index] <= from_bytes(field.field_type, upper))

    def _rewrite(self, task: FileScanTask, keys: pa.Table) -> None:
        of_file = self._read(task, self._key)
        if not pc.any(has_key(of_file, keys)).as_py():
            return
        rows = self._read(task, self._schema.names)
        self.removed.append(task.file)
        remaining = rows.filter(pc.invert(has_key(rows, keys)))
        self.added += self._writing.write(conformed(remaining, self._schema, self._title))

    def _read(self, task: FileScanTask, names: Sequence[str]) -> pa.Table:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        table = self._table
        projected = table.schema().select(*names)
        rows: pa.Table = ArrowScan(table.metadata, table.io, projected, AlwaysTrue()).to_table([task])
        schema = pa.schema([self._schema.field(name) for name in names])
        return conformed(rows, schema, self._title).combine_chunks()


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
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        for attempt in itertools.count(1):
            table = self._table()
            left = self._left(table, committables, is_in_doubt)
            if not left:
                return
            try:
                self._apply(table, left)
            except (CommitFailedException, CommitStateUnknownException) as error:
                if attempt == ATTEMPTS:
                    raise
                LOG.info("a commit to table %s is tried again: %s", self._settings.loader.title, error)
                time.sleep(random.uniform(0.5, 1) * min(_PAUSE_S * 2**attempt, _PAUSE_MAX_S))
            else:
                return

    def _table(self) -> Table:
        if self._opened is None:
            self._opened = self._settings.loader.catalog.load_catalog()
        table = self._settings.loader.load_table(self._opened)
        # Only in this object; the table in the catalog keeps its property.
        properties = {**table.metadata.properties, _RETRIES: "0"}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        return table

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

    def _apply(self, table: Table, staged: Sequence[Staged]) -> None:
        from pyiceberg.exceptions import CommitFailedException

        removed, added, own = self._files(table, staged)
        settings = self._settings
        names = [committable.name for committable in staged]
        snapshot_properties = {
            **dict(settings.properties),
            SUMMARY: format_summary(names),
            "penstock.job-id": self._context.job_id,
        }
        ledger = Ledger.of(table.metadata.properties, settings.branch)
        noted = ledger.noted(names, self._context.now_ms(), settings.retention_ms)
        transaction = table.transaction()
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
        transaction.set_properties({LEDGER + settings.branch: noted.text()})
        try:
            transaction.commit_transaction()
        except CommitFailedException:
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
            replacement = Replacement(table, settings.branch, settings.equality, settings.loader.title)
            replacement.plan(changes)
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


def _values(file: DataFile) -> tuple[Any, ...]:
    return tuple(file.partition[index] for index in range(len(file.partition)))
