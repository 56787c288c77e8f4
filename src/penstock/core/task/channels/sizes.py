"""Estimates of the serialized size of records, based on a sample."""

from __future__ import annotations

import pickle
from typing import Final

from penstock.core.columns.batch import ColumnBatch
from penstock.core.records import Batch

_SAMPLE_RECORDS: Final = 8
#: The size of one batch in this many is estimated, for each edge.
_BATCHES_PER_SAMPLE: Final = 64


def estimated_bytes(batch: Batch) -> int:
    """Return the approximate size of the records on the wire, in bytes, estimated from the first few."""
    if isinstance(batch, ColumnBatch):
        return int(batch.columns.nbytes)
    sample = batch.values[:_SAMPLE_RECORDS]
    try:
        size = len(pickle.dumps(sample, protocol=5))
    except Exception:  # noqa: BLE001 - it is only a figure, and user classes may raise anything
        size = 64 * len(sample)
    return size * len(batch) // max(1, len(sample))


class ByteCount:
    """Estimates the bytes of all records of an edge from the size of a batch now and then."""

    __slots__ = ("_batches", "_per_record", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._batches = 0
        self._per_record = 0.0

    def add(self, batch: Batch) -> int:
        """Count a batch, and return its approximate size in bytes."""
        if not len(batch):
            return 0
        if self._batches % _BATCHES_PER_SAMPLE == 0:
            self._per_record = estimated_bytes(batch) / len(batch)
        self._batches += 1
        size = int(self._per_record * len(batch))
        self.bytes += size
        return size
