"""HITS: hubs, which lead to good authorities, and authorities, to which good hubs lead (Kleinberg).

An iteration computes the hub scores from the authority scores, then the authority scores from the hub scores, and
divides both by their Euclidean norms. The first iteration begins with the in-degrees as authority scores.

An iteration takes two supersteps, because scores travel first against the edges and then along them. The norm of a
superstep's scores is known only in the next superstep, which divides by it. So there is one more superstep at the end,
and one at the beginning for the in-degrees.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.checks import number, whole
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.columnar import GraphArrays, Inbox, Kernel, run_kernel

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
