"""What a pattern operator is told to look for; it is pickled with the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.core.patterns.pattern import Pattern
from penstock.core.patterns.skipping import SkipStrategy


class Condition(Protocol):
    """A condition of the program. `is_simple`: whether it only looks at the event itself."""

    @property
    def is_simple(self) -> bool: ...

    def compiled(self) -> Callable[..., Any]:
        """What is called with the event, and with a `ConditionContext` as well unless the condition is simple."""

    def start(self, runtime_context: Any) -> None:
        """Called before the first event."""

    def stop(self) -> None:
        """Called when the operator closes, after `start`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A condition and what errors call it, such as `the condition of stage 'a'`."""

    condition: Condition
    what: str


@dataclass(frozen=True, slots=True)
class PatternSearch:
    """A pattern, with its conditions by their numbers.

    `compare`: the order of events of one time, negative where the first of two comes first; None for that in which they
    came. `late_tag`: the side output for late events; None to count and drop them.
    """

    pattern: Pattern
    strategy: SkipStrategy
    conditions: tuple[Asked, ...]
    compare: Callable[[Any, Any], int] | None = None
    late_tag: str | None = None


@dataclass(frozen=True, slots=True)
class PatternSettings:
    """What options say.

    `allows_change`: whether state of a changed pattern is taken. `partials_max`: how many partial matches a key may
    have; None for any number. `drops_oldest`: whether the oldest go when there are more, instead of the job failing.
    """

    allows_change: bool = False
    partials_max: int | None = None
    drops_oldest: bool = False
