"""Each vertex with its neighbours, and each edge from the end of lower degree to the other one.

Directions, loops and repeated edges do not matter for who is a neighbour. In an undirected graph each edge is there
both ways, so its edges need not be turned round.

Why edges go from low to high degree: triangles are found by pairing the edges that leave a vertex. A vertex of high
degree has few that leave it then, at most the square root of twice the number of edges, so no vertex makes the
quadratic number of pairs of its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.streams import FIRST, of_groups

#: How an edge lies between two vertices: from the first to the second, back, or both ways.
FORWARD: Final = 1
REVERSE: Final = 2
MUTUAL: Final = 3
#: The same seen from the other vertex.
TURNED: Final = (0, REVERSE, FORWARD, MUTUAL)


class Neighbour(NamedTuple):
    """What a vertex is told about a neighbour.

    Attributes:
        id: the vertex itself.
        neighbour: the neighbour.
        degree: how many neighbours the neighbour has.
        mask: how the edge lies, from the vertex to the neighbour.
    """

    id: Any
    neighbour: Any
    degree: int
    mask: int


class Higher(NamedTuple):
    """A vertex with its neighbours of higher degree; those of equal degree are ordered by id.

    Attributes:
        id: the vertex.
        degree: how many neighbours it has.
        neighbours: those of higher degree, the lowest first, and how the edge to each lies.
    """

    id: Any
    degree: int
    neighbours: tuple[tuple[Any, int], ...]


def with_degrees(edges: DataStream, is_directed: bool) -> DataStream:
    """A `Neighbour` for each pair of vertex and neighbour."""
    masked = both_ways(edges) if is_directed else edges.map(_one_way).name("Neighbours")
    return of_groups(masked, FIRST, _tell_neighbours).name("Neighbours' Degrees")


def higher_neighbours(edges: DataStream, is_directed: bool) -> DataStream:
    """A `Higher` for each vertex that has a neighbour."""
    return of_groups(with_degrees(edges, is_directed), FIRST, _higher).name("Neighbours Of Higher Degree")


def both_ways(edges: DataStream) -> DataStream:
    """Each edge from both its ends: (id, other id, how it lies)."""
    return edges.flat_map(_both_ways).name("Both Ways")


def _one_way(edge: Any) -> tuple[Any, Any, int]:
    return edge[0], edge[1], MUTUAL


def _both_ways(edge: Any) -> list[tuple[Any, Any, int]]:
    return [(edge[0], edge[1], FORWARD), (edge[1], edge[0], REVERSE)]


def masks_of(ends: Iterable[tuple[Any, Any, int]]) -> dict[Any, int]:
    """The neighbours of a vertex, and how the edge to each lies."""
    masks: dict[Any, int] = {}
    for _, other, mask in ends:
        masks[other] = masks.get(other, 0) | mask
    return masks


def _tell_neighbours(_: Any, key: Any, ends: Iterable[Any]) -> Iterator[Neighbour]:
    masks = masks_of(ends)
    masks.pop(key, None)
    degree = len(masks)
    for other, mask in masks.items():
        yield Neighbour(other, key, degree, TURNED[mask])


def _higher(_: Any, key: Any, neighbours: Iterable[Neighbour]) -> list[Higher]:
    told = list(neighbours)
    own = (len(told), key)
    # Ids of equal degree alone are compared, so that those of one graph have to be comparable, and no others.
    higher = sorted((n.degree, n.neighbour, n.mask) for n in told if (n.degree, n.neighbour) > own)
    return [Higher(key, len(told), tuple((other, mask) for _, other, mask in higher))]
