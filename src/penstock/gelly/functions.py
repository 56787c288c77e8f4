"""User-defined functions for neighbourhood methods.

A plain callable also works: of one argument without the vertex, or of two.

Each is a generator or returns a list; every value becomes a record of the result.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from penstock.base.errors import WrongTypeError
from penstock.datastream.function import Function
from penstock.gelly.base import Edge, Vertex


class EdgesFunction(Function, ABC):
    """A function of the edges of each vertex that has edges.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import EdgeDirection, EdgesFunction, Graph
        >>> class Length(EdgesFunction):
        ...     def iterate_edges(self, edges):
        ...         edges = list(edges)
        ...         yield edges[0][0], sum(edge.value for _, edge in edges)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> roads = Graph.from_collection([("A", "B", 4.0), ("A", "C", 1.0)], env)
        >>> roads.group_reduce_on_edges(Length(), EdgeDirection.OUT).collect()
        [('A', 5.0)]
    """

    @abstractmethod
    def iterate_edges(self, edges: Iterable[tuple[Any, Edge]]) -> Iterable[Any]:
        """Return the results for one vertex. Each edge comes with the vertex id."""


class EdgesFunctionWithVertexValue(Function, ABC):
    """A function of each vertex and its edges, if any.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import EdgeDirection, EdgesFunctionWithVertexValue, Graph
        >>> class Degree(EdgesFunctionWithVertexValue):
        ...     def iterate_edges(self, vertex, edges):
        ...         yield vertex.id, len(list(edges))
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> roads = Graph.from_collection([("A", "B", 4.0), ("A", "C", 1.0)], env)
        >>> sorted(roads.group_reduce_on_edges(Degree(), EdgeDirection.OUT).collect())
        [('A', 2), ('B', 0), ('C', 0)]
    """

    @abstractmethod
    def iterate_edges(self, vertex: Vertex, edges: Iterable[Edge]) -> Iterable[Any]:
        """Return the results for one vertex."""


class NeighborsFunction(Function, ABC):
    """A function of the edges and neighbours of each vertex that has edges.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import EdgeDirection, Graph, NeighborsFunction
        >>> class Names(NeighborsFunction):
        ...     def iterate_neighbors(self, neighbors):
        ...         yield sorted(vertex.id for _, _, vertex in neighbors)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> roads = Graph.from_collection([("A", "B", 4.0), ("A", "C", 1.0)], env)
        >>> roads.group_reduce_on_neighbors(Names(), EdgeDirection.OUT).collect()
        [['B', 'C']]
    """

    @abstractmethod
    def iterate_neighbors(self, neighbors: Iterable[tuple[Any, Edge, Vertex]]) -> Iterable[Any]:
        """Return the results for one vertex. Each neighbour comes with the vertex id."""


class NeighborsFunctionWithVertexValue(Function, ABC):
    """A function of each vertex with its edges and neighbours, if any.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import EdgeDirection, Graph, NeighborsFunctionWithVertexValue
        >>> class Names(NeighborsFunctionWithVertexValue):
        ...     def iterate_neighbors(self, vertex, neighbors):
        ...         yield vertex.id, sorted(neighbor.id for _, neighbor in neighbors)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> roads = Graph.from_collection([("A", "B", 4.0), ("A", "C", 1.0)], env)
        >>> sorted(roads.group_reduce_on_neighbors(Names(), EdgeDirection.OUT).collect())
        [('A', ['B', 'C']), ('B', []), ('C', [])]
    """

    @abstractmethod
    def iterate_neighbors(self, vertex: Vertex, neighbors: Iterable[tuple[Edge, Vertex]]) -> Iterable[Any]:
        """Return the results for one vertex."""


def takes_vertex(function: Any, with_vertex: type, without: type) -> bool:
    """Return whether the function takes the vertex itself.

    Raises:
        TypeError: if it is neither of these classes nor a callable of one or two arguments.
    """
    if isinstance(function, with_vertex):
        return True
    if isinstance(function, without):
        return False
    if callable(function):
        arguments = len(inspect.signature(function).parameters)
        if arguments in (1, 2):
            return arguments == 2
    raise WrongTypeError(
        f"{function!r} is neither a {without.__name__} nor a {with_vertex.__name__}, nor a callable of one argument "
        "(the edges or neighbours) or of two (the vertex, and these)"
    )


def called(function: Any, name: str) -> Callable[..., Iterable[Any]]:
    """Return the function's method of this name, or the function itself if it has none."""
    method = getattr(function, name, function)
    call: Callable[..., Iterable[Any]] = method
    return call
