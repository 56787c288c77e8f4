"""MATCH_RECOGNIZE: rows of each partition go through the automaton in their order, and matches come out.

What is kept of a partition is the memory of the matcher (`penstock.core.patterns.memory`); a partition in which
nothing has begun keeps nothing. Rows that wait for their time lie in a state table whose namespaces are the times. With
WITHIN a timer throws out what has taken too long, and lets matches go that waited for it.

The rows of all partitions go forward together, one row each a turn, so that the conditions of a turn are worked out as
columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.operators.timers import TimerQueue
from penstock.core.operators.watermarks import LATE_RECORDS
from penstock.core.patterns.matcher import Found
from penstock.core.patterns.memory import NO_LINK, Memory
from penstock.core.patterns.skipping import SkipError
from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.flat import milliseconds
from penstock.table.streaming.patterns.program import MatchProgram, MatchSpecification, Offered
from penstock.table.streaming.patterns.references import Matched
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.null_times import check_times
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.sessions import StreamSession

#: The states: what matchers remember, rows that wait, and when partial matches take too long.
MEMORIES: Final = "match_memories"
WAITING: Final = "match_waiting"
DEADLINES: Final = "match_deadlines"


class _Turn(NamedTuple):
    """The next row of a partition."""

    key: Any
    memory: Memory
    time_ms: int
    offered: Offered


class MatchOperator(EvaluatingOperator):
    """The base of both kinds of time.

    Args:
        specification: what is looked for.
        names: of the columns of the output.
        session: in which expressions are worked out.
    """

    has_times = False

    def __init__(self, specification: MatchSpecification, names: Sequence[str], session: StreamSession) -> None:
        self._specification = specification
        self._names = list(names)
        self._session = session
        self._partition = RowKeys(specification.partition)

    def open(self) -> None:
        """Look up the state, and make what runs the expressions."""
        self._program = MatchProgram(self._specification, self.running(self._session))
        self._matcher = self._program.matcher
        keyed = self.context.keyed
        memories = keyed.table(MEMORIES)
        self._memories, self._mark = memories.entries(None), memories.mark
        self._waiting = keyed.table(WAITING)
        self._times = list(self._waiting.panes)
        heapify(self._times)
        self._deadlines = TimerQueue(keyed.table(DEADLINES))
        #: what a row has to be to begin a match
        start = self._matcher.candidates(Memory(Memory.empty()))[-1]
        self._begins = sorted(start.conditions)

    # --- rows that wait ----------------------------------------------------------------------------------------------

    def _taken(self, batch: Batch) -> tuple[ColumnBatch, list[Any], list[Offered]]:
        """A batch, and its keys and rows."""
        taken = as_columns(batch, self.context.operator_name)
        try:
            return taken, self._partition.of(taken.columns), self._program.offered(taken.columns)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(taken)} rows") from error

    def _keep(self, key: Any, time_ms: int, row: Offered) -> None:
        """Let a row wait."""
        waiting = self._waiting
        rows = waiting.panes.get(time_ms)
        if rows is None:
            rows = waiting.entries(time_ms)
            heappush(self._times, time_ms)
        rows.setdefault(key, []).append(row)
        if not waiting.is_next_whole:
            waiting.changed(time_ms).add(key)

    def _fire(self, up_to: int) -> None:
        """Take in all rows up to a time, and throw out what takes too long by then."""
        sequences: dict[Any, list[tuple[int, Offered]]] = {}
        while self._times and self._times[0] <= up_to:
            time_ms = heappop(self._times)
            for key, rows in self._waiting.drop(time_ms).items():
                sequences.setdefault(key, []).extend((time_ms, row) for row in self._program.in_order(rows))
        self._run(sequences, up_to)

    # --- matching ----------------------------------------------------------------------------------------------------

    def _run(self, sequences: Mapping[Any, Sequence[tuple[int, Offered]]], up_to: int) -> None:
        """Take in rows of partitions, in the order of their times, and send the matches."""
        results: list[Matched] = []
        active, number = list(sequences.items()), 0
        try:
            while active:
                self._take([(key, *rows[number]) for key, rows in active], results)
                number += 1
                active = [(key, rows) for key, rows in active if number < len(rows)]
            expired = self._deadlines.fire(up_to, lambda time_ms, key: self._expire(time_ms, key, results))
            self.context.fired_timers += expired
            self._send(results)
        except (TableRuntimeError, SkipError) as error:
            raise UserCodeError(self.context.operator_name, "rows of MATCH_RECOGNIZE") from error

    def _take(self, rows: Sequence[tuple[Any, int, Offered]], results: list[Matched]) -> None:
        """Take in one row of each of some partitions."""
        turns: list[_Turn] = []
        for key, time_ms, offered in rows:
            held = self._memories.get(key)
            if held is None:
                if not any(offered[1][number] for number in self._begins):
                    continue
                held = self._memories[key] = Memory.empty()
            memory = Memory(held)
            self._advance(memory, time_ms, results)
            turns.append(_Turn(key, memory, time_ms, offered))
        answers = self._answers(turns)
        for place, turn in enumerate(turns):
            known, (row, flags) = answers[place], turn.offered

            def holds(
                number: int,
                link: int,
                turn: _Turn = turn,
                known: dict[tuple[int, int], bool] = known,
                flags: Sequence[bool] = flags,
            ) -> bool:
                if not flags[number] or number not in self._program.conditions.of_match:
                    return flags[number]
                answer = known.get((number, link))
                return self._holds(turn, number, link) if answer is None else answer

            before = self._matcher.deadline_ms(turn.memory)
            self._add(results, self._matcher.process(turn.memory, row, turn.time_ms, holds), turn.time_ms)
            deadline = self._matcher.deadline_ms(turn.memory)
            if before is None and deadline is not None:
                self._deadlines.register(deadline, turn.key)
            if turn.memory.is_empty:
                del self._memories[turn.key]
        self._mark(None, [turn.key for turn in turns])

    def _answers(self, turns: Sequence[_Turn]) -> list[dict[tuple[int, int], bool]]:
        """For each turn the answers of conditions that look at rows that were matched, by (variable, link)."""
        of_match = self._program.conditions.of_match
        asked: dict[int, list[Matched]] = {}
        askers: dict[int, list[tuple[int, int]]] = {}
        for place, turn in enumerate(turns if of_match else ()):
            row, flags = turn.offered
            for candidate in self._matcher.candidates(turn.memory):
                numbers = [number for number in candidate.conditions & of_match if flags[number]]
                if numbers:
                    matched = Matched(_events(turn.memory, candidate.link), row)
                    for number in numbers:
                        asked.setdefault(number, []).append(matched)
                        askers.setdefault(number, []).append((place, candidate.link))
        found: list[dict[tuple[int, int], bool]] = [{} for _ in turns]
        for number, answers in self._program.conditions.answers(asked).items():
            for (place, link), answer in zip(askers[number], answers, strict=True):
                found[place][number, link] = answer
        return found

    def _holds(self, turn: _Turn, number: int, link: int) -> bool:
        return self._program.conditions.holds(number, Matched(_events(turn.memory, link), turn.offered[0]))

    def _expire(self, time_ms: int, key: Any, results: list[Matched]) -> None:
        held = self._memories.get(key)
        if held is None:
            return
        memory = Memory(held)
        self._advance(memory, time_ms, results)
        deadline = self._matcher.deadline_ms(memory)
        if deadline is not None:
            self._deadlines.register(deadline, key)
        if memory.is_empty:
            del self._memories[key]
        self._mark(None, (key,))

    def _advance(self, memory: Memory, up_to: int, results: list[Matched]) -> None:
        """Throw out what takes too long, each at its own time, however far time goes on at once."""
        while (deadline := self._matcher.deadline_ms(memory)) is not None and deadline <= up_to:
            self._add(results, self._matcher.advance(memory, deadline), deadline)

    def _add(self, results: list[Matched], found: Found, time_ms: int) -> None:
        results += [Matched(rows, None, time_ms) for rows in found.matches]

    def _send(self, results: list[Matched]) -> None:
        if not results:
            return
        if self.has_times:
            results.sort(key=lambda one: one.time_ms or 0)
        arrays = self._program.measured(results)
        columns = pa.RecordBatch.from_arrays(arrays, self._names)
        times = np.array([one.time_ms for one in results], np.int64) if self.has_times else None
        self.output.collect(ColumnBatch(columns, times))


def _events(memory: Memory, link: int) -> dict[str, list[Any]]:
    return {} if link == NO_LINK else memory.events(link)


class EventTimeMatchOperator(MatchOperator):
    """Rows wait for the watermark; those that come behind it are late, and dropped."""

    has_times = True

    def open(self) -> None:
        """See `MatchOperator`."""
        super().open()
        self._watermark = MIN_TIMESTAMP

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Let rows wait that are not late."""
        taken, keys, rows = self._taken(batch)
        order, names = self._specification.order[0].index, self._specification.names
        check_times(taken, order, names, self.context.operator_name, "MATCH_RECOGNIZE")
        column = taken.columns.column(order)
        late = 0
        for key, time_ms, row in zip(keys, milliseconds(column).tolist(), rows, strict=True):
            if time_ms <= self._watermark:
                late += 1
            else:
                self._keep(key, time_ms, row)
        if late:
            self.context.count(LATE_RECORDS, late)

    def process_watermark(self, timestamp: int) -> None:
        """Take in the rows that are due."""
        self._watermark = timestamp
        self._fire(timestamp)
        self.output.emit_watermark(timestamp)

    def end_keys(self) -> None:
        """Take in all rows."""
        self.advance_keys(MAX_WATERMARK)

    def advance_keys(self, timestamp: int) -> None:
        """Take in what is due."""
        before = self._watermark
        self.process_watermark(timestamp)
        self._watermark = before


class ProcessingTimeMatchOperator(MatchOperator):
    """Rows are taken in as they come; a millisecond later where ORDER BY sorts those of one time further."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Take in rows, or let them wait for others of the same time."""
        _, keys, rows = self._taken(batch)
        now_ms = self.context.now_ms()
        if self._program.is_sorted_further:
            for key, row in zip(keys, rows, strict=True):
                self._keep(key, now_ms, row)
            return
        sequences: dict[Any, list[tuple[int, Offered]]] = {}
        for key, row in zip(keys, rows, strict=True):
            sequences.setdefault(key, []).append((now_ms, row))
        self._run(sequences, now_ms)

    def next_timer_ms(self) -> int | None:
        """A millisecond after the earliest rows that wait, or when something takes too long."""
        deadline = self._deadlines.next_timestamp()
        waiting = [time_ms + 1 for time_ms in self._times[:1]]
        return min([*waiting, *(() if deadline is None else (deadline,))], default=None)

    def on_processing_time(self, now_ms: int) -> None:
        """Take in rows that wait, and throw out what takes too long."""
        while self._times and self._times[0] < now_ms:
            self._fire(self._times[0])
        self._run({}, now_ms)

    def finish(self) -> None:
        """Take in all rows that wait."""
        while self._times:
            self._fire(self._times[0])
