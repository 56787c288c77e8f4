"""Communities by labels with scores that fade with each step (Leung and others)."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from penstock.gelly.asm.checks import number, whole
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.base.elements import Vertex
from penstock.gelly.spargel import GatherFunction, ScatterFunction


class CommunityDetection(GraphAlgorithm[Any]):
    """Gives each vertex the label of its community, ignoring directions.

    A vertex has a label, initially its value, and a score, initially 1. It sends its neighbours the label, and the
    score times the value of the edge. A vertex takes the label with the highest sum of scores (the smallest label on a
    tie) and the highest of its scores. If the label is new, the score falls by `delta / superstep`.

    Args:
        max_iterations: the maximum number of supersteps.
        delta: how much scores fade with each step to another vertex; 0.5 is usual.
    """

    def __init__(self, max_iterations: int, delta: float) -> None:
        self._max_iterations = whole(self, "max_iterations", max_iterations, 0)
        self._delta = number(self, "delta", delta)

    def run(self, graph: Any) -> Any:
        """Return the graph, made undirected, with labels as vertex values.

        The input has ints as vertex values and floats as edge values.
        """
        scored = graph.map_vertices(_scored).get_undirected()
        result = scored.run_scatter_gather_iteration(_TellLabel(), _BestLabel(self._delta), self._max_iterations)
        return result.map_vertices(_label)


def _scored(vertex: Vertex) -> tuple[Any, float]:
    return vertex.value, 1.0


def _label(vertex: Vertex) -> Any:
    return vertex.value[0]


class _TellLabel(ScatterFunction):
    def send_messages(self, vertex: Vertex) -> None:
        label, score = vertex.value
        for edge in self.get_edges():
            self.send_message_to(edge.target, (label, score * edge.value))


class _BestLabel(GatherFunction):
    def __init__(self, delta: float) -> None:
        self._delta = delta

    def update_vertex(self, vertex: Vertex, in_messages: Any) -> None:
        scores: defaultdict[Any, list[float]] = defaultdict(list)
        for label, score in in_messages:
            scores[label].append(score)
        if not scores:
            return
        # Exact sums: the order of messages must not decide between labels.
        sums = {label: math.fsum(of_label) for label, of_label in scores.items()}
        best = min(sums, key=lambda label: (-sums[label], label))
        score = max(scores[best])
        if best != vertex.value[0]:
            score -= self._delta / self.get_superstep_number()
        self.set_new_vertex_value((best, score))
