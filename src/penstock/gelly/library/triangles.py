"""All triangles of a graph, each once, with the directions of its edges.

The middle vertex of a triangle, in the order of degrees and ids, finds the triangle: the lowest vertex sends each
higher neighbour the neighbours above it, and the middle vertex knows which of these are its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.neighbours import TURNED, Higher, higher_neighbours
from penstock.gelly.base.streams import FIRST, co_grouped

#: The bit positions of the three pairs of a triangle's vertices: first and second, first and third, last two.
PAIRS = {(0, 1): 4, (0, 2): 2, (1, 2): 0}


def triangles(edges: DataStream, is_directed: bool) -> DataStream:
    """Return each triangle once, as (lowest degree, one, other, bit mask), with the last two ordered by id."""
    higher = higher_neighbours(edges, is_directed)
    pairs = higher.flat_map(_tell_higher).name("Pairs Of Neighbours")
    return co_grouped(pairs, higher, (FIRST, FIRST), _closed).name("Triangles")


def _tell_higher(vertex: Higher) -> Iterator[tuple[Any, Any, int, tuple[tuple[Any, int], ...]]]:
    """Yield for each neighbour except the highest: the vertex, their edge's directions, and the neighbours above."""
    neighbours = vertex.neighbours
    for position in range(len(neighbours) - 1):
        other, mask = neighbours[position]
        yield other, vertex.id, mask, neighbours[position + 1 :]


def _closed(_: Any, pairs: Iterable[Any], middles: Iterable[Higher]) -> Iterator[tuple[Any, Any, Any, int]]:
    for middle in middles:
        own = dict(middle.neighbours)
        for _, lowest, mask, neighbours in pairs:
            masks = dict(neighbours)
            for highest in own.keys() & masks.keys():
                yield _triangle(lowest, middle.id, highest, mask, masks[highest], own[highest])


def _triangle(lowest: Any, middle: Any, highest: Any, to_middle: int, to_highest: int, between: int) -> Any:
    """Return the triangle with its last two vertices in the order of their ids."""
    if middle < highest:
        return lowest, middle, highest, to_middle << 4 | to_highest << 2 | between
    return lowest, highest, middle, to_highest << 4 | to_middle << 2 | TURNED[between]


def permuted(triangle: tuple[Any, Any, Any, int], order: Sequence[int]) -> tuple[Any, Any, Any, int]:
    """Return the same triangle with another order of its vertices: the positions of the new first, second, third."""
    mask = triangle[3]
    turned = 0
    for (low, high), shift in PAIRS.items():
        first, second = order[low], order[high]
        if first < second:
            turned |= (mask >> PAIRS[first, second] & 3) << shift
        else:
            turned |= TURNED[mask >> PAIRS[second, first] & 3] << shift
    return triangle[order[0]], triangle[order[1]], triangle[order[2]], turned


def by_id(triangle: tuple[Any, Any, Any, int]) -> tuple[Any, Any, Any, int]:
    """Return the triangle with its ids in ascending order. The last two already are."""
    first, second, third, _ = triangle
    if first < second:
        return triangle
    return permuted(triangle, (1, 0, 2) if first < third else (1, 2, 0))
