"""Settings of an iteration over the vertices of a graph."""

from __future__ import annotations

from typing import Any, Self

from penstock.base.aggregators import Aggregator
from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.elements import EdgeDirection
from penstock.gelly.base.streams import check_stream


class IterationConfiguration:
    """The settings common to all kinds of iterations."""

    #: The functions that may have broadcast sets.
    functions: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.name: str | None = None
        self.parallelism: int | None = None
        self.aggregators: dict[str, Aggregator[Any]] = {}
        self.direction = EdgeDirection.OUT
        self.wants_degrees = False
        self.wants_number_of_vertices = False
        #: (function, name) -> stream
        self.broadcast: dict[tuple[str, str], DataStream] = {}

    def set_name(self, name: str) -> Self:
        """Set the name of the iteration in plans, logs and errors."""
        self.name = name
        return self

    def get_name(self, default_name: str) -> str:
        """Return the name, or `default_name` if it is unset."""
        return self.name or default_name

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of partitions of the graph (default: the environment's parallelism).

        Raises:
            ValueError: if it is less than 1.
        """
        if parallelism < 1:
            raise WrongValueError(f"the parallelism must be 1 or more, not {parallelism}")
        self.parallelism = parallelism
        return self

    def get_parallelism(self) -> int:
        """Return the parallelism, or -1 if it is unset."""
        return -1 if self.parallelism is None else self.parallelism

    def register_aggregator(self, name: str, aggregator: Aggregator[Any]) -> Self:
        """Register an aggregator for the functions.

        Raises:
            ValueError: if the name is already registered.
        """
        if not isinstance(aggregator, Aggregator):
            raise WrongTypeError(f"{aggregator!r} is not an Aggregator; see penstock.common.aggregators")
        if name in self.aggregators:
            raise WrongValueError(f"the iteration already has an aggregator {name!r}")
        self.aggregators[name] = aggregator
        return self

    def get_aggregators(self) -> dict[str, Aggregator[Any]]:
        """Return the aggregators by name."""
        return dict(self.aggregators)

    def set_opt_num_vertices(self, opt_num_vertices: bool) -> Self:
        """Set whether `get_number_of_vertices` of the functions returns the number of vertices, not -1."""
        self.wants_number_of_vertices = opt_num_vertices
        return self

    def is_opt_num_vertices(self) -> bool:
        """Return whether `get_number_of_vertices` of the functions returns the number of vertices."""
        return self.wants_number_of_vertices

    def _broadcast(self, function: str, name: str, data: DataStream) -> Self:
        if (function, name) in self.broadcast:
            raise WrongValueError(f"the {function} function already has a broadcast set {name!r}")
        self.broadcast[function, name] = check_stream(data, f"broadcast set {name!r}")
        return self


class WithDirection(IterationConfiguration):
    """Settings of an iteration that may follow edges in either direction."""

    def set_direction(self, direction: EdgeDirection) -> Self:
        """Set the edges of a vertex that messages follow: outgoing (the default), incoming, or all.

        Raises:
            TypeError: if it is not an `EdgeDirection`.
        """
        if not isinstance(direction, EdgeDirection):
            raise WrongTypeError(f"the direction must be EdgeDirection.IN, OUT or ALL, not {direction!r}")
        self.direction = direction
        return self

    def get_direction(self) -> EdgeDirection:
        """Return the edges of a vertex that messages follow."""
        return self.direction
