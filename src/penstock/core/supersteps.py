"""What the tasks of a superstep know of the iteration that they are part of.

The tail of a superstep counts records, and functions add to aggregators. Both leave the tasks as accumulators do: as
rows of the task's output. These rows count once for each task, when the whole job has succeeded (`core.batch.task`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.accumulators import Accumulator
from penstock.base.aggregators import Aggregator
from penstock.base.errors import UnknownNameError

#: Before the names of what a superstep leaves; a user's function has no accumulators there.
AGGREGATE: Final = "aggregate:"
RECORDS: Final = "records:"


@dataclass(frozen=True)
class Superstep:
    """One turn of an iteration; travels to its tasks.

    Attributes:
        iteration: the iteration's name, for errors.
        number: from 1; 0 in the job that computes what the supersteps read, which is part of none.
        aggregators: pickled: name -> `Aggregator`, as registered.
        previous: pickled: name -> what it came to in the superstep before; empty in the first one.
    """

    iteration: str
    number: int
    aggregators: bytes
    previous: bytes


class PartialAggregate(Accumulator[Any, Any]):
    """What one operator's copy of an aggregator has come to; merged with others, what all have."""

    def __init__(self, aggregator: Aggregator[Any]) -> None:
        self.aggregator = aggregator

    def add(self, value: Any) -> None:
        """Take a value in."""
        self.aggregator.aggregate(value)

    def get_local_value(self) -> Any:
        """What it has come to."""
        return self.aggregator.get_aggregate()

    def reset_local(self) -> None:
        """Begin again."""
        self.aggregator.reset()

    def merge(self, other: PartialAggregate) -> None:
        """Take in what the other has come to."""
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
        """This operator's copy, empty when it is first asked for. Raises `KeyError` for a name not registered."""
        self._check(name)
        if name not in self._used:
            self._registered[name].reset()
            self._used[name] = PartialAggregate(self._registered[name])
        return self._used[name].aggregator

    def previous(self, name: str) -> Any:
        """What it came to in the superstep before; None in the first. Raises `KeyError` for a name not registered."""
        self._check(name)
        return self._previous.get(name)

    def used(self) -> Iterator[tuple[str, PartialAggregate]]:
        """The aggregators that were asked for, by the names that they have among accumulators."""
        for name, partial in self._used.items():
            yield AGGREGATE + name, partial

    def _check(self, name: str) -> None:
        if name not in self._registered:
            known = ", ".join(map(repr, self._registered)) or "none"
            raise UnknownNameError(f"iteration {self.iteration!r} has no aggregator {name!r}; registered: {known}")
