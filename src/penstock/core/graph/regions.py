"""The parts of a job that can restart alone: its failover regions (E6, G8). Pure.

Subtasks that exchange records depend on each other: when one restarts from a checkpoint, its producers have to send
again, and its consumers have to forget. So a region contains all subtasks that channels connect. No record passes
between regions, and each region may have advanced differently since the last checkpoint.

Readers of one source share its split enumerator. A reader that restarts alone is assigned its splits again. If a source
does not support that (`Source.restarts_by_reader`), all of its readers are in one region.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from penstock.core.graph.job_graph import JobGraph

#: The index of a vertex, and the index of one of its subtasks.
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

        def join(subtask: Subtask, other: Subtask) -> None:
            parents[root(subtask)] = root(other)

        for vertex in job_graph.vertices:
            if not all(source.restarts_by_reader for source in vertex.sources.values()):
                for reader in range(1, vertex.parallelism):
                    join((vertex.index, reader), (vertex.index, 0))
        for edge in job_graph.edges:
            for consumer in range(job_graph.vertices[edge.target].parallelism):
                producers = job_graph.producers(edge, consumer)
                # If each consumer reads from all producers, one consumer is enough to connect them.
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
        """Return the region of a subtask."""
        return self._regions[subtask]

    def of(self, subtasks: Iterable[Subtask]) -> frozenset[Subtask]:
        """Return all subtasks of the regions that contain these subtasks."""
        return frozenset[Subtask]().union(*(self._regions[subtask] for subtask in subtasks))
