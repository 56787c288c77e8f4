"""Patterns as values: stages, and groups of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class Contiguity(Enum):
    """Which events may lie before the one that a stage takes; or that the stage takes none, and must not be met."""

    #: none
    STRICT = "next"
    #: those that the stage does not take
    RELAXED = "followed by"
    #: any: an event that the stage could take may be passed over, too
    NON_DETERMINISTIC = "followed by any"
    #: the event directly behind must not be one of the stage
    NOT_NEXT = "not next"
    #: no event of the stage may come before one of what follows, or before the window ends where nothing follows
    NOT_FOLLOWED = "not followed by"


#: stages that take no event
NEGATIONS = (Contiguity.NOT_NEXT, Contiguity.NOT_FOLLOWED)


@dataclass(frozen=True, slots=True)
class Times:
    """How often: `least` to `most` times, None for any number. `is_optional`: or not at all.

    `is_greedy`: an event that it takes is not taken by what follows. `inner`: what may lie between two events of the
    same stage. `until`: the number of a condition; the event for which it holds ends the repetition. `window_ms`: two
    events of the stage are less than this apart.
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
    """Events for which a condition holds. `condition`: its number, by which the matcher asks for it.

    `since_last_ms`: the event that it takes, or its first one, is less than this behind the one taken before. Where it
    takes none and nothing follows, the match is there once so much time has passed.
    """

    name: str
    condition: int
    contiguity: Contiguity = Contiguity.STRICT
    times: Times = ONCE
    since_last_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Stages in a row that are repeated together."""

    parts: tuple[Part, ...]
    contiguity: Contiguity = Contiguity.STRICT
    times: Times = ONCE


Part: TypeAlias = "Stage | Group"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Parts in a row. `within_ms`: a match is shorter than this, from its first event to its last one."""

    parts: tuple[Part, ...]
    within_ms: int | None = None

    @property
    def may_be_empty(self) -> bool:
        """Whether no event at all would be a match."""
        return may_be_empty(self.parts)

    @property
    def ends_greedily(self) -> bool:
        """Whether the last part is greedy, which has no meaning as nothing follows it."""
        return self.parts[-1].times.is_greedy

    def names(self) -> list[str]:
        """The stages in order."""
        return [stage.name for stage in self.stages()]

    def stages(self) -> list[Stage]:
        """All stages in order, those of groups among them."""
        return _stages(self.parts)


def may_be_empty(parts: tuple[Part, ...]) -> bool:
    """Whether one gets past all these parts without an event."""
    return all(
        part.times.is_optional or part.contiguity in NEGATIONS or (isinstance(part, Group) and may_be_empty(part.parts))
        for part in parts
    )


def _stages(parts: tuple[Part, ...]) -> list[Stage]:
    found: list[Stage] = []
    for part in parts:
        found += [part] if isinstance(part, Stage) else _stages(part.parts)
    return found
