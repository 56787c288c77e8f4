"""Aggregators of an iteration over the vertices of a graph; see `penstock.common.aggregators`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.base.aggregators import Aggregator
from penstock.base.errors import UnknownNameError


class Aggregates:
    """The aggregators of one superstep, and the aggregates of the previous one."""

    def __init__(self, registered: Mapping[str, Aggregator[Any]]) -> None:
        self._registered = registered
        self._used: dict[str, Aggregator[Any]] = {}
        self._previous: dict[str, Any] = {}

    def aggregator(self, name: str) -> Aggregator[Any]:
        """Return this subtask's copy, empty at the start of the superstep. Raises `KeyError` if unregistered."""
        aggregator = self._used.get(name)
        if aggregator is None:
            aggregator = self._used[name] = self._fresh(name)
        return aggregator

    def previous(self, name: str) -> Any:
        """Return the aggregate of the previous superstep; None in the first. Raises `KeyError` if unregistered."""
        self._check(name)
        return self._previous.get(name)

    def parts(self) -> dict[str, Any]:
        """Return the aggregates of this subtask's copies that were used."""
        return {name: aggregator.get_aggregate() for name, aggregator in self._used.items()}

    def end_superstep(self, parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Merge the parts of all subtasks and start over. Returns the aggregates."""
        aggregators = {name: self._fresh(name) for name in self._registered}
        for part in parts:
            for name, value in part.items():
                aggregators[name].aggregate(value)
        self._used.clear()
        self._previous = {name: aggregator.get_aggregate() for name, aggregator in aggregators.items()}
        return self._previous

    def _fresh(self, name: str) -> Aggregator[Any]:
        self._check(name)
        aggregator = copy.deepcopy(self._registered[name])
        aggregator.reset()
        return aggregator

    def _check(self, name: str) -> None:
        if name not in self._registered:
            known = ", ".join(map(repr, self._registered)) or "none"
            raise UnknownNameError(f"the iteration has no aggregator {name!r}; registered: {known}")
