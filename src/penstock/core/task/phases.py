"""The life of a task: its phases, the moves between them, and what may happen in each phase, as tables.

A task opens its operators, processes, and comes to the end of its data. If calls out of the task are still under way
then, it drains first. Then it waits for what must follow the end of its data, closes, and is gone. It can fail or be
cancelled in every phase.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class Phase(enum.Enum):
    """Where a task is in its life."""

    #: There are no operators yet.
    CREATED = "CREATED"
    #: The operators are open, and wait until those of all other tasks are.
    OPEN = "OPEN"
    PROCESSING = "PROCESSING"
    #: The input has ended; operators wait for calls out of the task.
    DRAINING = "DRAINING"
    #: No record will be emitted. The task waits for the end of its channels, and for its last checkpoint.
    DATA_FINISHED = "DATA_FINISHED"
    #: The operators are closed; what was emitted last waits for credit.
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
    """What a task may do in a phase.

    `run_operators`: hand operators records, due timers and results of calls. Then full outputs hold the task up.
    `take_input`: poll the input gate, or the source's reader where operators run.
    `take_barriers`: let barriers that have arrived, or waited too long, begin checkpoints.
    `inject_barriers`: begin a checkpoint when the coordinator asks for it.
    `close_operators`: close them on the way out when the task fails or is cancelled.
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
    # Barriers in the channels wait for the end of the data. A source has no channels, and takes part.
    _P.DRAINING: May(run_operators=True, inject_barriers=True, close_operators=True),
    # The input has control elements only.
    _P.DATA_FINISHED: May(take_input=True, take_barriers=True, inject_barriers=True, close_operators=True),
    _P.CLOSING: May(),
    _P.TERMINAL: May(),
}


class TaskLife:
    """The phase of one task. `may` is what the phase permits."""

    __slots__ = ("may", "phase")

    def __init__(self) -> None:
        self.phase = Phase.CREATED
        self.may = PERMITTED[Phase.CREATED]

    def move(self, phase: Phase) -> None:
        """Go on to a phase; no other place changes it."""
        assert phase in PHASE_MOVES[self.phase], f"no task goes from {self.phase.value} to {phase.value}"
        self.phase = phase
        self.may = PERMITTED[phase]

    @property
    def is_over(self) -> bool:
        """Whether the task has ended."""
        return self.phase is Phase.TERMINAL

    def validate(self) -> None:
        """Assert what holds between any two steps. The simulator calls this; a running job never does."""
        assert self.may == PERMITTED[self.phase], f"a task in {self.phase.value} may do what the table says"
