"""The context that a superstep's tasks have of their iteration.

The tail of a superstep counts records, and functions add to aggregators. Both leave the tasks as accumulators do: as
rows of the task's output. These rows count once per task, when the whole job has succeeded (`runtime.batch.task`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.accumulators import Accumulator, Aggregator
from penstock.base.errors import UnknownNameError

#: Name prefixes of a superstep's results; user functions have no accumulators there.
AGGREGATE: Final = "aggregate:"
RECORDS: Final = "records:"


@dataclass(frozen=True)
class Superstep:
    """One pass of an iteration; sent to its tasks.

    Attributes:
        iteration: the iteration's name, for errors.
        number: from 1; 0 in the job that computes the input of the supersteps and is not part of any.
        aggregators: pickled: name -> `Aggregator`, as registered.
        previous: pickled: name -> its value in the previous superstep; empty in the first one.
    """

    iteration: str
    number: int
    aggregators: bytes
    previous: bytes


class PartialAggregate(Accumulator[Any, Any]):
    """The value of one operator's copy of an aggregator; merged with the other copies, the overall value."""

    def __init__(self, aggregator: Aggregator[Any]) -> None:
        self.aggregator = aggregator

    def add(self, value: Any) -> None:
        """Add a value to the aggregate."""
        self.aggregator.aggregate(value)

    def get_local_value(self) -> Any:
        """Return the aggregate."""
        return self.aggregator.get_aggregate()

    def reset_local(self) -> None:
        """Reset the aggregate."""
        self.aggregator.reset()

    def merge(self, other: PartialAggregate) -> None:
        """Merge the aggregate of another operator into this one."""
        self.aggregator.aggregate(other.aggregator.get_aggregate())


class SuperstepContext:
    """One operator's view of the superstep that its subtask is part of."""

    def __init__(self, superstep: Superstep) -> None:
        self.iteration = superstep.iteration
        self.number = superstep.number
        self._registered: dict[str, Aggregator[Any]] = pickle.loads(superstep.aggregators)
        self._previous: dict[str, Any] = pickle.loads(superstep.previous)
        self._used: dict[str, PartialAggregate] = {}

    def aggregator(self, name: str) -> Aggregator[Any]:
        """Return this operator's copy, empty at first use. Raises `KeyError` for a name that is not registered."""
        self._check(name)
        if name not in self._used:
            self._registered[name].reset()
            self._used[name] = PartialAggregate(self._registered[name])
        return self._used[name].aggregator

    def previous(self, name: str) -> Any:
        """Return the previous superstep's value; None in the first. Raises `KeyError` for a name not registered."""
        self._check(name)
        return self._previous.get(name)

    def used(self) -> Iterator[tuple[str, PartialAggregate]]:
        """Yield the aggregators that were used, by their names among accumulators."""
        for name, partial in self._used.items():
            yield AGGREGATE + name, partial

    def _check(self, name: str) -> None:
        if name not in self._registered:
            known = ", ".join(map(repr, self._registered)) or "none"
            raise UnknownNameError(f"iteration {self.iteration!r} has no aggregator {name!r}; registered: {known}")
