"""Operators whose subtasks work in lockstep: after their input has ended, they exchange messages, round after round.

An operator says what to exchange, and the driver does it: `rounds` is a generator that yields a `Round` and gets an
`Answer`. All subtasks yield the same number of rounds. So a loop, such as the supersteps of a graph algorithm, is
written as a loop, and the operator's data stays in its memory from one round to the next.

For batch execution. A driver runs all subtasks of such an operator at the same time, and if one fails, all begin again.

The operator at the end of a superstep, see `runtime.supersteps`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.accumulators import LongCounter
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Batch
from penstock.runtime.supersteps import RECORDS


@dataclass(frozen=True)
class Round:
    """A subtask's contribution to a round.

    Attributes:
        payloads: something picklable for each subtask, this one included, or None for nothing. A subtask of the same
            process may get the very same object, so it must not be changed afterwards.
        report: something small and picklable that all subtasks get.
        progress: a line for the log; only the first subtask's line counts.
    """

    payloads: Sequence[Any]
    report: Any = None
    progress: str = ""


@dataclass(frozen=True)
class Answer:
    """The result of a round for a subtask: each subtask's payload for it and report, in the order of the subtasks."""

    payloads: Sequence[Any]
    reports: Sequence[Any]


class LockstepOperator(StreamOperator):
    """Base of these operators. It must be the head of its chain, which a partitioned input ensures."""

    def rounds(self) -> Generator[Round, Answer, None]:
        """Run the rounds between the last record and the end; may emit at any time."""
        raise NotImplementedError


def exchanged(rounds: Sequence[Round]) -> list[Answer]:
    """Return the answers to one round of all subtasks."""
    reports = [contribution.report for contribution in rounds]
    return [
        Answer([contribution.payloads[subtask] for contribution in rounds], reports) for subtask in range(len(rounds))
    ]


class TailOperator(StreamOperator):
    """The end of a superstep: forwards the records kept for the next one, and counts them."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._records = LongCounter()

    def open(self) -> None:
        """Register the counter, so that it leaves the task with the output."""
        self.context.accumulators[RECORDS + self._role] = self._records

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Count the records and forward them."""
        self._records.add(len(batch))
        self.output.collect(batch)
