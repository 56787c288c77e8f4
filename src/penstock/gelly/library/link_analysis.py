"""Scores of vertices by their links: PageRank and HITS.

`PageRank` scores how often a random walk along edges visits a vertex.

`HITS` finds hubs, which lead to good authorities, and authorities, to which good hubs lead (Kleinberg).

An iteration computes the hub scores from the authority scores, then the authority scores from the hub scores, and
divides both by their Euclidean norms. The first iteration begins with the in-degrees as authority scores.

An iteration takes two supersteps, because scores travel first against the edges and then along them. The norm of a
superstep's scores is known only in the next superstep, which divides by it. So there is one more superstep at the end,
and one at the beginning for the in-degrees.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, Self

import numpy as np

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base import GraphAlgorithm, GraphBase, number, whole
from penstock.gelly.columnar import GraphArrays, Inbox, Kernel, run_kernel


class PageRankResult(NamedTuple):
    """The score of a vertex.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import PageRank, PageRankResult
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 1)], env)
        >>> ranks = graph.run(PageRank(0.85, iterations=10)).collect()
        >>> isinstance(ranks[0], PageRankResult), sorted(rank.vertex_id for rank in ranks)
        (True, [1, 2])
    """

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

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import PageRank
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 1)], env)
        >>> ranks = graph.run(PageRank(damping_factor=0.85, iterations=10)).collect()
        >>> sorted((rank.vertex_id, round(rank.page_rank_score, 3)) for rank in ranks)
        [(1, 0.5), (2, 0.5)]
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


#: The value of an edge in its own direction, and of the reversed edge.
_ALONG: Final = 1.0
_AGAINST: Final = -1.0


class HitsScore(NamedTuple):
    """The scores of a vertex with an edge.

    Attributes:
        vertex_id: the id of the vertex.
        hub_score: the quality of the authorities that it leads to. The squares of all hub scores sum to 1.
        authority_score: the quality of the hubs that lead to it. The squares of all authority scores sum to 1.
    """

    vertex_id: Any
    hub_score: float
    authority_score: float

    def get_vertex_id(self) -> Any:
        """Return the id of the vertex."""
        return self.vertex_id

    def get_hub_score(self) -> float:
        """Return the quality of the authorities that it leads to."""
        return self.hub_score

    def get_authority_score(self) -> float:
        """Return the quality of the hubs that lead to it."""
        return self.authority_score


class HITS(GraphAlgorithm[DataStream]):
    """Scores the vertices of a directed graph as hubs and as authorities. Vertices without edges have no scores.

    Args:
        iterations: the maximum number of iterations, 1 or more.
        convergence_threshold: stop when all scores together change by this or less in an iteration; greater than 0.

    Raises:
        ValueError: if both are None.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import HITS
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (1, 3)], env)
        >>> scores = graph.run(HITS(iterations=10)).collect()
        >>> max(scores, key=lambda score: score.hub_score).vertex_id
        1
    """

    def __init__(self, iterations: int | None = None, convergence_threshold: float | None = None) -> None:
        if iterations is None and convergence_threshold is None:
            raise WrongValueError("HITS: set iterations, convergence_threshold, or both")
        self._iterations = None if iterations is None else whole(self, "iterations", iterations, 1)
        self._threshold = (
            None
            if convergence_threshold is None
            else number(self, "convergence_threshold", convergence_threshold, above=0)
        )

    def run(self, graph: Any) -> DataStream:
        """Return a stream of the scores."""
        edges = graph.get_edges().flat_map(_both_ways).name("Edges Both Ways")
        supersteps = None if self._iterations is None else 2 * self._iterations + 2
        both_ways = type(graph).from_data_stream(edges)
        return run_kernel(both_ways, HitsKernel(self._threshold), supersteps, "HITS", HitsScore)


def _both_ways(edge: Any) -> list[tuple[Any, Any, float]]:
    return [(edge[0], edge[1], _ALONG), (edge[1], edge[0], _AGAINST)]


class HitsKernel(Kernel):
    """Even supersteps compute hubs from authorities, odd ones authorities from hubs; the first one from hubs of 1."""

    def __init__(self, threshold: float | None) -> None:
        self._threshold = threshold

    def begin(self, graph: GraphArrays) -> None:
        """Start with hubs of 1, from which authorities get their in-degrees."""
        self._hubs = np.ones(len(graph))
        self._authorities = np.zeros(len(graph))
        #: scores of the last iteration whose norms are known
        self._final = (np.zeros(len(graph)), np.zeros(len(graph)))

    def send(self, graph: GraphArrays) -> Any:
        """Return authority scores to send against the edges, or hub scores to send along them."""
        is_even = graph.superstep % 2 == 0
        self._direction = _AGAINST if is_even else _ALONG
        return self._authorities if is_even else self._hubs

    def along_edges(self, values: Any, edge_values: Any) -> Any:
        """Select the edges of one direction."""
        return values * (edge_values == self._direction)

    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        """Compute the new scores, as if the sent scores had been divided by their norm."""
        norm = math.sqrt(graph.sums.get("squares", 0)) or 1.0
        new = inbox.values / norm
        if graph.superstep % 2:
            self._hubs = self._hubs / norm
            self._authorities = new
        else:
            self._finish(graph, graph.superstep // 2 - 1, self._authorities / norm)
            self._hubs = new
        graph.add("squares", float(np.square(new).sum()))
        return len(graph)

    def _finish(self, graph: GraphArrays, iteration: int, authorities: Any) -> None:
        """Complete the scores of the previous iteration."""
        self._authorities = authorities
        if iteration > 0:
            final = (self._hubs, authorities)
            if iteration > 1:
                change = sum(np.abs(now - then).sum() for now, then in zip(final, self._final, strict=True))
                graph.add("change", float(change))
            self._final = final

    def is_converged(self, sums: dict[str, float]) -> bool:
        """Return whether scores hardly change. The first iteration has nothing to compare with."""
        return self._threshold is not None and "change" in sums and sums["change"] <= self._threshold

    def results(self, graph: GraphArrays) -> list[Any]:
        """Return the scores of the last iteration."""
        return list(self._final)
