"""Changes by key: data files that contain a changed key are rewritten without its rows.

pyiceberg cannot write equality deletes, which Flink's sink uses to delete rows without reading them. Candidate files
are therefore found by their partitions and column bounds, and their keys are read. Files that contain a changed key are
replaced by files without its rows, in the same snapshot that adds the new rows. The cost depends on the number of files
with changed keys: partitioning or clustering the table so that rows that change together share files keeps it low.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.iceberg.columns import conformed
from penstock.connectors.iceberg.staged import KIND, StagedChanges
from penstock.connectors.iceberg.tables import arrow_schema
from penstock.connectors.iceberg.writing import FileWriting
from penstock.connectors.last_changes import has_key, last_of_each

if TYPE_CHECKING:
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
