"""The pattern operators: find a pattern in the events of each key, and pass the matches to a function.

`carry_over` handles partial matches that were stored for another pattern than the program's current one. The
description of a pattern is operator state, the same in every subtask. If it differs from the current pattern's
description, the job fails and lists the changes, unless the program allows them. Then partial matches with the same
past continue, and the others are dropped. All keys are visited once, when the operator opens.

`PatternOperator` has for each key the matcher's memory as state (`runtime.patterns.memory`), and the events of its
partial matches, each stored once, as entries of a map. An event is written when first taken, and deleted with the last
partial match that contains it. A key without any started match stores nothing. Events wait for the watermark in
`WaitingEvents`. A timer of the key fires when its first partial match has taken too long.

A key is examined when a timer is due, or when a `Sieve` leaves events of the key that may matter to it. All of these
that are due go through the matcher in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import GeneratorType
from typing import Any, Final

import numpy as np

from penstock.base.copies import detached
from penstock.base.errors import MisuseError, OperationError, WrongTypeError, short_repr
from penstock.base.output_tag import OutputTag
from penstock.runtime.operators.base import FunctionOperator, UserCodeError
from penstock.runtime.operators.emitting import check_results
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.operators.patterns.conditions import ConditionsAtWork, PatternSearch, PatternSettings
from penstock.runtime.operators.patterns.sieve import Columns, DueEvents, KeysAtWork, Offered, Sieve
from penstock.runtime.operators.patterns.waiting import WaitingEvents
from penstock.runtime.operators.results import is_side_output, split_side_outputs
from penstock.runtime.operators.watermarks import LATE_RECORDS, TimerQueue
from penstock.runtime.patterns.automaton import Description, describe_pattern, differences, states_kept
from penstock.runtime.patterns.matcher import Found, Listener, Matcher, SkipError
from penstock.runtime.patterns.memory import EVENTS as COUNTS
from penstock.runtime.patterns.memory import LINKS, PARTIALS, Elsewhere, Memory
from penstock.runtime.patterns.memory import WAITING as WAITING_MATCHES
from penstock.runtime.patterns.moves import Holds
from penstock.runtime.ports import Clock
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.state.backend import KeyedTable
from penstock.state.operator_state import UNION_MODE
from penstock.state.snapshot import StateCapture
from penstock.state.states import NO_KEY, MapStateDescriptor

PATTERN: Final = "cep_pattern"
#: After how many events the steps of passed idle ones are made.
PASSED_MAX: Final = 1 << 17
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


#: The states: the matchers' memories, the events of partial matches, waiting events, and deadlines.
MEMORIES: Final = "cep_partial_matches"
EVENTS: Final = "cep_events"
WAITING: Final = "cep_waiting_events"
DEADLINES: Final = "cep_deadlines"


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
        keyed = self.context.keyed
        memories = keyed.table(MEMORIES)
        self._memories, self._mark, self._settle = memories.entries(None), memories.mark, memories.settle
        self._events = keyed.map_state(MapStateDescriptor(EVENTS))
        #: if nothing ever leaves memory, the maps of events by key, which are used directly
        self._maps: dict[Any, Any] | None = None
        if memories.settle is None:
            maps = keyed.table(EVENTS)
            self._maps, self._mark_maps = maps.entries(None), maps.mark
        self._waiting = WaitingEvents(keyed.table(WAITING), self._search.compare)
        self._deadlines = TimerQueue(keyed.table(DEADLINES))
        self._results: list[Any] = []
        self._result_times: list[int] = []
        self._expiring = Memory(Memory.empty())
        self._ctx = MatchContext(self.context.clock, self.has_times, self._collect)
        super().open()
        for entry in self._search.conditions:
            self.call_user(entry.condition.start, self.runtime_context(), what="open() of a condition")
        self._on_match = self.function.process_match
        self._on_timed_out = getattr(self.function, "process_timed_out_match", None)
        self._conditions = ConditionsAtWork(self._search.conditions, self.context.operator_name, self.context.clock)
        self._matcher = Matcher(
            self._search.pattern,
            self._search.strategy,
            simple=self._conditions.simple,
            twins=self._conditions.twins,
            partials_max=self._settings.partials_max,
            tells_timed_out=self._on_timed_out is not None,
        )
        self._sieve = Sieve(self._conditions, self._matcher)
        self._carry_over(memories)
        self._unsettled_states = self._matcher.moves.unsettled()
        #: the keys with partial matches in unsettled states, once the sieve has to know them; if all state is in memory
        self._unsettled: set[Any] | None = None

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
        self._settle_passed()
        return super().snapshot_state(checkpoint_id)

    def late_outputs(self) -> tuple[str, ...]:
        """Return the tag of late events, if there is one."""
        return () if self._search.late_tag is None else (self._search.late_tag,)

    # --- matching ----------------------------------------------------------------------------------------------------

    def _run(self, due: Sequence[DueEvents], up_to: int) -> None:
        """Process events that are due, expire partial matches, and emit the results."""
        keyed = self.context.keyed
        try:
            if due:
                self._take_all(due, up_to)
            changed: list[Any] = []
            self._deadlines.fire(up_to, partial(self._expire, up_to, changed))
            self._mark_all(changed)
        except SkipError as error:
            raise UserCodeError(self.context.operator_name, keyed.current_key, "the skip strategy") from error
        finally:
            keyed.current_key = NO_KEY
        self._send()

    def _take_all(self, due: Sequence[DueEvents], up_to: int) -> None:
        active: Collection[Any] = self._memories
        if self._maps is None:
            # Each lookup may read the store, so every key is looked up once.
            keys = dict.fromkeys(chain.from_iterable(some.read_keys() for some in due))
            active = {key for key in keys if key in self._memories}
        at_work = KeysAtWork(active, self._deadlines.peek(up_to), partial(self._find_unsettled, active))
        events_by_key = self._sieve.sift(due, at_work)
        listener = Listener(self._advance, self._match, self._limit, self._ask)
        self._matcher.run(self._open_each(events_by_key), listener)
        self._mark_all(events_by_key)
        within_ms = self._search.pattern.within_ms
        if within_ms is not None:
            self._sieve.passed.forget(up_to - within_ms)
        if self._sieve.passed.count > PASSED_MAX:
            self._settle_passed()

    def _find_unsettled(self, active: Collection[Any]) -> Collection[Any]:
        """Return at least the keys that have partial matches in unsettled states."""
        self._settle_passed()
        if self._maps is None:
            return active
        if self._unsettled is None:
            self._unsettled = {key for key, data in self._memories.items() if self._is_unsettled(data)}
        return self._unsettled

    def _settle_passed(self) -> None:
        """Make the steps of the idle events that were passed over."""
        keyed, view = self.context.keyed, Memory(Memory.empty())
        for key, is_idle in self._sieve.passed.drain().items():
            data = self._memories.get(key)
            if data is not None and self._is_unsettled(data):
                keyed.current_key = key
                self._show(view, key, data)
                self._matcher.settle(view, is_idle)
                self._keep(key, view)
                self._mark_all((key,))
            if self._settle is not None:
                self._settle()
        keyed.current_key = NO_KEY

    def _open_each(self, events_by_key: Mapping[Any, Offered]) -> Iterator[tuple[Memory, Offered]]:
        """Yield the memory and the events of each key, and store the memory when the next one is asked for."""
        keyed, memories, maps, register = self.context.keyed, self._memories, self._maps, self._deadlines.register
        arrange = self._waiting.arrange if self._search.compare is not None else None
        view = Memory(Memory.empty())
        for key, events in events_by_key.items():
            keyed.current_key = key
            if arrange is not None:
                arrange(events)
            data = memories.get(key)
            is_new = data is None
            if data is None:
                data = [0, [], [], {}, {}]
            of_key = self._events if maps is None else maps.get(key)
            view.data, view.links, view.counts = data, data[LINKS], data[COUNTS]
            view.elsewhere = {} if of_key is None else of_key
            yield view, events
            is_empty = not data[PARTIALS] and not data[WAITING_MATCHES]
            if is_empty and is_new:
                continue
            if is_empty or view.elsewhere is not of_key or maps is None:
                self._keep(key, view)
            if self._unsettled is not None:
                (self._unsettled.add if self._is_unsettled(data) else self._unsettled.discard)(key)
            if view.deadline_ms is not None:
                register(view.deadline_ms, key)

    def _is_unsettled(self, data: list[Any]) -> bool:
        states = self._unsettled_states
        return any(match[0] in states for match in data[PARTIALS])

    def _show(self, view: Memory, key: Any, data: list[Any]) -> None:
        """Show a key's memory, and its events, which `_keep` stores if all state is in memory."""
        maps = self._maps
        view.show(data, self._events if maps is None else maps.get(key) or {})

    def _keep(self, key: Any, memory: Memory) -> None:
        """Store a key's memory, or forget it if no match is in progress."""
        data, maps = memory.data, self._maps
        if data[PARTIALS] or data[WAITING_MATCHES]:
            self._memories[key] = data
        else:
            self._memories.pop(key, None)
        if maps is None:
            return
        if memory.elsewhere:
            maps[key] = memory.elsewhere
        else:
            maps.pop(key, None)

    def _mark_all(self, keys: Collection[Any]) -> None:
        self._mark(None, keys)
        if self._maps is not None:
            self._mark_maps(None, keys)

    def _expire(self, up_to: int, changed: list[Any], time_ms: int, key: Any) -> None:
        """Expire the partial matches of a key that have taken too long, and schedule its next deadline."""
        data = self._memories.get(key)
        if data is None:
            return
        memory, matcher = self._expiring, self._matcher
        self._show(memory, key, data)
        deadline = matcher.deadline_ms(memory)
        if deadline is None or deadline <= up_to or data[WAITING_MATCHES]:
            self.context.keyed.current_key = key
            self._found(matcher.advance(memory, up_to), up_to)
            deadline = matcher.deadline_ms(memory)
            self._keep(key, memory)
            if self._maps is None:
                self._mark_all((key,))  # at once, because the entry may leave memory before the next timer
            else:
                changed.append(key)
        # Otherwise the partial match that the timer was set for has ended before.
        if deadline is not None:
            self._deadlines.register(deadline, key)

    def _limit(self, memory: Memory, event: Any, time_ms: int) -> None:
        """Enforce the limit on partial matches of a key: fail, or drop the oldest ones."""
        most = self._settings.partials_max
        assert most is not None, "there is no limit"
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

    # --- results -----------------------------------------------------------------------------------------------------

    def _advance(self, memory: Memory, time_ms: int) -> None:
        """Expire the partial matches of a key that have taken too long when its next event comes."""
        self._found(self._matcher.advance(memory, time_ms), time_ms)

    def _ask(self, memory: Memory, event: Any, time_ms: int, known: dict[int, bool]) -> Holds:
        """Return what evaluates the conditions that the symbol of an event does not answer."""
        self._conditions.at_hand = event, memory, time_ms if self.has_times else None, known
        return self._conditions.holds

    def _found(self, result: Found, time_ms: int) -> None:
        """Pass matches and timed-out partial matches to the function."""
        if result.matches:
            self._match(result.matches, time_ms)
        ctx, on_timed_out = self._ctx, self._on_timed_out
        if on_timed_out is None:
            return
        for match, timed_out_ms in result.timed_out:
            try:
                ctx.time_ms = timed_out_ms
                self._collect_timed_out(on_timed_out(match, ctx))
            except Exception as error:
                raise UserCodeError(self.context.operator_name, match, "process_timed_out_match()") from error

    def _match(self, matches: list[dict[str, list[Any]]], time_ms: int) -> None:
        """Pass matches to the function."""
        ctx, on_match, results, times = self._ctx, self._on_match, self._results, self._result_times
        for match in matches:
            try:
                ctx.time_ms = time_ms
                returned = on_match(match, ctx)
                if returned is None:
                    continue
                if returned.__class__ is not GeneratorType and returned.__class__ is not list:
                    returned = check_results(returned, on_match)
                for result in returned:
                    results.append(detached(result))
                    times.append(time_ms)
            except Exception as error:
                raise UserCodeError(self.context.operator_name, match, "process_match()") from error

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
        self._run(self._waiting.take(timestamp, self._sieve.screen), timestamp)
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
        events = Columns(keys, np.full(len(values), now_ms, np.int64), values)
        self._run([DueEvents(events, np.arange(len(values)))] if values else [], now_ms)

    def next_timer_ms(self) -> int | None:
        """Return when the next deadline is, or a millisecond after the earliest waiting events if that is earlier."""
        deadline, waiting = self._deadlines.next_timestamp(), self._waiting.next_ms
        times = ([] if waiting is None else [waiting + 1]) + ([] if deadline is None else [deadline])
        return min(times, default=None)

    def on_processing_time(self, now_ms: int) -> None:
        """Process waiting events, and expire partial matches that have taken too long."""
        self._run(self._waiting.take(now_ms - 1, self._sieve.screen), now_ms)

    def quiesce_timers(self) -> None:
        """Cancel the deadlines of partial matches; `finish` processes the waiting events."""
        self._deadlines.clear()

    def end_keys(self) -> None:
        """Process all events, and expire all partial matches that have a deadline."""
        self._run(self._waiting.take(MAX_WATERMARK, self._sieve.screen), MAX_WATERMARK)
        super().end_keys()

    def finish(self) -> None:
        """Process all waiting events."""
        self._run(self._waiting.take(MAX_WATERMARK, self._sieve.screen), self.context.now_ms())
