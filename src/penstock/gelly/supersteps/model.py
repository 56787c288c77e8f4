"""What a kind of iteration does in a superstep, for the operator that runs it."""

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
    """One subtask's functions and what they work on. A superstep sends messages, then takes those in that came.

    Attributes:
        name: what plans call the iteration.
        functions: the users' functions, by what configurations call them.
        settles: whether taking messages in is part of the superstep that sent them; if not, of the next one.
    """

    name: str
    operator_name: str = ""
    functions: Mapping[str, SuperstepFunction]
    settles = True

    def set_up(self, partition: Partition, direction: EdgeDirection) -> None:
        """The partition is complete."""
        self.partition = partition
        self.direction = direction
        self.outboxes = Outboxes(partition.partitions)
        #: the numbers of the vertices that the next superstep is about
        self.active: list[int] = list(range(len(partition)))

    def open(self, runtime_context: RuntimeContext, aggregates: Aggregates, broadcast: Mapping[Any, list[Any]]) -> None:
        """Open the functions; each has a view of its own."""
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
        """A superstep begins."""
        for kind, function in self.functions.items():
            view = self._views[kind]
            view.number, view.number_of_vertices = number, number_of_vertices
            function._begin(view)

    @abstractmethod
    def send(self) -> list[Box | None]:
        """Let the active vertices send; returns messages for each partition."""

    @abstractmethod
    def receive(self, boxes: list[Box | None]) -> None:
        """Take messages in, and find out which vertices are active next."""


def each(
    function: Callable[[Any], None], things: Iterable[Any], operator_name: str, record_of: Callable[[Any], Any]
) -> None:
    """Call a function with each thing; what it raises names the operator and the record that the thing stands for."""
    for thing in things:
        try:
            function(thing)
        except Exception as error:
            raise UserCodeError(operator_name, record_of(thing)) from error
