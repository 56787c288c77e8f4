"""Which parts of a job can restart alone: its failover regions (E6, G8). Pure.

Subtasks that exchange records depend on each other: when one begins again from a checkpoint, those that it reads from
have to send again, and those that read from it have to forget. So a region is all that is connected by channels. No
record passes between regions, and each of them may be at another distance from the last checkpoint.

Readers of one source share its split enumerator. A reader that begins again alone is handed splits anew. If a source
cannot do that (`Source.restarts_by_reader`), all of its readers are in one region.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from penstock.core.graph.job_graph import JobGraph

#: A vertex by its index, and the index of one of its subtasks.
Subtask: TypeAlias = tuple[int, int]


class Regions:
    """The regions of a job."""

    def __init__(self, job_graph: JobGraph) -> None:
        parents = {(v.index, i): (v.index, i) for v in job_graph.vertices for i in range(v.parallelism)}

        def root(subtask: Subtask) -> Subtask:
            while parents[subtask] != subtask:
                parents[subtask] = parents[parents[subtask]]
                subtask = parents[subtask]
            return subtask

        def join(one: Subtask, other: Subtask) -> None:
            parents[root(one)] = root(other)

        for vertex in job_graph.vertices:
            if not all(source.restarts_by_reader for source in vertex.sources.values()):
                for reader in range(1, vertex.parallelism):
                    join((vertex.index, reader), (vertex.index, 0))
        for edge in job_graph.edges:
            for consumer in range(job_graph.vertices[edge.target].parallelism):
                producers = job_graph.producers(edge, consumer)
                # Where each reads from all, one of the consumers connects all producers.
                for producer in producers if edge.is_pointwise or consumer == 0 else producers[:1]:
                    join((edge.source, producer), (edge.target, consumer))

        members: dict[Subtask, list[Subtask]] = {}
        for subtask in parents:
            members.setdefault(root(subtask), []).append(subtask)
        self._regions = {subtask: region for region in map(frozenset, members.values()) for subtask in region}
        self._count = len(members)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, subtask: Subtask) -> frozenset[Subtask]:
        """The region of a subtask."""
        return self._regions[subtask]

    def of(self, subtasks: Iterable[Subtask]) -> frozenset[Subtask]:
        """All subtasks of the regions that these are in."""
        return frozenset[Subtask]().union(*(self._regions[subtask] for subtask in subtasks))
