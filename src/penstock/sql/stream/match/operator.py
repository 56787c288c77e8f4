"""MATCH_RECOGNIZE: runs the rows of each partition through the automaton in order, and emits matches.

`Matching` runs the rows of partitions through the automaton, for streams and batches. If each condition reads only the
row itself, its answers are known before, and the rows of one partition follow those of another. If conditions read
matched rows, all partitions advance together, one row of each per turn, so that the conditions of a turn are evaluated
as columns.

`MatchOperator` keeps, as the state of a partition, the memory of the matcher (`penstock.runtime.patterns.memory`); a
partition without partial matches has no state. Rows wait for their time in `WaitingEvents`. With WITHIN, a timer
discards partial matches that have timed out, and releases the matches that waited for them.

`MatchRule` checks whether streams support the pattern, and selects the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.patterns.sieve import Columns, deal, join_columns, pick
from penstock.runtime.operators.patterns.waiting import WaitingEvents
from penstock.runtime.operators.watermarks import LATE_RECORDS, TimerQueue
from penstock.runtime.patterns.matcher import Listener, SkipError
from penstock.runtime.patterns.memory import NO_LINK, Memory
from penstock.runtime.patterns.moves import Holds
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.sql.data.arrow import milliseconds
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.logical.nodes import INSERTS, Aggregated, Changes, MatchedExpression, MatchRecognize, TimeAttribute
from penstock.sql.stream.aggregates.accumulators import build_accumulator
from penstock.sql.stream.match.program import (
    Matched,
    MatchProgram,
    MatchSpecification,
    Offered,
    Row,
    TimedRow,
    build_pattern,
)
from penstock.sql.stream.planning.rule import Factory, Planning, Rule, Stream, by_columns, name_columns
from penstock.sql.stream.rows.rows import RowKeys, to_comparable
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, StreamSession
from penstock.sql.stream.rows.watermarks import check_times
from penstock.state.snapshot import StateCapture


class _Turn(NamedTuple):
    """The next row of a partition."""

    key: Any
    memory: Memory
    row: TimedRow


class Matching:
    """Advances the partial matches of partitions.

    Args:
        program: the executable pattern.
        memories: the partial matches of each partition, by its key.
        mark: called with the keys whose memories have changed.
        register: called with a time (ms) and a key at which to call `expire`.
    """

    def __init__(
        self,
        program: MatchProgram,
        memories: MutableMapping[Any, Any],
        mark: Callable[[Collection[Any]], None],
        register: Callable[[int, Any], Any],
    ) -> None:
        self._program = program
        self._matcher = program.matcher
        self._memories = memories
        self._mark = mark
        self._register = register
        self._results: list[Matched] = []
        #: the conditions under which a row begins a match
        start = self._matcher.candidates(Memory(Memory.empty()))[-1]
        self._begins = sorted(start.conditions)

    def drain(self) -> list[Matched]:
        """Return the matches since the last call."""
        results, self._results = self._results, []
        return results

    def take(self, sequences: Mapping[Any, Sequence[TimedRow]]) -> None:
        """Process rows of partitions, each partition's in order."""
        if self._program.conditions.of_match:
            active, number = list(sequences.items()), 0
            while active:
                self._take_turn([(key, rows[number]) for key, rows in active])
                number += 1
                active = [(key, rows) for key, rows in active if number < len(rows)]
            return
        # Not kept, because it refers to this object: the state is free as soon as nobody else does.
        listener = Listener(self._advance, self._match, _refuse, _refuse)
        changed = [key for key, rows in sequences.items() if self._take(key, rows, listener)]
        self._mark(changed)

    def expire(self, time_ms: int, key: Any) -> None:
        """Discard the partial matches of a partition that have timed out by a time (ms)."""
        stored = self._memories.get(key)
        if stored is None:
            return
        memory = Memory(stored)
        self._advance(memory, time_ms)
        deadline = self._matcher.deadline_ms(memory)
        if deadline is not None:
            self._register(deadline, key)
        if memory.is_empty:
            del self._memories[key]
        self._mark((key,))

    def _may_begin(self, flags: Sequence[bool]) -> bool:
        return any(flags[number] for number in self._begins)

    def _take(self, key: Any, rows: Sequence[TimedRow], listener: Listener) -> bool:
        """Process rows of one partition; returns whether any of them may have changed something."""
        stored = self._memories.get(key)
        if stored is None:
            first = next((index for index, (_, _, flags) in enumerate(rows) if self._may_begin(flags)), None)
            if first is None:
                return False
            rows = rows[first:]
            memory = Memory(Memory.empty())
        else:
            memory = Memory(stored)
        self._run(key, memory, rows, listener)
        return True

    def _run(self, key: Any, memory: Memory, rows: Sequence[TimedRow], listener: Listener) -> None:
        """Process rows of one partition, and store its memory."""
        self._matcher.run([(memory, rows)], listener)
        if memory.deadline_ms is not None:
            self._register(memory.deadline_ms, key)
        if memory.is_empty:
            self._memories.pop(key, None)
        else:
            self._memories[key] = memory.data

    def _take_turn(self, rows: Sequence[tuple[Any, TimedRow]]) -> None:
        """Process one row of each given partition."""
        turns: list[_Turn] = []
        for key, row in rows:
            stored = self._memories.get(key)
            if stored is None:
                if not self._may_begin(row[2]):
                    continue
                stored = Memory.empty()
            memory = Memory(stored)
            self._advance(memory, row[0])
            turns.append(_Turn(key, memory, row))
        for turn, answers in zip(turns, self._answers(turns), strict=True):
            listener = Listener(self._advance, self._match, _refuse, partial(self._ask, answers))
            self._run(turn.key, turn.memory, [turn.row], listener)
        self._mark([turn.key for turn in turns])

    def _ask(
        self, answers: Mapping[tuple[int, int], bool], memory: Memory, row: Row, time_ms: int, known: dict[int, bool]
    ) -> Holds:
        """Return what evaluates a condition that reads matched rows; `answers`: those known before."""

        def holds(number: int, link: int) -> bool:
            answer = answers.get((number, link))
            return self._holds(memory, row, number, link) if answer is None else answer

        return holds

    def _answers(self, turns: Sequence[_Turn]) -> list[dict[tuple[int, int], bool]]:
        """For each turn, evaluate the conditions that read matched rows. Returns answers by (variable, link)."""
        of_match = self._program.conditions.of_match
        requests: dict[int, list[Matched]] = {}
        askers: dict[int, list[tuple[int, int]]] = {}
        for index, turn in enumerate(turns if of_match else ()):
            _, row, flags = turn.row
            for candidate in self._matcher.candidates(turn.memory):
                numbers = [number for number in candidate.conditions & of_match if flags[number]]
                if numbers:
                    matched = Matched(_events(turn.memory, candidate.link), row)
                    for number in numbers:
                        requests.setdefault(number, []).append(matched)
                        askers.setdefault(number, []).append((index, candidate.link))
        results: list[dict[tuple[int, int], bool]] = [{} for _ in turns]
        for number, answers in self._program.conditions.answers(requests).items():
            for (index, link), answer in zip(askers[number], answers, strict=True):
                results[index][number, link] = answer
        return results

    def _holds(self, memory: Memory, row: Row, number: int, link: int) -> bool:
        return self._program.conditions.holds(number, Matched(_events(memory, link), row))

    def _advance(self, memory: Memory, up_to: int) -> None:
        """Discard partial matches that have timed out, each at its own deadline, however far time has advanced."""
        while (deadline := self._matcher.deadline_ms(memory)) is not None and deadline <= up_to:
            self._match(self._matcher.advance(memory, deadline).matches, deadline)

    def _match(self, matches: Sequence[Mapping[str, Sequence[Row]]], time_ms: int) -> None:
        self._results += [Matched(rows, None, time_ms) for rows in matches]


def _refuse(*_: Any) -> Any:
    raise AssertionError("all answers are known, and partitions have no limit")


def _events(memory: Memory, link: int) -> dict[str, list[Any]]:
    return {} if link == NO_LINK else memory.events(link)


#: The states: the memories of matchers, waiting rows, and the timeouts of partial matches.
MEMORIES: Final = "match_memories"
WAITING: Final = "match_waiting"
DEADLINES: Final = "match_deadlines"


class MatchOperator(EvaluatingOperator):
    """The base class for event time and processing time.

    Args:
        specification: the pattern.
        names: the names of the output columns.
        session: the session that expressions are evaluated in.
    """

    has_times = False

    def __init__(self, specification: MatchSpecification, names: Sequence[str], session: StreamSession) -> None:
        self._specification = specification
        self._names = list(names)
        self._session = session
        self._partition = RowKeys(specification.partition)

    def open(self) -> None:
        """Open the state, and build the evaluators of the expressions."""
        self._program = MatchProgram(self._specification, self.running(self._session))
        keyed = self.context.keyed
        memories = keyed.table(MEMORIES)
        self._waiting = WaitingEvents(keyed.table(WAITING), None)
        self._deadlines = TimerQueue(keyed.table(DEADLINES))
        self._matching = Matching(
            self._program,
            memories.entries(None),
            lambda keys: memories.mark(None, keys),
            self._deadlines.register,
        )

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture all state, including the waiting rows."""
        self._waiting.store()
        return super().snapshot_state(checkpoint_id)

    # --- rows that wait ----------------------------------------------------------------------------------------------

    def _taken(self, batch: Batch) -> tuple[ColumnBatch, Sequence[Any], Sequence[Offered]]:
        """Return a batch, its keys and its rows."""
        records = as_columns(batch, self.context.operator_name)
        try:
            return records, self._partition.of(records.columns), self._program.offered(records.columns)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error

    def _fire(self, up_to: int) -> None:
        """Process all rows up to a time, and discard partial matches that have timed out by then."""
        due = self._waiting.take(up_to)
        sequences: dict[Any, list[TimedRow]] = {}
        if due:
            waited = join_columns([some.read() for some in due])
            rows, flags = [row for row, _ in waited.events], [answers for _, answers in waited.events]
            sequences = deal(Columns(waited.keys, waited.times, rows), flags)
            if self._program.is_sorted_further:
                sequences = {key: self._program.arrange(of_key) for key, of_key in sequences.items()}
        self._run(sequences, up_to)

    def _fire_singly(self, before: int) -> None:
        """Process all rows before a time, one time after the other."""
        while (time_ms := self._waiting.next_ms) is not None and time_ms < before:
            self._fire(time_ms)

    # --- matching ----------------------------------------------------------------------------------------------------

    def _run(self, sequences: Mapping[Any, Sequence[TimedRow]], up_to: int) -> None:
        """Process rows of partitions in time order, and emit the matches."""
        try:
            self._matching.take(sequences)
            self.context.fired_timers += self._deadlines.fire(up_to, self._matching.expire)
            self._send(self._matching.drain())
        except (TableRuntimeError, SkipError) as error:
            raise UserCodeError(self.context.operator_name, "rows of MATCH_RECOGNIZE") from error

    def _send(self, results: list[Matched]) -> None:
        if not results:
            return
        if self.has_times:
            results.sort(key=lambda result: result.time_ms or 0)
        arrays = self._program.measured(results)
        columns = pa.RecordBatch.from_arrays(arrays, self._names)
        times = np.array([result.time_ms for result in results], np.int64) if self.has_times else None
        self.output.collect(ColumnBatch(columns, times))


class EventTimeMatchOperator(MatchOperator):
    """Rows wait for the watermark; late rows are dropped."""

    has_times = True

    def open(self) -> None:
        """See `MatchOperator`."""
        super().open()
        self._watermark = MIN_TIMESTAMP

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Let rows wait, and drop late rows."""
        records, keys, rows = self._taken(batch)
        order, names = self._specification.order[0].index, self._specification.names
        check_times(records, order, names, self.context.operator_name, "MATCH_RECOGNIZE")
        times = milliseconds(records.columns.column(order))
        late = int(np.count_nonzero(times <= self._watermark))
        if late:
            in_time = np.flatnonzero(times > self._watermark)
            chosen = in_time.tolist()
            keys, times, rows = pick(keys, chosen), times[in_time], pick(rows, chosen)
        self._waiting.add_all(keys, times, rows)
        if late:
            self.context.count(LATE_RECORDS, late)

    def process_watermark(self, timestamp: int) -> None:
        """Process due rows."""
        self._watermark = timestamp
        self._fire(timestamp)
        self.output.emit_watermark(timestamp)

    def end_keys(self) -> None:
        """Process all rows."""
        self.advance_keys(MAX_WATERMARK)

    def advance_keys(self, timestamp: int) -> None:
        """Process due rows."""
        before = self._watermark
        self.process_watermark(timestamp)
        self._watermark = before


class ProcessingTimeMatchOperator(MatchOperator):
    """Processes rows as they arrive, or a millisecond later if ORDER BY has more columns than the time."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process rows, or let them wait for other rows of the same time."""
        _, keys, rows = self._taken(batch)
        now_ms = self.context.now_ms()
        if self._program.is_sorted_further:
            self._waiting.add_all(keys, [now_ms] * len(rows), rows)
            return
        sequences: dict[Any, list[TimedRow]] = {}
        for key, (row, flags) in zip(keys, rows, strict=True):
            sequences.setdefault(key, []).append((now_ms, row, flags))
        self._run(sequences, now_ms)

    def next_timer_ms(self) -> int | None:
        """Return when the earliest waiting rows are due, or the next partial match times out."""
        deadline, waiting = self._deadlines.next_timestamp(), self._waiting.next_ms
        times = ([] if waiting is None else [waiting + 1]) + ([] if deadline is None else [deadline])
        return min(times, default=None)

    def on_processing_time(self, now_ms: int) -> None:
        """Process waiting rows, and discard partial matches that have timed out."""
        self._fire_singly(now_ms)
        self._run({}, now_ms)

    def finish(self) -> None:
        """Process all waiting rows."""
        self._fire_singly(MAX_WATERMARK)


def match_operator(node: MatchRecognize, session: StreamSession) -> Factory:
    """Return the operator of a node.

    Raises:
        ValidationError: if the order is not by time, ascending.
        UnsupportedError: for patterns that Flink cannot run either.
    """
    time = _time(node)
    kind = EventTimeMatchOperator if time is TimeAttribute.ROWTIME else ProcessingTimeMatchOperator
    return partial(kind, build_match_specification(node), name_columns(node.schema), session)


def build_match_specification(node: MatchRecognize) -> MatchSpecification:
    """Return the pattern of a node, for streams and batches.

    Raises:
        UnsupportedError: for patterns that Flink cannot run either.
    """
    pattern = build_pattern(node.pattern, node.within_ms)
    if pattern.may_be_empty:
        raise UnsupportedError(
            "Patterns that can produce empty matches are not supported. There must be at least one non-optional state."
        )
    if pattern.ends_greedily:
        raise UnsupportedError(
            "Greedy quantifiers are not allowed as the last element of a Pattern yet. "
            "Finish your pattern with either a simple variable or reluctant quantifier."
        )
    if any(part.times.is_greedy and other.times.is_optional for part, other in pairwise(pattern.parts)):
        raise UnsupportedError("Optional pattern cannot be preceded by greedy pattern")
    conditions = [variable.condition for variable in node.pattern if variable.condition is not None]
    for expression in (*conditions, *node.measures):
        _check_aggregates(expression)
    for key in node.order[1:]:
        to_comparable(node.input.schema[key.index].type)
    return MatchSpecification(
        names=tuple(node.input.schema.names),
        types=tuple(node.input.schema.types),
        partition=node.partition,
        order=node.order,
        pattern=node.pattern,
        strategy=node.strategy,
        within_ms=node.within_ms,
        measures=node.measures,
    )


def _time(node: MatchRecognize) -> TimeAttribute:
    if not node.order:
        raise ValidationError("You must specify either rowtime or proctime for order by.")
    first = node.order[0]
    time = node.input.schema[first.index].time
    if time is None:
        raise ValidationError("You must specify either rowtime or proctime for order by as the first one.")
    if first.is_descending:
        raise ValidationError("Primary sort order of a streaming table must be ascending on time.")
    return time


def _check_aggregates(expression: MatchedExpression) -> None:
    """Raise `UnsupportedError` for an aggregate without an accumulator."""
    for reference in expression.references:
        if isinstance(reference, Aggregated):
            build_accumulator(reference.call, False)


class MatchRule(Rule[MatchRecognize]):
    """MATCH_RECOGNIZE."""

    nodes = (MatchRecognize,)

    def changes(self, node: MatchRecognize, planning: Planning) -> Changes:
        """See `Rule`."""
        return INSERTS

    def asks_before(self, node: MatchRecognize, planning: Planning, wants_before: bool) -> bool:
        """Return False, because the input is append-only."""
        return False

    def stream(self, node: MatchRecognize, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        operator = match_operator(node, planning.session)
        planning.accept("Match Recognize", node.input, INSERTS)
        inner = planning.stream(node.input, False)
        inputs = by_columns(inner, node.partition)
        limit = None if node.partition else 1
        upstreams = planning.step("Match", operator, inputs, is_stateful=True, parallelism_limit=limit)
        return Stream(upstreams, node.schema, INSERTS, False)
