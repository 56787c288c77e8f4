"""Records written as Arrow's tables, for formats that Arrow writes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa

from penstock.base.errors import ConfigurationError, FormatError, shorten
from penstock.base.typeinfo import RowTypeInfo
from penstock.codecs.arrow_types import arrow_schema, arrow_type
from penstock.codecs.column_data import ColumnData
from penstock.codecs.row_columns import exact_array
from penstock.formats.bulk_format import BatchWriter, BatchWriterFactory, fields_of


class ArrowWriterFactory(BatchWriterFactory[Any]):
    """The base of factories.

    Args:
        columns: a row type, a dict from name to type, or an Arrow schema; records are dicts, rows or tuples.
        group_rows: rows kept in memory before they are written.

    Raises:
        ConfigurationError: if a type cannot be written, or there is no column.
    """

    #: the format, as errors name it
    format_name: ClassVar[str]

    def __init__(self, columns: Any, group_rows: int = 65536) -> None:
        if isinstance(columns, RowTypeInfo):
            columns = arrow_schema(columns)
        if isinstance(columns, dict):
            columns = pa.schema([(name, arrow_type(column_type)) for name, column_type in columns.items()])
        if not isinstance(columns, pa.Schema) or not len(columns):
            raise ConfigurationError(
                f"{self.format_name} needs a row type, a dict of types or an Arrow schema, not {columns!r}"
            )
        self.schema = columns
        self.group_rows = group_rows


class ArrowWriter(BatchWriter[Any]):
    """The base of writers."""

    def __init__(self, factory: ArrowWriterFactory) -> None:
        self.schema = factory.schema
        self._name = factory.format_name
        self._group_rows = factory.group_rows
        self._rows: list[Sequence[Any]] = []

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Writes rows of the schema."""

    @abstractmethod
    def close(self) -> None:
        """Writes the end of the file, and leaves the stream open."""

    def add_elements(self, elements: Sequence[Any]) -> None:
        """See `BatchWriter`."""
        names = self.schema.names
        for element in elements:
            try:
                self._rows.append(fields_of(element, names))
            except (TypeError, ValueError) as error:
                raise FormatError(f"cannot write {shorten(repr(element))} to {self._name}: {error}") from error
        if len(self._rows) >= self._group_rows:
            self.flush()

    def add_columns(self, data: ColumnData) -> None:
        """See `BatchWriter`."""
        self.flush()
        try:
            fitting = data.columns.select(self.schema.names).cast(self.schema)
        except (pa.ArrowException, KeyError, ValueError) as error:
            names = ", ".join(data.columns.schema.names)
            raise FormatError(f"cannot write the columns {names} to {self._name}: {error}") from error
        self.write(pa.Table.from_batches([fitting]))

    def flush(self) -> None:
        """See `BulkWriter`."""
        if not self._rows:
            return
        arrays = []
        for field, column in zip(self.schema, zip(*self._rows, strict=True), strict=True):
            try:
                arrays.append(exact_array(column, field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise FormatError(f"cannot write column {field.name!r} as {field.type}: {error}") from error
        self.write(pa.Table.from_arrays(arrays, schema=self.schema))
        self._rows = []

    def finish(self) -> None:
        """See `BulkWriter`."""
        self.flush()
        self.close()

    def discard(self) -> None:
        """See `BatchWriter`."""
        self._rows = []
        self.close()
