"""Arguments of `Graph.run`: algorithms, which return a graph or a stream, and analytics, which return one result.

`Graph` belongs to a higher layer than this module, so it is `Any` here; implementations say `Graph`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class GraphAlgorithm(ABC, Generic[T]):
    """Transforms a graph into another graph or a stream of results."""

    @abstractmethod
    def run(self, graph: Any) -> T:
        """Return a stream of results, or a graph."""


class GraphAnalytic(ABC, Generic[T]):
    """Computes one result from a graph, which takes a job: `run` takes the graph, and `execute` runs the job."""

    graph: Any

    def run(self, graph: Any) -> Self:
        """Take the graph; return the analytic itself."""
        self.graph = graph
        return self

    @abstractmethod
    def get_result(self) -> T:
        """Return the result; its input is computed on the first call."""

    def execute(self, job_name: str | None = None) -> T:
        """Run the job and return the result."""
        return self.get_result()


class GraphValidator(ABC):
    """Checks whether a graph is valid."""

    @abstractmethod
    def validate(self, graph: Any) -> bool:
        """Return whether the graph is valid; runs a job."""


def run_algorithm(algorithm: Any, graph: Any) -> Any:
    """Return the result of `run(graph)` of an algorithm or an analytic."""
    return algorithm.run(graph)
