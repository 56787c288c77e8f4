"""Patterns as values: stages, and groups of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class Contiguity(Enum):
    """Which events may lie before the one that a stage takes."""

    #: none
    STRICT = "next"
    #: those that the stage does not take
    RELAXED = "followed by"
    #: any: an event that the stage could take may be passed over, too
    NON_DETERMINISTIC = "followed by any"


@dataclass(frozen=True, slots=True)
class Times:
    """How often: `least` to `most` times, None for any number. `is_optional`: or not at all.

    `is_greedy`: an event that it takes is not taken by what follows. `inner`: what may lie between two events of the
    same stage. `until`: the number of a condition; the event for which it holds ends the repetition.
    """

    least: int = 1
    most: int | None = 1
    is_optional: bool = False
    is_greedy: bool = False
    inner: Contiguity = Contiguity.RELAXED
    until: int | None = None

    def __post_init__(self) -> None:
        assert self.least >= 1, self
        assert self.most is None or self.most >= self.least, self
        assert self.until is None or self.most is None, self


ONCE = Times()


@dataclass(frozen=True, slots=True)
class Stage:
    """Events for which a condition holds. `condition`: its number, by which the matcher asks for it."""

    name: str
    condition: int
    contiguity: Contiguity = Contiguity.STRICT
    times: Times = ONCE


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
        return all(part.times.is_optional for part in self.parts)

    @property
    def ends_greedily(self) -> bool:
        """Whether the last part is greedy, which has no meaning as nothing follows it."""
        return self.parts[-1].times.is_greedy

    def names(self) -> list[str]:
        """The stages in order."""
        return _names(self.parts)


def _names(parts: tuple[Part, ...]) -> list[str]:
    found: list[str] = []
    for part in parts:
        found += [part.name] if isinstance(part, Stage) else _names(part.parts)
    return found
