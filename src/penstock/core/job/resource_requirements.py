"""Bounds for the parallelism of each vertex, and the parallelism that the available slots allow (E3). Pure.

Vertices that a forward edge connects have the same parallelism: subtask i feeds subtask i. Each slot sharing group
first gets the slots that it needs at least; further slots go one by one to the group that has fewest and wants more. A
vertex gets as many subtasks as its groups have slots, up to its upper bound. Flink's adaptive scheduler works like
this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.base.configuration import Configuration
from penstock.base.errors import WrongValueError
from penstock.base.options import ADAPTIVE_MIN_PARALLELISM, SCHEDULER, SCHEDULER_MODE
from penstock.core.graph.job_graph import FORWARD, JobGraph, JobVertex


@dataclass(frozen=True, slots=True)
class Bounds:
    """The lowest and the highest parallelism of a vertex."""

    lower: int
    upper: int


class ResourceRequirements:
    """The bounds of all vertices of a job, and the slots and parallelisms that follow from them.

    Args:
        job_graph: the job, at any parallelism.
        bounds: by vertex index.
    """

    def __init__(self, job_graph: JobGraph, bounds: Mapping[int, Bounds]) -> None:
        self._job_graph = job_graph
        self._units = _connected_by_forward(job_graph)
        self._bounds: dict[int, Bounds] = {}
        for unit in self._units:
            lower, upper = max(bounds[v].lower for v in unit), min(bounds[v].upper for v in unit)
            self._bounds.update(dict.fromkeys(unit, Bounds(min(lower, upper), upper)))

    def __getitem__(self, vertex: int) -> Bounds:
        return self._bounds[vertex]

    @property
    def sufficient(self) -> int:
        """The minimum number of slots that the job can run with."""
        return sum(self._slots_of_groups(lower=True).values())

    @property
    def desired(self) -> int:
        """The maximum number of slots that the job can use."""
        return sum(self._slots_of_groups(lower=False).values())

    def parallelism(self, slots: int) -> dict[int, int] | None:
        """Return the parallelism of each vertex, by vertex index, with that many slots; None if they are too few."""
        if slots < self.sufficient:
            return None
        shares, limits = self._slots_of_groups(lower=True), self._slots_of_groups(lower=False)
        for _ in range(slots - sum(shares.values())):
            hungry = [group for group, share in shares.items() if share < limits[group]]
            if not hungry:
                break
            shares[min(hungry, key=shares.__getitem__)] += 1
        vertices = self._job_graph.vertices
        return {
            vertex: min(self._bounds[vertex].upper, *(shares[vertices[member].slot_sharing_group] for member in unit))
            for unit in self._units
            for vertex in unit
        }

    def with_parallelism(self, upper: Mapping[int, int], *, keeps_lower: bool) -> ResourceRequirements:
        """Return requirements with other parallelisms of some vertices, and of those tied to them by forward edges.

        `keeps_lower`: whether they are only upper bounds, so that the vertices may run at less.

        Raises:
            ValueError: if a parallelism is impossible, or if two vertices that a forward edge connects are to differ.
        """
        bounds = dict(self._bounds)
        for vertex, parallelism in upper.items():
            _check(self._job_graph.vertices[vertex], parallelism)
            for other in next(unit for unit in self._units if vertex in unit):
                if upper.get(other, parallelism) != parallelism:
                    name, peer = self._job_graph.vertices[vertex].name, self._job_graph.vertices[other].name
                    raise WrongValueError(
                        f"{name!r} is to have parallelism {parallelism} and {peer!r} {upper[other]}, but forward edges "
                        "connect them: give them one parallelism, or rebalance between them"
                    )
                _check(self._job_graph.vertices[other], parallelism)
                lower = min(self._bounds[other].lower, parallelism) if keeps_lower else parallelism
                bounds[other] = Bounds(lower, parallelism)
        return ResourceRequirements(self._job_graph, bounds)

    def _slots_of_groups(self, *, lower: bool) -> dict[str, int]:
        slots: dict[str, int] = {}
        for vertex in self._job_graph.vertices:
            bounds, group = self._bounds[vertex.index], vertex.slot_sharing_group
            slots[group] = max(slots.get(group, 0), bounds.lower if lower else bounds.upper)
        return slots


def _check(vertex: JobVertex, parallelism: int) -> None:
    if not 1 <= parallelism <= vertex.parallelism_max:
        raise WrongValueError(
            f"{vertex.name!r} can have a parallelism from 1 to {vertex.parallelism_max}, not {parallelism}"
        )


def compute_requirements(job_graph: JobGraph, configuration: Configuration) -> ResourceRequirements:
    """Return a job's requirements: as its program sets, less with the adaptive scheduler, any in reactive mode."""
    lowest = configuration.read(ADAPTIVE_MIN_PARALLELISM)

    def bounds(vertex: JobVertex) -> Bounds:
        upper = vertex.parallelism_max if is_reactive(configuration) else vertex.parallelism
        return Bounds(min(lowest, upper) if is_adaptive(configuration) else upper, upper)

    return ResourceRequirements(job_graph, {vertex.index: bounds(vertex) for vertex in job_graph.vertices})


def is_adaptive(configuration: Configuration) -> bool:
    """Return whether the job runs with fewer slots than it wants."""
    return configuration.read(SCHEDULER) == "adaptive" or is_reactive(configuration)


def is_reactive(configuration: Configuration) -> bool:
    """Return whether the job takes all available slots."""
    return configuration.read(SCHEDULER_MODE) is not None


def _connected_by_forward(job_graph: JobGraph) -> list[list[int]]:
    """Return the vertices, grouped where forward edges connect them, in order."""
    unit_of = {vertex.index: [vertex.index] for vertex in job_graph.vertices}
    for edge in job_graph.edges:
        group, other = unit_of[edge.source], unit_of[edge.target]
        if edge.partitioning == FORWARD and group is not other:
            group += other
            unit_of.update(dict.fromkeys(other, group))
    return [unit for vertex, unit in unit_of.items() if vertex == min(unit)]
