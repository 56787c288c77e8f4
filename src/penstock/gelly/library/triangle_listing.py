"""Lists the triangles of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import Any, ClassVar, Final, NamedTuple, Self

from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.checks import flag
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.library.triangles import by_id, permuted, triangles

#: All orders of three vertices.
ORDERS: Final = tuple(permutations((0, 1, 2), 3))
#: The text between two ids for the two bits of an edge.
ARROWS: Final = ("  ", "->", "<-", "<->")


class Triangle(NamedTuple):
    """Three vertices that are all neighbours.

    Attributes:
        vertex_id_0: the id of the first vertex.
        vertex_id_1: the id of the second vertex.
        vertex_id_2: the id of the third vertex.
    """

    vertex_id_0: Any
    vertex_id_1: Any
    vertex_id_2: Any

    def get_vertex_id_0(self) -> Any:
        """Return the id of the first vertex."""
        return self.vertex_id_0

    def get_vertex_id_1(self) -> Any:
        """Return the id of the second vertex."""
        return self.vertex_id_1

    def get_vertex_id_2(self) -> Any:
        """Return the id of the third vertex."""
        return self.vertex_id_2


class DirectedTriangle(NamedTuple):
    """Three vertices that are all neighbours, and the edges between them.

    Attributes:
        vertex_id_0: the id of the first vertex.
        vertex_id_1: the id of the second vertex.
        vertex_id_2: the id of the third vertex.
        bitmask: two bits for the first and second vertex (16 for the edge from the first to the second, 32 for the
            reverse), two for the first and third (4, 8), two for the second and third (1, 2).
    """

    vertex_id_0: Any
    vertex_id_1: Any
    vertex_id_2: Any
    bitmask: int

    def get_vertex_id_0(self) -> Any:
        """Return the id of the first vertex."""
        return self.vertex_id_0

    def get_vertex_id_1(self) -> Any:
        """Return the id of the second vertex."""
        return self.vertex_id_1

    def get_vertex_id_2(self) -> Any:
        """Return the id of the third vertex."""
        return self.vertex_id_2

    def get_bitmask(self) -> int:
        """Return which of the six possible edges exist: two bits for each pair of vertices."""
        return self.bitmask

    def to_printable_string(self) -> str:
        """Return the ids, with the edges between them as arrows."""
        first, second, third, mask = self
        arrows = [ARROWS[mask >> shift & 3] for shift in (4, 2, 0)]
        return f"{first}{arrows[0]}{second}, {first}{arrows[1]}{third}, {second}{arrows[2]}{third}"


class _TriangleListing(GraphAlgorithm[DataStream]):
    """The common base of the listings for directed and undirected graphs."""

    is_directed: ClassVar[bool]
    result: ClassVar[type[Any]]
    _sorts = False
    _permutes = False

    def set_sort_triangle_vertices(self, sort_triangle_vertices: bool) -> Self:
        """Set whether the ids of a triangle are in ascending order instead of any order (default: False)."""
        self._sorts = flag(self, "set_sort_triangle_vertices", sort_triangle_vertices)
        return self

    def set_permute_results(self, permute_results: bool) -> Self:
        """Set whether each triangle appears six times, once in each order of its vertices (default: False)."""
        self._permutes = flag(self, "set_permute_results", permute_results)
        return self

    def run(self, graph: Any) -> DataStream:
        """Return a stream of the triangles."""
        shape = _Shape(self.result, self._sorts, self._permutes)
        return triangles(graph.get_edges(), self.is_directed).flat_map(shape).name("Triangle Listing")


class UndirectedTriangleListing(_TriangleListing):
    """Lists the triangles of an undirected graph as (id, id, id), each once.

    The graph has each edge in both directions. Self-loops and duplicate edges form no triangles.
    """

    is_directed = False
    result = Triangle


class DirectedTriangleListing(_TriangleListing):
    """Lists the triangles of a directed graph, with edges in any direction, each once as (id, id, id, bit mask)."""

    is_directed = True
    result = DirectedTriangle


class TriangleEnumerator(GraphAlgorithm[DataStream]):
    """Lists the triangles of any graph as (id, id, id), each once, in ascending order, ignoring directions."""

    def run(self, graph: Any) -> DataStream:
        """Return a stream of the triangles."""
        shape = _Shape(Triangle, sorts=True, permutes=False)
        return triangles(graph.get_edges(), is_directed=True).flat_map(shape).name("Triangle Enumerator")


class _Shape:
    """Turns triangles into results, in the requested order or orders."""

    def __init__(self, result: type[Any], sorts: bool, permutes: bool) -> None:
        self._result = result
        self._sorts = sorts
        self._permutes = permutes
        self._fields = len(result._fields)

    def __call__(self, triangle: tuple[Any, Any, Any, int]) -> Iterable[Any]:
        return [self._result(*permutation[: self._fields]) for permutation in self._orders(triangle)]

    def _orders(self, triangle: tuple[Any, Any, Any, int]) -> Iterator[tuple[Any, Any, Any, int]]:
        if self._permutes:
            for order in ORDERS:
                yield permuted(triangle, order)
        else:
            yield by_id(triangle) if self._sorts else triangle
