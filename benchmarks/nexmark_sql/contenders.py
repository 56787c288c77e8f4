"""Processes that run the same query by turns: each warm, each with its start known, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from benchmarks.nexmark_sql.cells import Side, take_medians
from benchmarks.nexmark_sql.query_process import EndedError, Memory, QueryProcess, RefusedError, Run

#: the part of the events that warms up
WARM_UP: Final = 5
#: runs over one event; the shortest counts
STARTS: Final = 2


class Contender:
    """One process and what it took.

    Args:
        process: the process; its block is not entered yet.
        per_second: how many events come a second; None for as many as possible.
    """

    def __init__(self, process: QueryProcess, per_second: int | None) -> None:
        self.process = process
        self._per_second = per_second
        self._start_s = 0.0
        self._runs: list[Run] = []
        self._failure: str | None = None

    def begin(self, stack: ExitStack, events: int) -> None:
        """Start the process, warm it up over a part of the events, and learn how long a start takes."""
        try:
            stack.enter_context(self.process)
            self.process.run(max(events // WARM_UP, 1))
            self._start_s = min(self.process.run(1).wall_s for _ in range(STARTS))
        except (RefusedError, EndedError) as error:
            self._failure = describe(error)

    def run(self, events: int) -> None:
        """Run the query once more, unless it has failed."""
        if self._failure is None:
            try:
                self._runs.append(self.process.run(events, self._per_second))
            except EndedError as error:
                self._failure = describe(error)

    def finish(self, memory: Memory | None = None) -> Side | str:
        """Return what it took, or why it has failed."""
        if self._failure is not None:
            return self._failure
        return Side(take_medians(self._runs), self._start_s, memory)


def run_by_turns(contenders: Sequence[Contender], events: int, times: int, stack: ExitStack) -> None:
    """Run all of them so many times, in one order and then in the other: a machine's speed changes.

    Args:
        contenders: they end with the block of `stack`.
        events: how many the query reads.
        times: runs of each.
        stack: of an entered block.
    """
    for contender in contenders:
        contender.begin(stack, events)
    for turn in range(times):
        for contender in contenders if turn % 2 == 0 else reversed(contenders):
            contender.run(events)


def describe(error: RefusedError | EndedError) -> str:
    """Say in a table's cell why a side has no figures."""
    verb = "refused" if isinstance(error, RefusedError) else "did not survive"
    return f"{verb}: {' '.join(str(error).split())[:150]}".replace("|", "/")
