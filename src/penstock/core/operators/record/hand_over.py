"""The end of a stream that passes its records to the task's driver, such as the rows of a data frame."""

from __future__ import annotations

from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch


class HandOverOperator(StreamOperator):
    """Keeps batches until `take` is called. For batch execution only: it adds nothing to a snapshot."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Keep the batch."""
        self._batches.append(batch)

    def take(self) -> list[Batch]:
        """Remove and return the batches since the last call."""
        batches, self._batches = self._batches, []
        return batches
