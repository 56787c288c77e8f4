"""The superstep of a kind of iteration, for the operator that runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.core.operators.base import UserCodeError
from penstock.core.operators.runtime_context import RuntimeContext
from penstock.gelly.base.elements import EdgeDirection
from penstock.gelly.supersteps.aggregates import Aggregates
from penstock.gelly.supersteps.function import SuperstepFunction, SuperstepView
from penstock.gelly.supersteps.partition import Box, Outboxes, Partition

Combine = Callable[[list[Any]], list[Any]]


class Model(ABC):
    """One subtask's functions and their data. A superstep sends messages, then processes the messages that arrive.

    Attributes:
        name: the name of the iteration in plans.
        functions: the user-defined functions, by their names in configurations.
        settles: whether processing messages belongs to the superstep that sent them; if not, to the next one.
    """

    name: str
    operator_name: str = ""
    functions: Mapping[str, SuperstepFunction]
    settles = True

    def set_up(self, partition: Partition, direction: EdgeDirection) -> None:
        """Set up the model with a complete partition."""
        self.partition = partition
        self.direction = direction
        self.outboxes = Outboxes(partition.partitions)
        #: the numbers of the vertices that are active in the next superstep
        self.active: list[int] = list(range(len(partition)))

    def open(self, runtime_context: RuntimeContext, aggregates: Aggregates, broadcast: Mapping[Any, list[Any]]) -> None:
        """Open the functions, each with its own view."""
        self._views = {
            kind: SuperstepView(aggregates, {name: data for (of, name), data in broadcast.items() if of == kind})
            for kind in self.functions
        }
        for function in self.functions.values():
            function.open(runtime_context)

    def close(self) -> None:
        """Close the functions."""
        for function in self.functions.values():
            function.close()

    def begin(self, number: int, number_of_vertices: int) -> None:
        """Begin a superstep."""
        for kind, function in self.functions.items():
            view = self._views[kind]
            view.number, view.number_of_vertices = number, number_of_vertices
            function._begin(view)

    @abstractmethod
    def send(self) -> list[Box | None]:
        """Let the active vertices send. Returns the messages for each partition."""

    @abstractmethod
    def receive(self, boxes: list[Box | None]) -> None:
        """Process messages, and find the vertices that are active next."""


def each(
    function: Callable[[Any], None], things: Iterable[Any], operator_name: str, record_of: Callable[[Any], Any]
) -> None:
    """Call a function with each item. An exception names the operator and the item's record."""
    for thing in things:
        try:
            function(thing)
        except Exception as error:
            raise UserCodeError(operator_name, record_of(thing)) from error
