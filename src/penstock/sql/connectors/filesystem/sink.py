"""Writes the rows of a table into files, each row exactly once, with a directory for each partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.codecs.column_data import ChangeData, ColumnData
from penstock.codecs.serialization import BulkWriterFactory
from penstock.connectors.file.buckets import BucketAssigner, OutputFileConfig, RollingPolicy
from penstock.connectors.file.part_files import PartNames
from penstock.connectors.file.sink import FileSink, FileWriter
from penstock.runtime.connector import SinkWriterContext
from penstock.sql.connectors.filesystem.partitions import PartitionTexts
from penstock.sql.data.arrow import columns_of_changes
from penstock.sql.logical.nodes import RowSchema


class TableFilesSink(FileSink[Any]):
    """Accepts rows as (kind, internal values), or columns.

    Args:
        path: the directory.
        factory: writes the columns stored in files, under their names in the table.
        schema: the columns of the table.
        keys: the partition columns, whose values name directories.
        default_name: the name of the partition of NULL.
        rolling_policy: when a file ends before the next checkpoint.
    """

    def __init__(
        self,
        path: str,
        factory: BulkWriterFactory[Any],
        schema: RowSchema,
        keys: Sequence[str],
        default_name: str,
        rolling_policy: RollingPolicy,
    ) -> None:
        buckets = BucketAssigner.base_path_bucket_assigner()
        super().__init__(path, factory, buckets, rolling_policy, OutputFileConfig())
        self._schema = schema
        self._keys = tuple(keys)
        self._default_name = default_name

    def _writer(self, context: SinkWriterContext, counter: int) -> FileWriter:
        config = self._file_config
        names = PartNames.of(context, self._base_path, config.part_prefix, config.part_suffix)
        return TableFilesWriter(
            context,
            self._base_path,
            self._encoding,
            self._bucket_assigner,
            self._rolling_policy,
            names,
            counter,
            schema=self._schema,
            keys=self._keys,
            default_name=self._default_name,
        )


class TableFilesWriter(FileWriter):
    """Writes columns. Partition columns appear only in directory names."""

    def __init__(self, *parts: Any, schema: RowSchema, keys: Sequence[str], default_name: str) -> None:
        super().__init__(*parts)
        names = schema.names
        self._schema = schema
        self._kept = [name for name in names if name not in keys]
        self._key_places = [names.index(key) for key in keys]
        kinds = [schema[index].type for index in self._key_places]
        self._texts = PartitionTexts(keys, kinds, default_name) if keys else None

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Write rows as columns."""
        if not values:
            return
        columns, kinds = columns_of_changes(values, self._schema.names, self._schema.types)
        self._write_rows(columns, kinds if any(kinds) else None)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """Write columns, whatever their names."""
        self._write_rows(data.columns, None)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """Write changes, whatever the names of their columns."""
        self._write_rows(data.columns, kinds)

    def _write_rows(self, columns: pa.RecordBatch, kinds: bytes | None) -> None:
        now_ms = self._context.now_ms()
        self._roll_by_policy(now_ms)
        columns = columns.rename_columns(self._schema.names)
        stored = columns.select(self._kept)
        if self._texts is None:
            self._write("", _data(stored, kinds), now_ms)
        else:
            directories = self._texts.directories([columns.column(index) for index in self._key_places])
            names, codes = directories.dictionary.to_pylist(), directories.indices.to_numpy()
            for code, directory in enumerate(names):
                if len(names) == 1:
                    part = _data(stored, kinds)
                else:
                    indices = np.flatnonzero(codes == code)
                    part = _data(
                        stored.take(pa.array(indices)),
                        None if kinds is None else np.frombuffer(kinds, np.uint8)[indices].tobytes(),
                    )
                self._write(directory, part, now_ms)
        self._roll_by_policy(now_ms)


def _data(columns: pa.RecordBatch, kinds: bytes | None) -> ColumnData:
    return ColumnData(columns) if kinds is None else ChangeData(columns, kinds)
