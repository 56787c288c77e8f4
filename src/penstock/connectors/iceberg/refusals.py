"""Rejects tables that cannot be read, with errors that name the columns or files at fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.iceberg.reading import describe, is_readable
from penstock.connectors.iceberg.scanned import Scanned

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


def check_columns(scanned: Scanned, schema: Schema) -> None:
    """Raise `ConfigurationError` unless a table has the columns, with compatible types."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    table_schema = schema_to_pyarrow(schema, include_field_ids=False)
    missing = [column.name for column in scanned.columns if column.name not in table_schema.names]
    if missing:
        raise ConfigurationError(
            f"table {scanned.loader.title} has no column {', '.join(map(repr, missing))}; there are "
            f"{', '.join(table_schema.names)}"
        )
    for column in scanned.columns:
        kind = table_schema.field(column.name).type
        if not is_readable(kind, column.type):
            raise ConfigurationError(
                f"column '{column.name}' of table {scanned.loader.title} cannot be read as {column.type}. It is "
                f"{describe(kind)}"
            )


def refuse_formats(title: str, files: Iterable[DataFile]) -> None:
    """Raise `UnsupportedError` for data files in a format that pyiceberg does not read."""
    from pyiceberg.manifest import FileFormat

    for file in files:
        if file.file_format not in (FileFormat.PARQUET, FileFormat.ORC):
            raise UnsupportedError(
                f"table {title} has files in {file.file_format.value}, which pyiceberg does not "
                f"read, such as {file.file_path}: rewrite them as Parquet (write.format.default = parquet)"
            )


def first_files(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    """Yield the files of the first data manifest. A job checks all files when it lists them."""
    from pyiceberg.manifest import ManifestContent

    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            yield from (entry.data_file for entry in manifest.fetch_manifest_entry(table.io))
            return
