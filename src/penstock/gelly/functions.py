"""The functions of neighbourhood methods. A plain callable does as well: of one argument without the vertex, or of two.

All are generators, or return a list: each value is a record of the result.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from penstock.base.errors import WrongTypeError
from penstock.datastream.function import Function
from penstock.gelly.base.elements import Edge, Vertex


class EdgesFunction(Function, ABC):
    """Sees the edges of a vertex that has any."""

    @abstractmethod
    def iterate_edges(self, edges: Iterable[tuple[Any, Edge]]) -> Iterable[Any]:
        """Results for one vertex, whose id comes with each of its edges."""


class EdgesFunctionWithVertexValue(Function, ABC):
    """Sees each vertex with its edges, which may be none."""

    @abstractmethod
    def iterate_edges(self, vertex: Vertex, edges: Iterable[Edge]) -> Iterable[Any]:
        """Results for one vertex."""


class NeighborsFunction(Function, ABC):
    """Sees the edges of a vertex that has any, with the vertices at their other ends."""

    @abstractmethod
    def iterate_neighbors(self, neighbors: Iterable[tuple[Any, Edge, Vertex]]) -> Iterable[Any]:
        """Results for one vertex, whose id comes with each of its neighbours."""


class NeighborsFunctionWithVertexValue(Function, ABC):
    """Sees each vertex with its edges and the vertices at their other ends, which may be none."""

    @abstractmethod
    def iterate_neighbors(self, vertex: Vertex, neighbors: Iterable[tuple[Edge, Vertex]]) -> Iterable[Any]:
        """Results for one vertex."""


def takes_vertex(function: Any, with_vertex: type, without: type) -> bool:
    """Whether the function is given the vertex itself.

    Raises:
        TypeError: if it is neither of these classes, nor a callable of one or two arguments.
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
    """What to call: a method of the function, or the function itself."""
    method = getattr(function, name, function)
    call: Callable[..., Iterable[Any]] = method
    return call
