"""Random patterns and events for them, from a seed.

The patterns are those whose meaning Flink's documents and tests settle. Left out, because there Flink's answer is an
accident of its automaton:

- a NOT behind a range or a group; in front of a range, of greed, of a group, or of two stages that need not come; one
  whose condition holds for events that the stages around it take;
- greed, or stages that need not come, at the end of a group; a range or loop at the end of a group with until; greed in
  front of a NOT;
- a window since the event before, on a stage that need not come or that is behind such a stage or a loop;
- behind a group whose count is not fixed, anything but a stage by `followed_by_any`: while events pass, the automaton
  is at the group's first stage and behind the group at once, and takes what lies behind late, and twice.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from tests.cep.oracle.specifications import Condition, Contiguity, Event, Not, Skip, Specification, Stage

KINDS = "abcd"
NAMES = "pqrstuvwxyz"
CONTIGUITIES = tuple(Contiguity)
SKIPS = ("no_skip", "no_skip", "skip_to_next", "skip_past_last_event", "skip_to_first", "skip_to_last")


@dataclass(frozen=True)
class Case:
    """A pattern, and what comes: (time, event), or a watermark, which is a number."""

    specification: Specification
    inputs: tuple[tuple[int, Event] | int, ...]

    def __str__(self) -> str:
        shown = [str(one) if isinstance(one, int) else f"{one[1]}@{one[0]}={one[1].value}" for one in self.inputs]
        keys = {one[1].key for one in self.inputs if not isinstance(one, int)}
        if len(keys) > 1:
            shown = [s if isinstance(i, int) else f"{i[1].key}:{s}" for s, i in zip(shown, self.inputs, strict=True)]
        return f"{self.specification}\n    {' '.join(shown)}"

    def in_time(self) -> dict[str, list[tuple[int, Event]]]:
        """The events of each key that are not late, in order of their time, and of their coming where that is equal."""
        found: dict[str, list[tuple[int, Event]]] = {}
        watermark = -1
        for one in self.inputs:
            if isinstance(one, int):
                watermark = max(watermark, one)
            elif one[0] > watermark:
                found.setdefault(one[1].key, []).append(one)
        return {key: sorted(events, key=lambda one: one[0]) for key, events in found.items()}

    def late(self) -> list[Event]:
        """The others."""
        kept = {event for events in self.in_time().values() for _, event in events}
        return [one[1] for one in self.inputs if not isinstance(one, int) and one[1] not in kept]


def draw_case(seed: int, in_order: bool = False) -> Case:
    """The case of a seed; `in_order`: events in the order of their time, with watermarks behind each."""
    chance = random.Random(f"pattern {seed}")
    return Case(draw_specification(chance), tuple(_inputs(chance, in_order)))


def draw_specification(chance: random.Random) -> Specification:
    """A pattern."""
    return _Patterns(chance).specification()


def _inputs(chance: random.Random, in_order: bool) -> list[tuple[int, Event] | int]:
    keys = chance.choice(("k", "k", "kl"))
    now = 0
    inputs: list[tuple[int, Event] | int] = []
    kinds = chance.choice((KINDS, "aabbcd", "abc", "aab"))
    for number in range(chance.randint(3, 8) + 3 * (len(keys) - 1)):
        now += chance.choice((0, 1, 1, 1, 2, 4))
        event = Event(chance.choice(keys), chance.choice(kinds), chance.randint(0, 4), number)
        time = now if in_order else max(0, now - chance.choice((0, 0, 0, 1, 3)))
        inputs.append((time, event))
        if in_order or chance.random() < 0.4:
            inputs.append(now - 1 if in_order else max(0, now - chance.choice((0, 1, 2))))
    return inputs


def _behind_groups(parts: list[Stage | Not]) -> list[Stage | Not]:
    """With what may follow greed, and a group of any count."""
    for index in range(1, len(parts)):
        group, behind = parts[index - 1], parts[index]
        if isinstance(group, Stage) and isinstance(behind, Stage) and group.is_greedy and behind.is_optional:
            parts[index] = behind = replace(behind, is_optional=False)  # the library refuses it
        if isinstance(group, Stage) and group.parts and group.is_loop and isinstance(behind, Stage):
            parts[index] = replace(behind, link=Contiguity.ANY, is_optional=False)
    return parts


def _is_settled(part: Stage | Not, behind: list[Stage | Not]) -> bool:
    """Whether Flink's documents say what a NOT means for what is behind it."""
    if isinstance(part, Stage):
        return True
    stages = [one for one in behind if isinstance(one, Stage)]
    if not stages:
        return True
    first = stages[0]
    if first.is_greedy or first.parts:
        return False
    if first.is_optional and (len(stages) == 1 or stages[1].is_optional or stages[1].parts):
        return len(stages) == 1
    reached = stages[: 1 + first.is_optional]
    return not any(one.condition and part.condition.kinds in one.condition.kinds for one in reached)


class _Patterns:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names = iter(NAMES)
        self._seen: list[str] = []

    def specification(self) -> Specification:
        chance = self._chance
        while True:
            parts: list[Stage | Not] = []
            for _ in range(chance.choice((1, 2, 2, 3, 3, 4))):
                parts += self._part(parts)
            parts = _behind_groups(parts)
            if all(_is_settled(parts[index], parts[index + 1 :]) for index in range(len(parts))):
                break
            self._names, self._seen = iter(NAMES), []
        specification = Specification(tuple(parts))
        begin = parts[0]
        if all(isinstance(part, Stage) and part.is_optional for part in parts) and isinstance(begin, Stage):
            parts[0] = replace(begin, is_optional=False, is_greedy=False)
            specification = replace(specification, parts=tuple(parts))
        window_ms = chance.choice((None, None, 3, 5, 8, 20))
        if chance.random() < 0.15 and isinstance(parts[-1], Stage) and not parts[-1].is_optional:
            specification = self._with_last_not(specification, window_ms or chance.choice((3, 6)))
        elif window_ms is not None:
            specification = replace(specification, window_ms=window_ms)
        elif chance.random() < 0.3:
            specification = self._with_gap(specification)
        return replace(specification, skip=self._skip(specification))

    def _part(self, before: list[Stage | Not]) -> list[Stage | Not]:
        chance = self._chance
        last = before[-1] if before else None
        if isinstance(last, Stage) and not last.is_optional and not last.is_greedy and chance.random() < 0.2:
            found = self._not_and_stage(last)
            if found:
                return list(found)
        if chance.random() < 0.2:
            return [self._group()]
        return [self._stage()]

    def _not_and_stage(self, last: Stage) -> list[Stage | Not]:
        """A NOT with what is behind it, whose conditions exclude each other."""
        chance = self._chance
        if last.parts or (last.is_loop and last.most is not None):
            return []
        is_next = chance.random() < 0.4 and not last.is_loop
        assert last.condition is not None
        free = [kind for kind in KINDS if kind not in last.condition.kinds]
        if not free:
            return []
        kind = chance.choice(free)
        negative = Not(next(self._names), Condition(kind), is_next)
        stage = self._stage()
        assert stage.condition is not None
        kinds = stage.condition.kinds.replace(kind, "") or next(one for one in KINDS if one != kind)
        stage = replace(stage, condition=replace(stage.condition, kinds=kinds))
        if stage.is_loop and stage.most is not None:
            stage = replace(stage, most=stage.least, is_greedy=False)
        return [negative, stage]

    def _condition(self, own: str | None) -> Condition:
        chance = self._chance
        condition = Condition("".join(sorted(set(chance.choices("aaabbbccd", k=chance.choice((1, 1, 1, 2, 3)))))))
        names = [*self._seen, *([own] if own else [])]
        if names and chance.random() < 0.15:
            return replace(condition, rising=chance.choice(names))
        if names and chance.random() < 0.08:
            return replace(condition, fewer=(chance.choice(names), chance.randint(1, 3)))
        return condition

    def _stage(self, may_be_loose: bool = True, is_head: bool = False) -> Stage:
        chance = self._chance
        name = next(self._names)
        stage = Stage(name, link=chance.choice(CONTIGUITIES))
        if not is_head:
            stage = self._quantified(stage, may_be_loose)
        stage = replace(stage, condition=self._condition(name if stage.most != 1 else None))
        if stage.most is None and chance.random() < 0.25:
            stage = replace(stage, until=Condition(chance.choice(KINDS)))
        self._seen.append(name)
        return stage

    def _quantified(self, stage: Stage, may_be_loose: bool) -> Stage:
        chance = self._chance
        least, most = chance.choice(
            ((1, 1), (1, 1), (1, 1), (2, 2), (3, 3), (1, 3), (2, 3), (1, None), (1, None), (2, None))
        )
        inner = chance.choice(CONTIGUITIES) if most != 1 else Contiguity.RELAXED
        is_optional = may_be_loose and chance.random() < 0.25
        is_greedy = may_be_loose and most != least and inner is not Contiguity.ANY and chance.random() < 0.3
        return replace(stage, least=least, most=most, inner=inner, is_optional=is_optional, is_greedy=is_greedy)

    def _group(self) -> Stage:
        chance = self._chance
        parts: list[Stage | Not] = [self._stage(is_head=True)]
        for _ in range(chance.choice((0, 1, 1, 2))):
            parts.append(self._stage())
        last = parts[-1]
        assert isinstance(last, Stage)
        if len(parts) > 1:
            parts[-1] = replace(last, is_optional=False, is_greedy=False)
        parts = _behind_groups(parts)
        group = self._quantified(Stage("", parts=tuple(parts), link=chance.choice(CONTIGUITIES)), True)
        group = replace(group, is_greedy=False)
        if group.most is None and not last.is_loop and chance.random() < 0.25:
            group = replace(group, until=Condition(chance.choice(KINDS)))
        return group

    def _with_last_not(self, specification: Specification, window_ms: int) -> Specification:
        chance = self._chance
        parts = specification.parts
        last = parts[-1]
        assert isinstance(last, Stage)
        if last.parts or last.is_loop:
            return replace(specification, window_ms=window_ms)
        is_next = chance.random() < 0.3
        negative = Not(next(self._names), Condition(chance.choice(KINDS)), is_next)
        window: dict[str, Any] = (
            {"window_ms": window_ms} if is_next or chance.random() < 0.7 else {"not_window_ms": window_ms}
        )
        return replace(specification, parts=(*parts, negative), **window)

    def _with_gap(self, specification: Specification) -> Specification:
        """A window since the event before, on a stage for which it is the event of the stage before."""
        parts = list(specification.parts)
        for index in range(1, len(parts)):
            one, before = parts[index], parts[index - 1]
            if (
                isinstance(one, Stage)
                and isinstance(before, Stage)
                and not one.parts
                and not before.parts
                and one.least == one.most == 1
                and not one.is_optional
                and not before.is_loop
                and not before.is_optional
            ):
                parts[index] = replace(one, window_ms=self._chance.choice((2, 3, 5)))
                break
        return replace(specification, parts=tuple(parts))

    def _skip(self, specification: Specification) -> Skip:
        kind = self._chance.choice(SKIPS)
        if kind in ("skip_to_first", "skip_to_last"):
            return Skip(kind, self._chance.choice(specification.stages()).name)
        return Skip(kind)
