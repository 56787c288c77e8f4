"""Stateless operators over columns: user functions of whole batches, and expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import compress
from typing import Any

import pyarrow as pa

from penstock.base.errors import UnsupportedError, WrongTypeError
from penstock.runtime.columns import (
    KERNEL_ERRORS,
    ColumnBatch,
    Expression,
    as_columns,
    computed,
    extract_rowtimes,
    full,
)
from penstock.runtime.operators.base import FunctionOperator, StreamOperator, UserCodeError
from penstock.runtime.records import Batch


class MapBatchesOperator(FunctionOperator):
    """Calls a function with whole batches, as Arrow record batches or as data frames, and takes whole batches back.

    `timestamp_column` names the result's column of timestamps. Without it, records keep theirs, and as many must come
    out as went in.
    """

    def __init__(self, function: Any, batch_format: str, timestamp_column: str | None) -> None:
        super().__init__(function)
        self._format = batch_format
        self._timestamp_column = timestamp_column

    def open(self) -> None:
        """Open the function."""
        super().open()
        self._map = getattr(self.function, "map_batch", self.function)
        self._hand_over = _HAND_OVER[self._format]

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the function with the batch."""
        records = as_columns(batch, self.context.operator_name)
        if records.kinds is not None:
            raise UnsupportedError(
                f"{self.context.operator_name}: map_batches accepts inserts only, but these records update or delete "
                "others; use map(), whose rows have get_row_kind()"
            )
        try:
            result = as_record_batch(self._map(self._hand_over(records.columns)))
        except Exception as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} records") from error
        if result.num_rows:
            self.output.collect(ColumnBatch(result, self._rowtimes(records, result)))

    def _rowtimes(self, records: ColumnBatch, result: pa.RecordBatch) -> Any:
        if self._timestamp_column is not None:
            return extract_rowtimes(ColumnBatch(result), self._timestamp_column)
        if records.rowtimes is None or result.num_rows == len(records):
            return records.rowtimes
        raise WrongTypeError(
            f"{self.context.operator_name}: map_batches turned {len(records)} records into {result.num_rows}, so their "
            "timestamps are unknown: name a column of the result with timestamp_column, or assign timestamps after "
            "map_batches, not before it"
        )


class SelectOperator(StreamOperator):
    """Computes a column for each expression."""

    def __init__(self, expressions: Sequence[Expression]) -> None:
        self._expressions = tuple(expressions)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Compute the columns of a batch."""
        records = as_columns(batch, self.context.operator_name)
        try:
            result = computed(self._expressions, records.columns)
        except KERNEL_ERRORS as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} records") from error
        self.output.collect(ColumnBatch(result, records.rowtimes, records.kinds))


class WhereOperator(StreamOperator):
    """Keeps the records that satisfy an expression, and drops those where it is false or null."""

    def __init__(self, condition: Expression) -> None:
        self._condition = condition

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Evaluate the condition for a batch."""
        records = as_columns(batch, self.context.operator_name)
        try:
            answers = full(self._condition.evaluate(records.columns), len(records))
            keeps = answers.fill_null(False).to_numpy(zero_copy_only=False).astype(bool)
        except KERNEL_ERRORS as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} records") from error
        if keeps.all():
            self.output.collect(batch)
        elif isinstance(batch, ColumnBatch):
            if keeps.any():
                self.output.collect(batch.where(keeps))
        elif keeps.any():
            times = batch.timestamps
            kept_times = None if times is None else list(compress(times, keeps))
            kinds = None if batch.kinds is None else bytes(compress(batch.kinds, keeps))
            self.output.collect(Batch(list(compress(batch.values, keeps)), kept_times, kinds))


def as_record_batch(result: Any) -> pa.RecordBatch:
    """Convert a function's result to a record batch; it may also be a table, or a data frame of pandas or Polars.

    Raises:
        TypeError: if it is something else.
    """
    if isinstance(result, pa.RecordBatch):
        return result
    if hasattr(result, "to_arrow"):  # Polars
        result = result.to_arrow()
    elif type(result).__module__.partition(".")[0] == "pandas":
        return pa.RecordBatch.from_pandas(result, preserve_index=False)
    if isinstance(result, pa.Table):
        if not result.num_rows:
            return pa.RecordBatch.from_pylist([], schema=result.schema)
        return result.combine_chunks().to_batches()[0]
    raise WrongTypeError(
        f"the function returned a {type(result).__name__}: it must return a pyarrow RecordBatch or Table, or a data "
        "frame"
    )


def _to_polars(columns: pa.RecordBatch) -> Any:
    return import_module("polars").from_arrow(columns)


_HAND_OVER: dict[str, Callable[[pa.RecordBatch], Any]] = {
    "arrow": lambda columns: columns,
    "pandas": lambda columns: columns.to_pandas(),
    "polars": _to_polars,
}
BATCH_FORMATS = tuple(_HAND_OVER)

__all__ = ["BATCH_FORMATS", "MapBatchesOperator", "SelectOperator", "WhereOperator", "as_record_batch"]
