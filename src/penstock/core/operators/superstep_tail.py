"""The operator at the end of a superstep, see `core.supersteps`."""

from __future__ import annotations

from penstock.base.accumulators import LongCounter
from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch
from penstock.core.supersteps import RECORDS


class TailOperator(StreamOperator):
    """The end of a superstep: forwards the records kept for the next one, and counts them."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._records = LongCounter()

    def open(self) -> None:
        """Register the counter, so that it leaves the task with the output."""
        self.context.accumulators[RECORDS + self._role] = self._records

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Count the records and forward them."""
        self._records.add(len(batch))
        self.output.collect(batch)
