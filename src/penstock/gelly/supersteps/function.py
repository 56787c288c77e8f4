"""The base of user-defined functions for supersteps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.base.aggregators import Aggregator
from penstock.base.errors import UnknownNameError, WrongTimeError
from penstock.datastream.function import Function
from penstock.gelly.supersteps.aggregates import Aggregates


@dataclass
class SuperstepView:
    """A function's view of its superstep. `broadcast` holds its broadcast sets by name."""

    aggregates: Aggregates
    broadcast: Mapping[str, list[Any]] = field(default_factory=dict)
    number: int = 0
    number_of_vertices: int = -1


class SuperstepFunction(Function):
    """Knows its superstep, aggregators and broadcast sets.

    `open` and `close` are called once, around all supersteps. A subtask has one object of the function, which may keep
    data from one superstep to the next.
    """

    _view: SuperstepView | None = None

    def pre_superstep(self) -> None:
        """Run before a superstep's first vertex, in every subtask."""

    def post_superstep(self) -> None:
        """Run after a superstep's last vertex, in every subtask."""

    def get_superstep_number(self) -> int:
        """Return the number of the superstep, from 1."""
        return self._superstep.number

    def get_iteration_aggregator(self, name: str) -> Aggregator[Any]:
        """Return this subtask's copy of an aggregator, empty at the start of the superstep.

        Raises:
            KeyError: if the name is not registered.
        """
        return self._superstep.aggregates.aggregator(name)

    def get_previous_iteration_aggregate(self, name: str) -> Any:
        """Return an aggregate of the previous superstep, over all subtasks; None in the first superstep.

        Raises:
            KeyError: if the name is not registered.
        """
        return self._superstep.aggregates.previous(name)

    def get_broadcast_set(self, name: str) -> list[Any]:
        """Return all records of a broadcast stream.

        Raises:
            KeyError: if the iteration's configuration has no broadcast set of that name for this function.
        """
        sets = self._superstep.broadcast
        if name not in sets:
            known = ", ".join(map(repr, sets)) or "none"
            raise UnknownNameError(f"this function has no broadcast set {name!r}; it has: {known}")
        return sets[name]

    def get_number_of_vertices(self) -> int:
        """Return the number of vertices, or -1 unless the configuration requests it (`set_opt_num_vertices`)."""
        return self._superstep.number_of_vertices

    def _begin(self, view: SuperstepView) -> None:
        self._view = view

    @property
    def _superstep(self) -> SuperstepView:
        if self._view is None:
            raise WrongTimeError("a function knows of its superstep only while an iteration runs it")
        return self._view
