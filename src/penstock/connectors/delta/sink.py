"""`DeltaSink`: appends or upserts rows into a Delta Lake table, exactly once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.base.durable_files import check_outlives
from penstock.base.errors import ConfigurationError
from penstock.base.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.delta.commits import DeltaCommitter, PreparedFiles, add_files
from penstock.connectors.delta.data_files import TARGET_BYTES
from penstock.connectors.delta.library import require_library
from penstock.connectors.delta.merging import forget_changes, merge_changes
from penstock.connectors.delta.place import TablePlace
from penstock.connectors.delta.target import Target
from penstock.connectors.delta.types import columns_of_type, stored_schema
from penstock.connectors.delta.writer import DeltaWriter
from penstock.core.connector import Committer, Sink, SinkWriter, SinkWriterContext


class DeltaSink(Sink[Any]):
    """Writes rows to a Delta table exactly once (G9); created by `for_row_data`.

    All subtasks write Parquet files, and each checkpoint adds them in one version of the table. Without checkpoints
    there is one version, at the end of the input. `penstock.connectors.delta.commits` explains the exactly-once
    guarantee.
    """

    commits_globally = True

    def __init__(
        self,
        location: TablePlace,
        columns: pa.Schema | None,
        *,
        partition_columns: tuple[str, ...] | None = None,
        key: tuple[str, ...] = (),
        merge_schema: bool = False,
        properties: Mapping[str, str] | None = None,
        target_bytes: int = TARGET_BYTES,
        compact_after: int | None = None,
        by_place: bool = False,
    ) -> None:
        self._place = location
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
        sink._columns = stored_schema(columns_of_type(type_info, "DeltaSink"))
        sink._target()
        return sink

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, PreparedFiles]:
        """See `Sink`. Creates the table if it is missing, and compares its columns."""
        return DeltaWriter(context, self._target(), self._target_bytes, self._by_place)

    def create_committer(self, context: SinkWriterContext) -> Committer[PreparedFiles]:
        """See `Sink`."""
        target = self._target()
        if target.key:
            return DeltaCommitter(target, merge_changes(target), self._compact_after, partial(forget_changes, target))
        return DeltaCommitter(target, add_files(target), self._compact_after)

    def _target(self) -> Target:
        if self._columns is None:
            raise ConfigurationError(f"the sink into the Delta table {self._place.path} does not know its columns")
        target = Target(
            self._place, self._columns, self._partition_columns, self._key, self._merge_schema, self._properties
        )
        target.check()
        return target


class DeltaSinkBuilder:
    """Builds a `DeltaSink`."""

    def __init__(
        self, table_path: str | os.PathLike[str], row_type: Any, storage_options: Mapping[str, str] | None
    ) -> None:
        require_library()
        check_outlives(os.fspath(table_path))
        self._place = TablePlace.of(table_path, storage_options)
        self._columns = None if row_type is None else stored_schema(columns_of_type(row_type, "DeltaSink"))
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
