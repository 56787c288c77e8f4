"""DELETE, UPDATE and MERGE in a Delta Lake table: changes of rows by value, merged by delta-rs into one version.

New values are computed before, by Penstock's expressions: delta-rs only finds the rows and writes the others. So a
change feed has the rows that change and no others.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.delta.commits import (
    TRIES,
    WAIT_S,
    Apply,
    PreparedFiles,
    Target,
    is_conflict,
    line,
    quoted,
)
from penstock.connectors.delta.table import TablePlace, read_arrow_schema
from penstock.connectors.row_changes import DELETE, INSERT, UPDATE, RowChangeError, RowChanges, after, before
from penstock.connectors.row_changes import KIND as KIND_OF_ROW

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


def row_changes_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of a file of changes of rows by value."""
    fields = [field.with_nullable(True) for field in columns]
    renamed = [field.with_name(rename(field.name)) for rename in (before, after) for field in fields]
    return pa.schema([pa.field(KIND_OF_ROW, pa.int8()), *renamed])


def change_rows(target: Target) -> Apply:
    """Return a function that changes rows by value in one version, on top of the version that the query has read."""

    def apply(table: DeltaTable, due: Sequence[PreparedFiles], properties: CommitProperties) -> None:
        from deltalake.exceptions import CommitFailedError

        files, path = target.place.files(), target.place.path
        schema, names = row_changes_schema(target.columns), target.columns.names
        paths = [file.path for prepared in due for file in prepared.files]
        parts = [pq.read_table(name, filesystem=files, schema=schema) for name in paths]
        changes = RowChanges.of(pa.concat_tables(parts), names, path)
        base = target.place.open(target.base)
        _check_rows(base, changes, path)
        if not changes.old.num_rows and not changes.inserted.num_rows:
            return
        try:
            _merge_rows(base, changes, names, properties)
        except CommitFailedError as error:
            raise RowChangeError(
                f"other writers have changed the Delta table {path} since this statement has read it: run the "
                f"statement again ({line(error)})"
            ) from error

    return apply


def _check_rows(table: DeltaTable, changes: RowChanges, path: str) -> None:
    """Raise `RowChangeError` for a row that several rows match, or for NULL in a column that must have a value."""
    changes.check_nulls([field.name for field in read_arrow_schema(table) if not field.nullable], path)
    if not (changes.counts > 1).any():
        return
    present = np.zeros(changes.old.num_rows, np.int64)
    for batch in table.to_pyarrow_dataset().to_batches(columns=changes.old.column_names):
        rows = pa.Table.from_batches([batch]).cast(changes.old.schema)
        numbers = changes.find(rows)
        present += np.bincount(numbers[numbers >= 0], minlength=len(present))
    changes.check_counts(present, path)


def _merge_rows(table: DeltaTable, changes: RowChanges, names: Sequence[str], properties: CommitProperties) -> None:
    kinds = np.where(changes.is_deleted, DELETE, UPDATE).astype(np.int8)
    old = pa.table(
        [pa.array(kinds), *changes.old.columns, *changes.new.columns], row_changes_schema(changes.old.schema)
    )
    new = changes.inserted
    nothing = [pa.nulls(new.num_rows, field.type) for field in changes.old.schema]
    added = pa.table([pa.array(np.full(new.num_rows, INSERT, np.int8)), *nothing, *new.columns], old.schema)
    is_same = [f"(t.{quoted(name)} IS NOT DISTINCT FROM s.{quoted(before(name))})" for name in names]
    sets: dict[str, str] = {quoted(name): f"s.{quoted(after(name))}" for name in names}
    kind = f"s.{quoted(KIND_OF_ROW)}"
    builder: Any = table.merge(
        pa.concat_tables([old, added]),
        predicate=" AND ".join([f"({kind} <> {INSERT})", *is_same]),
        source_alias="s",
        target_alias="t",
        commit_properties=properties,
    )
    (
        builder.when_matched_delete(f"{kind} = {DELETE}")
        .when_matched_update(sets, predicate=f"{kind} = {UPDATE}")
        .when_not_matched_insert(sets, predicate=f"{kind} = {INSERT}")
        .execute()
    )


def remove_rows(place: TablePlace, predicate: str | None) -> int:
    """Remove the rows that satisfy a condition, or all rows, in one version; return their number."""
    from deltalake.exceptions import CommitFailedError

    for tries_left in reversed(range(TRIES)):
        try:
            return int(place.open().delete(predicate)["num_deleted_rows"])
        except CommitFailedError as error:
            if not tries_left or not is_conflict(error):
                raise
            time.sleep(WAIT_S * random.uniform(0.5, 2))
    raise AssertionError
