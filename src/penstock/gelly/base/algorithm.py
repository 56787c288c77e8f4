"""What `Graph.run` takes: algorithms, which give a graph or a stream, and analytics, which give one result.

`Graph` itself is above this module, so it is `Any` here; implementations say `Graph`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class GraphAlgorithm(ABC, Generic[T]):
    """Turns a graph into something that a program goes on with."""

    @abstractmethod
    def run(self, graph: Any) -> T:
        """A stream of results, or a graph."""


class GraphAnalytic(ABC, Generic[T]):
    """Turns a graph into one result, which needs a job: `run` takes the graph in, and `execute` runs the job."""

    graph: Any

    def run(self, graph: Any) -> Self:
        """Take the graph in; returns the analytic itself."""
        self.graph = graph
        return self

    @abstractmethod
    def get_result(self) -> T:
        """The result; what it needs is computed when it is first asked for."""

    def execute(self, job_name: str | None = None) -> T:
        """Run the job and return the result."""
        return self.get_result()


class GraphValidator(ABC):
    """Says whether a graph is as it should be."""

    @abstractmethod
    def validate(self, graph: Any) -> bool:
        """Whether it is; runs a job."""


def result_of(algorithm: Any, graph: Any) -> Any:
    """What `run(graph)` of an algorithm or an analytic gives."""
    return algorithm.run(graph)
