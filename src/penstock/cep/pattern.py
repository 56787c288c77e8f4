"""Patterns of complex event processing: stages with conditions, their quantifiers, and after-match skip strategies.

    Pattern.begin("start").where(lambda event: event.kind == "a").next("end").where(lambda event: event.kind == "b")

A `Pattern` is a sequence of stages. Each stage has a condition, a quantifier (how often it takes an event), and a
`ConsumingStrategy` (which events may lie before the one that it takes). As in Flink, a stage's methods modify the stage
and return it; `next`, `followed_by` and the like start a new stage, and the returned stage represents the whole pattern
up to there. An `AfterMatchSkipStrategy` decides how a match affects other matches.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any, Self

from penstock.base.errors import UnsupportedError, WrongTypeError, WrongValueError
from penstock.base.time import Duration, format_duration, to_millis
from penstock.cep import conditions
from penstock.cep.drawing import DrawnStage, render_mermaid, render_svg
from penstock.runtime.patterns.matcher import Skip, SkipStrategy


class MalformedPatternException(WrongValueError):
    """The parts of a pattern do not fit together.

    Examples:
        >>> from penstock.cep import MalformedPatternException, Pattern
        >>> try:
        ...     Pattern.begin("first").greedy()
        ... except MalformedPatternException as error:
        ...     print(error)
        greedy() needs a stage that repeats: call times(), times_or_more() or one_or_more() first
    """


class UnsupportedOperationError(UnsupportedError):
    """The pattern is meaningful, but neither Flink nor Penstock supports it.

    Examples:
        >>> from penstock.cep import Pattern, UnsupportedOperationError
        >>> try:
        ...     Pattern.begin("first").optional().not_next("second")
        ... except UnsupportedOperationError as error:
        ...     print(error)
        stage 'second' must not be met behind the optional stage 'first', which is not supported: ...
    """


class WithinType(enum.Enum):
    """The events between which the time of `within` is measured.

    Examples:
        >>> from penstock.cep import Pattern, WithinType
        >>> from penstock.testing import trace_pattern
        >>> pair = Pattern.begin("first").next("second").within(10, WithinType.PREVIOUS_AND_CURRENT)
        >>> trace_pattern(pair, ["a", "b", "c"], timestamps=[0, 20, 25]).matches
        [{'first': ['b'], 'second': ['c']}]
    """

    #: the first and the last event of a match
    FIRST_AND_LAST = enum.auto()
    #: a stage's event and the event before it
    PREVIOUS_AND_CURRENT = enum.auto()


class QuantifierProperty(enum.Enum):
    """The properties of quantifiers.

    Examples:
        >>> from penstock.cep import Pattern, QuantifierProperty
        >>> Pattern.begin("first").optional().get_quantifier().has_property(QuantifierProperty.OPTIONAL)
        True
    """

    SINGLE = enum.auto()
    LOOPING = enum.auto()
    TIMES = enum.auto()
    OPTIONAL = enum.auto()
    GREEDY = enum.auto()


class ConsumingStrategy(enum.Enum):
    """The events that may lie before the one that a stage takes.

    Examples:
        >>> from penstock.cep import ConsumingStrategy, Pattern
        >>> second = Pattern.begin("first").next("second")
        >>> second.get_quantifier().get_consuming_strategy() is ConsumingStrategy.STRICT
        True
    """

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
    """How often a stage takes an event; returned by `Pattern.get_quantifier()`.

    Examples:
        >>> from penstock.cep import Pattern, QuantifierProperty
        >>> quantifier = Pattern.begin("first").times(2).optional().get_quantifier()
        >>> quantifier.has_property(QuantifierProperty.TIMES)
        True
        >>> quantifier.has_property(QuantifierProperty.LOOPING)
        False
    """

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
    """How many times a stage takes an event; returned by `Pattern.get_times()`.

    Examples:
        >>> from penstock.cep import Pattern
        >>> times = Pattern.begin("first").times(2, 4).get_times()
        >>> times.get_from(), times.get_to()
        (2, 4)
    """

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


@dataclass(frozen=True)
class AfterMatchSkipStrategy:
    """Decides which partial matches and pending matches a match discards.

    Except with `no_skip()`, matches are emitted in the order of their first events: a match waits as long as there is a
    partial match that began earlier.

    Examples:
        >>> from penstock.cep import AfterMatchSkipStrategy, Pattern
        >>> from penstock.testing import trace_pattern
        >>> skip = AfterMatchSkipStrategy.skip_past_last_event()
        >>> trace_pattern(Pattern.begin("pair", skip).times(2), [1, 2, 3, 4]).matches
        [{'pair': [1, 2]}, {'pair': [3, 4]}]
    """

    _skip: SkipStrategy

    @staticmethod
    def no_skip() -> AfterMatchSkipStrategy:
        """Discard nothing: all matches are emitted when they are complete. The default."""
        return AfterMatchSkipStrategy(SkipStrategy(Skip.NO_SKIP))

    @staticmethod
    def skip_to_next() -> AfterMatchSkipStrategy:
        """Discard matches that began with the same event as the match."""
        return AfterMatchSkipStrategy(SkipStrategy(Skip.TO_NEXT))

    @staticmethod
    def skip_past_last_event() -> AfterMatchSkipStrategy:
        """Discard matches that began before the match ended."""
        return AfterMatchSkipStrategy(SkipStrategy(Skip.PAST_LAST))

    @staticmethod
    def skip_to_first(pattern_name: str) -> AfterMatchSkipStrategy:
        """Discard matches that began before the match's first event of a stage.

        Nothing if the match has no such event.
        """
        return AfterMatchSkipStrategy(SkipStrategy(Skip.TO_FIRST, _named(pattern_name)))

    @staticmethod
    def skip_to_last(pattern_name: str) -> AfterMatchSkipStrategy:
        """Discard matches that began before the match's last event of a stage.

        Nothing if the match has no such event.
        """
        return AfterMatchSkipStrategy(SkipStrategy(Skip.TO_LAST, _named(pattern_name)))

    def throw_exception_on_miss(self) -> AfterMatchSkipStrategy:
        """Return the same strategy, failing the job if a match has no event to skip to or that is its first one.

        Raises:
            TypeError: unless the strategy skips to an event of a stage.
        """
        if not self._skip.stage:
            raise WrongTypeError("throw_exception_on_miss() is for skip_to_first() and skip_to_last()")
        return AfterMatchSkipStrategy(replace(self._skip, fails_on_miss=True))

    def is_skip_strategy(self) -> bool:
        """Return whether the strategy can skip matches."""
        return self._skip.skip is not Skip.NO_SKIP

    def get_pattern_name(self) -> str | None:
        """Return the stage to whose event the strategy skips, or None."""
        return self._skip.stage or None

    @property
    def engine_strategy(self) -> SkipStrategy:
        """The strategy for the pattern engine."""
        return self._skip


def _named(pattern_name: str) -> str:
    if not isinstance(pattern_name, str):
        raise WrongTypeError(f"the name of a stage must be a str, not {pattern_name!r}")
    return pattern_name


class Pattern:
    """A pattern, represented by its last stage. Start with `Pattern.begin`.

    As in Flink, `where`, `times`, `within` and the like modify the stage and return it. `next`, `followed_by` and the
    like start a new stage, and return it for the whole pattern up to there.

    Examples:
        >>> from penstock.cep import Pattern
        >>> from penstock.testing import trace_pattern
        >>> small = Pattern.begin("small").where(lambda euros: euros < 10)
        >>> pattern = small.followed_by("large").where(lambda euros: euros > 500)
        >>> trace_pattern(pattern, [5, 20, 900]).matches
        [{'small': [5], 'large': [900]}]
    """

    def __init__(
        self,
        name: str,
        previous: Pattern | None,
        strategy: ConsumingStrategy,
        after_match_skip_strategy: AfterMatchSkipStrategy,
    ) -> None:
        self._name = name
        self._previous = previous
        self._quantifier = Quantifier(strategy, QuantifierProperty.SINGLE)
        self._skip_strategy = after_match_skip_strategy
        self._condition: conditions.IterativeCondition | None = None
        self._until: conditions.IterativeCondition | None = None
        self._windows: dict[WithinType, Duration] = {}
        self._times: Times | None = None

    # --- beginning, and going on -------------------------------------------------------------------------------------

    @staticmethod
    def begin(name_or_group: str | Pattern, after_match_skip_strategy: AfterMatchSkipStrategy | None = None) -> Pattern:
        """Begin a pattern with a stage of this name, or with a group.

        Args:
            name_or_group: the name of the stage, or a pattern whose stages are repeated together.
            after_match_skip_strategy: which other matches a match discards; by default none.

        Examples:
            >>> trace_pattern(Pattern.begin("any"), [5, 20]).matches
            [{'any': [5]}, {'any': [20]}]
        """
        strategy = after_match_skip_strategy
        if strategy is None:
            strategy = AfterMatchSkipStrategy.no_skip()
        elif not isinstance(strategy, AfterMatchSkipStrategy):
            raise WrongTypeError(f"expected an AfterMatchSkipStrategy, not {strategy!r}")
        return _pattern(name_or_group, None, ConsumingStrategy.STRICT, strategy)

    def next(self, name_or_group: str | Pattern) -> Pattern:
        """Add a stage or group whose event follows directly.

        Args:
            name_or_group: the stage's name, which no other stage has; or a pattern, whose stages become a group.

        Examples:
            >>> trace_pattern(Pattern.begin("first").next("second"), [1, 2, 3]).matches
            [{'first': [1], 'second': [2]}, {'first': [2], 'second': [3]}]
        """
        return self._followed(name_or_group, ConsumingStrategy.STRICT)

    def followed_by(self, name_or_group: str | Pattern) -> Pattern:
        """Add a stage or group; events in between are skipped if they do not meet its condition.

        Args:
            name_or_group: the stage's name, which no other stage has; or a pattern, whose stages become a group.

        Examples:
            >>> first = Pattern.begin("first").where(lambda euros: euros == 1)
            >>> trace_pattern(first.followed_by("three").where(lambda euros: euros == 3), [1, 2, 3]).matches
            [{'first': [1], 'three': [3]}]
        """
        return self._followed(name_or_group, ConsumingStrategy.SKIP_TILL_NEXT)

    def followed_by_any(self, name_or_group: str | Pattern) -> Pattern:
        """Add a stage or group; any events in between may be skipped, so each event that it can take yields a match."""
        return self._followed(name_or_group, ConsumingStrategy.SKIP_TILL_ANY)

    def not_next(self, name: str) -> Pattern:
        """Add a NOT stage, whose event must not follow directly.

        Raises:
            UnsupportedOperationError: after an optional stage.
        """
        return self._not_followed(name, ConsumingStrategy.NOT_NEXT)

    def not_followed_by(self, name: str) -> Pattern:
        """Add a NOT stage, whose event must not come before the next stage's, or within the window if it is the last.

        Raises:
            UnsupportedOperationError: after an optional stage.

        Examples:
            >>> small = Pattern.begin("small").where(lambda euros: 0 < euros < 10)
            >>> unrefunded = small.not_followed_by("refund").where(lambda euros: euros < 0)
            >>> pattern = unrefunded.followed_by("large").where(lambda euros: euros > 500)
            >>> trace_pattern(pattern, [5, -5, 900]).matches
            []
        """
        return self._not_followed(name, ConsumingStrategy.NOT_FOLLOW)

    def _followed(self, name_or_group: str | Pattern, strategy: ConsumingStrategy) -> Pattern:
        return _pattern(name_or_group, self, strategy, self._skip_strategy)

    def _not_followed(self, name: str, strategy: ConsumingStrategy) -> Pattern:
        if not isinstance(name, str):
            raise WrongTypeError(f"a NOT stage needs a name, not {name!r}: a group cannot be one")
        if self._quantifier.has_property(QuantifierProperty.OPTIONAL):
            raise UnsupportedOperationError(
                f"stage {name!r} must not be met behind the optional stage {self._name!r}, which is not supported: use "
                "two patterns, one with and one without the optional stage"
            )
        return self._followed(name, strategy)

    # --- conditions --------------------------------------------------------------------------------------------------

    def where(self, condition: Any) -> Self:
        """Require a condition for the stage's events, in addition to the previous ones.

        Args:
            condition: a callable that takes the event, or an `IterativeCondition`.

        Examples:
            >>> even = Pattern.begin("even").where(lambda euros: euros % 2 == 0)
            >>> trace_pattern(even, [1, 2, 3]).matches
            [{'even': [2]}]
        """
        return self._and(conditions.as_condition(condition))

    def or_(self, condition: Any) -> Self:
        """Add a condition for the stage's events, as an alternative to the previous ones."""
        converted = conditions.as_condition(condition)
        self._condition = (
            converted if self._condition is None else conditions.RichOrCondition(self._condition, converted)
        )
        return self

    def subtype(self, subtype: type | tuple[type, ...]) -> Self:
        """Require the stage's events to be instances of this class, in addition to the previous conditions."""
        return self._and(conditions.SubtypeCondition(subtype))

    def _and(self, condition: conditions.IterativeCondition) -> Self:
        self._condition = (
            condition if self._condition is None else conditions.RichAndCondition(self._condition, condition)
        )
        return self

    def until(self, condition: Any) -> Self:
        """End the repetition at an event that meets this condition. The stage does not take it, even if it could.

        Raises:
            MalformedPatternException: unless the stage loops, or on a second call.
        """
        check(self._until is None, f"stage {self._name!r}: until() was called already")
        check(
            self._quantifier.has_property(QuantifierProperty.LOOPING),
            f"stage {self._name!r}: until() is for stages that loop: call one_or_more() or times_or_more() first",
        )
        self._until = conditions.as_condition(condition)
        return self

    # --- how often ---------------------------------------------------------------------------------------------------

    def one_or_more(self, window_time: Any = None) -> Self:
        """Let the stage take one or more events.

        Args:
            window_time: two of the stage's events must be less than this apart; None for no limit.

        Examples:
            >>> small = Pattern.begin("small").where(lambda euros: euros < 10).one_or_more().greedy()
            >>> trace_pattern(small.next("large").where(lambda euros: euros > 500), [1, 2, 900]).matches[0]
            {'small': [1, 2], 'large': [900]}
        """
        return self._repeat(QuantifierProperty.LOOPING, 1, 1, window_time)

    def times_or_more(self, times: int, window_time: Any = None) -> Self:
        """Let the stage take at least `times` events.

        Args:
            times: the minimum number of events, at least 1.
            window_time: two of the stage's events must be less than this apart; None for no limit.

        Raises:
            ValueError: if `times` is less than 1.
        """
        return self._repeat(QuantifierProperty.LOOPING, times, times, window_time)

    def times(self, times: int, to: Any = None, window_time: Any = None) -> Self:
        """Let the stage take exactly `times` events, or `times` to `to` events.

        Args:
            times: the exact or minimum number of events; 0 makes the stage optional if there is a `to`.
            to: the maximum number of events.
            window_time: two of the stage's events must be less than this apart; None for no limit.

        Raises:
            ValueError: if `times` is less than 1 (or 0 with a `to`), or `to` is less than `times`.

        Examples:
            >>> trace_pattern(Pattern.begin("pair").times(2), [1, 2, 3]).matches
            [{'pair': [1, 2]}, {'pair': [2, 3]}]
        """
        if window_time is None and to is not None and not isinstance(to, int):
            to, window_time = None, to
        if to is None:
            return self._repeat(QuantifierProperty.TIMES, times, times, window_time)
        least = 1 if times == 0 and to >= 1 else times
        self._repeat(QuantifierProperty.TIMES, least, to, window_time)
        if times == 0 and not self._quantifier.has_property(QuantifierProperty.OPTIONAL):
            self._quantifier.optional()
        return self

    def _repeat(self, how: QuantifierProperty, least: int, most: int, window_time: Any) -> Self:
        self._check_no_not("a quantifier")
        check(
            self._quantifier.has_property(QuantifierProperty.SINGLE),
            f"stage {self._name!r} has a quantifier already: {self._quantifier}",
        )
        for number in (least, most):
            if type(number) is not int:
                raise WrongTypeError(f"stage {self._name!r} takes a whole number of events, not {number!r}")
        self._times = Times(least, most, _duration(window_time))
        self._quantifier = self._quantifier.repeated(how)
        return self

    def optional(self) -> Self:
        """Make the stage optional.

        Raises:
            MalformedPatternException: for a NOT stage, after a greedy stage, or on a second call.
        """
        check(
            self._previous is None or not self._previous._quantifier.has_property(QuantifierProperty.GREEDY),
            f"stage {self._name!r} cannot be optional, because a greedy stage is before it",
        )
        self._quantifier.optional()
        return self

    def greedy(self) -> Self:
        """Let a repeating stage take as many events as it can: the next stage gets none that this one can take.

        Raises:
            MalformedPatternException: for a stage that does not repeat, a group, or with `allow_combinations()`.
        """
        self._check_no_not("greedy()")
        check(not isinstance(self, GroupPattern), "a group cannot be greedy")
        self._quantifier.greedy()
        return self

    def consecutive(self) -> Self:
        """Allow no events between two events of the stage.

        Raises:
            MalformedPatternException: for a stage that does not repeat, or with `allow_combinations()`.
        """
        self._quantifier.consecutive()
        return self

    def allow_combinations(self) -> Self:
        """Allow any events between two events of the stage, so that each choice of its events yields a match.

        Raises:
            MalformedPatternException: for a stage that does not repeat, or with `consecutive()`.
        """
        self._quantifier.combinations()
        return self

    def _check_no_not(self, feature: str) -> None:
        check(
            self._quantifier.get_consuming_strategy() not in NOT_STRATEGIES,
            f"{feature} is not for the NOT stage {self._name!r}",
        )

    def within(self, window_time: Any, within_type: WithinType = WithinType.FIRST_AND_LAST) -> Self:
        """Limit matches to less than this time.

        Args:
            window_time: a `Duration`, `Time`, `timedelta` or ms; None changes nothing.
            within_type: whether the time runs from the first event to the last, where the shortest time of all stages
                counts, or from the previous event to that of this stage.

        Examples:
            >>> soon = Pattern.begin("first").next("second").within(10)
            >>> trace_pattern(soon, ["a", "b", "c"], timestamps=[0, 20, 25]).matches
            [{'first': ['b'], 'second': ['c']}]
        """
        duration = _duration(window_time)
        if not isinstance(within_type, WithinType):
            raise WrongTypeError(f"expected a WithinType, not {within_type!r}")
        if duration is not None:
            self._windows[within_type] = duration
        return self

    # --- reading -----------------------------------------------------------------------------------------------------

    def get_name(self) -> str:
        """Return the name of the stage."""
        return self._name

    def get_previous(self) -> Pattern | None:
        """Return the previous stage."""
        return self._previous

    def get_quantifier(self) -> Quantifier:
        """Return the stage's quantifier: how often it takes an event."""
        return self._quantifier

    def get_times(self) -> Times | None:
        """Return how many times the stage takes an event, or None if it does not repeat."""
        return self._times

    def get_condition(self) -> conditions.IterativeCondition:
        """Return the stage's condition, which always holds if none was set."""
        return conditions.BooleanConditions.true_function() if self._condition is None else self._condition

    def get_until_condition(self) -> conditions.IterativeCondition | None:
        """Return the condition that ends the repetition."""
        return self._until

    def get_window_size(self, within_type: WithinType = WithinType.FIRST_AND_LAST) -> Duration | None:
        """Return the time that `within` set for this stage."""
        return self._windows.get(within_type)

    def get_after_match_skip_strategy(self) -> AfterMatchSkipStrategy:
        """Return the after-match skip strategy."""
        return self._skip_strategy

    # --- pictures ----------------------------------------------------------------------------------------------------

    def to_mermaid(self) -> str:
        """Return the pattern as a Mermaid flowchart: a box for each stage, a dotted arrow to each NOT stage."""
        return render_mermaid(self._drawn())

    def to_svg(self) -> str:
        """Return the pattern as an SVG drawing, which notebooks display."""
        return render_svg(self._drawn())

    def _repr_html_(self) -> str:
        return self.to_svg()

    def _drawn(self) -> tuple[DrawnStage, ...]:
        before = () if self._previous is None else self._previous._drawn()
        strategy = self._quantifier.get_consuming_strategy()
        labels = [*describe_quantifier(self._quantifier, self._times), *(["until"] if self._until is not None else [])]
        for within_type, window in self._windows.items():
            of = "" if within_type is WithinType.FIRST_AND_LAST else " of the event before"
            labels.append(f"within {format_duration(window)}{of}")
        stage = DrawnStage(self._name, tuple(labels), ARROWS[strategy], strategy in NOT_STRATEGIES, self._inner_drawn())
        return (*before, stage)

    def _inner_drawn(self) -> tuple[DrawnStage, ...]:
        return ()

    def __repr__(self) -> str:
        before = "" if self._previous is None else f"{self._previous!r}, "
        return f"{before}{self._name!r} {self._quantifier!r}"


class GroupPattern(Pattern):
    """A pattern used as a stage of another one.

    Examples:
        >>> from penstock.cep import GroupPattern, Pattern
        >>> from penstock.testing import trace_pattern
        >>> pair = Pattern.begin(Pattern.begin("one").next("two")).times(2).consecutive()
        >>> isinstance(pair, GroupPattern), trace_pattern(pair, [1, 2, 3, 4]).matches
        (True, [{'one': [1, 3], 'two': [2, 4]}])
    """

    def __init__(
        self,
        previous: Pattern | None,
        group: Pattern,
        strategy: ConsumingStrategy,
        after_match_skip_strategy: AfterMatchSkipStrategy,
    ) -> None:
        super().__init__("GroupPattern", previous, strategy, after_match_skip_strategy)
        self._group = group

    def get_raw_pattern(self) -> Pattern:
        """Return the pattern of the group."""
        return self._group

    def _inner_drawn(self) -> tuple[DrawnStage, ...]:
        return self._group._drawn()

    def where(self, condition: Any) -> Self:
        """Raise UnsupportedOperationError: a group has no condition of its own."""
        raise UnsupportedOperationError("a group has no condition: call where() on the stages in it")

    def or_(self, condition: Any) -> Self:
        """Raise UnsupportedOperationError: a group has no condition of its own."""
        raise UnsupportedOperationError("a group has no condition: call or_() on the stages in it")

    def subtype(self, subtype: type | tuple[type, ...]) -> Self:
        """Raise UnsupportedOperationError: a group has no condition of its own."""
        raise UnsupportedOperationError("a group has no condition: call subtype() on the stages in it")


def _pattern(
    name_or_group: str | Pattern,
    previous: Pattern | None,
    strategy: ConsumingStrategy,
    after_match_skip_strategy: AfterMatchSkipStrategy,
) -> Pattern:
    if isinstance(name_or_group, Pattern):
        return GroupPattern(previous, name_or_group, strategy, after_match_skip_strategy)
    if not isinstance(name_or_group, str):
        raise WrongTypeError(f"a stage has a name, or is a group made of a Pattern, not {name_or_group!r}")
    if not name_or_group:
        raise MalformedPatternException("the name of a stage must not be empty")
    return Pattern(name_or_group, previous, strategy, after_match_skip_strategy)


def _duration(window_time: Any) -> Duration | None:
    if window_time is None:
        return None
    milliseconds = to_millis(window_time)
    if milliseconds < 0:
        raise WrongValueError(f"the time of a window must not be negative: {window_time!r}")
    return Duration.of_millis(milliseconds)
