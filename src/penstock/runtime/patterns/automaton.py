"""The executable form of a pattern: states, with steps that take an event, ignore it, or proceed without one.

A step has a guard: conditions that must or must not hold, and sets of conditions that must not all hold. Some states
have a special meaning:

- the final state: the match is complete;
- *stops*: a forbidden event has arrived, and the partial match is discarded;
- *pending* states wait for time: if it runs out and no stop was reached, the match is complete.

A state may have a time limit: a partial match that stays in it that long after its last event times out.

`build_automaton` compiles a pattern into its automaton.

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

`Trees` are decision trees, one for each state: where an event leads a partial match. The allowed steps depend on
conditions, which are evaluated one after the other, and only as many as needed. Their order and the consequences of
their answers are the same for each event. So each state has a tree: an inner node tests a condition, a leaf is the list
of possible transitions. A tree grows as answers occur, and an event descends the tree instead of examining steps.

`Description` describes a stored pattern: which partial matches are still valid after the pattern has changed. A partial
match is in a state that belongs to a stage. It is valid in another pattern if all stages up to and including that stage
are the same, and the other automaton has the state. Later stages may have changed: the partial match continues with the
current ones. Conditions are functions and cannot be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from penstock.runtime.patterns.pattern import NEGATIONS, Contiguity, Group, Part, Pattern, Stage, Times


class Action(Enum):
    """How a step handles the event."""

    TAKE = "take"
    IGNORE = "ignore"
    PROCEED = "proceed"


#: the numbers of conditions, and whether they have to hold
Guard: TypeAlias = tuple[tuple[int, bool], ...]
#: the state of a complete match
FINAL: Final = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A step from one state to another. `unless`: sets of conditions; no set may hold as a whole."""

    action: Action
    target: int
    guard: Guard = ()
    unless: tuple[Guard, ...] = ()

    def conditions(self) -> set[int]:
        """Return the numbers of the conditions that the step may evaluate."""
        return {number for guard in (self.guard, *self.unless) for number, _ in guard}


@dataclass(frozen=True, slots=True)
class Automaton:
    """States by number: the stage name of each, its steps, and its time limit (ms), if any.

    `labels` distinguish the states of a stage, and stay the same when other stages of the pattern change.
    """

    names: tuple[str, ...]
    steps: tuple[tuple[Step, ...], ...]
    start: int
    windows: tuple[int | None, ...]
    labels: tuple[str, ...]
    pending: frozenset[int] = frozenset()
    stops: frozenset[int] = frozenset()

    def conditions(self) -> tuple[frozenset[int], ...]:
        """Return, for each state, the conditions that an event may be tested on there and in the states after it."""
        return tuple(frozenset(self._asked(state)) for state in range(len(self.steps)))

    def asked_conditions(self) -> set[int]:
        """Return the conditions that any step evaluates."""
        return {number for steps in self.steps for step in steps for number in step.conditions()}

    def needed_to_begin(self, simple: Collection[int]) -> list[int] | None:
        """Return conditions of which one holds for each event that begins a match; None if these do not suffice.

        `simple`: the conditions to choose from.
        """
        numbers: dict[int, None] = {}
        for state in sorted(self._onwards({self.start})):
            for step in self.steps[state]:
                if step.action is Action.TAKE:
                    needed = [number for number, expected in step.guard if expected and number in simple]
                    if not needed:
                        return None
                    numbers[needed[0]] = None
        return list(numbers)

    def _asked(self, state: int) -> set[int]:
        steps = [step for source in self._onwards({state}) for step in self.steps[source]]
        targets = {step.target for step in steps if step.action is Action.TAKE}
        # After an event is taken, only steps toward the final state are considered.
        steps += [
            step for source in self._onwards(targets) for step in self.steps[source] if step.action is Action.PROCEED
        ]
        return {number for step in steps for number in step.conditions()}

    def _onwards(self, states: set[int]) -> set[int]:
        """Return these states and the states reachable from them without an event."""
        reachable, waiting = set(states), list(states)
        while waiting:
            for step in self.steps[waiting.pop()]:
                if step.action is Action.PROCEED and step.target not in reachable:
                    reachable.add(step.target)
                    waiting.append(step.target)
        return reachable


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


@dataclass(frozen=True, slots=True)
class Way:
    """A transition to a state. `stage`: the stage of the event taken; None if the event is ignored.

    `ends`: whether it also completes a match at once.
    """

    target: int
    stage: str | None = None
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Ways:
    """All transitions. `stays`: whether the event is ignored and nothing else; `takes`: whether any takes it.

    `stops`: the forbidden stage, if the event belongs to one.
    """

    ways: tuple[Way, ...]
    stays: bool
    takes: bool
    stops: str | None = None


class Question:
    """Tests a condition; the nodes for the answers are None until they are needed."""

    __slots__ = ("known", "no", "number", "yes")

    def __init__(self, number: int, known: dict[int, bool]) -> None:
        self.number = number
        self.known = known
        self.yes: Node | None = None
        self.no: Node | None = None


Node: TypeAlias = "Question | Ways"


class _AskedError(Exception):
    """Raised when the answer to a condition is not known."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Trees:
    """The decision trees of an automaton."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self.roots = [self._node(state, {}) for state in range(len(automaton.steps))]

    def answered(self, state: int, question: Question, answer: bool) -> Node:
        """Add the node for an answer that occurs for the first time."""
        node = self._node(state, {**question.known, question.number: answer})
        if answer:
            question.yes = node
        else:
            question.no = node
        return node

    def _node(self, state: int, known: dict[int, bool]) -> Node:
        try:
            return self._ways(state, known)
        except _AskedError as error:
            return Question(error.number, known)

    def _ways(self, state: int, known: dict[int, bool]) -> Ways:
        automaton = self._automaton
        ways: list[Way] = []
        stops: str | None = None
        for source, step in self._allowed(state, known):
            if step.target in automaton.stops:
                stops = automaton.names[step.target]
            elif step.action is Action.IGNORE:
                ways.append(Way(step.target))
            else:
                ends = step.target != FINAL and self._may_end(step.target, known)
                ways.append(Way(step.target, automaton.names[source], ends))
        if stops is not None:
            # Matches completed with this event remain.
            ways = [Way(FINAL, way.stage) for way in ways if way.target == FINAL or way.ends]
        return Ways(tuple(ways), ways == [Way(state)], any(way.stage is not None for way in ways), stops)

    def _allowed(self, state: int, known: dict[int, bool]) -> list[tuple[int, Step]]:
        """Return the steps allowed for an event in a state, with the states that they start from."""
        waiting, steps = [state], []
        while waiting:
            source = waiting.pop()
            for step in self._automaton.steps[source]:
                if not _passes(step, known):
                    continue
                if step.action is Action.PROCEED:
                    waiting.append(step.target)
                else:
                    steps.append((source, step))
        return steps

    def _may_end(self, state: int, known: dict[int, bool]) -> bool:
        """Return whether the final state is reachable from a state without another event."""
        waiting, seen = [state], {state}
        while waiting:
            for step in self._automaton.steps[waiting.pop()]:
                if step.action is Action.PROCEED and step.target not in seen and _passes(step, known):
                    if step.target == FINAL:
                        return True
                    seen.add(step.target)
                    waiting.append(step.target)
        return False


def _passes(step: Step, known: dict[int, bool]) -> bool:
    if not all(_answer(number, known) is expected for number, expected in step.guard):
        return False
    return not any(all(_answer(number, known) is expected for number, expected in guard) for guard in step.unless)


def _answer(number: int, known: dict[int, bool]) -> bool:
    if number not in known:
        raise _AskedError(number)
    return known[number]


@dataclass(frozen=True, slots=True)
class Description:
    """A pattern in words, and the labels of its states. `stages`: each name with its description.

    `places`: for each state, the index of its stage.
    """

    stages: tuple[tuple[str, str], ...]
    within: str
    labels: tuple[str, ...]
    places: tuple[int, ...]

    def to_state(self) -> tuple[object, ...]:
        """Return the description as plain values to be stored."""
        return (1, self.stages, self.within, self.labels, self.places)

    @staticmethod
    def of_state(stored: Sequence[object]) -> Description:
        """Restore a stored description."""
        _, stages, within, labels, positions = stored
        return Description(stages, within, labels, positions)  # type: ignore[arg-type]


def describe_pattern(pattern: Pattern, automaton: Automaton) -> Description:
    """Return the description of a pattern."""
    stages = tuple(_described(pattern.parts, ""))
    names = [name for name, _ in stages]
    positions = tuple(names.index(name) if name in names else -1 for name in automaton.names)
    within = "any time" if pattern.within_ms is None else f"{pattern.within_ms} ms"
    return Description(stages, within, automaton.labels, positions)


def differences(before: Description, now: Description) -> list[str]:
    """Return the changes of stages, their order and the time limit, a sentence each."""
    changes = []
    old, new = dict(before.stages), dict(now.stages)
    for name, text in before.stages:
        if name not in new:
            changes.append(f"stage {name!r} is gone")
        elif new[name] != text:
            changes.append(f"stage {name!r} is {new[name]!r}, and was {text!r}")
    changes += [f"stage {name!r} is new" for name in new if name not in old]
    if not changes and [name for name, _ in before.stages] != [name for name, _ in now.stages]:
        changes.append(f"the order of stages is {', '.join(new)}, and was {', '.join(old)}")
    if before.within != now.within:
        changes.append(f"a match takes less than {now.within}, and took less than {before.within}")
    return changes


def states_kept(before: Description, now: Description) -> dict[int, int]:
    """Map the numbers of the states that keep their meaning to their new numbers."""
    same = 0
    while same < min(len(before.stages), len(now.stages)) and before.stages[same] == now.stages[same]:
        same += 1
    numbers = {label: number for number, label in enumerate(now.labels)}
    return {
        number: numbers[label]
        for number, label in enumerate(before.labels)
        if label in numbers and before.places[number] < same
    }


def _described(parts: tuple[Part, ...], within: str) -> Iterator[tuple[str, str]]:
    for index, part in enumerate(parts):
        text = _said(part, first=not index and not within)
        if isinstance(part, Group):
            yield from _described(part.parts, f"{within}in a group ({text}): ")
        else:
            yield part.name, f"{within}{text}"


def _said(part: Part, first: bool) -> str:
    contiguity = "first" if first else part.contiguity.value
    since = part.since_last_ms if isinstance(part, Stage) else None
    return ", ".join([contiguity, *_often(part.times), *([] if since is None else [f"within {since} ms"])])


def _often(times: Times) -> list[str]:
    if (times.least, times.most) == (1, 1):
        terms = []
    elif times.most is None:
        terms = [f"{times.least} or more"]
    else:
        terms = [f"{times.least} to {times.most} times" if times.least != times.most else f"{times.least} times"]
    if terms and times.inner is not Contiguity.RELAXED:
        terms.append("consecutive" if times.inner is Contiguity.STRICT else "in all combinations")
    terms += ["optional"] * times.is_optional + ["greedy"] * times.is_greedy
    terms += ["with until"] * (times.until is not None)
    return terms + ([] if times.window_ms is None else [f"less than {times.window_ms} ms apart"])
