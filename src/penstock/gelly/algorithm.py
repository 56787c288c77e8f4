"""What `Graph.run` takes: algorithms, which give a graph or a stream, and analytics, which give one result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from penstock.gelly.graph import Graph

T = TypeVar("T")


class GraphAlgorithm(ABC, Generic[T]):
    """Turns a graph into something that a program goes on with."""

    @abstractmethod
    def run(self, graph: Graph) -> T:
        """A stream of results, or a graph."""


class GraphAnalytic(ABC, Generic[T]):
    """Turns a graph into one result, which needs a job: `run` takes the graph in, and `execute` runs the job."""

    graph: Graph

    def run(self, graph: Graph) -> Self:
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
    def validate(self, graph: Graph) -> bool:
        """Whether it is; runs a job."""


def result_of(algorithm: Any, graph: Graph) -> Any:
    """What `run(graph)` of an algorithm or an analytic gives."""
    return algorithm.run(graph)
