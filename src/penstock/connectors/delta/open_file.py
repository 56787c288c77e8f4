"""An open data file of a table and the columns to read from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.codecs.exact_cast import exact_cast
from penstock.connectors.delta.errors import MissingTableError
from penstock.connectors.delta.log import LoggedFile
from penstock.connectors.delta.partitions import parse_value
from penstock.connectors.delta.split import WantedColumn

if TYPE_CHECKING:
    import pyarrow.fs as pafs


class OpenFile:
    """An open data file. A column comes from the file, from the log's partition value, or is NULL if the file is older.

    Args:
        files: the file system of the table.
        title: the path of the table, for errors.
        version: the version that the file belongs to, for errors.
        file: the file to open.
        columns: the columns to read.

    Raises:
        MissingTableError: if the file has been removed.
    """

    def __init__(
        self, files: pafs.FileSystem, title: str, version: int, file: LoggedFile, columns: Sequence[WantedColumn]
    ) -> None:
        try:
            self._stream = files.open_input_file(file.path)
        except FileNotFoundError as error:
            raise MissingTableError(
                f"{file.path} of version {version} of the Delta table {title} is gone: VACUUM has removed it before it "
                "was read. Let VACUUM keep files for longer than the job may stand still"
            ) from error
        self.parquet: Final = pq.ParquetFile(self._stream, coerce_int96_timestamp_unit="us")
        partition = dict(file.partition)
        self._constants = {
            column.name: parse_value(partition[column.name], column.type, column.name)
            for column in columns
            if column.name in partition
        }
        file_columns = set(self.parquet.schema_arrow.names)
        #: the names of the columns to read that are stored in the file
        self.stored: Final = [
            name
            for name in dict.fromkeys(column.name for column in columns)
            if name in file_columns and name not in self._constants
        ]

    def column(self, part: pa.RecordBatch, column: WantedColumn) -> pa.Array:
        """Return a column of some rows in the wanted type. `part` holds the `stored` columns of those rows."""
        constant = self._constants.get(column.name)
        if constant is not None:
            return pa.repeat(constant, part.num_rows)
        if column.name not in self.stored:
            return pa.nulls(part.num_rows, column.type)
        return exact_cast(part.column(column.name), column.type)

    def close(self) -> None:
        """Close the file."""
        self.parquet.close()
        self._stream.close()
