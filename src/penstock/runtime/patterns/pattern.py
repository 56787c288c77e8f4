"""Patterns as values: stages, and groups of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class Contiguity(Enum):
    """Which events may lie before the one that a stage takes, or that the stage must not occur."""

    #: none
    STRICT = "next"
    #: events that the stage does not take
    RELAXED = "followed by"
    #: any events: one that the stage could take may also be ignored
    NON_DETERMINISTIC = "followed by any"
    #: the next event must not be one of the stage
    NOT_NEXT = "not next"
    #: no event of the stage may occur before the next stage, or before the window ends if no stage follows
    NOT_FOLLOWED = "not followed by"


#: stages that take no event
NEGATIONS = (Contiguity.NOT_NEXT, Contiguity.NOT_FOLLOWED)


@dataclass(frozen=True, slots=True)
class Times:
    """A quantifier: `least` to `most` times, None for any number. `is_optional`: or not at all.

    `is_greedy`: the following part takes no event that this part takes. `inner`: which events may lie between two
    events of the same stage. `until`: the number of a condition; an event that meets it ends the repetition.
    `window_ms`: two events of the stage are less than this apart.
    """

    least: int = 1
    most: int | None = 1
    is_optional: bool = False
    is_greedy: bool = False
    inner: Contiguity = Contiguity.RELAXED
    until: int | None = None
    window_ms: int | None = None

    def __post_init__(self) -> None:
        assert self.least >= 1, self
        assert self.most is None or self.most >= self.least, self
        assert self.until is None or self.most is None, self


ONCE = Times()


@dataclass(frozen=True, slots=True)
class Stage:
    """Events that meet a condition. `condition`: the number that identifies it to the matcher.

    `since_last_ms`: the event, or the first of several, comes less than this after the event taken before. If the stage
    takes no event and nothing follows, the match is complete once this time has passed.
    """

    name: str
    condition: int
    contiguity: Contiguity = Contiguity.STRICT
    times: Times = ONCE
    since_last_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive stages that are repeated together."""

    parts: tuple[Part, ...]
    contiguity: Contiguity = Contiguity.STRICT
    times: Times = ONCE


Part: TypeAlias = "Stage | Group"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Consecutive parts. `within_ms`: a match takes less than this from its first event to its last."""

    parts: tuple[Part, ...]
    within_ms: int | None = None

    @property
    def may_be_empty(self) -> bool:
        """Whether a match without any event is possible."""
        return may_be_empty(self.parts)

    @property
    def ends_greedily(self) -> bool:
        """Whether the last part is greedy, which has no effect because nothing follows it."""
        return self.parts[-1].times.is_greedy

    def names(self) -> list[str]:
        """Return the names of the stages in order."""
        return [stage.name for stage in self.stages()]

    def stages(self) -> list[Stage]:
        """Return all stages in order, including the stages of groups."""
        return _stages(self.parts)


def may_be_empty(parts: tuple[Part, ...]) -> bool:
    """Return whether all these parts can be passed without an event."""
    return all(
        part.times.is_optional or part.contiguity in NEGATIONS or (isinstance(part, Group) and may_be_empty(part.parts))
        for part in parts
    )


def _stages(parts: tuple[Part, ...]) -> list[Stage]:
    stages: list[Stage] = []
    for part in parts:
        stages += [part] if isinstance(part, Stage) else _stages(part.parts)
    return stages
