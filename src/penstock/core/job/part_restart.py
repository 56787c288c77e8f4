"""A part of a job that restarts from the last checkpoint while the others continue (G8). Pure: which, and how far.

Its tasks are cancelled first. When all of them have ended, the restart strategy's delay passes; then they are placed:
missing workers are requested, the checkpoint is read, and the tasks are deployed. If another region fails in the
meantime, it joins the part, which begins with the cancellation again.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

from penstock.core.graph.execution_graph import Execution, ExecutionGraph
from penstock.core.graph.regions import Subtask


class PartPhase(enum.Enum):
    """The phases of a part's restart."""

    CANCELLING = "CANCELLING"
    WAITING = "WAITING"
    PLACING = "PLACING"


class PartRestart:
    """The part of a job that restarts, if any.

    Attributes:
        phase: None if no part restarts.
    """

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        self._part: frozenset[Subtask] = frozenset()
        self.phase: PartPhase | None = None

    @property
    def part(self) -> frozenset[Subtask] | None:
        """The subtasks of the part; None if no part restarts."""
        return None if self.phase is None else self._part

    @property
    def has_ended(self) -> bool:
        """Whether all cancelled tasks have ended."""
        is_cancelling = self.phase is PartPhase.CANCELLING
        return is_cancelling and all(e.state.is_terminal for e in self._graph.executions(self._part))

    def expects(self, failed: Collection[Execution]) -> bool:
        """Return whether these tasks are already being cancelled, so that their failure is expected."""
        return self.phase is PartPhase.CANCELLING and all(_subtask(e) in self._part for e in failed)

    def expand_to_regions(self, failed: Collection[Execution]) -> frozenset[Subtask] | None:
        """Return the part to restart, with the one already restarting; None for the whole job, or without tasks."""
        part = self._part | self._graph.regions.of(_subtask(e) for e in failed)
        return part if failed and len(part) < len(self._graph.executions()) else None

    def begin(self, part: frozenset[Subtask]) -> None:
        """Begin to restart a part, whose tasks are being cancelled."""
        self._part, self.phase = part, PartPhase.CANCELLING

    def end(self) -> None:
        """End the restart: the part runs, or the whole job restarts or ends."""
        self._part, self.phase = frozenset(), None

    def __str__(self) -> str:
        return f"{len(self._part)} of {len(self._graph.executions())} tasks"


def _subtask(execution: Execution) -> Subtask:
    return execution.id.vertex, execution.id.subtask
