"""The base of the functions that users write for supersteps."""

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
    """What a function knows of the superstep that it is part of. `broadcast`: its broadcast sets by name."""

    aggregates: Aggregates
    broadcast: Mapping[str, list[Any]] = field(default_factory=dict)
    number: int = 0
    number_of_vertices: int = -1


class SuperstepFunction(Function):
    """Knows its superstep, aggregators and broadcast sets. `open` and `close` are called once, around all supersteps.

    A subtask has one object of the function, which may keep what it likes from one superstep to the next.
    """

    _view: SuperstepView | None = None

    def pre_superstep(self) -> None:
        """Called in every subtask before a superstep's first vertex."""

    def post_superstep(self) -> None:
        """Called in every subtask after a superstep's last vertex."""

    def get_superstep_number(self) -> int:
        """The number of the superstep, from 1."""
        return self._superstep.number

    def get_iteration_aggregator(self, name: str) -> Aggregator[Any]:
        """This subtask's copy of an aggregator, empty as the superstep begins.

        Raises:
            KeyError: if none of that name is registered.
        """
        return self._superstep.aggregates.aggregator(name)

    def get_previous_iteration_aggregate(self, name: str) -> Any:
        """What an aggregator came to in the superstep before, over all subtasks; None in the first superstep.

        Raises:
            KeyError: if none of that name is registered.
        """
        return self._superstep.aggregates.previous(name)

    def get_broadcast_set(self, name: str) -> list[Any]:
        """All records of a broadcast stream.

        Raises:
            KeyError: if the iteration's configuration has none of that name for this function.
        """
        sets = self._superstep.broadcast
        if name not in sets:
            known = ", ".join(map(repr, sets)) or "none"
            raise UnknownNameError(f"this function has no broadcast set {name!r}; it has: {known}")
        return sets[name]

    def get_number_of_vertices(self) -> int:
        """How many vertices the graph has; -1 unless the configuration asks for it (`set_opt_num_vertices`)."""
        return self._superstep.number_of_vertices

    def _begin(self, view: SuperstepView) -> None:
        self._view = view

    @property
    def _superstep(self) -> SuperstepView:
        if self._view is None:
            raise WrongTimeError("a function knows of its superstep only while an iteration runs it")
        return self._view
