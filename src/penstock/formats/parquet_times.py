"""INT96, the old timestamp type of Parquet, which Flink, Hive and Spark write unless an option says otherwise.

A value is a day and the nanoseconds of that day. Arrow combines both in one number of 64 bits, without a check. Two
reads of the same column, in microseconds and in nanoseconds, show which values are right:

- In nanoseconds, years outside 1678 to 2261 turn into other years.
- In microseconds, all years are right if the nanoseconds of the day are above 0. Flink writes a negative number for
  times before 1970, which Arrow reads as unsigned: 2^64 ns too late. That is a multiple of 1000 ns, and 616 ns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.errors import FormatError
from penstock.codecs.column_leaves import convert_leaves

#: the error of a time whose nanoseconds of the day are negative: it is this much too late
_SIGN_US: Final = 2**64 // 1000
_SIGN_REST_NS: Final = 2**64 % 1000
_NANOSECONDS_END_US: Final = 2**63 // 1000
_ROOT_OF_FLINK: Final = " flink_schema {"


def written_by_flink(file: Any) -> bool:
    """Return whether Flink wrote a file (Arrow's `ParquetFile`): its group of columns has a distinctive name."""
    creator = file.metadata.created_by or ""
    if not creator.startswith("parquet-mr") or b"org.apache.spark.version" in (file.metadata.metadata or {}):
        return False
    return any(line.endswith(_ROOT_OF_FLINK) for line in str(file.schema).splitlines()[:3])


def int96_columns(file: Any) -> set[str]:
    """Return the names of the columns of a file (Arrow's `ParquetFile`) that contain INT96."""
    schema = file.metadata.schema
    names = file.schema_arrow.names
    columns: set[str] = set()
    for index in range(len(schema)):
        leaf = schema.column(index)
        if leaf.physical_type == "INT96":
            columns.update(name for name in names if leaf.path == name or leaf.path.startswith(f"{name}."))
    return columns


class OldTimes:
    """Reads the INT96 columns of a file again, in nanoseconds, and keeps the correct values of both reads.

    Args:
        stream: the file.
        file: Arrow's `ParquetFile`, which reads INT96 in microseconds.
        columns: the columns that contain INT96.
        nanosecond_columns: the columns to return in nanoseconds.
        is_of_flink: whether times before 1970 may have a negative number of nanoseconds.
    """

    def __init__(
        self,
        stream: BinaryIO,
        file: Any,
        columns: Collection[str],
        nanosecond_columns: Collection[str],
        is_of_flink: bool,
    ) -> None:
        self._fine = pq.ParquetFile(stream, metadata=file.metadata)
        self._columns = sorted(columns)
        self._nanosecond_columns = frozenset(nanosecond_columns)
        self._is_of_flink = is_of_flink

    def completed(
        self, batches: Iterator[pa.RecordBatch], size: int, unit: int, leaves: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a row group with corrected times.

        Args:
            batches: the batches as Arrow reads them, with INT96 in microseconds.
            size: the number of rows of a batch.
            unit: the number of the row group.
            leaves: the columns and fields to read.

        Raises:
            FormatError: for a time that a column in nanoseconds cannot hold. The message names the column.
        """
        read = [
            leaf for leaf in leaves if any(leaf == column or leaf.startswith(f"{column}.") for column in self._columns)
        ]
        fine_batches = self._fine.iter_batches(size, row_groups=[unit], columns=read, use_threads=False)
        for batch, fine_batch in zip(batches, fine_batches, strict=True):
            for name in fine_batch.schema.names:
                index = batch.schema.get_field_index(name)
                times = self._times(name, batch.column(index), fine_batch.column(name))
                batch = batch.set_column(index, pa.field(name, times.type), times)
            yield batch

    def _times(self, name: str, coarse: pa.Array, fine: pa.Array) -> pa.Array:
        in_nanoseconds = name in self._nanosecond_columns

        def leaf(coarse: pa.Array, fine: pa.Array) -> pa.Array:
            if not pa.types.is_timestamp(coarse.type):
                return coarse
            missing = coarse.is_null().to_numpy(zero_copy_only=False)
            us = coarse.view(pa.int64()).fill_null(0).to_numpy()
            ns = fine.view(pa.int64()).fill_null(0).to_numpy()
            if self._is_of_flink:
                # The numbers overflow on purpose, and so does their difference.
                is_negative = ns - us * 1000 == _SIGN_REST_NS
                if in_nanoseconds:  # 616 ns may be genuine
                    is_negative &= np.abs(us) >= _NANOSECONDS_END_US
                us = np.where(is_negative, us - _SIGN_US, us)
            if not in_nanoseconds:
                return pa.array(us, pa.int64(), mask=missing).view(coarse.type)
            is_far = ~missing & ((us >= _NANOSECONDS_END_US) | (us <= -_NANOSECONDS_END_US))
            if is_far.any():
                year = np.datetime64(int(us[is_far][0]), "us")
                raise FormatError(
                    f"column {name!r} has the time {str(year).replace('T', ' ')}, and nanoseconds hold the years 1678 "
                    "to 2261 only: declare the column with 6 digits or fewer"
                )
            return pa.array(ns, pa.int64(), mask=missing).view(fine.type)

        return convert_leaves(leaf, coarse, fine)
