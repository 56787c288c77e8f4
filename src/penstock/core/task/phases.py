"""The lifecycle of a task: tables of its phases, the transitions, and the actions permitted in each phase.

A task opens its operators, processes, and reaches the end of its data. If calls to outside the task are still pending
then, it drains first. Then it waits for the steps that must follow the end of its data, closes, and terminates. It can
fail or be cancelled in every phase.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class Phase(enum.Enum):
    """The phases of a task."""

    #: The operators do not exist yet.
    CREATED = "CREATED"
    #: The operators are open, and wait for all other tasks to open.
    OPEN = "OPEN"
    PROCESSING = "PROCESSING"
    #: The input has ended; operators wait for asynchronous calls.
    DRAINING = "DRAINING"
    #: No more records are emitted. The task waits for the end of its channels, and for its last checkpoint.
    DATA_FINISHED = "DATA_FINISHED"
    #: The operators are closed; the last output waits for credit.
    CLOSING = "CLOSING"
    TERMINAL = "TERMINAL"


_P = Phase
PHASE_MOVES: Final[dict[Phase, frozenset[Phase]]] = {
    _P.CREATED: frozenset({_P.OPEN, _P.PROCESSING, _P.TERMINAL}),
    _P.OPEN: frozenset({_P.PROCESSING, _P.TERMINAL}),
    _P.PROCESSING: frozenset({_P.DRAINING, _P.DATA_FINISHED, _P.TERMINAL}),
    _P.DRAINING: frozenset({_P.DATA_FINISHED, _P.TERMINAL}),
    _P.DATA_FINISHED: frozenset({_P.CLOSING, _P.TERMINAL}),
    _P.CLOSING: frozenset({_P.TERMINAL}),
    _P.TERMINAL: frozenset(),
}


class May(NamedTuple):
    """The permissions of a task in a phase.

    `run_operators`: pass records, due timers and results of calls to operators. Full outputs then block the task.
    `take_input`: poll the input gate, or the source's reader if operators run. `take_barriers`: let barriers that have
    arrived, or waited too long, start checkpoints. `inject_barriers`: start a checkpoint when the coordinator requests
    it. `close_operators`: close the operators when the task fails or is cancelled.
    """

    run_operators: bool = False
    take_input: bool = False
    take_barriers: bool = False
    inject_barriers: bool = False
    close_operators: bool = False


PERMITTED: Final[dict[Phase, May]] = {
    _P.CREATED: May(close_operators=True),
    _P.OPEN: May(close_operators=True),
    _P.PROCESSING: May(
        run_operators=True, take_input=True, take_barriers=True, inject_barriers=True, close_operators=True
    ),
    # Barriers in the channels wait for the end of the data. A source has no channels, so it participates.
    _P.DRAINING: May(run_operators=True, inject_barriers=True, close_operators=True),
    # The input holds only control elements.
    _P.DATA_FINISHED: May(take_input=True, take_barriers=True, inject_barriers=True, close_operators=True),
    _P.CLOSING: May(),
    _P.TERMINAL: May(),
}


class TaskLife:
    """The phase of one task, and its permissions (`may`)."""

    __slots__ = ("may", "phase")

    def __init__(self) -> None:
        self.phase = Phase.CREATED
        self.may = PERMITTED[Phase.CREATED]

    def move(self, phase: Phase) -> None:
        """Switch to a phase; this is the only place that changes it."""
        assert phase in PHASE_MOVES[self.phase], f"no task goes from {self.phase.value} to {phase.value}"
        self.phase = phase
        self.may = PERMITTED[phase]

    @property
    def is_over(self) -> bool:
        """Whether the task has ended."""
        return self.phase is Phase.TERMINAL

    def validate(self) -> None:
        """Assert the invariants that hold between steps. The simulator calls this; a running job never does."""
        assert self.may == PERMITTED[self.phase], f"a task in {self.phase.value} may do what the table says"
