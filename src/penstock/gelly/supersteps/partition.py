"""The vertices of one partition with their edges, as functions see them, and the messages between partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from penstock.core.columns.batch import ColumnBatch
from penstock.core.records import Batch
from penstock.gelly.base.elements import Edge, Vertex
from penstock.gelly.base.owners import Owners

#: Messages by the id of their target vertex.
Box = dict[Any, list[Any]]


class Partition:
    """Vertices, numbered in the order of their arrival."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.index: dict[Any, int] = {}
        self.ids: list[Any] = []
        self.values: list[Any] = []
        self._by_source: dict[Any, list[Edge]] = {}
        self._by_target: dict[Any, list[Edge]] = {}
        #: the edges of each vertex, set by `seal`
        self.out_edges: list[list[Edge]] = []
        self.in_edges: list[list[Edge]] = []

    def __len__(self) -> int:
        return len(self.ids)

    def add_vertices(self, batch: Batch) -> None:
        """Add vertices. If an id has several, the last one counts."""
        for vertex_id, value in to_records(batch):
            position = self.index.setdefault(vertex_id, len(self.ids))
            if position == len(self.ids):
                self.ids.append(vertex_id)
                self.values.append(value)
            else:
                self.values[position] = value

    def add_edges(self, batch: Batch, end: int) -> None:
        """Add edges to the vertices at their source (0) or target (1)."""
        edges = self._by_target if end else self._by_source
        for record in to_records(batch):
            edges.setdefault(record[end], []).append(Edge(*record))

    def seal(self) -> None:
        """Complete the partition at the end of the input."""
        self.out_edges = [self._by_source.get(vertex_id, []) for vertex_id in self.ids]
        self.in_edges = [self._by_target.get(vertex_id, []) for vertex_id in self.ids]
        self._by_source, self._by_target = {}, {}

    def vertex(self, position: int) -> Vertex:
        """Return the vertex of this number."""
        return Vertex(self.ids[position], self.values[position])


def to_records(batch: Batch) -> Iterable[Any]:
    """Return the records of a batch as plain tuples."""
    if isinstance(batch, ColumnBatch):
        return zip(*(column.to_pylist() for column in batch.columns.columns), strict=True)
    return batch.values


class Outboxes:
    """Messages for the vertices of all partitions."""

    def __init__(self, partitions: int) -> None:
        self._owners = Owners(partitions)
        self._partitions = partitions
        self._boxes: list[Box] = []
        self.begin()

    def begin(self) -> None:
        """Empty the boxes."""
        self._boxes = [defaultdict(list) for _ in range(self._partitions)]

    def send(self, target: Any, message: Any) -> None:
        """Put a message into the box of the target's partition."""
        self._boxes[self._owners[target]][target].append(message)

    def take(self, combine: Callable[[list[Any]], list[Any]] | None) -> list[Box | None]:
        """Return the boxes, with the messages of each vertex combined, and None for empty boxes."""
        boxes: list[Box | None] = []
        for box in self._boxes:
            if combine is not None:
                boxes.append({target: combine(messages) for target, messages in box.items()} or None)
            else:
                boxes.append(dict(box) or None)
        self.begin()
        return boxes


def merged(boxes: Iterable[Box | None], combine: Callable[[list[Any]], list[Any]] | None) -> Box:
    """Return the messages from all partitions for this one. Messages to the same vertex are combined."""
    inbox: Box = {}
    for box in boxes:
        for target, messages in (box or {}).items():
            if target in inbox:
                both = inbox[target] + messages
                inbox[target] = both if combine is None else combine(both)
            else:
                inbox[target] = messages
    return inbox


def count_messages(boxes: Iterable[Box | None]) -> int:
    """Return the number of messages."""
    return sum(sum(map(len, box.values())) for box in boxes if box)
