"""The base of analytics. The result of the graph is computed once, on first request."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, Self, TypeVar

from penstock.base.errors import WrongTimeError
from penstock.gelly.base.algorithm import GraphAnalytic

T = TypeVar("T")


class Analytic(GraphAnalytic[T], Generic[T]):
    """An analytic that computes its result in one job."""

    _graph: Any = None
    _result: T | None = None

    def run(self, graph: Any) -> Self:
        """Set the graph, and return the analytic itself."""
        self.graph = self._graph = graph
        self._result = None
        return self

    def get_result(self) -> T:
        """Return the result. Runs a job if it has not been computed yet.

        Raises:
            RuntimeError: before `run`.
        """
        return self.execute() if self._result is None else self._result

    def execute(self, job_name: str | None = None) -> T:
        """Run the job and return the result.

        Raises:
            RuntimeError: before `run`.
        """
        if self._graph is None:
            raise WrongTimeError(f"{type(self).__name__} has no graph yet: call graph.run(analytic) first")
        self._result = self.compute(self._graph, job_name or type(self).__name__)
        return self._result

    @abstractmethod
    def compute(self, graph: Any, job_name: str) -> T:
        """Compute the result of a graph in a job of this name."""
