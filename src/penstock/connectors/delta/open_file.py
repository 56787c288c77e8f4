"""An open data file of a table, with the columns that are read from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.codecs.exact_cast import exact_cast
from penstock.connectors.delta.errors import MissingTableError
from penstock.connectors.delta.log import LoggedFile
from penstock.connectors.delta.partitions import value_of
from penstock.connectors.delta.split import WantedColumn

if TYPE_CHECKING:
    import pyarrow.fs as pafs


class OpenFile:
    """A data file. Its columns come from the file, from the partition in the log, or are NULL if the file is older.

    Args:
        files: of the table.
        title: the path of the table, for errors.
        version: that the file belongs to, for errors.
        file: which one.
        columns: that are read.

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
            one.name: value_of(partition[one.name], one.type, one.name) for one in columns if one.name in partition
        }
        there = set(self.parquet.schema_arrow.names)
        #: the names of the columns that are stored in the file
        self.stored: Final = [
            name for name in dict.fromkeys(one.name for one in columns) if name in there and name not in self._constants
        ]

    def column(self, part: pa.RecordBatch, wanted: WantedColumn) -> pa.Array:
        """A column of some rows of the file, in the type that is wanted. `part` has the columns `stored`."""
        constant = self._constants.get(wanted.name)
        if constant is not None:
            return pa.repeat(constant, part.num_rows)
        if wanted.name not in self.stored:
            return pa.nulls(part.num_rows, wanted.type)
        return exact_cast(part.column(wanted.name), wanted.type)

    def close(self) -> None:
        """Close the file."""
        self.parquet.close()
        self._stream.close()
