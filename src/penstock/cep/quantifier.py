"""Quantifiers: how often a stage of a pattern takes an event, and which events may lie in between.

Errors for rejected patterns.
"""

from __future__ import annotations

import enum

from penstock.base.errors import UnsupportedError, WrongValueError
from penstock.base.time import Duration


class MalformedPatternException(WrongValueError):
    """The parts of a pattern do not fit together."""


class UnsupportedOperationError(UnsupportedError):
    """The pattern is meaningful, but neither Flink nor Penstock supports it."""


class WithinType(enum.Enum):
    """The events between which the time of `within` is measured."""

    #: the first and the last event of a match
    FIRST_AND_LAST = enum.auto()
    #: a stage's event and the event before it
    PREVIOUS_AND_CURRENT = enum.auto()


class QuantifierProperty(enum.Enum):
    """The properties of quantifiers."""

    SINGLE = enum.auto()
    LOOPING = enum.auto()
    TIMES = enum.auto()
    OPTIONAL = enum.auto()
    GREEDY = enum.auto()


class ConsumingStrategy(enum.Enum):
    """The events that may lie before the one that a stage takes."""

    #: none
    STRICT = enum.auto()
    #: events that do not meet the stage's condition
    SKIP_TILL_NEXT = enum.auto()
    #: any
    SKIP_TILL_ANY = enum.auto()
    #: no event of the stage may come before that of the next stage
    NOT_FOLLOW = enum.auto()
    #: the next event must not be one of the stage
    NOT_NEXT = enum.auto()


#: labels of the arrows in drawings
ARROWS = {
    ConsumingStrategy.STRICT: "next",
    ConsumingStrategy.SKIP_TILL_NEXT: "followed by",
    ConsumingStrategy.SKIP_TILL_ANY: "followed by any",
    ConsumingStrategy.NOT_FOLLOW: "not followed by",
    ConsumingStrategy.NOT_NEXT: "not next",
}
NOT_STRATEGIES = (ConsumingStrategy.NOT_FOLLOW, ConsumingStrategy.NOT_NEXT)


def check(holds: bool, reason: str) -> None:
    """Reject a pattern unless a rule holds."""
    if not holds:
        raise MalformedPatternException(reason)


class Quantifier:
    """How often a stage takes an event; returned by `Pattern.get_quantifier()`."""

    def __init__(self, strategy: ConsumingStrategy, *properties: QuantifierProperty) -> None:
        self._strategy = strategy
        self._inner = ConsumingStrategy.SKIP_TILL_NEXT
        self._properties = set(properties)

    def has_property(self, quantifier_property: QuantifierProperty) -> bool:
        """Return whether the quantifier has a property."""
        return quantifier_property in self._properties

    def get_consuming_strategy(self) -> ConsumingStrategy:
        """Return which events may lie before the first event of the stage."""
        return self._strategy

    def get_inner_consuming_strategy(self) -> ConsumingStrategy:
        """Return which events may lie between two events of the stage."""
        return self._inner

    def repeated(self, how: QuantifierProperty) -> Quantifier:
        """Return the quantifier of the same stage, repeated in the given way."""
        remaining = self._properties - {QuantifierProperty.SINGLE}
        return Quantifier(self._strategy, how, *remaining)

    def combinations(self) -> None:
        """Allow any events between two events of the stage."""
        self._check_repeats("allow_combinations()")
        check(self._inner is not ConsumingStrategy.STRICT, "either consecutive() or allow_combinations(), not both")
        check(self._inner is not ConsumingStrategy.SKIP_TILL_ANY, "allow_combinations() was called already")
        self._inner = ConsumingStrategy.SKIP_TILL_ANY

    def consecutive(self) -> None:
        """Allow no events between two events of the stage."""
        self._check_repeats("consecutive()")
        check(
            self._inner is not ConsumingStrategy.SKIP_TILL_ANY, "either consecutive() or allow_combinations(), not both"
        )
        check(self._inner is not ConsumingStrategy.STRICT, "consecutive() was called already")
        self._inner = ConsumingStrategy.STRICT

    def _check_repeats(self, call: str) -> None:
        check(
            not self.has_property(QuantifierProperty.SINGLE),
            f"{call} needs a stage that repeats: call times(), times_or_more() or one_or_more() first",
        )

    def optional(self) -> None:
        """Make the stage optional."""
        check(not self.has_property(QuantifierProperty.OPTIONAL), "optional() was called already")
        check(self._strategy not in NOT_STRATEGIES, "a NOT pattern cannot be optional")
        self._properties.add(QuantifierProperty.OPTIONAL)

    def greedy(self) -> None:
        """Let the stage take as many events as it can."""
        check(
            self._inner is not ConsumingStrategy.SKIP_TILL_ANY,
            "greedy() cannot be joined with allow_combinations()",
        )
        check(
            not self.has_property(QuantifierProperty.SINGLE),
            "greedy() needs a stage that repeats: call times(), times_or_more() or one_or_more() first",
        )
        self._properties.add(QuantifierProperty.GREEDY)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantifier):
            return NotImplemented
        return (self._strategy, self._inner, self._properties) == (other._strategy, other._inner, other._properties)

    def __hash__(self) -> int:
        return hash((self._strategy, self._inner, frozenset(self._properties)))

    def __repr__(self) -> str:
        properties = ", ".join(sorted(prop.name for prop in self._properties))
        return f"Quantifier({self._strategy.name}, inner {self._inner.name}, {properties})"


class Times:
    """How many times a stage takes an event; returned by `Pattern.get_times()`."""

    def __init__(self, least: int, most: int, window_size: Duration | None = None) -> None:
        if least < 1:
            raise WrongValueError(f"a stage takes an event at least once, not {least} times; call optional() for none")
        if most < least:
            raise WrongValueError(f"times({least}, {most}): the second number must not be less than the first one")
        self._from = least
        self._to = most
        self._window_size = window_size

    def get_from(self) -> int:
        """Return the minimum number of times."""
        return self._from

    def get_to(self) -> int:
        """Return the maximum number of times; the same as `get_from()` if unlimited."""
        return self._to

    def get_window_size(self) -> Duration | None:
        """Return the time limit: two events of the stage are less than this apart; None for no limit."""
        return self._window_size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Times):
            return NotImplemented
        return (self._from, self._to, self._window_size) == (other._from, other._to, other._window_size)

    def __hash__(self) -> int:
        return hash((self._from, self._to, self._window_size))

    def __repr__(self) -> str:
        return f"Times({self._from}, {self._to}, {self._window_size})"


def describe_quantifier(quantifier: Quantifier, times: Times | None) -> list[str]:
    """Return the labels in drawings for how often a stage takes an event."""
    labels = []
    if times is not None:
        least, most = times.get_from(), times.get_to()
        if quantifier.has_property(QuantifierProperty.LOOPING):
            labels.append(f"{least} or more")
        else:
            labels.append(f"{least} times" if least == most else f"{least} to {most} times")
        if quantifier.get_inner_consuming_strategy() is ConsumingStrategy.STRICT:
            labels.append("consecutive")
        elif quantifier.get_inner_consuming_strategy() is ConsumingStrategy.SKIP_TILL_ANY:
            labels.append("all combinations")
    labels += [
        prop.name.lower()
        for prop in (QuantifierProperty.OPTIONAL, QuantifierProperty.GREEDY)
        if quantifier.has_property(prop)
    ]
    return labels
