"""Columnar formats: the columns to read, the type of their records, writers of Arrow tables, and Arrow IPC files.

`ColumnarFormat` is the base of columnar formats, and `ArrowWriter` the base of writers for formats that Arrow writes.
`ArrowIpcFormat` reads Arrow IPC files, also known as Feather version 2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, ClassVar, Final, NamedTuple

import pyarrow as pa

from penstock.base.errors import ConfigurationError, FormatError, WrongValueError, short_repr, shorten
from penstock.base.typeinfo import RowTypeInfo
from penstock.base.types import Row
from penstock.codecs.arrow_columns import arrow_schema, arrow_type, exact_array, exact_cast_columns
from penstock.codecs.column_data import COLUMN_BATCH_ROWS, ColumnData
from penstock.formats import file_format


class ColumnarFormat(file_format.BulkFormat[Any]):
    """A format of whole columns. Each row is a `dict`, a `Row` with names if `columns` is a row type, or a tuple.

    Args:
        columns: names of the columns to read, in output order, or a row type; None for all.
        as_tuple: make each record a tuple.
        as_columns: return records in columns, in batches of up to `COLUMN_BATCH_ROWS`; operators that work record by
            record get rows with names.
        leaves: paths to read within the columns, such as `place.city`, if nested rows are not needed with all of
            their fields; None for all.
        allows_missing: whether a file may lack columns. Only existing columns are read then. From a file without any
            of them, the first column is read, so the number of rows is known.
    """

    def __init__(
        self,
        columns: Sequence[str] | RowTypeInfo | None = None,
        *,
        as_tuple: bool = False,
        as_columns: bool = False,
        leaves: Sequence[str] | None = None,
        allows_missing: bool = False,
    ) -> None:
        self.columns, self.output = file_format.chosen_columns(columns, as_tuple, as_columns)
        self.leaves = None if leaves is None else list(leaves)
        self.allows_missing = allows_missing

    def choose_columns(self, schema: pa.Schema) -> ChosenColumns:
        """Choose the columns to read from a file of this schema.

        Raises `FormatError` if a required column is missing.
        """
        names = list(schema.names)
        columns = names if self.columns is None else self.columns
        if missing := [name for name in columns if name not in names]:
            if not self.allows_missing:
                raise FormatError(f"the file has no column {', '.join(map(repr, missing))}")
            columns = [name for name in columns if name in names] or names[:1]
        if self.leaves is None:
            return ChosenColumns(columns, columns)
        available = {leaf for field in schema for leaf in _paths(field.name, field.type)}
        read = []
        for name in columns:
            leaves = [leaf for leaf in self.leaves if leaf == name or leaf.startswith(f"{name}.")]
            known = [leaf for leaf in leaves if leaf in available]
            # Without any of its fields, nothing would show which rows are NULL.
            read += known or [name]
        return ChosenColumns(columns, read)


class ChosenColumns(NamedTuple):
    """`columns`: the names of the columns to read; `leaves`: the paths within them, in the form of Arrow's readers."""

    columns: list[str]
    leaves: list[str]


def _paths(path: str, kind: pa.DataType) -> Iterator[str]:
    """Yield a path, and the paths of its nested fields."""
    yield path
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _paths(f"{path}.{field.name}", field.type)


_LISTS: Final = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)


class ArrowWriterFactory(file_format.BatchWriterFactory[Any]):
    """Base class of factories.

    Args:
        columns: a row type, a dict from name to type, or an Arrow schema; records are dicts, rows or tuples.
        group_rows: rows kept in memory before they are written.

    Raises:
        ConfigurationError: if a type cannot be written, or there are no columns.
    """

    #: the format's name in errors
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


class ArrowWriter(file_format.BatchWriter[Any]):
    """Base class of writers."""

    def __init__(self, factory: ArrowWriterFactory) -> None:
        self.schema = factory.schema
        self._name = factory.format_name
        self._group_rows = factory.group_rows
        self._rows: list[Sequence[Any]] = []
        #: converters of the columns that hold structs
        self._structs = {field.name: maker for field in self.schema if (maker := _struct_maker(field.type)) is not None}

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Write a table with the writer's schema."""

    @abstractmethod
    def close(self) -> None:
        """Write the end of the file, and leave the stream open."""

    def add_elements(self, elements: Sequence[Any]) -> None:
        """See `BatchWriter`."""
        names = self.schema.names
        for element in elements:
            try:
                self._rows.append(file_format.get_field_values(element, names))
            except (TypeError, ValueError) as error:
                raise FormatError(f"cannot write {shorten(repr(element))} to {self._name}: {error}") from error
        if len(self._rows) >= self._group_rows:
            self.flush()

    def add_columns(self, data: ColumnData) -> None:
        """See `BatchWriter`."""
        self.flush()
        try:
            fitting = exact_cast_columns(data.columns, self.schema)
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
                make_structs = self._structs.get(field.name)
                values = column if make_structs is None else list(map(make_structs, column))
                arrays.append(exact_array(values, field.type))
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


def _struct_maker(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a function that converts rows and tuples inside values of a type to dicts for Arrow; None without structs.

    The function raises ValueError for a row that does not have the fields of its struct.
    """
    if pa.types.is_struct(kind):
        return _of_struct(kind)
    if pa.types.is_map(kind):
        return _of_map(_struct_maker(kind.key_type), _struct_maker(kind.item_type))
    if isinstance(kind, _LISTS):
        return _of_list(_struct_maker(kind.value_type))
    return None


def _of_struct(kind: pa.StructType) -> Callable[[Any], Any]:
    names = [field.name for field in kind]
    makers = {field.name: make for field in kind if (make := _struct_maker(field.type)) is not None}

    def struct(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, Row) and value.has_field_names and not {*value.as_dict()} <= {*names}:
            raise WrongValueError(f"{short_repr(value)} has other fields than {', '.join(names)}")
        fields = dict(zip(names, file_format.get_field_values(value, names), strict=True))
        for name, make in makers.items():
            fields[name] = make(fields[name])
        return fields

    return struct


def _of_list(make: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return None if make is None else lambda items: None if items is None else list(map(make, items))


def _of_map(
    make_key: Callable[[Any], Any] | None, make_item: Callable[[Any], Any] | None
) -> Callable[[Any], Any] | None:
    if make_key is None and make_item is None:
        return None

    def entries(value: Any) -> Any:
        if value is None:
            return None
        pairs = value.items() if isinstance(value, dict) else value
        return [(make_key(key) if make_key else key, make_item(item) if make_item else item) for key, item in pairs]

    return entries


class ArrowIpcFormat(file_format.BulkFormat[Any]):
    """Reads Arrow IPC files as columns; operators that work record by record get rows with names.

    A file is read by one subtask.

    Args:
        columns: names of the columns to read, in output order; None for all.
    """

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self.columns = None if columns is None else list(columns)

    def open(self, file: BinaryIO) -> file_format.BulkFile[Any]:
        try:
            return _ArrowIpcFile(pa.ipc.open_file(file), self.columns)
        except pa.ArrowException as error:
            raise FormatError(f"not an Arrow IPC file: {error}") from error


class _ArrowIpcFile(file_format.BulkFile[Any]):
    """An open file; each record batch is a unit."""

    def __init__(self, file: Any, columns: list[str] | None) -> None:
        self._file = file
        self._columns = list(file.schema.names) if columns is None else columns
        if missing := [name for name in self._columns if name not in file.schema.names]:
            raise FormatError(f"the file has no column {', '.join(map(repr, missing))}")

    def units(self, start: int, end: int | None) -> Sequence[int]:
        return range(self._file.num_record_batches) if start == 0 else ()

    def read(self, unit: int, skip_records: int) -> Iterator[list[Any] | ColumnData]:
        try:
            batch = self._file.get_batch(unit).select(self._columns)
        except pa.ArrowException as error:
            raise FormatError(f"record batch {unit} cannot be read: {error}") from error
        for begin in range(skip_records, batch.num_rows, COLUMN_BATCH_ROWS):
            yield ColumnData(batch.slice(begin, COLUMN_BATCH_ROWS))
