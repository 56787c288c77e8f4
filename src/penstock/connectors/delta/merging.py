"""Keyed changes, which are written to separate files and merged into the table on commit."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.delta.commits import Apply, PreparedFiles
from penstock.connectors.delta.target import Target
from penstock.connectors.last_changes import is_gone, last_of_each

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

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
        before = table.version()
        _merge(table, target, last_of_each_key(pa.concat_tables(parts), target.key), properties)
        if table.version() == before:
            table.create_write_transaction(
                [],
                "append",
                table.schema(),
                list(table.metadata().partition_columns),
                commit_properties=properties,
            )

    return apply


def last_of_each_key(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last row of each key, given rows in order, with a column that marks deletions."""
    changes = changes.combine_chunks()
    last_changes = changes.take(last_of_each(changes, key))
    deleted = pa.array(is_gone(last_changes.column(KIND).to_numpy()), pa.bool_())
    return last_changes.drop_columns([KIND]).append_column(_GONE, deleted)


def _merge(table: DeltaTable, target: Target, rows: pa.Table, properties: CommitProperties) -> None:
    sets: dict[str, str] = {_quoted(name): f"s.{_quoted(name)}" for name in target.columns.names}
    matches = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in target.key)
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
