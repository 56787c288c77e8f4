"""Finds the neighbours of each vertex, and directs each edge from its end of lower degree to the other.

Directions, loops and repeated edges do not affect who is a neighbour. An undirected graph has each edge in both
directions, so its edges need not be reversed.

Edges go from low to high degree because triangles are found by pairing the edges that leave a vertex. A vertex of high
degree then has few outgoing edges, at most the square root of twice the number of edges, so no vertex produces a
quadratic number of pairs of its neighbours.

Partial aggregates within a subtask, so that few records leave it: counts, sums and maxima of its input.

An operator passes each batch to a `Partial`, and emits the contents when they have grown, and before every checkpoint
and watermark. So it has no state, its records are never late, and the reader merges the partial aggregates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.streams import FIRST, of_groups
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Batch

#: Direction of an edge between two vertices: from the first to the second, back, or both ways.
FORWARD: Final = 1
REVERSE: Final = 2
MUTUAL: Final = 3
#: The same direction seen from the other vertex.
TURNED: Final = (0, REVERSE, FORWARD, MUTUAL)


class Neighbour(NamedTuple):
    """A neighbour of a vertex.

    Attributes:
        id: the vertex itself.
        neighbour: the neighbour.
        degree: how many neighbours the neighbour has.
        mask: the direction of the edge, from the vertex to the neighbour.
    """

    id: Any
    neighbour: Any
    degree: int
    mask: int


class Higher(NamedTuple):
    """A vertex with its neighbours of higher degree; equal degrees are ordered by id.

    Attributes:
        id: the vertex.
        degree: how many neighbours it has.
        neighbours: the neighbours of higher degree, lowest first, and the direction of the edge to each.
    """

    id: Any
    degree: int
    neighbours: tuple[tuple[Any, int], ...]


def with_degrees(edges: DataStream, is_directed: bool) -> DataStream:
    """Return a `Neighbour` for each pair of vertex and neighbour."""
    masked = both_ways(edges) if is_directed else edges.map(_one_way).name("Neighbours")
    return of_groups(masked, FIRST, _tell_neighbours).name("Neighbours' Degrees")


def higher_neighbours(edges: DataStream, is_directed: bool) -> DataStream:
    """Return a `Higher` for each vertex that has a neighbour."""
    return of_groups(with_degrees(edges, is_directed), FIRST, _higher).name("Neighbours Of Higher Degree")


def both_ways(edges: DataStream) -> DataStream:
    """Return each edge from both its ends: (id, other id, direction)."""
    return edges.flat_map(_both_ways).name("Both Ways")


def _one_way(edge: Any) -> tuple[Any, Any, int]:
    return edge[0], edge[1], MUTUAL


def _both_ways(edge: Any) -> list[tuple[Any, Any, int]]:
    return [(edge[0], edge[1], FORWARD), (edge[1], edge[0], REVERSE)]


def combine_masks(ends: Iterable[tuple[Any, Any, int]]) -> dict[Any, int]:
    """Return the neighbours of a vertex, and the direction of the edge to each."""
    masks: dict[Any, int] = {}
    for _, other, mask in ends:
        masks[other] = masks.get(other, 0) | mask
    return masks


def _tell_neighbours(_: Any, key: Any, ends: Iterable[Any]) -> Iterator[Neighbour]:
    masks = combine_masks(ends)
    masks.pop(key, None)
    degree = len(masks)
    for other, mask in masks.items():
        yield Neighbour(other, key, degree, TURNED[mask])


def _higher(_: Any, key: Any, neighbours: Iterable[Neighbour]) -> list[Higher]:
    neighbour_list = list(neighbours)
    own = (len(neighbour_list), key)
    # Ids are compared only if the degrees are equal, so only the ids of one graph must be comparable with each other.
    higher = sorted((n.degree, n.neighbour, n.mask) for n in neighbour_list if (n.degree, n.neighbour) > own)
    return [Higher(key, len(neighbour_list), tuple((other, mask) for _, other, mask in higher))]


#: Maximum number of entries in a partial aggregate before it is emitted.
ENTRIES_MAX: Final = 65_536


class Partial(ABC):
    """An aggregate of one subtask's records so far."""

    @abstractmethod
    def add(self, records: Sequence[Any]) -> None:
        """Add a batch of records."""

    @abstractmethod
    def take(self) -> list[Any]:
        """Return the contents as records, and clear them."""

    def size(self) -> int:
        """Return the number of entries; 1 for an aggregate of constant size."""
        return 1


class Counts(Partial):
    """Counts how often each key occurs; its records are (key, count).

    Args:
        keys_of: returns the keys of a batch of records.
    """

    def __init__(self, keys_of: Callable[[Sequence[Any]], Iterable[Any]]) -> None:
        self._keys_of = keys_of
        self._counts: Counter[Any] = Counter()

    def add(self, records: Sequence[Any]) -> None:
        self._counts.update(self._keys_of(records))

    def take(self) -> list[Any]:
        counts = list(self._counts.items())
        self._counts.clear()
        return counts

    def size(self) -> int:
        return len(self._counts)


class Weights(Counts):
    """Sums the weights of each key, from records that represent several (key, weight)."""

    def add(self, records: Sequence[Any]) -> None:
        counts = self._counts
        for key, weight in self._keys_of(records):
            counts[key] += weight


class PartialsOperator(StreamOperator):
    """Passes records to a `Partial`, and emits its contents."""

    def __init__(self, make: Callable[[], Partial]) -> None:
        self._partial = make()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self._partial.add(batch.values)
        if self._partial.size() > ENTRIES_MAX:
            self._emit()

    def process_watermark(self, timestamp: int) -> None:
        self._emit()
        super().process_watermark(timestamp)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._emit()

    def end_input(self, input_index: int = 0) -> None:
        self._emit()

    def _emit(self) -> None:
        records = self._partial.take()
        if records:
            self.output.collect(Batch(records))


def partials(stream: DataStream, make: Callable[[], Partial], name: str) -> DataStream:
    """Return the partial aggregates of a stream's records, a few for each subtask."""
    return stream._add(name, partial(PartialsOperator, make)).name(name)
