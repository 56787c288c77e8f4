"""The split enumerators of a job's sources, which assign splits as each epoch begins."""

from __future__ import annotations

from penstock.core.batch.splits import SplitDealer
from penstock.core.epochs.work import Dealt
from penstock.core.graph.job_graph import JobGraph
from penstock.core.master.steps import DealSplits, OpenSources, SnapshotSources
from penstock.storage.metadata import StateFile


class Sources:
    """All sources of one job; `close` them at the end."""

    def __init__(self, job_graph: JobGraph) -> None:
        self._job_graph = job_graph
        self._dealers: dict[str, SplitDealer] = {}

    def open(self, step: OpenSources) -> None:
        """Open the sources from their restored state."""
        self.close()
        for vertex in self._job_graph.vertices:
            for operator_id, source in vertex.sources.items():
                self._dealers[operator_id] = SplitDealer(source, vertex.parallelism, step.restored[operator_id])

    def deal(self, step: DealSplits) -> dict[str, Dealt]:
        """Assign new splits of all sources."""
        return {
            operator_id: Dealt(tuple(dealer.deal()), tuple(dealer.no_more))
            for operator_id, dealer in self._dealers.items()
        }

    def snapshot(self, step: SnapshotSources) -> dict[str, StateFile]:
        """Return the state of each source for the checkpoint."""
        return {operator_id: dealer.snapshot(step.checkpoint_id) for operator_id, dealer in self._dealers.items()}

    def close(self) -> None:
        """Release the enumerators."""
        for dealer in self._dealers.values():
            dealer.close()
        self._dealers.clear()
