"""Changes of rows by their key: written into files of their own, and merged into the table when they are committed."""

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

#: The column of a file of changes that says what each does, as the value of its `RowKind`.
KIND: Final = "_penstock_kind"
#: Whether a row goes, in what is merged.
_GONE: Final = "_penstock_gone"


def with_kinds(batch: pa.RecordBatch, kinds: bytes | None) -> pa.RecordBatch:
    """Rows, and what each does; None where all are inserts."""
    found = bytes(batch.num_rows) if kinds is None else kinds
    column = pa.array(np.frombuffer(found, np.uint8))
    return pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, KIND])


def changes_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of a file of changes."""
    return pa.schema([*columns, pa.field(KIND, pa.uint8())])


def merge_changes(target: Target) -> Apply:
    """Merges the last change of each key into the table."""

    def apply(table: DeltaTable, due: Sequence[PreparedFiles], properties: CommitProperties) -> None:
        files = target.place.files()
        names = [one.path for prepared in due for one in prepared.files]
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
    """Of rows in their order the last of each key; whether it goes is in a column."""
    changes = changes.combine_chunks()
    found = changes.take(last_of_each(changes, key))
    gone = pa.array(is_gone(found.column(KIND).to_numpy()), pa.bool_())
    return found.drop_columns([KIND]).append_column(_GONE, gone)


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
    """Remove files of changes that are merged; what is not removed now VACUUM removes."""
    with contextlib.suppress(Exception):
        files = target.place.files()
        for info in files.get_file_info([one.path for each in prepared for one in each.files]):
            if info.size is not None:
                files.delete_file(info.path)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
