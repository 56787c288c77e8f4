"""The end of a stream whose records go to the driver that runs the task, such as the rows of a data frame."""

from __future__ import annotations

from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch


class HandOverOperator(StreamOperator):
    """Keeps what comes until `take` is called. Made for batch execution: it adds nothing to a snapshot."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Keep the records."""
        self._batches.append(batch)

    def take(self) -> list[Batch]:
        """What has come since the last call."""
        taken, self._batches = self._batches, []
        return taken
