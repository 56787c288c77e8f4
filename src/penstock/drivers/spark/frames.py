"""Spark data frames and records: conversion of whole columns, and a data frame as a bounded source.

**Types.** In records, integers, floats, booleans, text, bytes, decimals and dates have the types that Arrow converts
them to. A TIMESTAMP is a `datetime` in UTC, a TIMESTAMP_NTZ one without a zone. An array is a list, a map a dict, a
struct a `Row` with names, a VARIANT a `Variant`. The reverse direction accepts the same types, for a struct also a
tuple or a dict, and for a VARIANT any value that `Variant.of` takes. `packed_frame` and `with_variants` convert frames
between Spark's VARIANT and the bytes of a packed one, which the columns of tables have.

**Columns from buffers** (`numbers`, `binary`). `pyarrow.array` checks whether its argument comes from pandas, and
imports pandas for that: half a second of processor time in every Python worker. Building a column from its buffers
avoids this, and is otherwise no slower.

`DataFrameSource` is a Spark data frame as a bounded source. Batch execution on Spark reads the frame in place: its
partitions are the input of the tasks, and no data goes through the program. All other executions read a copy. Spark
runs the frame's query once, before the job begins, and writes Parquet files, one per partition. A position is a file
and a row in it, so records can be read again (G8), although a query need not return its rows in the same order twice.

The copy lies below the checkpoint directory if there is one, and stays there because checkpoints refer to it. Deleting
the job's checkpoints deletes the copy as well. Without a checkpoint directory the copy lies in a temporary directory,
which is deleted when the program ends.
"""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import accumulate
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.errors import ConfigurationError, FormatError, UnsupportedError, WrongTimeError, shorten
from penstock.base.typeinfo import BasicTypeInfo, PickledBytesTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.base.types import Row
from penstock.codecs import variant
from penstock.codecs.arrow_columns import exact_cast_columns
from penstock.codecs.variant import Variant
from penstock.connectors.file.reader import FileSplit
from penstock.connectors.file.source import FileSource
from penstock.drivers.directories import directory_of_this_process
from penstock.formats.file_format import BulkFile, BulkFormat, assembler, get_field_values
from penstock.runtime import connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


ROW: Final = "row"
TUPLE: Final = "tuple"
VALUE: Final = "value"
_UTC = pa.timestamp("us", tz="UTC")

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class RecordShape:
    """The shape of a frame's records: rows with these names, tuples, or the values of the only column."""

    kind: str
    names: tuple[str, ...]


def build_record_shape(type_info: TypeInformation | None, names: Sequence[str]) -> RecordShape:
    """Return the shape for a type; without a type, rows with the names of the columns.

    Raises:
        ConfigurationError: if the type does not fit the columns.
    """
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return RecordShape(ROW, tuple(names))
    if isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        if len(type_info.get_field_types()) != len(names):
            raise ConfigurationError(
                f"the data frame has {len(names)} columns ({', '.join(names)}), but {type_info} has "
                f"{len(type_info.get_field_types())} fields"
            )
        if isinstance(type_info, RowTypeInfo):
            return RecordShape(ROW, tuple(type_info.get_field_names()))
        return RecordShape(TUPLE, tuple(names))
    if len(names) != 1:
        raise ConfigurationError(
            f"the data frame has {len(names)} columns ({', '.join(names)}), so its records are rows or tuples, "
            f"not {type_info}"
        )
    return RecordShape(VALUE, tuple(names))


def to_records(columns: Sequence[Any], shape: RecordShape, types: Sequence[Any] | None = None) -> list[Any]:
    """Convert Arrow columns to records. `types`: the types of the columns before variants were packed."""
    values = [_to_python_values(*pair) for pair in zip(columns, types or [it.type for it in columns], strict=True)]
    return values[0] if shape.kind == VALUE else assembler(shape.names, shape.kind)(values)


def to_record_batch(records: list[Any], schema: Any, owner: str) -> Any:
    """Convert records to a record batch of an Arrow schema; `owner` is the operator that errors name.

    Raises:
        FormatError: if a record does not fit.
    """
    rows = _fields_of_all(records, schema.names, owner)
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(schema.names)
    arrays = []
    for field, column in zip(schema, columns, strict=True):
        convert = _from_python(field.type)
        try:
            values = column if convert is None else [None if v is None else convert(v) for v in column]
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise FormatError(
                f"{owner}: a record does not fit the schema: column {field.name!r} as {field.type}: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fields_of_all(records: list[Any], names: list[str], owner: str) -> list[Sequence[Any]]:
    size = len(names)
    kinds = set(map(type, records))
    if kinds == {tuple} and set(map(len, records)) == {size}:
        return records
    rows: list[Sequence[Any]] = []
    for record in records:
        try:
            if isinstance(record, dict | tuple | list | Row):
                rows.append(get_field_values(record, names))
            elif size == 1:
                rows.append((record,))
            else:
                raise ValueError(f"a {type(record).__name__} is not a row of {size} columns")
        except ValueError as error:
            raise FormatError(
                f"{owner}: the record {shorten(repr(record))} does not fit the columns {', '.join(names)}: {error}"
            ) from error
    return rows


# --- values that Arrow and Penstock have different notions of ---------------------------------------------------------


def _to_python_values(column: Any, kind: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(_UTC if column.type.tz else pa.timestamp("us"), safe=False)
    values = column.to_pylist()
    convert = _to_python(kind)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _to_python(kind: Any) -> Convert | None:
    """Return the function to apply to a value of `to_pylist`; None if the value needs no conversion."""
    if variant.is_of_spark(kind):
        return _read_variant
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        converts = [(field.name, _optional(_to_python(field.type))) for field in fields]
        return lambda value: Row(**{name: convert(value[name]) for name, convert in converts})
    if pa.types.is_map(kind):
        key, item = _optional(_to_python(kind.key_type)), _optional(_to_python(kind.item_type))
        return lambda value: {key(k): item(v) for k, v in value}
    if _is_list(kind) and (element := _to_python(kind.value_type)) is not None:
        convert = _optional(element)
        return lambda value: [convert(item) for item in value]
    return None


def _from_python(kind: Any) -> Convert | None:
    """Return the function to apply to a value for `pyarrow.array`; None if the value needs no conversion."""
    if variant.is_of_spark(kind):
        return _split_variant
    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        converts = [_optional(_from_python(kind.field(i).type)) for i in range(kind.num_fields)]

        def to_dict(value: Any) -> dict[str, Any]:
            return {n: c(v) for n, c, v in zip(names, converts, get_field_values(value, names), strict=True)}

        return to_dict
    if pa.types.is_map(kind):
        key, item = _optional(_from_python(kind.key_type)), _optional(_from_python(kind.item_type))
        return lambda value: [(key(k), item(v)) for k, v in value.items()]
    if _is_list(kind) and (element := _from_python(kind.value_type)) is not None:
        convert = _optional(element)
        return lambda value: [convert(item) for item in value]
    return None


def _read_variant(value: bytes | dict[str, bytes]) -> Variant:
    return Variant.unpack(value) if isinstance(value, bytes) else Variant.of_bytes(value["value"], value["metadata"])


def _split_variant(value: Any) -> dict[str, bytes]:
    parts = value if isinstance(value, Variant) else Variant.of(value)
    return {"value": parts.value, "metadata": parts.metadata}


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _optional(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


# --- schemas ----------------------------------------------------------------------------------------------------------


def field_types(type_info: TypeInformation) -> list[tuple[str, TypeInformation]] | None:
    """Return names and types of the columns for records of a type; None if the type does not determine them."""
    if isinstance(type_info, RowTypeInfo):
        return list(zip(type_info.get_field_names(), type_info.get_field_types(), strict=True))
    if isinstance(type_info, TupleTypeInfo):
        return [(f"f{i}", field) for i, field in enumerate(type_info.get_field_types())]
    if isinstance(type_info, PickledBytesTypeInfo):
        return None
    return [("f0", type_info)] if isinstance(type_info, BasicTypeInfo) else None


def numbers(values: Any) -> pa.Array:
    """Return a column that shares the memory of a NumPy array of numbers."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def numbers_or_null(values: Sequence[int | None]) -> pa.Array:
    """Return a column of integers (int64) with nulls for None."""
    try:
        return numbers(np.array(values, np.int64))
    except TypeError:  # NumPy has no null integers
        is_valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
        filled = np.fromiter((0 if value is None else value for value in values), np.int64, len(values))
        validity = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
        return pa.Array.from_buffers(pa.int64(), len(values), [validity, pa.py_buffer(filled)])


def binary(items: Sequence[bytes]) -> pa.Array:
    """Return a column of bytes."""
    offsets = array("i", accumulate(map(len, items), initial=0))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(items))]
    return pa.Array.from_buffers(pa.binary(), len(items), buffers)


_READ_ROWS = 4096


class DataFrameSource(connector.Source[Any, FileSplit]):
    """Reads a data frame.

    Args:
        frame: the data frame.
        type_info: the type of its records, see `build_record_shape`.
        directory: a URL for copies; None for a temporary directory.
        file_format: reads the copy; None for records of the type.

    Raises:
        ConfigurationError: if the type does not fit the frame's columns.
    """

    def __init__(
        self,
        frame: DataFrame,
        type_info: TypeInformation | None,
        directory: str | None,
        file_format: BulkFormat[Any] | None = None,
    ) -> None:
        names = list(frame.columns)
        self.shape = build_record_shape(type_info, names)
        self._frame: DataFrame | None = frame
        self._format = file_format or _FrameFormat(self.shape, arrow_schema(frame.schema))
        self._directory = directory
        self._files: FileSource[Any] | None = None

    @property
    def frame(self) -> DataFrame:
        """The data frame. It exists only in the program, because it is not pickled."""
        if self._frame is None:
            raise WrongTimeError("a data frame exists only in the program that created it, not in tasks")
        return self._frame

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded."""
        return connector.Boundedness.BOUNDED

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_frame": None}

    def prepare(self, check_cancelled: Callable[[], None]) -> None:
        """Let Spark write the copy."""
        self._write_copy()

    def _write_copy(self) -> None:
        path = f"{self._base()}/{uuid.uuid4().hex}"
        self.frame.write.parquet(path)
        self._files = FileSource.for_bulk_file_format(self._format, path).build()

    def _base(self) -> str:
        if self._directory is not None:
            return f"{self._directory.rstrip('/')}/data-frames"
        if not _is_on_this_machine(self.frame):
            raise ConfigurationError(
                "to stream a data frame on a cluster, set execution.checkpointing.dir to a directory that all machines "
                "can reach: Penstock writes a copy of the frame there"
            )
        return directory_of_this_process("penstock-frame-")

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[FileSplit], restored: Any | None
    ) -> connector.SplitEnumerator[FileSplit]:
        """Create an enumerator for the files of the copy, or for an earlier copy in a checkpoint."""
        if self._files is None:
            self._write_copy()
        assert self._files is not None
        return self._files.create_enumerator(context, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, FileSplit]:
        """Create a reader of files."""
        return FileSource(self._format, (), None, None).create_reader(context)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Convert Spark's schema to an Arrow schema with timestamps in UTC.

    Raises:
        UnsupportedError: if a column's type, or a type nested in it, cannot be read.
    """
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        # Spark 4.0 always uses UTC and lacks this argument; later releases need it.
        zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
        return to_arrow_schema(schema, **zone)
    except PySparkTypeError as error:
        raise UnsupportedError(f"a column of the data frame has a type that cannot be read: {error}") from error


def find_columns(declared: Sequence[str], present: Sequence[str]) -> list[int] | None:
    """Return where the declared columns are in a frame that has all of their names; None if it lacks one.

    Names that differ only in case are one name for Spark, so a frame that has such names has none.

    Examples:
        >>> from penstock.drivers.spark.frames import find_columns
        >>> find_columns(["n", "t"], ["_id", "t", "n"])
        [2, 1]
    """
    places = {name: place for place, name in enumerate(present)}
    is_clear = len({name.lower() for name in present}) == len(present)
    return [places[name] for name in declared] if is_clear and places.keys() >= {*declared} else None


def packed_frame(frame: DataFrame) -> DataFrame:
    """Return a data frame with each variant as the bytes of a packed one, in columns that Spark still prunes."""
    from pyspark.sql import functions, types

    if any(_has_variant(field.dataType) and not _is_variant(field.dataType) for field in frame.schema.fields):
        packed = types.StructType([_packed_field(field) for field in frame.schema.fields])
        return frame.mapInArrow(_Variants(arrow_schema(frame.schema), True), packed)
    # Spark would take type hints for those of a function of pandas.
    pack = functions.udf(lambda value: _pack_variant(value), types.BinaryType())
    names = [f"`{name.replace('`', '``')}`" for name in frame.columns]
    columns = zip(names, frame.schema.fields, strict=True)
    return frame.select(
        *[
            pack(functions.col(name)).alias(field.name) if _is_variant(field.dataType) else functions.col(name)
            for name, field in columns
        ]
    )


def with_variants(frame: DataFrame, schema: str) -> DataFrame:
    """Return a data frame with packed variants as Spark's. `schema`: its columns, as DDL with VARIANT.

    Raises:
        UnsupportedError: in Spark 3, which has no VARIANT.
    """
    from pyspark.sql import functions, types

    kind = getattr(types, "VariantType", None)
    if kind is None:
        raise UnsupportedError("Spark 3 has no VARIANT: select JSON_STRING of the column before to_dataframe()")
    fields = frame.sparkSession.createDataFrame([], schema).schema.fields
    if any(_has_variant(field.dataType) and not _is_variant(field.dataType) for field in fields):
        return frame.mapInArrow(_Variants(arrow_schema(types.StructType(fields)), False), types.StructType(fields))
    unpack = functions.udf(lambda packed: _to_spark_variant(packed), kind())
    for field in fields:
        if _is_variant(field.dataType):
            frame = frame.withColumn(field.name, unpack(frame[f"`{field.name.replace('`', '``')}`"]))
    return frame


@dataclass(frozen=True)
class _Variants:
    """A function for Spark's `mapInArrow` that packs or unpacks the variants in columns of Spark's types."""

    schema: pa.Schema
    packs: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, converted."""
        convert = variant.from_stored if self.packs else variant.to_stored
        for batch in batches:
            columns = [convert(*pair) for pair in zip(batch.columns, self.schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, self.schema.names)


def _pack_variant(value: Any) -> bytes | None:
    return None if value is None else Variant.of_bytes(bytes(value._value), bytes(value._metadata)).pack()


def _to_spark_variant(packed: bytes | None) -> Any:
    from pyspark.sql import types

    if packed is None:
        return None
    unpacked = Variant.unpack(bytes(packed))
    return types.VariantVal(unpacked.value, unpacked.metadata)


def _is_variant(kind: Any) -> bool:
    """Return whether a Spark type is VARIANT, which Spark 3 does not have."""
    return type(kind).__name__ == "VariantType"


def _has_variant(kind: Any) -> bool:
    """Return whether a Spark type is or contains VARIANT."""
    parts = [getattr(kind, name, None) for name in ("elementType", "keyType", "valueType")]
    parts += [field.dataType for field in getattr(kind, "fields", [])]
    return _is_variant(kind) or any(_has_variant(part) for part in parts if part is not None)


def _packed_field(field: Any) -> Any:
    from pyspark.sql import types

    return types.StructField(field.name, _packed_type(field.dataType), field.nullable)


def _packed_type(kind: Any) -> Any:
    """Return a Spark type with BINARY for VARIANT."""
    from pyspark.sql import types

    if _is_variant(kind):
        return types.BinaryType()
    if isinstance(kind, types.ArrayType):
        return types.ArrayType(_packed_type(kind.elementType), kind.containsNull)
    if isinstance(kind, types.MapType):
        return types.MapType(_packed_type(kind.keyType), _packed_type(kind.valueType), kind.valueContainsNull)
    return types.StructType(list(map(_packed_field, kind.fields))) if isinstance(kind, types.StructType) else kind


def _is_on_this_machine(frame: DataFrame) -> bool:
    session = frame.sparkSession
    return "connect" not in type(session).__module__ and str(session.sparkContext.master).startswith("local")


class _FrameFormat(BulkFormat[Any]):
    """Parquet files written by Spark."""

    def __init__(self, shape: RecordShape, schema: pa.Schema) -> None:
        self._shape = shape
        self._schema = schema

    def open(self, file: BinaryIO) -> BulkFile[Any]:
        try:
            # Spark writes INT96, whose range exceeds that of Arrow's nanoseconds.
            return _FrameFile(pq.ParquetFile(file, coerce_int96_timestamp_unit="us"), self._shape, self._schema)
        except pa.ArrowException as error:
            raise FormatError(f"not a copy of a data frame: {error}") from error


class _FrameFile(BulkFile[Any]):
    """One file, read by row groups."""

    def __init__(self, file: Any, shape: RecordShape, schema: pa.Schema) -> None:
        self._file = file
        self._shape = shape
        self._types = schema.types if any(map(variant.holds_variants, schema.types)) else None
        self._schema = pa.schema([field.with_type(variant.packed_type(field.type)) for field in schema])

    def units(self, start: int, end: int | None) -> Sequence[int]:
        metadata = self._file.metadata
        return [
            i
            for i in range(metadata.num_row_groups)
            if start <= _find_row_group_start(metadata.row_group(i)) < (end or float("inf"))
        ]

    def read(self, unit: int, skip_records: int) -> Iterator[list[Any]]:
        for batch in self._file.iter_batches(_READ_ROWS, row_groups=[unit], use_threads=False):
            if skip_records >= batch.num_rows:
                skip_records -= batch.num_rows
                continue
            rows = batch.slice(skip_records)
            if self._types is not None:
                # Spark writes parts of variants in columns of their own.
                columns = [
                    variant.from_stored(rows.column(name), kind)
                    for name, kind in zip(self._schema.names, self._types, strict=True)
                ]
                rows = pa.RecordBatch.from_arrays(columns, self._schema.names)
            yield to_records(exact_cast_columns(rows, self._schema).columns, self._shape, self._types)
            skip_records = 0


def _find_row_group_start(row_group: Any) -> int:
    """Return the byte offset of a row group."""
    column = row_group.column(0)
    pages = [column.data_page_offset]
    if column.has_dictionary_page and column.dictionary_page_offset is not None:
        pages.append(column.dictionary_page_offset)
    return int(min(pages))
