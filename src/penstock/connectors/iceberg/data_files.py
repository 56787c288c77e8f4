"""Arrow columns in Iceberg's types, data files as plain values, their writer, and equality deletes.

**Written types.** Iceberg has integers of 32 and 64 bits, and timestamps and times of day in microseconds. Narrower
types are widened to these, and types without a counterpart are rejected before anything is written.

**Read types.** A column can be read as another type: Iceberg has types that SQL lacks, and a declared time may have
fewer digits. A uuid is read as bytes, as in Flink's connector, or as text, as in Spark's. Digits of a time beyond the
declared precision are truncated towards the past. All other values are preserved or rejected.

**Data files.** Checkpoints hold data files as plain values (`stored`), because a savepoint must not depend on the
classes of one pyiceberg version. `FileWriting` writes rows with pyiceberg's own writer: partitioned, with field ids and
column metrics.

**Equality deletes.** A delete file holds values of some columns, and every older row with these values is deleted.
Flink's sink writes such files for changes by key. pyiceberg does not read them, so it plans scans without them, and the
deleted rows are filtered out here. A delete file applies to data files with a smaller sequence number, in its own
partition, or in the whole table if it has no partition.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.base.types import Row
from penstock.codecs.arrow_columns import DIGITS, exact_array, exact_cast, get_list_offsets, get_map_key_type, map_array
from penstock.connectors.base import has_key
from penstock.runtime.connector import RecordError

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


_PLAIN: Final[dict[pa.DataType, pa.DataType]] = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which an Iceberg table stores a column of this type.

    Raises:
        UnsupportedError: if Iceberg lacks such a type.
    """
    stored = _PLAIN.get(kind)
    if stored is not None:
        return stored
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            raise UnsupportedError(f"Iceberg keeps points in time in microseconds, so a column cannot be {kind}")
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_dictionary(kind):
        return stored_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(stored_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(stored_type(get_map_key_type(kind)), stored_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, stored_type(field.type), field.nullable) for field in kind])
    if pa.types.is_null(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind) or pa.types.is_union(kind):
        raise UnsupportedError(f"Iceberg has no type for {kind}")
    return kind


def fits(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether every value of one type fits another unchanged. Compares stored types; fields may be NULL."""
    kind, other = stored_type(kind), stored_type(other)
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        names = [field.name for field in kind] == [field.name for field in other]
        return names and all(fits(field.type, other_field.type) for field, other_field in zip(kind, other, strict=True))
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return fits(kind.value_type, other.value_type)
    if pa.types.is_map(kind) and pa.types.is_map(other):
        return fits(get_map_key_type(kind), get_map_key_type(other)) and fits(kind.item_type, other.item_type)
    if pa.types.is_decimal(kind) and pa.types.is_decimal(other):
        return bool(kind.scale == other.scale and kind.precision <= other.precision)
    if pa.types.is_binary(kind) or pa.types.is_binary(other):
        # SQL's columns of BINARY(n) are binary in Arrow; a value of another length fails when it is written.
        return bool(kind == other or any(map(pa.types.is_fixed_size_binary, (kind, other))))
    wider = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}
    return bool(kind == other or wider.get(kind) == other)


def conformed(columns: pa.Table, schema: pa.Schema, title: str) -> pa.Table:
    """Return the columns in a table's types and order; missing columns become NULL.

    Raises:
        UnsupportedError: for values that a column of the table cannot hold, including NULL in a required column.
    """
    arrays = []
    for field in schema:
        index = columns.schema.get_field_index(field.name)
        if index < 0:
            array: Any = pa.chunked_array([pa.nulls(columns.num_rows, field.type)], field.type)
        else:
            array = columns.column(index)
            if array.type != field.type:
                try:
                    array = exact_cast(array, field.type)
                except pa.ArrowException as error:
                    raise UnsupportedError(
                        f"column '{field.name}' of table {title} is {field.type} and cannot hold all values of "
                        f"{array.type}: {error}"
                    ) from error
        if not field.nullable and array.null_count:
            raise UnsupportedError(
                f"column '{field.name}' of table {title} is required, but {array.null_count} of {len(array)} rows have "
                "no value for it"
            )
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def record_columns(schema: pa.Schema) -> Callable[[Sequence[Any]], pa.RecordBatch]:
    """Return a function that converts records to columns: named rows and dicts by name, others by field order."""
    names = schema.names

    def of_record(record: Any) -> Sequence[Any]:
        named = record.as_dict() if isinstance(record, Row) and record.has_field_names else record
        if isinstance(named, dict):
            unknown = named.keys() - set(names)
            if unknown:
                raise _mismatch(record, f"has no column {', '.join(map(repr, sorted(map(str, unknown))))}")
            return [named.get(name) for name in names]
        values = tuple(record) if isinstance(record, Row | tuple | list) else (record,)
        if len(values) != len(names):
            raise _mismatch(record, f"has {len(names)} columns, the record {len(values)} fields")
        return values

    def made(values: Sequence[Any]) -> pa.RecordBatch:
        rows = [of_record(record) for record in values]
        arrays = []
        for field, column in zip(schema, zip(*rows, strict=True), strict=True):
            try:
                arrays.append(exact_array(column, field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise UnsupportedError(
                    f"column '{field.name}' is {field.type}, and a record has another value there: {error}"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field.with_nullable(True) for field in schema]))

    return made


def _mismatch(record: Any, reason: str) -> RecordError:
    error = RecordError(record, "the sink")
    error.__cause__ = UnsupportedError(f"the table {reason}")
    return error


_ADVICE: Final = "declare it as {}"


def is_readable(kind: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a column can be read as another type. Values that this type cannot hold fail later."""
    types = pa.types
    if is_uuid(kind):
        return bool(types.is_binary(target) or types.is_string(target) or target == pa.binary(16))
    if types.is_null(kind):
        return True
    if types.is_time(kind) and types.is_time(target):
        return True
    if types.is_timestamp(kind) and types.is_timestamp(target):
        return (kind.tz is None) == (target.tz is None)
    if types.is_struct(kind) and types.is_struct(target):
        names = [field.name for field in kind] == [field.name for field in target]
        return names and all(
            is_readable(field.type, target_field.type) for field, target_field in zip(kind, target, strict=True)
        )
    if _is_list(kind) and _is_list(target):
        return is_readable(kind.value_type, target.value_type)
    if types.is_map(kind) and types.is_map(target):
        return is_readable(get_map_key_type(kind), get_map_key_type(target)) and is_readable(
            kind.item_type, target.item_type
        )
    return isinstance(kind, pa.DataType) and not isinstance(kind, pa.BaseExtensionType) and fits(kind, target)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column without a declared type; raises `UnsupportedError` if SQL lacks such a type."""
    if is_uuid(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return kind
    return stored_type(kind)


def describe(kind: pa.DataType) -> str:
    """Return a description of a type for error messages, with advice on how to declare the column."""
    types = pa.types
    if is_uuid(kind):
        return f"uuid: {_ADVICE.format('BYTES or STRING')}"
    if types.is_timestamp(kind):
        name = "TIMESTAMP" if kind.tz is None else "TIMESTAMP_LTZ"
        return f"{kind}: {_ADVICE.format(f'{name}({DIGITS[kind.unit]})')}"
    if types.is_time(kind):
        return f"{kind}: {_ADVICE.format('TIME')}"
    return f"{kind}: declare it as it is"


def read_column(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert a column as `is_readable` allows; raises `pa.ArrowException` for values that the type cannot hold."""
    kind, types = column.type, pa.types
    if kind == target:
        return column
    if is_uuid(kind):
        return _read_uuids(column.storage, target)
    if types.is_null(kind):
        return pa.nulls(len(column), target)
    if types.is_nested(kind) and not types.is_dictionary(kind):
        return _read_nested(column, target)
    return exact_cast(column, target)


def _read_uuids(storage: pa.Array, target: pa.DataType) -> pa.Array:
    if not pa.types.is_string(target):
        return storage.cast(target)
    return pa.array([None if value is None else str(uuid.UUID(bytes=value)) for value in storage.to_pylist()], target)


def _read_nested(column: pa.Array, target: pa.DataType) -> pa.Array:
    trimmed: Any = column.take(pa.array(range(len(column)), pa.int64()))  # drops values outside of a slice
    nulls = trimmed.is_null() if trimmed.null_count else None
    if pa.types.is_struct(target):
        parts = [read_column(part, field.type) for part, field in zip(trimmed.flatten(), target, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=nulls)
    offsets = get_list_offsets(trimmed).cast(pa.int32())
    if pa.types.is_map(target):
        keys, items = read_column(trimmed.keys, get_map_key_type(target)), read_column(trimmed.items, target.item_type)
        return map_array(offsets, keys, items, target)
    return pa.ListArray.from_arrays(offsets, read_column(trimmed.values, target.value_type), type=target)


def is_uuid(kind: pa.DataType) -> bool:
    """Return whether a column of the table has Iceberg's type uuid."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


#: the fields of a data file, by their names in the Iceberg specification
StoredFile = dict[str, Any]


def stored(file: DataFile) -> StoredFile:
    """Convert a data file to plain values."""
    from pyiceberg.manifest import DATA_FILE_TYPE

    names = [field.name for field in DATA_FILE_TYPE[2].fields]
    values: StoredFile = {name: file[index] for index, name in enumerate(names) if file[index] is not None}
    values["content"] = int(file.content)
    values["file_format"] = file.file_format.value
    values["partition"] = tuple(file.partition[index] for index in range(len(file.partition)))
    return values


def restored(values: StoredFile, spec_id: int) -> DataFile:
    """Convert plain values to a data file that is partitioned by the spec with this id."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    file = DataFile.from_args(
        **{
            **values,
            "content": DataFileContent(values["content"]),
            "file_format": FileFormat(values["file_format"]),
            "partition": Record(*values["partition"]),
        }
    )
    file.spec_id = spec_id
    return file


LOG = logging.getLogger("penstock.connectors.iceberg")


class FileWriting:
    """Writes data files of a table, under unique names."""

    def __init__(self, metadata: TableMetadata, io: FileIO) -> None:
        self._metadata = metadata
        self._io = io
        self._uuid = uuid.uuid4()
        self._counter = itertools.count()

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Write rows to data files: one per partition, unless it would exceed the table's target size."""
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        if not rows.num_rows:
            return []
        files = list(
            _dataframe_to_data_files(
                table_metadata=self._metadata, df=rows, io=self._io, write_uuid=self._uuid, counter=self._counter
            )
        )
        for file in files:
            file.spec_id = self._metadata.default_spec_id
        return files


def remove(io: FileIO, paths: Iterable[str]) -> None:
    """Remove files that are not in the table, as far as possible."""
    for path in paths:
        try:
            io.delete(path)
        except Exception as error:  # noqa: BLE001 - what stays is an orphan, which does no harm
            LOG.warning("%s is not in the table and could not be removed: %s", path, error)


#: The content codes of data files and equality delete files in the specification.
DATA, EQUALITY = 0, 2


def has_equality_deletes(table: Table, snapshot: Snapshot) -> bool:
    """Return whether a snapshot has equality deletes, as Flink's sink writes them."""
    from pyiceberg.manifest import DataFileContent, ManifestContent

    count = None if snapshot.summary is None else snapshot.summary.get("total-equality-deletes")
    if count is not None:
        return int(count) > 0
    deletes = [manifest for manifest in snapshot.manifests(table.io) if manifest.content == ManifestContent.DELETES]
    return any(
        entry.data_file.content == DataFileContent.EQUALITY_DELETES
        for manifest in deletes
        for entry in manifest.fetch_manifest_entry(table.io)
    )


def refuse_equality_deletes(title: str, table: Table, snapshot: Snapshot | None) -> None:
    """Raise `UnsupportedError` if a snapshot whose rows are to be replaced by key has equality deletes."""
    if snapshot is not None and has_equality_deletes(table, snapshot):
        raise UnsupportedError(
            f"snapshot {snapshot.snapshot_id} of table {title} has rows that are deleted by equality, with which "
            "changes by key cannot be written: rewrite its files first (CALL … rewrite_data_files with "
            "'delete-file-threshold' = '1')"
        )


class EqualityDeletes:
    """Collects equality delete files while pyiceberg plans a scan, and hides them from it."""

    def __init__(self) -> None:
        self._sequences: dict[str, int] = {}
        self._deletes: list[tuple[int, DataFile]] = []

    def take(self, entry: ManifestEntry) -> bool:
        """Return whether pyiceberg plans with a manifest entry."""
        file, sequence = entry.data_file, entry.sequence_number or 0
        if int(file.content) == EQUALITY:
            self._deletes.append((sequence, file))
            return False
        if int(file.content) == DATA:
            self._sequences[file.file_path] = sequence
        return True

    def files(self) -> list[DataFile]:
        """Return all equality delete files."""
        return [file for _, file in self._deletes]

    def of(self, file: DataFile) -> list[DataFile]:
        """Return the delete files that apply to a data file, ordered by path."""
        sequence = self._sequences[file.file_path]
        matches = [
            deletes
            for number, deletes in self._deletes
            if number > sequence
            and (
                not len(deletes.partition) or (deletes.spec_id == file.spec_id and deletes.partition == file.partition)
            )
        ]
        return sorted(matches, key=lambda delete_file: str(delete_file.file_path))


class DeletedKeys(NamedTuple):
    """Column values that mark rows as deleted."""

    names: list[str]
    keys: pa.Table

    def keep(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are not deleted."""
        table = _plain(pa.Table.from_batches([rows.select(self.names)]))
        return rows.filter(pc.invert(has_key(table, self.keys.cast(table.schema))))


def load_keys(table: Table, schema: Schema, deletes: Sequence[tuple[int, StoredFile]], title: str) -> list[DeletedKeys]:
    """Load the values in equality delete files, grouped by their columns.

    Args:
        table: the table of the files.
        schema: the schema under which rows are read.
        deletes: the partition spec id and the plain values of each file.
        title: the name of the table in errors.

    Raises:
        UnsupportedError: for columns that the schema does not have.
    """
    by_columns: dict[tuple[int, ...], list[pa.RecordBatch]] = {}
    for spec_id, file in deletes:
        ids = tuple(sorted(file["equality_ids"]))
        names = [_find_column_name(schema, number, title) for number in ids]
        by_columns.setdefault(ids, []).extend(_read(table, schema.select(*names), file, spec_id))
    deleted_keys = []
    for ids, batches in by_columns.items():
        names = [_find_column_name(schema, number, title) for number in ids]
        if batches:
            deleted_keys.append(DeletedKeys(names, _plain(pa.Table.from_batches(batches).select(names))))
    return deleted_keys


def _read(table: Table, schema: Schema, file: StoredFile, spec_id: int) -> Iterator[pa.RecordBatch]:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import FileScanTask

    task = FileScanTask(restored({**file, "content": DATA}, spec_id), set())
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    yield from scan._record_batches_from_scan_tasks_and_deletes([task], {})


def _find_column_name(schema: Schema, field_id: int, title: str) -> str:
    name = schema.find_column_name(field_id)
    if name is None or "." in name:
        raise UnsupportedError(
            f"rows of table {title} are deleted by equality of the field {field_id}, which is no column of the table "
            "now: rewrite its files first (rewrite_data_files)"
        )
    return name


def _plain(table: pa.Table) -> pa.Table:
    """Replace extension types, which cannot be compared, by their storage types."""
    columns: list[Any] = [
        pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
        if isinstance(column.type, pa.BaseExtensionType)
        else column
        for column in table.itercolumns()
    ]
    return pa.table(columns, names=table.column_names)
