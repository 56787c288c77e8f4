"""The pattern operators: find a pattern in the events of each key, and pass the matches to a function.

`carry_over` handles partial matches that were stored for another pattern than the program's current one. The
description of a pattern is operator state, the same in every subtask. If it differs from the current pattern's
description, the job fails and lists the changes, unless the program allows them. Then partial matches with the same
past continue, and the others are dropped. All keys are visited once, when the operator opens.

`WaitingEvents` are events that wait for their time, released in order. Most events wait for less time than passes
between two checkpoints, so they stay in lists. When a checkpoint begins, the waiting events are written to a state
table and stay there. So are events that would take too much memory.

`PatternOperator` has for each key the matcher's memory as state (`runtime.patterns.matcher`), and the events of its
partial matches, each stored once, as entries of a map. An event is written when first taken, and deleted with the last
partial match that contains it. A key without any started match stores nothing. Events that wait for the watermark are
stored by time. A timer of the key fires when its first partial match has taken too long.

A key is examined when it has events or a timer is due. Events that cannot begin a match are never examined one by one
if their key has no started match.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key, partial
from heapq import heapify, heappop, heappush
from itertools import chain, compress, repeat
from operator import itemgetter
from types import GeneratorType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.base.copies import detached
from penstock.base.errors import MisuseError, OperationError, WrongTypeError, short_repr
from penstock.base.output_tag import OutputTag
from penstock.runtime.operators.base import FunctionOperator, UserCodeError
from penstock.runtime.operators.emitting import check_results, is_side_output, split_side_outputs
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.operators.patterns.conditions import ConditionsAtWork, PatternSearch, PatternSettings
from penstock.runtime.operators.watermarks import LATE_RECORDS, TimerQueue
from penstock.runtime.patterns.automaton import Description, describe_pattern, differences, states_kept
from penstock.runtime.patterns.matcher import NOTHING, Elsewhere, Found, Matcher, Memory, SkipError
from penstock.runtime.ports import Clock
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.state.backend import KeyedTable
from penstock.state.operator_state import UNION_MODE
from penstock.state.snapshot import StateCapture
from penstock.state.states import NO_KEY, MapStateDescriptor

PATTERN: Final = "cep_pattern"
#: The counter of dropped partial matches.
DROPPED: Final = "numPartialMatchesDropped"


class ChangedPatternError(OperationError):
    """State was stored for another pattern. Another attempt would fail in the same way, so the job fails at once."""

    suppresses_restart = True


def note_pattern(context: OperatorContext, description: Description, is_allowed: bool) -> list[Description]:
    """Store the description of a pattern as state, and return the restored descriptions that differ from it.

    Raises:
        ChangedPatternError: if the pattern has changed and that is not allowed.
    """
    state = context.operator_state.list_state(PATTERN, UNION_MODE)
    previous = []
    for stored in dict.fromkeys(state.get()):
        before = Description.of_state(stored)
        if before == description:
            continue
        previous.append(before)
        changes = differences(before, description)
        if changes and not is_allowed:
            raise ChangedPatternError(
                f"{context.operator_name}: the state that the job begins from belongs to another pattern: "
                f"{'; '.join(changes)}. Use the pattern as it was, give the operator another uid so that it begins "
                "without partial matches, or set pipeline.cep.allow-changed-pattern to keep those whose stages so far "
                "are the same"
            )
    state.update([description.to_state()])
    return previous


def carry_over(
    table: KeyedTable,
    events: Elsewhere,
    before: Description,
    now: Description,
    matcher: Matcher,
    context: OperatorContext,
    register: Callable[[int, Any], None],
) -> None:
    """Convert the partial matches of all keys to the pattern of `matcher`.

    Args:
        table: the matchers' memory of each key.
        events: the events of the current key.
        before: the pattern that they were stored for.
        now: the current pattern.
        matcher: the matcher of the current pattern.
        context: the context of the operator.
        register: schedules a key to be examined at a time.
    """
    state_mapping = states_kept(before, now)
    memories, keyed = table.entries(None), context.keyed
    for key, data in list(memories.items()):
        keyed.current_key = key
        memory = Memory(data, events)
        partials = [
            partial._replace(state=state_mapping[partial.state])
            for partial in memory.partials
            if partial.state in state_mapping
        ]
        dropped = [partial for partial in memory.partials if partial.state not in state_mapping]
        memory.keep_partials(partials)
        for dropped_partial in dropped:
            memory.release(dropped_partial.link)
        if dropped:
            context.count(DROPPED, len(dropped))
        if memory.is_empty:
            del memories[key]
        else:
            memories[key] = data
            deadline = matcher.deadline_ms(memory)
            if deadline is not None:
                register(deadline, key)
            if dropped and memory.waiting:
                register(MIN_TIMESTAMP, key)  # they may have waited for a dropped match
        table.changed(None).add(key)
        if table.settle is not None:
            table.settle()
    keyed.current_key = NO_KEY


#: The maximum number of events that wait in lists.
LISTED_MAX: Final = 1 << 17


@dataclass(slots=True)
class _Part:
    """Events that arrived together, with their times and keys. `first_ms`, `last_ms`: earliest and latest time."""

    times: npt.NDArray[np.int64]
    keys: Sequence[Any]
    events: Sequence[Any]
    first_ms: int
    last_ms: int

    @classmethod
    def of(cls, times: npt.NDArray[np.int64], keys: Sequence[Any], events: Sequence[Any]) -> _Part:
        """Create a part from at least one event."""
        return cls(times, keys, events, int(times.min()), int(times.max()))

    def chosen(self, is_chosen: npt.NDArray[np.bool_]) -> _Part:
        """Return a part with some of the events."""
        chosen = is_chosen.tolist()
        return _Part.of(self.times[is_chosen], list(compress(self.keys, chosen)), list(compress(self.events, chosen)))


class WaitingEvents:
    """Waiting events by time and key.

    Args:
        table: stores the events; its namespaces are times, and its values lists of events.
        compare: the order of events of the same time and key; None for the order of arrival.
    """

    def __init__(self, table: KeyedTable, compare: Callable[[Any, Any], int] | None) -> None:
        self._table = table
        self._sort_key = None if compare is None else cmp_to_key(compare)
        self._times = list(table.panes)
        heapify(self._times)
        self._parts: list[_Part] = []
        self._listed = 0

    @property
    def next_ms(self) -> int | None:
        """The earliest time of a waiting event, or None."""
        return min([*self._times[:1], *(part.first_ms for part in self._parts)], default=None)

    def add_all(self, keys: Sequence[Any], times: Sequence[int], events: Sequence[Any]) -> None:
        """Add waiting events."""
        if not events:
            return
        self._parts.append(_Part.of(np.array(times, np.int64), keys, events))
        self._listed += len(events)
        if self._listed > LISTED_MAX:
            self.store()

    def store(self) -> None:
        """Move all events into the table."""
        table = self._table
        panes, is_marked = table.panes, not table.is_next_whole
        pane: dict[Any, list[Any]] | None = None
        last_ms: int | None = None
        for key, time_ms, event in self._listed_events():
            if time_ms != last_ms or pane is None:
                pane, last_ms = panes.get(time_ms), time_ms
                if pane is None:
                    pane = table.entries(time_ms)
                    heappush(self._times, time_ms)
            known = pane.get(key)
            if known is None:
                pane[key] = [event]
            else:
                known.append(event)
            if is_marked:
                table.changed(time_ms).add(key)
        self._parts, self._listed = [], 0

    def _listed_events(self) -> Iterable[tuple[Any, int, Any]]:
        return (row for part in self._parts for row in zip(part.keys, part.times.tolist(), part.events, strict=True))

    def take(self, up_to: int) -> dict[Any, list[tuple[int, Any]]]:
        """Remove and return all events up to a time: by key, in order, each with its time."""
        due = self._from_table(up_to)
        due += self._from_parts(up_to)
        if not due:
            return {}
        times = np.concatenate([part.times for part in due])
        keys = list(chain.from_iterable(part.keys for part in due))
        rows = list(zip(times.tolist(), chain.from_iterable(part.events for part in due), strict=True))
        if len(rows) > 1:
            in_order = itemgetter(*np.argsort(times, kind="stable").tolist())
            keys, rows = in_order(keys), in_order(rows)
        rows_by_key: defaultdict[Any, list[tuple[int, Any]]] = defaultdict(list)
        for key, row in zip(keys, rows, strict=True):
            rows_by_key[key].append(row)
        if (sort_key := self._sort_key) is not None:
            for of_key in rows_by_key.values():
                of_key.sort(key=lambda row: (row[0], sort_key(row[1])))
        return rows_by_key

    def _from_table(self, up_to: int) -> list[_Part]:
        times: list[int] = []
        keys: list[Any] = []
        events: list[Any] = []
        while self._times and self._times[0] <= up_to:
            time_ms = heappop(self._times)
            for key, of_key in self._table.drop(time_ms).items():
                events += of_key
                keys += [key] * len(of_key)
                times += [time_ms] * len(of_key)
        return [_Part.of(np.array(times, np.int64), keys, events)] if events else []

    def _from_parts(self, up_to: int) -> list[_Part]:
        due, left = [], []
        for part in self._parts:
            if part.last_ms <= up_to:
                due.append(part)
            elif part.first_ms > up_to:
                left.append(part)
            else:
                is_due = part.times <= up_to
                due.append(part.chosen(is_due))
                left.append(part.chosen(~is_due))
        self._parts, self._listed = left, sum(len(part.events) for part in left)
        return due


#: The states: the matchers' memories, the events of partial matches, waiting events, and deadlines.
MEMORIES: Final = "cep_partial_matches"
EVENTS: Final = "cep_events"
WAITING: Final = "cep_waiting_events"
DEADLINES: Final = "cep_deadlines"
#: Shows that no condition was evaluated for an event.
_UNKNOWN: Final[dict[int, bool]] = {}


class PartialMatchLimitError(OperationError):
    """A key exceeds the limit of partial matches. The job fails: another attempt would meet the same events."""

    suppresses_restart = True


class MatchContext:
    """The context passed to a function with a match, or with a partial match that took too long."""

    __slots__ = ("_clock", "_output", "has_times", "time_ms")

    def __init__(self, clock: Clock, has_times: bool, output: Callable[[Any], None]) -> None:
        self._clock = clock
        self._output = output
        self.has_times = has_times
        self.time_ms = 0

    def timestamp(self) -> int | None:
        """Return when the match was complete or had taken too long, in ms of event time; None in processing time."""
        return self.time_ms if self.has_times else None

    def current_processing_time(self) -> int:
        """Return processing time in ms."""
        return self._clock.now_ms()

    def output(self, output_tag: OutputTag, value: Any) -> None:
        """Send a record to a side output."""
        self._output((output_tag, value))


class PatternOperator(FunctionOperator):
    """Base of the pattern operators in event time and in processing time.

    Args:
        search: the pattern to look for.
        function: has `process_match`, and `process_timed_out_match` if partial matches that take too long matter.
        key_selector: returns the key of an event.
        settings: the settings from the options.
    """

    is_keyed = True
    has_times = False

    def __init__(
        self,
        search: PatternSearch,
        function: Any,
        key_selector: Callable[[Any], Any],
        settings: PatternSettings = PatternSettings(),  # noqa: B008 - it cannot change
    ) -> None:
        super().__init__(function)
        self._search = search
        self._key_selector = key_selector
        self._settings = settings

    def open(self) -> None:
        """Look up the state, and open the conditions and the function."""
        self._matcher = Matcher(self._search.pattern, self._search.strategy)
        keyed = self.context.keyed
        memories = keyed.table(MEMORIES)
        self._memories, self._mark = memories.entries(None), memories.mark
        self._events = keyed.map_state(MapStateDescriptor(EVENTS))
        self._waiting = WaitingEvents(keyed.table(WAITING), self._search.compare)
        self._deadlines = TimerQueue(keyed.table(DEADLINES))
        self._results: list[Any] = []
        self._result_times: list[int] = []
        self._ctx = MatchContext(self.context.clock, self.has_times, self._collect)
        super().open()
        for entry in self._search.conditions:
            self.call_user(entry.condition.start, self.runtime_context(), what="open() of a condition")
        self._conditions = ConditionsAtWork(
            self._search.conditions, self._matcher.automaton, self.context.operator_name, self.context.clock
        )
        self._simple = self._conditions.simple
        self._patient = self._matcher.patient_states(self._simple)
        self._on_match = self.function.process_match
        self._on_timed_out = getattr(self.function, "process_timed_out_match", None)
        self._carry_over(memories)

    def _carry_over(self, memories: KeyedTable) -> None:
        """Continue with partial matches that were stored for another pattern, if that is allowed."""
        now = describe_pattern(self._search.pattern, self._matcher.automaton)
        for before in note_pattern(self.context, now, self._settings.allows_change):
            carry_over(memories, self._events, before, now, self._matcher, self.context, self._deadlines.register)

    def close(self) -> None:
        """Close the function and the conditions."""
        was_open = self._opened
        super().close()
        for entry in self._search.conditions if was_open else ():
            self.call_user(entry.condition.stop, what="close() of a condition")

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture all state, including the waiting events."""
        self._waiting.store()
        return super().snapshot_state(checkpoint_id)

    def late_outputs(self) -> tuple[str, ...]:
        """Return the tag of late events, if there is one."""
        return () if self._search.late_tag is None else (self._search.late_tag,)

    # --- matching ----------------------------------------------------------------------------------------------------

    def _run(self, sequences: Mapping[Any, Sequence[tuple[int, Any]]], up_to: int) -> None:
        """Process events of keys in the order of their times, expire partial matches, and emit the results."""
        keyed = self.context.keyed
        try:
            self._take_all(sequences)
            self._deadlines.fire(up_to, partial(self._expire, up_to))
        except SkipError as error:
            raise UserCodeError(self.context.operator_name, keyed.current_key, "the skip strategy") from error
        finally:
            keyed.current_key = NO_KEY
        self._send()

    def _take_all(self, sequences: Mapping[Any, Sequence[tuple[int, Any]]]) -> None:
        begins = self._conditions.may_begin([event for rows in sequences.values() for _, event in rows])
        memories, end = self._memories, 0
        entries: list[tuple[Any, list[Any], Sequence[tuple[int, Any]]]] = []
        flags: list[Any] | None = None if begins is None else []
        for key, rows in sequences.items():
            begin, end = end, end + len(rows)
            data = memories.get(key)
            if begins is not None and flags is not None:
                first = begin
                if data is None:
                    first = next((index for index in range(begin, end) if begins[index]), end)
                    if first == end:
                        continue
                rows = rows[first - begin :]
                flags += begins[first:end]
            entries.append((key, Memory.empty() if data is None else data, rows))
        if not entries:
            return
        answers = self._conditions.answers([event for _, _, rows in entries for _, event in rows], flags)
        end = 0
        for key, data, rows in entries:
            begin, end = end, end + len(rows)
            self._take(key, data, rows, None if answers is None else answers[begin:end])
        self._mark(None, [key for key, _, _ in entries])

    def _take(
        self,
        key: Any,
        data: list[Any],
        rows: Sequence[tuple[int, Any]],
        answers: Sequence[dict[int, bool] | None] | None,
    ) -> None:
        """Process events of one key. `answers`: of simple conditions, None for an event if none of them holds."""
        self.context.keyed.current_key = key
        memory, matcher, conditions = Memory(data, self._events, True), self._matcher, self._conditions
        deadline = before = matcher.deadline_ms(memory)
        has_times, most, holds = self.has_times, self._settings.partials_max, conditions.holds
        patient, is_patient = self._patient, answers is not None and self._is_patient(memory)
        for (time_ms, event), known in zip(rows, repeat(_UNKNOWN) if answers is None else answers, strict=False):
            if deadline is not None and deadline <= time_ms:
                self._found(matcher.advance(memory, time_ms), time_ms)
                deadline = matcher.deadline_ms(memory)
            if known is None:
                if is_patient:
                    continue
                known = dict.fromkeys(self._simple, False)
            elif known is _UNKNOWN:
                known = {}
            conditions.at_hand = event, memory, time_ms if has_times else None, known
            result = matcher.process(memory, event, time_ms, holds, known)
            if result is NOTHING:
                continue
            self._found(result, time_ms)
            if most is not None and len(memory.partials) + len(memory.waiting) > most:
                self._limit(memory, most, event, time_ms)
            deadline = matcher.deadline_ms(memory)
            is_patient = bool(patient) and self._is_patient(memory)
        self._keep(key, data, memory)
        if deadline is not None and (before is None or deadline < before):
            self._deadlines.register(deadline, key)

    def _is_patient(self, memory: Memory) -> bool:
        """Return whether all partial matches ignore an event that satisfies no simple condition."""
        patient = self._patient
        return bool(patient) and all(partial.state in patient for partial in memory.partials)

    def _limit(self, memory: Memory, most: int, event: Any, time_ms: int) -> None:
        """Enforce the limit on partial matches of a key: fail, or drop the oldest ones."""
        if not self._settings.drops_oldest:
            raise PartialMatchLimitError(
                f"{self.context.operator_name}: key {short_repr(self.context.keyed.current_key)} has more than {most} "
                f"partial matches (pipeline.cep.partial-matches.max) with the event {short_repr(event)}: give the "
                "pattern a shorter window or stricter conditions, skip after matches, raise the limit, or set "
                "pipeline.cep.partial-matches.on-overflow to drop-oldest"
            )
        dropped, result = self._matcher.drop_oldest(memory, most)
        self.context.count(DROPPED, dropped)
        self._found(result, time_ms)

    def _keep(self, key: Any, data: list[Any], memory: Memory) -> None:
        if memory.is_empty:
            self._memories.pop(key, None)
        else:
            memory.put_down()
            self._memories[key] = data

    def _expire(self, up_to: int, time_ms: int, key: Any) -> None:
        """Expire the partial matches of a key that have taken too long, and schedule its next deadline."""
        data = self._memories.get(key)
        if data is None:
            return
        self.context.keyed.current_key = key
        memory = Memory(data, self._events)
        self._found(self._matcher.advance(memory, up_to), up_to)
        deadline = self._matcher.deadline_ms(memory)
        if deadline is not None:
            self._deadlines.register(deadline, key)
        self._keep(key, data, memory)
        self._mark(None, (key,))

    # --- results -----------------------------------------------------------------------------------------------------

    def _found(self, result: Found, time_ms: int) -> None:
        """Pass matches and timed-out partial matches to the function."""
        ctx, current = self._ctx, ""
        try:
            for match in result.matches:
                ctx.time_ms, current = time_ms, "process_match"
                self._collect_all(self._on_match(match, ctx), self._on_match)
            if self._on_timed_out is not None:
                for match, timed_out_ms in result.timed_out:
                    ctx.time_ms, current = timed_out_ms, "process_timed_out_match"
                    self._collect_timed_out(self._on_timed_out(match, ctx))
        except Exception as error:
            raise UserCodeError(self.context.operator_name, match, f"{current}()") from error

    def _collect_all(self, returned: Any, function: Callable[..., Any]) -> None:
        if returned is None:
            return
        if returned.__class__ is not GeneratorType and returned.__class__ is not list:
            returned = check_results(returned, function)
        for result in returned:
            self._collect(result)

    def _collect_timed_out(self, returned: Any) -> None:
        for result in () if returned is None else returned:
            if not is_side_output(result):
                raise MisuseError(
                    f"process_timed_out_match() gave {result!r}: partial matches that took too long go to side outputs "
                    "alone; `yield tag, value` with an OutputTag, or call ctx.output(tag, value)"
                )
            self._collect(result)

    def _collect(self, result: Any) -> None:
        self._results.append(detached(result))
        self._result_times.append(self._ctx.time_ms)

    def _send(self) -> None:
        if not self._results:
            return
        results, times = self._results, self._result_times
        self._results, self._result_times = [], []
        out = split_side_outputs(self.output, results, times if self.has_times else None)
        if len(out):
            self.output.collect(out)


class EventTimePatternOperator(PatternOperator):
    """Queues events until the watermark passes them; events at or before the watermark are late."""

    has_times = True

    def open(self) -> None:
        """See `PatternOperator`."""
        super().open()
        self._watermark = MIN_TIMESTAMP

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Queue the events that are not late."""
        if batch.timestamps is None:
            raise WrongTypeError(
                f"{self.context.operator_name}: a pattern in event time needs timestamps, but these records have none; "
                "give the source a WatermarkStrategy with a timestamp assigner, or call in_processing_time()"
            )
        values, timestamps = batch.values, batch.timestamps
        if values and min(timestamps) <= self._watermark:
            values, timestamps = self._without_late(values, timestamps)
        self._waiting.add_all(self.extract_keys(values, self._key_selector), timestamps, values)

    def _without_late(self, values: list[Any], timestamps: list[int]) -> tuple[list[Any], list[int]]:
        """Return the events that are not late, and pass on or count the late ones."""
        late: tuple[list[Any], list[int]] = ([], [])
        rest: tuple[list[Any], list[int]] = ([], [])
        for value, timestamp in zip(values, timestamps, strict=True):
            side = rest if timestamp > self._watermark else late
            side[0].append(value)
            side[1].append(timestamp)
        if self._search.late_tag is None:
            self.context.count(LATE_RECORDS, len(late[0]))
        else:
            self.output.collect_side(self._search.late_tag, Batch(*late))
        return rest

    def process_watermark(self, timestamp: int) -> None:
        """Process the events that are due, and pass the watermark on."""
        self._watermark = timestamp
        self._run(self._waiting.take(timestamp), timestamp)
        self.output.emit_watermark(timestamp)

    def end_keys(self) -> None:
        """Process all events."""
        self.advance_keys(MAX_WATERMARK)

    def advance_keys(self, timestamp: int) -> None:
        """Process the events that are due."""
        before = self._watermark
        self.process_watermark(timestamp)
        self._watermark = before


class ProcessingTimePatternOperator(PatternOperator):
    """Processes events as they arrive, or a millisecond later if events of the same time have an order of their own."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process events, or queue them until others of the same time have arrived."""
        values, now_ms = batch.values, self.context.now_ms()
        keys = self.extract_keys(values, self._key_selector)
        if self._search.compare is not None:
            self._waiting.add_all(keys, [now_ms] * len(values), values)
            return
        sequences: dict[Any, list[tuple[int, Any]]] = {}
        for key, value in zip(keys, values, strict=True):
            sequences.setdefault(key, []).append((now_ms, value))
        self._run(sequences, now_ms)

    def next_timer_ms(self) -> int | None:
        """Return when the next deadline is, or a millisecond after the earliest waiting events if that is earlier."""
        deadline, waiting = self._deadlines.next_timestamp(), self._waiting.next_ms
        times = ([] if waiting is None else [waiting + 1]) + ([] if deadline is None else [deadline])
        return min(times, default=None)

    def on_processing_time(self, now_ms: int) -> None:
        """Process waiting events, and expire partial matches that have taken too long."""
        self._run(self._waiting.take(now_ms - 1), now_ms)

    def quiesce_timers(self) -> None:
        """Cancel the deadlines of partial matches; `finish` processes the waiting events."""
        self._deadlines.clear()

    def end_keys(self) -> None:
        """Process all events, and expire all partial matches that have a deadline."""
        self._run(self._waiting.take(MAX_WATERMARK), MAX_WATERMARK)
        super().end_keys()

    def finish(self) -> None:
        """Process all waiting events."""
        self._run(self._waiting.take(MAX_WATERMARK), self.context.now_ms())
