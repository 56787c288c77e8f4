"""The pattern that an operator looks for, with its conditions; pickled with the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.core.patterns.pattern import Pattern
from penstock.core.patterns.skipping import SkipStrategy


class Condition(Protocol):
    """A user-defined condition. `is_simple`: whether it looks only at the event itself."""

    @property
    def is_simple(self) -> bool: ...

    def compiled(self) -> Callable[..., Any]:
        """Return a callable that takes the event, and also a `ConditionContext` unless the condition is simple."""

    def start(self, runtime_context: Any) -> None:
        """Called before the first event."""

    def stop(self) -> None:
        """Called when the operator closes, after `start`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A condition and its name in errors, such as `the condition of stage 'a'`."""

    condition: Condition
    what: str


@dataclass(frozen=True, slots=True)
class PatternSearch:
    """A pattern, with its conditions by number.

    `compare`: the order of events of the same time, negative if the first of two comes first; None for the order of
    arrival. `late_tag`: the side output for late events; None to count and drop them.
    """

    pattern: Pattern
    strategy: SkipStrategy
    conditions: tuple[Asked, ...]
    compare: Callable[[Any, Any], int] | None = None
    late_tag: str | None = None


@dataclass(frozen=True, slots=True)
class PatternSettings:
    """Settings from the options.

    `allows_change`: whether state of a changed pattern is accepted. `partials_max`: how many partial matches a key may
    have; None for any number. `drops_oldest`: whether to drop the oldest ones beyond that, instead of failing the job.
    """

    allows_change: bool = False
    partials_max: int | None = None
    drops_oldest: bool = False
