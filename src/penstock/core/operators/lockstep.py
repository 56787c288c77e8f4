"""Operators whose subtasks work in step: once their input has ended, they exchange messages, round after round.

An operator says what it wants exchanged, and the driver does it: `rounds` is a generator that yields a `Round` and gets
an `Answer`. All subtasks yield as many rounds. So a loop, such as the supersteps of a graph algorithm, is written as a
loop, and what the operator holds stays in its memory from one round to the next.

For batch execution. A driver runs all subtasks of such an operator at a time, and when one fails, all begin again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.operators.base import StreamOperator


@dataclass(frozen=True)
class Round:
    """What a subtask brings to a round.

    Attributes:
        payloads: something picklable for each subtask, this one included, or None for nothing. A subtask of the same
            process may get the very object, so nobody changes it afterwards.
        report: something small and picklable that all subtasks get.
        progress: a line for the log; that of the first subtask counts.
    """

    payloads: Sequence[Any]
    report: Any = None
    progress: str = ""


@dataclass(frozen=True)
class Answer:
    """What a subtask gets from a round: of each subtask, in their order, the payload for this one, and the report."""

    payloads: Sequence[Any]
    reports: Sequence[Any]


class LockstepOperator(StreamOperator):
    """See the module's text. It must be the head of its chain, which a partitioned input makes it."""

    def rounds(self) -> Generator[Round, Answer, None]:
        """What it does between its last record and its end; it may emit at any time."""
        raise NotImplementedError


def exchanged(rounds: Sequence[Round]) -> list[Answer]:
    """The answers to one round of all subtasks."""
    reports = [one.report for one in rounds]
    return [Answer([one.payloads[subtask] for one in rounds], reports) for subtask in range(len(rounds))]
