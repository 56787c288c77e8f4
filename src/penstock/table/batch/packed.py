"""Columns on their way from Spark to the sinks of a job: one record per batch, as an Arrow stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch
from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch
from penstock.table.batch.stored import from_stored
from penstock.table.data.logical_types import DataType

#: the schema of a DataFrame of packed batches
SCHEMA: Final = "batch BINARY"


@dataclass(frozen=True, slots=True)
class Packing:
    """A function for Spark's `mapInArrow` that packs columns of these types."""

    types: tuple[DataType, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, each packed into one row."""
        for batch in batches:
            if batch.num_rows:
                columns = [from_stored(array, kind) for array, kind in zip(batch.columns, self.types, strict=False)]
                decoded = pa.RecordBatch.from_arrays(columns, [f"c{index}" for index in range(len(columns))])
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, decoded.schema) as writer:
                    writer.write_batch(decoded)
                yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["batch"])


class UnpackOperator(StreamOperator):
    """Emits the columns of packed batches."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Unpack each record."""
        for packed in batch.values:
            with pa.ipc.open_stream(packed) as reader:
                for columns in reader:
                    self.output.collect(ColumnBatch(columns))
