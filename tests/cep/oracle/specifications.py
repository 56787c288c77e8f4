"""Patterns as plain values, which the oracle reads and of which a `Pattern` is made for the library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.cep import (
    AfterMatchSkipStrategy,
    IterativeCondition,
    Pattern,
    SimpleCondition,
    WithinType,
)


class Event(NamedTuple):
    """What happens: conditions look at the kind, a letter, and at the value; `number` tells events apart."""

    key: str
    kind: str
    value: int
    number: int

    def __str__(self) -> str:
        return f"{self.kind}{self.number}"


#: The events of a partial match, by stage.
Taken: TypeAlias = Mapping[str, Sequence[Event]]


@dataclass(frozen=True)
class Condition:
    """Takes events of some kinds. `rising`: only with a value above that of the last event of that stage.

    `fewer`: (stage, n): only while that stage has fewer than n events.
    """

    kinds: str
    rising: str | None = None
    fewer: tuple[str, int] | None = None

    @property
    def is_simple(self) -> bool:
        """Whether it looks at the event alone."""
        return self.rising is None and self.fewer is None

    def holds(self, event: Event, taken: Taken) -> bool:
        """Whether it takes an event that comes to a partial match of these events."""
        if event.kind not in self.kinds:
            return False
        if self.fewer is not None and len(taken.get(self.fewer[0], ())) >= self.fewer[1]:
            return False
        before = taken.get(self.rising, ()) if self.rising is not None else ()
        return not before or event.value > before[-1].value

    def made(self) -> Any:
        """As the library takes it."""
        if self.is_simple:
            return SimpleCondition.of(self._simple)
        return IterativeCondition.of(self._iterative)

    def _simple(self, event: Event) -> bool:
        return event.kind in self.kinds

    def _iterative(self, event: Event, context: Any) -> bool:
        names = {name for name in (self.rising, self.fewer and self.fewer[0]) if name}
        return self.holds(event, {name: list(context.get_events_for_pattern(name)) for name in names})

    def __str__(self) -> str:
        rising = f" rising {self.rising}" if self.rising else ""
        fewer = f" fewer {self.fewer}" if self.fewer else ""
        return f"{self.kinds}{rising}{fewer}"


class Contiguity(StrEnum):
    """What may lie between an event and the one before it in a match."""

    STRICT = "strict"
    RELAXED = "relaxed"
    ANY = "any"


@dataclass(frozen=True)
class Not:
    """An event that must not come: directly behind the one before (`is_next`), or anywhere up to the one behind."""

    name: str
    condition: Condition
    is_next: bool = False


@dataclass(frozen=True)
class Stage:
    """One stage, or a group of them where it has `parts` (and then no condition).

    It comes `least` to `most` times (None: without limit); optional: or not at all. `window_ms`: the longest time since
    the event before.
    """

    name: str
    condition: Condition | None = None
    parts: tuple[Stage | Not, ...] = ()
    link: Contiguity = Contiguity.RELAXED
    least: int = 1
    most: int | None = 1
    is_optional: bool = False
    is_greedy: bool = False
    inner: Contiguity = Contiguity.RELAXED
    until: Condition | None = None
    window_ms: int | None = None

    @property
    def is_loop(self) -> bool:
        """Whether it may come a number of times that is not fixed."""
        return self.most != self.least


class Skip(NamedTuple):
    """An after-match skip strategy: `no_skip`, `skip_to_next`, … with the stage that it names."""

    kind: str = "no_skip"
    stage: str | None = None

    def made(self) -> AfterMatchSkipStrategy:
        """As the library takes it."""
        method = getattr(AfterMatchSkipStrategy, self.kind)
        made: AfterMatchSkipStrategy = method() if self.stage is None else method(self.stage)
        return made


NO_SKIP: Final = Skip()


@dataclass(frozen=True)
class Specification:
    """A whole pattern; `window_ms`: the longest time from its first to its last event."""

    parts: tuple[Stage | Not, ...]
    skip: Skip = NO_SKIP
    window_ms: int | None = None
    #: of a last NOT: since the event before
    not_window_ms: int | None = field(default=None)

    def pattern(self) -> Pattern:
        """As the library takes it."""
        made = _sequence(self.parts, self.skip.made())
        if self.window_ms is not None:
            made = made.within(self.window_ms)
        if self.not_window_ms is not None:
            made = made.within(self.not_window_ms, WithinType.PREVIOUS_AND_CURRENT)
        return made

    def stages(self) -> list[Stage]:
        """All stages that take events."""
        return list(_flat(self.parts))

    def __str__(self) -> str:
        within = f" within {self.window_ms}" if self.window_ms is not None else ""
        within += f" within {self.not_window_ms} of the one before" if self.not_window_ms is not None else ""
        skip = "" if self.skip == NO_SKIP else f" {self.skip.kind}({self.skip.stage or ''})"
        return " ".join(map(_shown, self.parts)) + within + skip


def _flat(parts: Sequence[Stage | Not]) -> list[Stage]:
    stages = [part for part in parts if isinstance(part, Stage)]
    return [one for stage in stages for one in (_flat(stage.parts) if stage.parts else [stage])]


_LINKS: Final = {Contiguity.STRICT: "next", Contiguity.RELAXED: "followed_by", Contiguity.ANY: "followed_by_any"}
_SIGNS: Final = {Contiguity.STRICT: ".", Contiguity.RELAXED: "", Contiguity.ANY: "~"}


def _shown(part: Stage | Not) -> str:
    if isinstance(part, Not):
        return f"!{'.' if part.is_next else ''}{part.name}[{part.condition}]"
    inside = f"({' '.join(map(_shown, part.parts))})" if part.parts else f"{part.name}[{part.condition}]"
    most = "" if part.most is None else part.most
    count = "" if part.least == part.most == 1 else f"{{{part.least},{most}}}"
    signs = ("?" if part.is_optional else "") + ("greedy" if part.is_greedy else "")
    inner = f" {part.inner}" if count and part.inner != Contiguity.RELAXED else ""
    until = f" until {part.until}" if part.until else ""
    within = f" within {part.window_ms}" if part.window_ms is not None else ""
    return f"{_SIGNS[part.link]}{inside}{count}{signs}{inner}{until}{within}"


def _sequence(parts: Sequence[Stage | Not], skip: AfterMatchSkipStrategy | None) -> Pattern:
    made: Pattern | None = None
    for part in parts:
        if isinstance(part, Not):
            assert made is not None
            made = made.not_next(part.name) if part.is_next else made.not_followed_by(part.name)
            made = made.where(part.condition.made())
            continue
        named: Any = _sequence(part.parts, None) if part.parts else part.name
        if made is None:
            made = Pattern.begin(named) if skip is None else Pattern.begin(named, skip)
        else:
            made = getattr(made, _LINKS[part.link])(named)
        assert made is not None
        made = _quantified(made.where(part.condition.made()) if part.condition is not None else made, part)
    assert made is not None
    return made


def _quantified(made: Pattern, stage: Stage) -> Pattern:
    if stage.most is None:
        made = made.one_or_more() if stage.least == 1 else made.times_or_more(stage.least)
    elif stage.is_loop:
        made = made.times(stage.least, stage.most)
    elif stage.most > 1:
        made = made.times(stage.most)
    if stage.most != 1:
        if stage.inner is Contiguity.STRICT:
            made = made.consecutive()
        elif stage.inner is Contiguity.ANY:
            made = made.allow_combinations()
    if stage.until is not None:
        made = made.until(stage.until.made())
    if stage.is_optional:
        made = made.optional()
    if stage.is_greedy:
        made = made.greedy()
    if stage.window_ms is not None:
        made = made.within(stage.window_ms, WithinType.PREVIOUS_AND_CURRENT)
    return made
