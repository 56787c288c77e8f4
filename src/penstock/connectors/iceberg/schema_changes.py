"""Schema changes of an Iceberg table that a sink commits exactly once, among the changes of its rows.

A schema change has a name like a commit of rows, and leaves it in the ledger of the table in the same swap of metadata
(`committer`). So a change that is committed again has no effect, and neither a crash nor a second committer comes
between the change and its name. Like a commit of rows it requires that the branch is where the ledger was read.

Source: the specification of Iceberg, "Schema Evolution": which types widen.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import SchemaChangeEvent, TableSchema
from penstock.connectors.iceberg.committer import ATTEMPTS, LEDGER, CommitName, Ledger
from penstock.connectors.iceberg.data_files import fits, stored_type
from penstock.connectors.iceberg.tables import DeclaredTable, MissingTableError, TableLoader, arrow_schema, loaded

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction

_BRANCH: Final = "main"
_PAUSE_S: Final = 0.05


def declare(schema: TableSchema, properties: dict[str, str]) -> DeclaredTable:
    """Return the table of a schema: a column of the key, or that is NOT NULL, is required."""
    fields = [pa.field(column.name, column.type, column.is_nullable) for column in schema.columns]
    return DeclaredTable(
        pa.schema(fields), schema.primary_key, schema.partition_keys, tuple(sorted(properties.items()))
    )


def refuses_change(schema: TableSchema, change: SchemaChangeEvent) -> str | None:
    """Return why Iceberg cannot make a change of a table; None if it can."""
    if isinstance(change, events.RenameColumnEvent | events.TruncateTableEvent | events.DropTableEvent):
        return None
    if isinstance(change, events.DropColumnEvent):
        return f"the table is partitioned by {change.name!r}" if change.name in schema.partition_keys else None
    try:
        if isinstance(change, events.CreateTableEvent):
            declare(change.schema, {}).stored_schema()
            return None
        if isinstance(change, events.AddColumnEvent):
            stored_type(change.column.type)
            return None
        known = schema.columns[schema.get_position(change.column.name)]
        if not fits(known.type, change.column.type):
            return f"Iceberg widens types only, and {known.sql_type} does not widen to {change.column.sql_type}"
    except UnsupportedError as error:
        return str(error)
    return None


class SchemaChanges:
    """Makes the schema changes of one table.

    Args:
        loader: loads the table.
        catalog: the open catalog.
        now_ms: the clock.
        retention_ms: how long the ledger remembers commits.
    """

    def __init__(self, loader: TableLoader, catalog: Catalog, now_ms: Callable[[], int], retention_ms: int) -> None:
        self._loader, self._catalog, self._now_ms, self._retention_ms = loader, catalog, now_ms, retention_ms

    def create(self, declared: DeclaredTable, name: CommitName) -> None:
        """Create the table with the name in its ledger. A table that exists gets the columns that it lacks.

        Raises:
            ConfigurationError: if columns of an existing table do not fit.
        """
        entry = Ledger({}).noted([name], self._now_ms(), self._retention_ms).text()
        properties = (*declared.properties, (LEDGER + _BRANCH, entry))
        new = DeclaredTable(declared.schema, declared.key, declared.partitioning, properties)
        # An existing table may lack columns, or have NOT NULL where the rows to come have none.
        table = self._load()
        if table is not None and Ledger.of(table.metadata.properties, _BRANCH).knows(name):
            return
        loaded(self._loader, self._catalog, new, True, True)

    def drop(self, name: CommitName) -> None:
        """Drop the table, unless it is one that was created after this."""
        table = self._load()
        if table is not None and not Ledger.of(table.metadata.properties, _BRANCH).knows(name):
            self._catalog.drop_table(self._loader.identifier)

    def apply(self, change: SchemaChangeEvent, name: CommitName) -> None:
        """Make a change, unless it has been made.

        Raises:
            ConfigurationError: if the table does not exist.
        """
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        for attempt in itertools.count(1):
            table = self._loader.load_table(self._catalog)
            ledger = Ledger.of(table.metadata.properties, _BRANCH)
            if ledger.knows(name):
                return
            transaction = table.transaction()
            if isinstance(change, events.TruncateTableEvent):
                self._truncate(transaction, table)
            else:
                _change_columns(transaction, table, change)
            noted = ledger.noted([name], self._now_ms(), self._retention_ms)
            transaction.set_properties({LEDGER + _BRANCH: noted.text()})
            _require_head(transaction, table)
            try:
                transaction.commit_transaction()
            except (CommitFailedException, CommitStateUnknownException):
                if attempt == ATTEMPTS:
                    raise
                time.sleep(random.uniform(0.5, 1) * min(_PAUSE_S * 2**attempt, 5.0))
            else:
                return

    def _load(self) -> Table | None:
        try:
            return self._loader.load_table(self._catalog)
        except MissingTableError:
            return None

    @staticmethod
    def _truncate(transaction: Transaction, table: Table) -> None:
        if table.current_snapshot() is None:
            return
        with transaction.update_snapshot().overwrite() as producer:
            for task in table.scan().plan_files():
                producer.delete_data_file(task.file)


def _require_head(transaction: Any, table: Table) -> None:
    """Require the branch to be where the ledger was read, as a new snapshot of it does by itself."""
    from pyiceberg.table.update import AssertRefSnapshotId

    requirements = transaction._requirements
    if any(isinstance(each, AssertRefSnapshotId) and each.ref == _BRANCH for each in requirements):
        return
    head = table.metadata.snapshot_by_name(_BRANCH)
    fields: dict[str, Any] = {"ref": _BRANCH, "snapshot-id": None if head is None else head.snapshot_id}
    required = AssertRefSnapshotId(**fields)
    transaction._requirements = (*requirements, required)


def _change_columns(transaction: Transaction, table: Table, change: SchemaChangeEvent) -> None:
    names = arrow_schema(table).names
    with transaction.update_schema() as update:
        match change:
            case events.AddColumnEvent(column=column, position=position):
                if column.name in names:
                    return  # an existing table had it from the beginning
                field = pa.field(column.name, stored_type(column.type))
                update.union_by_name(pa.schema([field]))
                if position.first:
                    update.move_first(column.name)
                elif position.after is not None and position.after in names:
                    update.move_after(column.name, position.after)
            case events.DropColumnEvent(name=name):
                update.delete_column(name)
            case events.RenameColumnEvent(name=name, new_name=new_name):
                update.rename_column(name, new_name)
            case events.AlterColumnTypeEvent(column=column):
                field = table.schema().find_field(column.name)
                update.update_column(
                    column.name,
                    field_type=_iceberg_type(column.type),
                    required=False if column.is_nullable else field.required,
                )


def _iceberg_type(kind: pa.DataType) -> Any:
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    schema = _pyarrow_to_schema_without_ids(pa.schema([pa.field("c", stored_type(kind))]))
    return schema.fields[0].field_type
