"""Reads the log of a table: the files of a version, and the changes that a version makes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from penstock.connectors.delta.errors import TableMismatchError, UnsupportedTableError
from penstock.connectors.delta.partitions import to_log_texts
from penstock.connectors.delta.place import TablePlace, read_arrow_schema
from penstock.connectors.delta.types import is_same

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LOG: Final = "_delta_log"


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A data file or a change file.

    Attributes:
        path: the path relative to the table.
        partition: the values of the partition columns as text, by name.
    """

    path: str
    partition: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Version:
    """The changes that a version makes.

    Attributes:
        number: the version number.
        operation: the operation that the version records as its origin.
        added: files with new rows.
        removed: files whose rows were deleted. Files that were only compacted are in neither tuple.
        changes: files with row-level changes; empty if the writer recorded none.
        columns: the table's new columns; None if they did not change.
    """

    number: int
    operation: str
    added: tuple[LoggedFile, ...]
    removed: tuple[LoggedFile, ...]
    changes: tuple[LoggedFile, ...]
    columns: pa.Schema | None


def read_version(location: TablePlace, files: pafs.FileSystem, number: int) -> Version | None:
    """Read a version from its log file; return None if the file does not exist.

    Raises:
        UnsupportedTableError: if the version uses an unsupported feature.
    """
    path = f"{_LOG}/{number:020d}.json"
    if files.get_file_info([path])[0].type == pafs.FileType.NotFound:
        return None
    with files.open_input_file(path) as file:
        text: bytes = file.read()
    actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    return _version(location, number, actions)


def _version(location: TablePlace, number: int, actions: Sequence[Mapping[str, Any]]) -> Version:
    added, removed, changes = [], [], []
    columns, operation = None, ""
    for action in actions:
        for kind, details in action.items():
            if kind == "add" and details.get("dataChange", True):
                added.append(_file(location, details))
            elif kind == "remove" and details.get("dataChange", True):
                removed.append(_file(location, details))
            elif kind == "cdc":
                changes.append(_file(location, details))
            elif kind == "metaData":
                columns = _columns(details["schemaString"])
            elif kind == "commitInfo":
                operation = str(details.get("operation", ""))
    return Version(number, operation, tuple(added), tuple(removed), tuple(changes), columns)


def _columns(text: str) -> pa.Schema:
    from deltalake import Schema

    return pa.schema(Schema.from_json(text).to_arrow())


def _file(location: TablePlace, details: Mapping[str, Any]) -> LoggedFile:
    path = unquote(details["path"])
    if details.get("deletionVector"):
        raise _has_vectors(location, path)
    _check_relative(location, path)
    return LoggedFile(path, tuple((details.get("partitionValues") or {}).items()))


def _has_vectors(location: TablePlace, path: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"rows of {path} in the Delta table {location.path} are deleted by a deletion vector, which is not read: turn "
        "them off (delta.enableDeletionVectors = false) and run REORG TABLE … APPLY (PURGE)"
    )


def _check_relative(location: TablePlace, path: str) -> None:
    if path.startswith(("/", "file:")) or "://" in path:
        raise UnsupportedTableError(
            f"the Delta table {location.path} has files elsewhere, such as {path}: clones that share files are not read"
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """The log's statistics of a column of a data file, as Arrow values; None where the log has none."""

    rows: int
    least: pa.Scalar | None
    greatest: pa.Scalar | None
    nulls: int | None


def list_table_files(location: TablePlace, table: DeltaTable) -> list[tuple[LoggedFile, dict[str, Figures]]]:
    """Return all files of an open table, ordered by path, with their column statistics."""
    check_vectors(location, table)
    actions = pa.table(table.get_add_actions(flatten=False)).combine_chunks()
    keys = list(table.metadata().partition_columns)
    files = []
    texts = {}
    if keys and actions.num_rows:
        (struct,) = actions.column("partition").chunks
        texts = {key: to_log_texts(struct.field(key)).to_pylist() for key in keys}
    names = [column.name for column in read_arrow_schema(table) if column.name not in keys]
    for row in range(actions.num_rows):
        path = unquote(actions.column("path")[row].as_py())
        _check_relative(location, path)
        file = LoggedFile(path, tuple((key, texts[key][row]) for key in keys))
        files.append((file, _figures(actions, row, names)))
    return sorted(files, key=lambda entry: entry[0].path)


def check_vectors(location: TablePlace, table: DeltaTable) -> None:
    """Raise `UnsupportedTableError` if a deletion vector deletes rows of the table."""
    protocol = table.protocol()
    if "deletionVectors" not in (protocol.reader_features or ()):
        return
    for batch in table.deletion_vectors():
        for path in pa.record_batch(batch).column("filepath").to_pylist():
            raise _has_vectors(location, path)


def _figures(actions: pa.Table, row: int, names: Sequence[str]) -> dict[str, Figures]:
    rows = _of_row(actions, "num_records", row)
    if rows is None or rows.as_py() is None:
        return {}
    least, greatest, nulls = (_of_row(actions, name, row) for name in ("min", "max", "null_count"))
    figures = {}
    for name in names:
        count = _field(nulls, name)
        figures[name] = Figures(
            rows.as_py(), _field(least, name), _field(greatest, name), None if count is None else count.as_py()
        )
    return figures


def _of_row(actions: pa.Table, name: str, row: int) -> pa.Scalar | None:
    return actions.column(name)[row] if name in actions.column_names else None


def _field(struct: pa.Scalar | None, name: str) -> pa.Scalar | None:
    if struct is None or not struct.is_valid or name not in struct.type.names:
        return None
    value = struct[name]
    return value if value.is_valid and not pa.types.is_nested(value.type) else None


def check_columns(location: TablePlace, columns: Sequence[tuple[str, pa.DataType]], schema: pa.Schema) -> None:
    """Raise `TableMismatchError` if the table lacks a wanted column or has it with another type."""
    lacking = [name for name, _ in columns if name not in schema.names]
    if lacking:
        raise TableMismatchError(
            f"the Delta table {location.path} has no columns {', '.join(lacking)}; it has {', '.join(schema.names)}"
        )
    for name, kind in columns:
        stored_type = schema.field(name).type
        if not is_same(stored_type, kind):
            raise TableMismatchError(
                f"column {name!r} of the Delta table {location.path} is {stored_type}, and is read as {kind}"
            )
