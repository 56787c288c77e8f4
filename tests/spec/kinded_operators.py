"""Operators that make records with kinds, and that show the kinds of what arrives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.types import Row, RowKind
from penstock.runtime.columns import ColumnBatch, get_row_kinds
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Batch

KEYS = 9


def choose_kind(number: int) -> int:
    return number % 4


class Changes(StreamOperator):
    """Numbers become records (key, number) with kinds: as tuples, rows or columns."""

    def __init__(self, form: str) -> None:
        self.form = form

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        kinds = bytes(map(choose_kind, batch.values))
        pairs = [(number % KEYS, number) for number in batch.values]
        times = batch.values if self.form == "columns" else None
        if self.form == "rows":
            made = [Row.of_kind(RowKind(kind), key=k, number=n) for (k, n), kind in zip(pairs, kinds, strict=True)]
            self.output.collect(Batch(made, times))
        elif self.form == "tuples":
            self.output.collect(Batch(list(pairs), times, kinds))
        else:
            keys, numbers = (pa.array(column, pa.int64()) for column in zip(*pairs, strict=True))
            columns = pa.RecordBatch.from_arrays([keys, numbers], ["key", "number"])
            self.output.collect(ColumnBatch(columns, np.array(times, np.int64), kinds))


class Seen(StreamOperator):
    """What arrives: (key, number, kind)."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        kinds = get_row_kinds(batch) or bytes(len(batch))
        self.output.collect(Batch([(*tuple(v), kind) for v, kind in zip(batch.values, kinds, strict=True)]))


class SeenByKey(Seen):
    is_keyed = True


def first(value: Any) -> Any:
    return value[0]
