"""PageRank: how often a random walk along edges visits a vertex."""

from typing import Any, NamedTuple, Self

import numpy as np

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.base.graph_base import GraphBase
from penstock.gelly.columnar import GraphArrays, Inbox, Kernel, run_kernel


class PageRankResult(NamedTuple):
    """The score of a vertex."""

    vertex_id: Any
    page_rank_score: float

    def get_page_rank_score(self) -> float:
        """Return the score."""
        return self.page_rank_score


class PageRank(GraphAlgorithm[DataStream]):
    """Computes a stream of `PageRankResult`, whose scores sum to 1.

    The score of vertices without outgoing edges goes to all vertices evenly. Give a number of iterations, a threshold,
    or both.

    Args:
        damping_factor: the probability that a walk continues along an edge instead of restarting anywhere.
        iterations: the maximum number of supersteps.
        convergence_threshold: stop when all scores together change by this or less in a superstep.

    Raises:
        ValueError: if the factor is not between 0 and 1, both others are missing, or one of them is not positive.
    """

    def __init__(
        self, damping_factor: float, iterations: int | None = None, convergence_threshold: float | None = None
    ) -> None:
        if not 0 < damping_factor < 1:
            raise WrongValueError(f"the damping factor must be between 0 and 1, not {damping_factor}")
        if iterations is None and convergence_threshold is None:
            raise WrongValueError("PageRank needs iterations or a convergence_threshold")
        if iterations is not None and iterations <= 0:
            raise WrongValueError(f"iterations must be positive, not {iterations}")
        if convergence_threshold is not None and convergence_threshold <= 0:
            raise WrongValueError(f"the convergence threshold must be positive, not {convergence_threshold}")
        self._damping_factor = damping_factor
        self._iterations = iterations
        self._threshold = convergence_threshold
        self._includes_all = False
        self._parallelism: int | None = None

    def set_include_zero_degree_vertices(self, include_zero_degree_vertices: bool) -> Self:
        """Set whether vertices without edges are in the result (default: False)."""
        self._includes_all = include_zero_degree_vertices
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of partitions of the graph (default: the environment's parallelism)."""
        self._parallelism = parallelism
        return self

    def run(self, graph: GraphBase) -> DataStream:
        """Return the scores."""
        kernel = PageRankKernel(self._damping_factor, self._threshold, self._includes_all)
        return run_kernel(graph, kernel, self._iterations, "Page Rank", PageRankResult, self._parallelism)


class PageRankKernel(Kernel):
    """One superstep: each vertex sends its score in equal shares, and computes a new one from the received shares."""

    def __init__(self, damping_factor: float, threshold: float | None, includes_all: bool) -> None:
        self._damping_factor = damping_factor
        self._threshold = threshold
        self._includes_all = includes_all

    def begin(self, graph: GraphArrays) -> None:
        """Find the vertices that count, and the sinks among them."""
        is_linked = (graph.degrees > 0) | (graph.in_degrees > 0)
        self._counts = np.ones(len(graph), bool) if self._includes_all else is_linked
        self._is_sink = self._counts & (graph.degrees == 0)
        self._shares = 1 / np.maximum(graph.degrees, 1)
        graph.add("vertices", int(self._counts.sum()))

    def send(self, graph: GraphArrays) -> Any:
        """Return the share of the score for each edge."""
        if graph.superstep == 1:
            self._vertices = max(graph.sums.get("vertices", 0), 1)
            self._scores = np.where(self._counts, 1 / self._vertices, 0.0)
        graph.add("sinks", float(self._scores[self._is_sink].sum()))
        return self._scores * self._shares

    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        """Compute the new scores."""
        factor = self._damping_factor
        base = (1 - factor + factor * graph.sums["sinks"]) / self._vertices
        scores = np.where(self._counts, base + factor * inbox.values, 0.0)
        graph.add("change", float(np.abs(scores - self._scores).sum()))
        self._scores = scores
        return len(scores)

    def is_converged(self, sums: dict[str, float]) -> bool:
        """Return whether the scores hardly change."""
        return self._threshold is not None and sums["change"] <= self._threshold

    def results(self, graph: GraphArrays) -> list[Any]:
        """Return the scores."""
        return [self._scores]

    def chosen(self, graph: GraphArrays) -> Any:
        """Return which vertices count; None for all."""
        return None if self._includes_all else self._counts
