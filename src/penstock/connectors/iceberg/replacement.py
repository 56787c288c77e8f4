"""Changes of a table's rows by rewriting the data files that have them, in the commit that adds the new rows.

`Replacement` makes changes by key, `RowReplacement` changes of rows by value.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.base import has_key, last_of_each
from penstock.connectors.iceberg.data_files import FileWriting, conformed
from penstock.connectors.iceberg.tables import arrow_schema
from penstock.connectors.row_changes import KIND as KIND_OF_ROW
from penstock.connectors.row_changes import RowChangeError, RowChanges, after, before

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

#: The boolean column of staged changes that marks deleted rows.
KIND: Final = "__penstock_kind"
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

    def plan(self, changes: pa.Table) -> None:
        """Write the new files. `changes` is in the order of preparation."""
        changes = changes.combine_chunks()
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

    def _condition(self, keys: pa.Table, values: Sequence[Any], name: str = "") -> BooleanExpression:
        from pyiceberg import expressions

        untyped: Any = expressions  # its classes accept names, contrary to their type annotations
        if keys.column(0).null_count or not values:
            return expressions.AlwaysTrue()
        name = name or self._key[0]
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


class RowReplacement(Replacement):
    """The files to remove and to add for changes of rows by value."""

    def __init__(self, table: Table, branch: str, base: int | None, title: str) -> None:
        super().__init__(table, branch, arrow_schema(table).names, title)
        self._base = base

    def plan(self, changes: pa.Table) -> None:
        """Write the new files.

        Raises:
            RowChangeError: if several rows of a MERGE's source match one row, or the rows that change are not in the
                table any more.
        """
        row_changes = RowChanges.of(self._conformed_changes(changes), self._key, self._title)
        row_changes.check_nulls([field.name for field in self._schema if not field.nullable], self._title)
        head = self._table.metadata.snapshot_by_name(self._branch)
        if (None if head is None else head.snapshot_id) != self._base:
            self._check_since(head)
        if self._base is None and row_changes.old.num_rows:
            raise self._changed()  # rows of a table that had none
        present = np.zeros(row_changes.old.num_rows, np.int64)
        for task in self._list_tasks(row_changes.old):
            rows = self._read(task, self._schema.names)
            numbers = row_changes.find(rows)
            is_changed = numbers >= 0
            if not is_changed.any():
                continue
            present += np.bincount(numbers[is_changed], minlength=len(present))
            self.removed.append(task.file)
            remaining = rows.filter(pa.array(~is_changed))
            updated = numbers[is_changed]
            new = row_changes.new.take(updated[~row_changes.is_deleted[updated]])
            written = pa.concat_tables([remaining, new.cast(remaining.schema)]).combine_chunks()
            self.added += self._writing.write(conformed(written, self._schema, self._title))
        row_changes.check_counts(present, self._title)
        self.added += self._writing.write(conformed(row_changes.inserted, self._schema, self._title))

    def _conformed_changes(self, table: pa.Table) -> pa.Table:
        """Return the changes with the columns in the types of the table, where NULL stands for no row."""
        schema = pa.schema([field.with_nullable(True) for field in self._schema])
        columns = [table.column(KIND_OF_ROW)]
        for rename in (before, after):
            part = table.select([rename(name) for name in self._key]).rename_columns(self._key)
            columns += conformed(part, schema, self._title).columns
        return pa.table(columns, [KIND_OF_ROW, *map(before, self._key), *map(after, self._key)])

    def _check_since(self, head: Snapshot | None) -> None:
        """Raise `RowChangeError` unless others have only added rows since the changed ones were read."""
        snapshot = head
        while snapshot is not None and snapshot.snapshot_id != self._base:
            summary = snapshot.summary
            if summary is not None and summary.operation.value != "append":
                break
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.metadata.snapshot_by_id(parent)
            if snapshot is None and (parent is not None or self._base is not None):
                break
        else:
            return
        raise self._changed()

    def _changed(self) -> RowChangeError:
        return RowChangeError(
            f"other writers have changed table {self._title} since this statement has read it: run the statement again"
        )

    def _list_tasks(self, old: pa.Table) -> Iterator[FileScanTask]:
        """Yield the files that the statement has read and that may have one of these rows."""
        if self._base is None or not old.num_rows:
            return
        condition: Any = None
        for name in self._key:
            column = old.column(name)
            if not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_string(column.type)):
                condition = self._condition(old.select([name]), sorted(set(column.to_pylist())), name)
                break
        scan = self._table.scan(selected_fields=tuple(self._key), snapshot_id=self._base)
        yield from (scan if condition is None else scan.filter(condition)).plan_files()
