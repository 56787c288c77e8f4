"""Removes loops, repeated edges and vertices of high degree from graphs.

Replaces the ids or values of graphs, as algorithms for `Graph.run`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from penstock.base.errors import WrongTypeError
from penstock.gelly.asm.degrees import VertexDegree
from penstock.gelly.base.elements import Edge, GraphAlgorithm, whole
from penstock.gelly.base.streams import BOTH, FIRST, SECOND, of_groups, without


class Simplify(GraphAlgorithm[Any]):
    """Removes loops and repeated edges; one of several edges between the same two vertices remains, with its value.

    Args:
        clip_and_flip: None for a directed graph. For an undirected one, the result has edges in both directions: with
            False all edges of the graph, with True only edges with a source id greater than the target id; the others
            are dropped first.
    """

    def __init__(self, clip_and_flip: bool | None = None) -> None:
        if clip_and_flip is not None and not isinstance(clip_and_flip, bool):
            raise WrongTypeError(
                f"Simplify: clip_and_flip is None for a directed graph, or True or False, not {clip_and_flip!r}"
            )
        self._clip_and_flip = clip_and_flip

    def run(self, graph: Any) -> Any:
        """Return the simple graph, with the same vertices."""
        edges = graph.get_edges().flat_map(partial(_simple, self._clip_and_flip)).name("Remove Loops")
        simple = of_groups(edges, BOTH, _first_of_all).name("Remove Repeated Edges")
        return type(graph).from_data_stream(simple, graph.get_vertices())


class MaximumDegree(GraphAlgorithm[Any]):
    """Removes the vertices of an undirected graph that have more edges than a maximum, and their edges.

    Args:
        maximum_degree: the highest degree to keep, 1 or more; degrees are counted before anything is removed.
    """

    def __init__(self, maximum_degree: int) -> None:
        self._maximum = whole(self, "maximum_degree", maximum_degree, 1)

    def run(self, graph: Any) -> Any:
        """Return the graph without those vertices."""
        high = VertexDegree().run(graph).filter(partial(_is_above, self._maximum)).name("High Degree")
        vertices = without(graph.get_vertices(), high, FIRST, FIRST).name("Vertices Of Low Degree")
        edges = without(graph.get_edges(), high, FIRST, FIRST).name("Sources Of Low Degree")
        edges = without(edges, high, SECOND, FIRST).name("Targets Of Low Degree")
        return type(graph).from_data_stream(edges, vertices)


def _simple(clip_and_flip: bool | None, edge: Edge) -> list[Edge]:
    source, target, value = edge
    if source == target or (clip_and_flip and source < target):
        return []
    return [edge] if clip_and_flip is None else [edge, Edge(target, source, value)]


def _first_of_all(_: Any, key: Any, edges: Iterable[Edge]) -> list[Edge]:
    return [next(iter(edges))]


def _is_above(maximum: int, vertex: Any) -> bool:
    return bool(vertex[1] > maximum)


class _Translate(GraphAlgorithm[Any]):
    """Base class of translations.

    Args:
        translator: a function of the old id or value, or an object with a method `translate`.
    """

    method: ClassVar[str]

    def __init__(self, translator: Any) -> None:
        if not callable(getattr(translator, "translate", translator)):
            raise WrongTypeError(
                f"{type(self).__name__} takes a function, or an object with a method translate, not {translator!r}"
            )
        self._translator = translator

    def run(self, graph: Any) -> Any:
        """Return the graph with the new ids or values."""
        return getattr(graph, self.method)(self._translator)


class TranslateGraphIds(_Translate):
    """Replaces each id by the result of a function of the id; different ids must stay different."""

    method = "translate_graph_ids"


class TranslateVertexValues(_Translate):
    """Replaces the value of each vertex by the result of a function of the value."""

    method = "translate_vertex_values"


class TranslateEdgeValues(_Translate):
    """Replaces the value of each edge by the result of a function of the value."""

    method = "translate_edge_values"
