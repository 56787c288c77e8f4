"""Settings of an iteration over the vertices of a graph."""

from __future__ import annotations

from typing import Any, Self

from penstock.base.aggregators import Aggregator
from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.elements import EdgeDirection
from penstock.gelly.base.streams import check_stream


class IterationConfiguration:
    """What all kinds of iterations have."""

    #: What broadcast sets may be for.
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
        """What plans, logs and errors call the iteration."""
        self.name = name
        return self

    def get_name(self, default_name: str) -> str:
        """Its name, or this one if none is set."""
        return self.name or default_name

    def set_parallelism(self, parallelism: int) -> Self:
        """In how many partitions the graph lies; by default the environment's parallelism.

        Raises:
            ValueError: for less than 1.
        """
        if parallelism < 1:
            raise WrongValueError(f"the parallelism must be 1 or more, not {parallelism}")
        self.parallelism = parallelism
        return self

    def get_parallelism(self) -> int:
        """The parallelism; -1 if none is set."""
        return -1 if self.parallelism is None else self.parallelism

    def register_aggregator(self, name: str, aggregator: Aggregator[Any]) -> Self:
        """Let the functions use an aggregator.

        Raises:
            ValueError: if there is one of that name.
        """
        if not isinstance(aggregator, Aggregator):
            raise WrongTypeError(f"{aggregator!r} is not an Aggregator; see penstock.common.aggregators")
        if name in self.aggregators:
            raise WrongValueError(f"the iteration already has an aggregator {name!r}")
        self.aggregators[name] = aggregator
        return self

    def get_aggregators(self) -> dict[str, Aggregator[Any]]:
        """The aggregators by name."""
        return dict(self.aggregators)

    def set_opt_num_vertices(self, opt_num_vertices: bool) -> Self:
        """Let `get_number_of_vertices` of the functions say how many vertices there are; otherwise it is -1."""
        self.wants_number_of_vertices = opt_num_vertices
        return self

    def is_opt_num_vertices(self) -> bool:
        """Whether it does."""
        return self.wants_number_of_vertices

    def _broadcast(self, function: str, name: str, data: DataStream) -> Self:
        if (function, name) in self.broadcast:
            raise WrongValueError(f"the {function} function already has a broadcast set {name!r}")
        self.broadcast[function, name] = check_stream(data, f"broadcast set {name!r}")
        return self


class WithDirection(IterationConfiguration):
    """Settings of an iteration that may follow edges either way."""

    def set_direction(self, direction: EdgeDirection) -> Self:
        """Which edges of a vertex messages go along: those that leave it (the default), those that lead to it, or all.

        Raises:
            TypeError: if it is no `EdgeDirection`.
        """
        if not isinstance(direction, EdgeDirection):
            raise WrongTypeError(f"the direction must be EdgeDirection.IN, OUT or ALL, not {direction!r}")
        self.direction = direction
        return self

    def get_direction(self) -> EdgeDirection:
        """Which edges of a vertex messages go along."""
        return self.direction
