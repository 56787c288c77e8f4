"""Pairs of vertices that share neighbours.

Each vertex notifies its neighbours of each other: of two neighbours, the one with the smaller id receives the other.
Everything that a vertex receives is collected there. A vertex of high degree has many neighbours to notify, so its list
is cut into groups for several subtasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.neighbours import with_degrees
from penstock.gelly.base.streams import FIRST, of_groups

GROUP_SIZE: Final = 64


class Learnt(NamedTuple):
    """The information that a vertex receives from a neighbour.

    Attributes:
        id: the vertex.
        degree: the number of neighbours of the vertex.
        shared_degree: the number of neighbours of the neighbour.
        others: the neighbour's neighbours with larger ids than the vertex, in ascending order.
        degrees: the degrees of the others.
    """

    id: Any
    degree: int
    shared_degree: int
    others: tuple[Any, ...]
    degrees: tuple[int, ...]


def pairs(
    edges: DataStream, group_size: int, make: Callable[[Any, int, list[Learnt]], Iterable[Any]], name: str
) -> DataStream:
    """Return the results of `make(id, degree, learnt)` for each vertex of an undirected graph that received something.

    `learnt` is ordered by the degree of the neighbour that sent it.
    """
    groups = of_groups(with_degrees(edges, is_directed=False), FIRST, partial(_groups, group_size))
    learnt = groups.name("Groups Of Neighbours").rebalance().flat_map(_tell).name("Neighbours Of Neighbours")
    return of_groups(learnt, FIRST, partial(_results, make)).name(name)


def _groups(group_size: int, _: Any, key: Any, neighbours: Iterable[Any]) -> Iterator[Any]:
    """Yield for each group the number of neighbours, the ids and degrees from the group on, and the group's length."""
    pairs = sorted((n.neighbour, n.degree) for n in neighbours)
    ids = tuple(vertex_id for vertex_id, _ in pairs)
    degrees = tuple(degree for _, degree in pairs)
    for start in range(0, len(pairs) - 1, group_size):
        yield len(pairs), ids[start:], degrees[start:], group_size


def _tell(group: tuple[int, tuple[Any, ...], tuple[int, ...], int]) -> Iterator[Learnt]:
    shared_degree, ids, degrees, group_size = group
    for index in range(min(group_size, len(ids) - 1)):
        yield Learnt(ids[index], degrees[index], shared_degree, ids[index + 1 :], degrees[index + 1 :])


def _results(make: Callable[[Any, int, list[Learnt]], Iterable[Any]], _: Any, key: Any, learnt: Iterable[Any]) -> Any:
    records = sorted(learnt, key=_shared_degree)
    return make(key, records[0].degree, records)


def _shared_degree(learnt: Learnt) -> int:
    return learnt.shared_degree
