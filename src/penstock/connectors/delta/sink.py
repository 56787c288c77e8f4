"""`DeltaSink`: appends or upserts rows into a Delta Lake table, exactly once.

A `DeltaWriter` writes the rows of one subtask to files that are not yet part of the table; `DeltaCommitter` adds them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.base.durable_files import check_outlives
from penstock.base.errors import ConfigurationError, FormatError, OperationError, UnsupportedError
from penstock.base.typeinfo import RowTypeInfo, TypeInformation
from penstock.codecs.arrow_columns import exact_cast_columns
from penstock.codecs.column_data import ColumnData
from penstock.codecs.pickling import kinds_of_rows
from penstock.connectors.delta import commits, row_changes, table
from penstock.runtime.columns import to_record_batch
from penstock.runtime.connector import Committer, Sink, SinkWriter, SinkWriterContext


class DeltaWriter(SinkWriter[Any, commits.PreparedFiles]):
    """Writes rows, or keyed changes if the target has a key.

    Args:
        context: the runtime context of the writer.
        target: the table.
        target_bytes: the target file size.
        by_place: whether to match columns to the target's by position.
    """

    def __init__(self, context: SinkWriterContext, target: commits.Target, target_bytes: int, by_place: bool) -> None:
        self._context = context
        self._target = target
        self._by_place = by_place
        prepared = commits.prepare(target)
        self._not_null = [column.name for column in prepared.columns if not column.nullable]
        self._run, self._number = commits.build_transaction_name(context)
        digest = hashlib.blake2b(commits.run_name(context).encode(), digest_size=16).hexdigest()
        kind = "changes" if target.key else "part"
        stem = f"{kind}-{context.subtask_index:05d}-{digest}"
        schema = commits.changes_schema(target.columns) if target.key else target.columns
        partitions = () if target.key else prepared.partition_columns
        self._files = table.DataFilesWriter(target.place, schema, partitions, stem, target_bytes)

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if not values:
            return
        self._check_names(values[0])
        columns = to_record_batch(values, "DeltaSink", self._target.columns)
        names = columns.schema.names
        self._write(columns, kinds_of_rows(values), names == [f"f{index}" for index in range(len(names))])

    def _check_names(self, record: Any) -> None:
        """Raise `FormatError` for a record with other field names than the columns, which would be written as NULLs."""
        as_dict = getattr(record, "as_dict", None)
        if as_dict is not None and record.has_field_names:
            names = list(as_dict())
            absent = [name for name in self._target.columns.names if name not in names]
        elif isinstance(record, dict):
            names, absent = list(record), []
        else:
            return
        unknown = [name for name in names if name not in self._target.columns.names]
        if unknown or absent:
            raise FormatError(
                f"a record with the fields {', '.join(names)} does not go into the Delta table "
                f"{self._target.place.path}, whose sink has the columns {', '.join(self._target.columns.names)}"
            )

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, None, self._by_place)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, kinds, self._by_place)

    def _write(self, columns: pa.RecordBatch, kinds: bytes | None, by_place: bool) -> None:
        if kinds is not None and not any(kinds):
            kinds = None
        if kinds is not None and not self._target.key:
            raise UnsupportedError(
                f"the sink adds rows to the Delta table {self._target.place.path}, and got a change that is no insert: "
                "name the columns by which rows are replaced, by with_key_columns(), or a PRIMARY KEY"
            )
        batch = self._fitting(columns, by_place)
        self._check_nulls(batch, kinds)
        self._files.write(commits.with_kinds(batch, kinds) if self._target.key else batch, self._context.now_ms())

    def _fitting(self, columns: pa.RecordBatch, by_place: bool) -> pa.RecordBatch:
        schema = self._target.columns
        if by_place and columns.num_columns == len(schema):
            columns = columns.rename_columns(schema.names)
        try:
            return exact_cast_columns(columns, schema)
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise FormatError(
                f"cannot write the columns {', '.join(columns.schema.names)} to the Delta table "
                f"{self._target.place.path}, which takes {', '.join(schema.names)}: {error}"
            ) from error

    def _check_nulls(self, batch: pa.RecordBatch, kinds: bytes | None) -> None:
        """Raise `OperationError` for invalid NULLs before rows enter a checkpoint. A deletion needs only its key."""
        for name in self._target.key:
            if batch.column(name).null_count:
                raise OperationError(
                    f"key column {name!r} is NULL in a change for the Delta table {self._target.place.path}: rows are "
                    "found by their key, so it must have a value"
                )
        for name in self._not_null if kinds is None else ():
            if batch.column(name).null_count:
                raise OperationError(
                    f"column {name!r} of the Delta table {self._target.place.path} may not be NULL, and is in a row "
                    "for it"
                )

    def prepare_commit(self) -> list[commits.PreparedFiles]:
        """See `SinkWriter`."""
        files = self._files.finish(self._context.now_ms())
        if not files:
            return []
        number, self._number = self._number, self._number + 1
        return [commits.PreparedFiles(self._run, number, files)]

    def close(self) -> None:
        """See `SinkWriter`."""
        self._files.discard()


class RowChangesWriter(SinkWriter[Any, commits.PreparedFiles]):
    """Writes changes of rows by value, given as columns, to files for the commit."""

    def __init__(self, context: SinkWriterContext, target: commits.Target, target_bytes: int) -> None:
        self._context = context
        self._schema = row_changes.row_changes_schema(target.columns)
        self._run, self._number = commits.build_transaction_name(context)
        digest = hashlib.blake2b(commits.run_name(context).encode(), digest_size=16).hexdigest()
        stem = f"changes-{context.subtask_index:05d}-{digest}"
        self._files = table.DataFilesWriter(target.place, self._schema, (), stem, target_bytes)

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`. Does nothing for no rows; others come as columns."""
        if values:
            raise UnsupportedError("changes of rows come as columns")

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        columns = data.columns.rename_columns(self._schema.names)
        self._files.write(exact_cast_columns(columns, self._schema), self._context.now_ms())

    def prepare_commit(self) -> list[commits.PreparedFiles]:
        """See `SinkWriter`."""
        files = self._files.finish(self._context.now_ms())
        number, self._number = self._number, self._number + 1
        return [commits.PreparedFiles(self._run, number, files)] if files else []

    def close(self) -> None:
        """See `SinkWriter`."""
        self._files.discard()


class DeltaSink(Sink[Any]):
    """Writes rows to a Delta table exactly once (G9); created by `for_row_data`.

    All subtasks write Parquet files, and each checkpoint adds them in one version of the table. Without checkpoints
    there is one version, at the end of the input. `penstock.connectors.delta.commits` explains the exactly-once
    guarantee.

    Examples:
        >>> from deltalake import DeltaTable
        >>> from penstock.common import Types
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors.delta import DeltaSink
        >>> row_type = Types.ROW_NAMED(["drink", "cups"], [Types.STRING(), Types.INT()])
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> sink = DeltaSink.for_row_data("orders", row_type).build()
        >>> _ = env.from_collection([("tea", 2)], row_type).sink_to(sink)
        >>> result = env.execute()
        >>> DeltaTable("orders").to_pyarrow_table().to_pylist()
        [{'drink': 'tea', 'cups': 2}]
    """

    commits_globally = True

    def __init__(
        self,
        location: table.TablePlace,
        columns: pa.Schema | None,
        *,
        partition_columns: tuple[str, ...] | None = None,
        key: tuple[str, ...] = (),
        merge_schema: bool = False,
        properties: Mapping[str, str] | None = None,
        target_bytes: int = table.TARGET_BYTES,
        compact_after: int | None = None,
        by_place: bool = False,
        creates: bool = True,
        new: commits.NewTable | None = None,
        overwrites: bool = False,
        replaced: tuple[tuple[str, str], ...] = (),
        base: int | None = None,
    ) -> None:
        self._place = location
        self._creates, self._new = creates, new
        self._overwrites, self._replaced, self._base = overwrites, replaced, base
        self.commits_without_rows = new is not None or overwrites
        self._columns = columns
        self._partition_columns = partition_columns
        self._key = key
        self._merge_schema = merge_schema
        self._properties = tuple(sorted((properties or {}).items()))
        self._target_bytes = target_bytes
        self._compact_after = compact_after
        #: whether to match columns to the schema by position, ignoring their names
        self._by_place = by_place
        if columns is not None:
            self._target()

    @staticmethod
    def for_row_data(
        table_path: str | os.PathLike[str], row_type: Any = None, storage_options: Mapping[str, str] | None = None
    ) -> DeltaSinkBuilder:
        """Return a builder.

        Args:
            table_path: the existing or new table: a directory, or a URL such as `s3://bucket/table`.
            row_type: the columns: `Types.ROW_NAMED`, a dict from name to type, or an Arrow schema; by default those of
                the stream's declared type. Records are rows, tuples or dicts.
            storage_options: delta-rs options for an object store, such as `{"aws_region": "eu-central-1"}`; others come
                from the environment, as for other clients.

        Raises:
            ConfigurationError: if the library is missing or the columns are invalid.
            UnsupportedError: for a type that Delta Lake does not have.
        """
        return DeltaSinkBuilder(table_path, row_type, storage_options)

    def for_type(self, type_info: TypeInformation | None) -> DeltaSink:
        """Return the sink for records of a declared type, which defines the columns if the sink has none."""
        if self._columns is not None:
            return self
        if not isinstance(type_info, RowTypeInfo):
            raise ConfigurationError(
                f"the sink into the Delta table {self._place.path} does not know its columns: give for_row_data() a "
                "row_type, or declare the output type of the operator before as Types.ROW_NAMED"
            )
        sink = copy(self)
        sink._columns = table.stored_schema(table.columns_of_type(type_info, "DeltaSink"))
        sink._target()
        return sink

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, commits.PreparedFiles]:
        """See `Sink`. Creates the table if it is missing, and compares its columns."""
        return DeltaWriter(context, self._target(), self._target_bytes, self._by_place)

    def create_committer(self, context: SinkWriterContext) -> Committer[commits.PreparedFiles]:
        """See `Sink`."""
        target, run = self._target(), commits.run_name(context)
        forget = partial(commits.forget_changes, target) if target.key or target.base is not None else None
        apply: commits.Apply
        if target.base is not None:
            apply = row_changes.change_rows(target)
        elif target.overwrites:
            apply = commits.overwrite_files(target)
        else:
            apply = commits.merge_changes(target) if target.key else commits.add_files(target)
        return commits.DeltaCommitter(target, apply, self._compact_after, forget, run)

    def _target(self) -> commits.Target:
        if self._columns is None:
            raise ConfigurationError(f"the sink into the Delta table {self._place.path} does not know its columns")
        target = commits.Target(
            self._place,
            self._columns,
            self._partition_columns,
            self._key,
            self._merge_schema,
            self._properties,
            self._creates,
            self._new,
            self._overwrites,
            self._replaced,
            self._base,
        )
        target.check()
        return target


class DeltaSinkBuilder:
    """Builds a `DeltaSink`."""

    def __init__(
        self, table_path: str | os.PathLike[str], row_type: Any, storage_options: Mapping[str, str] | None
    ) -> None:
        table.require_library()
        check_outlives(os.fspath(table_path))
        self._place = table.TablePlace.of(table_path, storage_options)
        self._columns = None if row_type is None else table.stored_schema(table.columns_of_type(row_type, "DeltaSink"))
        self._settings: dict[str, Any] = {}

    def with_partition_columns(self, *columns: str) -> DeltaSinkBuilder:
        """Set the partition columns of a new table; an existing table must have the same."""
        self._settings["partition_columns"] = columns
        return self

    def with_key_columns(self, *columns: str) -> DeltaSinkBuilder:
        """Upsert and delete rows by these key columns, according to the kind of each record (`RowKind`).

        The last change of each key wins, in arrival order. All changes of a key must therefore come through one
        subtask, as after `key_by`. Without key columns the sink appends rows, and all records must be inserts.
        """
        self._settings["key"] = columns
        return self

    def with_merge_schema(self, merge_schema: bool) -> DeltaSinkBuilder:
        """Set whether to add columns that the table lacks; by default they are an error."""
        self._settings["merge_schema"] = merge_schema
        return self

    def with_table_properties(self, properties: Mapping[str, str]) -> DeltaSinkBuilder:
        """Set the properties of a new table, such as `{"delta.enableChangeDataFeed": "true"}`."""
        self._settings["properties"] = dict(properties)
        return self

    def with_target_file_size(self, size_bytes: int) -> DeltaSinkBuilder:
        """Set the size at which a data file is closed; 128 MiB by default. A checkpoint closes all files.

        Raises:
            ConfigurationError: if the size is less than 1.
        """
        if size_bytes < 1:
            raise ConfigurationError(f"a data file has at least one byte, not {size_bytes}")
        self._settings["target_bytes"] = size_bytes
        return self

    def with_compaction(self, every_versions: int) -> DeltaSinkBuilder:
        """Compact small files each time the table has gained this many versions; never by default. No rows change.

        Raises:
            ConfigurationError: if the number is less than 1.
        """
        if every_versions < 1:
            raise ConfigurationError(f"files are put together after one version or more, not {every_versions}")
        self._settings["compact_after"] = every_versions
        return self

    def build(self) -> DeltaSink:
        """Build the sink.

        Raises:
            ConfigurationError: for partition or key columns that do not exist.
        """
        return DeltaSink(self._place, self._columns, **self._settings)
