"""Commits everything prepared for a checkpoint as one snapshot; `ledger` explains why that is exactly once."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.connectors.iceberg.columns import conformed
from penstock.connectors.iceberg.copy_on_write import Replacement
from penstock.connectors.iceberg.data_files import restored
from penstock.connectors.iceberg.history import CommitError, was_committed
from penstock.connectors.iceberg.ledger import LEDGER, STEP_KEPT_MS, SUMMARY, Ledger, format_summary
from penstock.connectors.iceberg.settings import SinkSettings
from penstock.connectors.iceberg.staged import Staged, StagedChanges, StagedFiles
from penstock.connectors.iceberg.tables import arrow_schema
from penstock.connectors.iceberg.writing import LOG, FileWriting, remove
from penstock.core.connector import Committer, SinkWriterContext

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

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
