"""Compiles a pattern into an automaton.

States are built from the last part to the first, because a step leads to a state that already exists.

An unbounded repetition is a state that takes events and stays, preceded by a state that takes the first event. A greedy
repetition forbids the following part, and the step around that part, to use an event that the repetition could take. As
in Flink, a greedy repetition before an optional part at the end of a pattern is therefore no match without that part.

If an event may be ignored before an optional part, a separate state without a step around the part waits for it.
Otherwise each event would open that step again.

A NOT_FOLLOWED stage has no state if a part follows it. Instead, the states that wait for its neighbours lead to a stop
when its condition holds: the first state after it, the states of optional stages in between, and the repeating states
before it. After an event of an optional stage, the stop no longer applies: `_free` copies the states reachable without
another event, but not their steps to the stop. At the end of the pattern, the stage is a pending state.

A group's UNTIL conditions apply to the stages directly in the group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.core.patterns.automaton import FINAL, Action, Automaton, Guard, Step
from penstock.core.patterns.pattern import NEGATIONS, Contiguity, Group, Part, Pattern, Stage


def build_automaton(pattern: Pattern) -> Automaton:
    """Build the automaton of a pattern."""
    making = _Making(pattern.within_ms is not None)
    start = making.chain(_Row(pattern.parts, pattern.parts[0].contiguity), FINAL)
    return making.made(start)


@dataclass(frozen=True, slots=True)
class _Row:
    """Consecutive parts of a pattern.

    `lead`: the contiguity before the first part. `group`: the group of the parts. `is_again`: whether this repeats the
    group. `waits`: whether the enclosing row adds a step around the first part. `following`: the part after the last
    one.
    """

    parts: tuple[Part, ...]
    lead: Contiguity
    group: Group | None = None
    is_again: bool = False
    waits: bool = False
    following: Part | None = None

    def within(self, index: int, is_again: bool, has_way_around: bool) -> _Row:
        """Return the row of a group that is one of the parts."""
        group = self.parts[index]
        assert isinstance(group, Group), "a stage has no parts"
        lead = group.times.inner if is_again else self.contiguity(index)
        waits = has_way_around or self.waits_for(index)
        return _Row(group.parts, lead, group, is_again, waits, self.follower(index))

    def follower(self, index: int) -> Part | None:
        """Return the part that follows a part."""
        return self.parts[index + 1] if index + 1 < len(self.parts) else self.following

    def nots_before(self, index: int) -> list[Stage]:
        """Return the stages forbidden while waiting for a part: directly before it, or before optional parts."""
        stages: list[Stage] = []
        for before in reversed(self.parts[:index]):
            if isinstance(before, Stage) and before.contiguity is Contiguity.NOT_FOLLOWED:
                stages.append(before)
            elif not before.times.is_optional and before.contiguity is not Contiguity.NOT_NEXT:
                break
        return stages

    @property
    def until(self) -> Guard:
        """The guard that the group's UNTIL condition does not hold."""
        until = None if self.group is None else self.group.times.until
        return () if until is None else ((until, False),)

    def contiguity(self, index: int) -> Contiguity:
        """Return the contiguity before a part."""
        return self.parts[index].contiguity if index else self.lead

    def waits_for(self, index: int) -> bool:
        """Return whether the enclosing row adds a step around a part."""
        return not index and self.waits

    def window_ms(self, index: int, number: int) -> int | None:
        """Return how long after the previous event a part may take its event of this number."""
        part = self.parts[index]
        assert isinstance(part, Stage), "a group takes no event itself"
        if number > 1:
            return part.times.window_ms
        again = self.group.times.window_ms if self.group is not None and self.is_again and not index else None
        windows = [window for window in (part.since_last_ms, again) if window is not None]
        return min(windows, default=None)


class _Making:
    def __init__(self, has_window: bool) -> None:
        self._names = [""]
        self._steps: list[list[Step]] = [[]]
        self._windows: list[int | None] = [None]
        self._labels = ["final"]
        self._pending: set[int] = set()
        self._stops: dict[str, int] = {}
        self._has_window = has_window

    def made(self, start: int) -> Automaton:
        """Return the finished automaton."""
        return Automaton(
            tuple(self._names),
            tuple(map(tuple, self._steps)),
            start,
            tuple(self._windows),
            tuple(self._labels),
            frozenset(self._pending),
            frozenset(self._stops.values()),
        )

    def chain(self, row: _Row, sink: int) -> int:
        """Build consecutive parts that lead to `sink`, and return their first state."""
        for index in reversed(range(len(row.parts))):
            part = row.parts[index]
            if isinstance(part, Stage) and part.contiguity in NEGATIONS:
                sink = self._negation(row, index, part, sink)
            else:
                sink = self._part(row, index, sink)
        return sink

    # --- what must not be met ----------------------------------------------------------------------------------------

    def _negation(self, row: _Row, index: int, stage: Stage, sink: int) -> int:
        met = self._take(row, stage)
        if stage.contiguity is Contiguity.NOT_NEXT:
            state = self._state(stage.name, "not", stage.since_last_ms)
            # Ignoring an event completes the match; proceeding without one would complete it too early.
            action = Action.IGNORE if sink == FINAL else Action.PROCEED
            self._steps[state].append(Step(action, sink, unless=(met,)))
        elif sink == FINAL and (self._has_window or stage.since_last_ms is not None):
            state = self._state(stage.name, "pending", stage.since_last_ms)
            self._pending.add(state)
            self._steps[state].append(Step(Action.IGNORE, state, unless=(met,)))
        else:
            return sink
        self._stop(state, row, stage)
        self._watch(state, row, index)
        return state

    def _stop(self, state: int, row: _Row, stage: Stage) -> None:
        """End a partial match in a state when this stage occurs."""
        stop = self._stops.get(stage.name)
        met = self._take(row, stage)
        if stop is None:
            stop = self._stops[stage.name] = self._state(stage.name, "stop")
            self._steps[stop].append(Step(Action.TAKE, stop, met))
        self._steps[state].append(Step(Action.PROCEED, stop, met))

    def _watch(self, state: int, row: _Row, index: int) -> None:
        """Connect a state that waits for a part to the stops of the stages forbidden before it."""
        for stage in row.nots_before(index):
            self._stop(state, row, stage)

    def _watch_repeating(self, state: int, row: _Row, index: int) -> None:
        """Connect a state of a repetition to the stop of the stage forbidden after it."""
        following = row.follower(index)
        if isinstance(following, Stage) and following.contiguity is Contiguity.NOT_FOLLOWED:
            self._stop(state, row, following)

    def _free(self, row: _Row, index: int, sink: int) -> int:
        """Return the state after an event of a part; after an optional part, without the stops that preceded it."""
        nots = {stage.name for stage in row.nots_before(index)}
        if not nots or not row.parts[index].times.is_optional:
            return sink
        dropped = {self._stops[name] for name in nots if name in self._stops}
        return self._freed(sink, dropped)

    def _freed(self, state: int, dropped: set[int]) -> int:
        if state == FINAL:
            return FINAL
        freed = self._state(self._names[state], "free", self._windows[state])
        if state in self._pending:
            self._pending.add(freed)
        steps = []
        for step in self._steps[state]:
            if step.action is not Action.PROCEED:
                steps.append(replace(step, target=freed) if step.target == state else step)
            elif step.target not in dropped:
                is_stop = step.target in self._stops.values()
                steps.append(step if is_stop else replace(step, target=self._freed(step.target, dropped)))
        self._steps[freed] = steps
        return freed

    # --- parts -------------------------------------------------------------------------------------------------------

    def _part(self, row: _Row, index: int, sink: int) -> int:
        part = row.parts[index]
        times, after, stopped = part.times, sink, None
        if times.most is None:
            free = self._free(row, index, sink)
            if times.is_greedy and times.until is not None:
                stopped = self._copy(free)
            after = self._loop(row, index, free, stopped)
        elif times.is_greedy and times.least != times.most:
            self._exclude_events(sink, self._take_inner(row, part))
        for number in range(times.least, times.most or times.least):
            after = self._once(row, index, after, sink, times.least + (times.most or 0) - number, is_optional=True)
            self._watch_repeating(after, row, index)
        for number in range(times.least, 1, -1):
            after = self._once(row, index, after, None, number, is_optional=False)
            self._watch_repeating(after, row, index)
        first = self._once(row, index, after, sink, 1, times.is_optional, stopped)
        self._watch(first, row, index)
        return first

    def _once(
        self,
        row: _Row,
        index: int,
        after: int,
        around: int | None,
        number: int,
        is_optional: bool,
        stopped: int | None = None,
    ) -> int:
        """Build a state that takes one event and leads to `after`, or to `around` if the event is optional.

        `number`: which of the part's events it takes. `stopped`: the target of the step around once UNTIL holds.
        """
        part = row.parts[index]
        if isinstance(part, Group):
            first = self.chain(row.within(index, number > 1, is_optional), after)
            if is_optional and around is not None:
                self._steps[first].append(Step(Action.PROCEED, around, row.until))
            return first
        take = self._take_inner(row, part)
        window = row.window_ms(index, number)
        state = self._state(part.name, f"event {number}", window)
        after = self._free(row, index, after)
        steps = self._steps[state]
        steps.append(Step(Action.TAKE, after, take))
        if is_optional and around is not None:
            steps += self._proceed(row, part, around, stopped)
        contiguity = row.contiguity(index) if number == 1 else part.times.inner
        ignore = self._ignore(row, part, contiguity, number > 1)
        if ignore is not None:
            waiting = state
            if is_optional or row.waits_for(index):
                waiting = self._state(part.name, f"wait {number}", window)
                self._steps[waiting] += [Step(Action.TAKE, after, take), Step(Action.IGNORE, waiting, ignore)]
                self._watch(waiting, row, index)
            steps.append(Step(Action.IGNORE, waiting, ignore))
        return state

    def _loop(self, row: _Row, index: int, sink: int, stopped: int | None) -> int:
        """Build a state that takes any number of events, and then leads to `sink`."""
        part = row.parts[index]
        if isinstance(part, Group):
            again = self._state(_last_name(part), "again")
            first = self.chain(row.within(index, True, True), again)
            self._steps[first].append(Step(Action.PROCEED, sink, row.until))
            self._steps[again].append(Step(Action.PROCEED, first, row.until))
            return first
        state = self._state(part.name, "loop", part.times.window_ms)
        steps = self._steps[state]
        steps += self._proceed(row, part, sink, stopped)
        if part.times.is_greedy:
            self._exclude_events(sink, self._take(row, part))
        take = self._take_inner(row, part)
        steps.append(Step(Action.TAKE, state, take))
        self._watch_repeating(state, row, index)
        ignore = self._ignore(row, part, part.times.inner, True)
        if ignore is not None:
            waiting = self._state(part.name, "wait", part.times.window_ms)
            self._steps[waiting] += [Step(Action.TAKE, state, take), Step(Action.IGNORE, waiting, ignore)]
            steps.append(Step(Action.IGNORE, waiting, ignore))
            self._watch_repeating(waiting, row, index)
        return state

    def _proceed(self, row: _Row, part: Part, around: int, stopped: int | None) -> list[Step]:
        """Return the steps that proceed without an event; `stopped`: their target once UNTIL holds."""
        until = part.times.until
        if stopped is None or until is None:
            return [Step(Action.PROCEED, around, row.until)]
        return [
            Step(Action.PROCEED, stopped, (*row.until, (until, True))),
            Step(Action.PROCEED, around, (*row.until, (until, False))),
        ]

    # --- guards ------------------------------------------------------------------------------------------------------

    def _take(self, row: _Row, stage: Part) -> Guard:
        assert isinstance(stage, Stage), "a group takes no event itself"
        return (*row.until, (stage.condition, True))

    def _take_inner(self, row: _Row, stage: Part) -> Guard:
        until = stage.times.until
        own: Guard = () if until is None else ((until, False),)
        return (*own, *self._take(row, stage))

    def _ignore(self, row: _Row, stage: Stage, contiguity: Contiguity, has_begun: bool) -> Guard | None:
        """Return the guard for ignoring an event, or None. UNTIL of the stage applies once it has taken an event."""
        if contiguity is Contiguity.STRICT:
            return None
        until = stage.times.until if has_begun else None
        stop: Guard = (*(() if until is None else ((until, False),)), *row.until)
        return (*stop, (stage.condition, False)) if contiguity is Contiguity.RELAXED else stop

    def _exclude_events(self, sink: int, guard: Guard) -> None:
        """Prevent the steps of a state from using an event that a greedy stage takes."""
        self._steps[sink] = [replace(step, unless=(*step.unless, guard)) for step in self._steps[sink]]

    # --- states ------------------------------------------------------------------------------------------------------

    def _copy(self, state: int) -> int:
        if state == FINAL:
            return FINAL
        copied = self._state(self._names[state], "stopped", self._windows[state])
        if state in self._pending:
            self._pending.add(copied)
        self._steps[copied] = [
            replace(step, target=copied) if step.target == state else step for step in self._steps[state]
        ]
        return copied

    def _state(self, name: str, role: str, window_ms: int | None = None) -> int:
        label = f"{name}: {role}"
        count = sum(existing == label or existing.startswith(f"{label} (") for existing in self._labels)
        self._names.append(name)
        self._steps.append([])
        self._windows.append(window_ms)
        self._labels.append(f"{label} ({count + 1})" if count else label)
        return len(self._steps) - 1


def _last_name(part: Part) -> str:
    while isinstance(part, Group):
        part = part.parts[-1]
    return part.name
