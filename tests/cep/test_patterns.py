"""Patterns as they are built: what can be read from them, and what is refused."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from penstock.base.time import Duration, Time
from penstock.cep import (
    CEP,
    AfterMatchSkipStrategy,
    BooleanConditions,
    ConsumingStrategy,
    GroupPattern,
    IterativeCondition,
    MalformedPatternException,
    Pattern,
    QuantifierProperty,
    RichAndCondition,
    RichIterativeCondition,
    RichNotCondition,
    RichOrCondition,
    SimpleCondition,
    SubtypeCondition,
    Times,
    UnsupportedOperationError,
    WithinType,
)
from penstock.cep.pattern_stream import build_search
from penstock.datastream import StreamExecutionEnvironment


def yes(event: Any) -> bool:
    return True


def begin(name: str = "a") -> Pattern:
    return Pattern.begin(name).where(yes)


def test_a_pattern_can_be_read() -> None:
    skip = AfterMatchSkipStrategy.skip_to_last("b")
    pattern = Pattern.begin("a", skip).where(yes).followed_by("b").times(2, 4).optional().within(Duration.of_seconds(1))
    assert pattern.get_name() == "b"
    before = pattern.get_previous()
    assert before is not None
    assert (before.get_name(), before.get_previous()) == ("a", None)
    assert pattern.get_times() == Times(2, 4)
    assert pattern.get_window_size() == Duration.of_seconds(1)
    assert pattern.get_window_size(WithinType.PREVIOUS_AND_CURRENT) is None
    assert pattern.get_after_match_skip_strategy() is skip
    quantifier = pattern.get_quantifier()
    assert quantifier.has_property(QuantifierProperty.TIMES)
    assert quantifier.has_property(QuantifierProperty.OPTIONAL)
    assert not quantifier.has_property(QuantifierProperty.SINGLE)
    assert quantifier.get_consuming_strategy() is ConsumingStrategy.SKIP_TILL_NEXT
    assert quantifier.get_inner_consuming_strategy() is ConsumingStrategy.SKIP_TILL_NEXT
    assert pattern.get_until_condition() is None


def test_a_method_changes_the_stage_and_gives_it_back() -> None:
    pattern = Pattern.begin("a")
    assert pattern.where(yes) is pattern
    assert pattern.one_or_more().consecutive().until(yes).within(10) is pattern
    assert pattern.get_quantifier().get_inner_consuming_strategy() is ConsumingStrategy.STRICT
    assert pattern.next("b") is not pattern


@pytest.mark.parametrize("length", [Duration.of_millis(5), Time.milliseconds(5), datetime.timedelta(milliseconds=5), 5])
def test_a_window_is_any_length_of_time(length: Any) -> None:
    pattern = Pattern.begin("a").times(2, 3, length).within(length)
    assert pattern.get_window_size() == Duration.of_millis(5)
    assert pattern.get_times() == Times(2, 3, Duration.of_millis(5))


def test_strategies_between_stages() -> None:
    first = Pattern.begin("a")
    strategies = [
        stage.get_quantifier().get_consuming_strategy()
        for stage in (
            first,
            first.next("b"),
            first.followed_by("b"),
            first.followed_by_any("b"),
            first.not_next("b"),
            first.not_followed_by("b"),
        )
    ]
    assert [one.name for one in strategies] == [
        "STRICT",
        "STRICT",
        "SKIP_TILL_NEXT",
        "SKIP_TILL_ANY",
        "NOT_NEXT",
        "NOT_FOLLOW",
    ]


def test_a_group_is_a_stage() -> None:
    inner = begin("a").next("b")
    pattern = Pattern.begin(inner).times(2).followed_by(Pattern.begin("c"))
    assert isinstance(pattern, GroupPattern)
    assert pattern.get_raw_pattern().get_name() == "c"
    group = pattern.get_previous()
    assert isinstance(group, GroupPattern)
    assert group.get_raw_pattern() is inner
    for call in (group.where, group.or_):
        with pytest.raises(UnsupportedOperationError, match="a group has no condition"):
            call(yes)
    with pytest.raises(UnsupportedOperationError, match="a group has no condition"):
        group.subtype(int)


def test_conditions_are_joined_in_the_order_in_which_they_are_given() -> None:
    def above(limit: int) -> Callable[[int], bool]:
        return lambda event: event > limit

    condition = Pattern.begin("a").where(above(1)).or_(lambda event: event == -5).where(above(-7)).get_condition()
    assert isinstance(condition, RichAndCondition)
    assert condition.is_simple
    test = condition.compiled()
    assert [bool(test(event)) for event in (2, 1, -5, -8)] == [True, False, True, False]
    typed = Pattern.begin("a").subtype(str).where(lambda event: len(event) > 1).get_condition().compiled()
    assert [typed(event) for event in (7, "x", "xy")] == [False, False, True]
    assert Pattern.begin("a").get_condition().compiled()(None)


def test_a_condition_of_conditions_is_iterative_when_any_is() -> None:
    seen = IterativeCondition.of(lambda event, ctx: ctx == event)
    simple = SimpleCondition.of(lambda event: event > 1)
    assert RichOrCondition(simple, BooleanConditions.false_function()).is_simple
    assert RichNotCondition(SubtypeCondition(int)).compiled()("text")
    both = RichAndCondition(simple, RichNotCondition(seen))
    assert not both.is_simple
    assert both.filter(2, 3)  # type: ignore[arg-type]
    assert not both.filter(2, 2)  # type: ignore[arg-type]


def test_rich_conditions_know_their_subtask_while_they_are_open() -> None:
    class Opened(RichIterativeCondition):
        def filter(self, value: Any, ctx: Any) -> bool:
            return True

    condition = Opened()
    with pytest.raises(RuntimeError, match="works from open"):
        condition.get_runtime_context()
    joined = RichAndCondition(yes, condition)
    context: Any = object()
    joined.start(context)
    assert condition.get_runtime_context() is context
    joined.stop()


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: begin().optional().not_next("b"), UnsupportedOperationError, "optional stage 'a'"),
        (lambda: begin().optional().not_followed_by("b"), UnsupportedOperationError, "optional stage 'a'"),
        (lambda: begin().until(yes), MalformedPatternException, "for stages that loop"),
        (lambda: begin().times(2).until(yes), MalformedPatternException, "for stages that loop"),
        (lambda: begin().one_or_more().until(yes).until(yes), MalformedPatternException, "called already"),
        (lambda: begin().one_or_more().times(2), MalformedPatternException, "has a quantifier already"),
        (lambda: begin().times(2).times_or_more(2), MalformedPatternException, "has a quantifier already"),
        (lambda: begin().not_next("b").one_or_more(), MalformedPatternException, "NOT stage 'b'"),
        (lambda: begin().not_followed_by("b").times(2), MalformedPatternException, "NOT stage 'b'"),
        (lambda: begin().not_next("b").greedy(), MalformedPatternException, "NOT stage 'b'"),
        (lambda: begin().not_next("b").optional(), MalformedPatternException, "NOT pattern cannot be optional"),
        (lambda: begin().optional().optional(), MalformedPatternException, "called already"),
        (lambda: begin().times(0), ValueError, "at least once"),
        (lambda: begin().times_or_more(0), ValueError, "at least once"),
        (lambda: begin().times(3, 2), ValueError, "must not be less"),
        (lambda: begin().times(0, 0), ValueError, "at least once"),
        (lambda: begin().greedy(), MalformedPatternException, "needs a stage that repeats"),
        (lambda: Pattern.begin(begin()).one_or_more().greedy(), MalformedPatternException, "group cannot be greedy"),
        (lambda: begin().times(2).allow_combinations().greedy(), MalformedPatternException, "allow_combinations"),
        (lambda: begin().times(2, 3).greedy().next("b").optional(), MalformedPatternException, "greedy stage is"),
        (lambda: begin().consecutive(), MalformedPatternException, "needs a stage that repeats"),
        (lambda: begin().allow_combinations(), MalformedPatternException, "needs a stage that repeats"),
        (lambda: begin().times(2).consecutive().allow_combinations(), MalformedPatternException, "not both"),
        (lambda: begin().times(2).allow_combinations().consecutive(), MalformedPatternException, "not both"),
        (lambda: begin().where("name"), TypeError, "a condition is a callable"),
        (lambda: Pattern.begin(7), TypeError, "a stage has a name"),  # type: ignore[arg-type]
        (lambda: begin().within("1 s"), TypeError, "a length of time"),
        (lambda: begin().within(-1), ValueError, "must not be negative"),
    ],
)
def test_a_stage_that_cannot_be_is_refused(build: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (begin().next("b").next("a"), "two stages have the name 'a'"),
        (Pattern.begin(begin().next("b")).next("b"), "two stages have the name 'b'"),
        (Pattern.begin("a", AfterMatchSkipStrategy.skip_to_first("z")).next("b"), "names the stage 'z'"),
        (begin().not_followed_by("b"), "needs a window"),
        (
            begin().within(5).next("b").within(6, WithinType.PREVIOUS_AND_CURRENT),
            r"\(6 ms\) must not be longer than that between the first event and the last one \(5 ms\)",
        ),
        (begin().times(2, window_time=9).within(8), "must not be longer"),
        (Pattern.begin(begin().optional()).one_or_more(), "repeat nothing for ever"),
    ],
)
def test_a_pattern_whose_parts_do_not_fit_is_refused(pattern: Pattern, text: str) -> None:
    with pytest.raises(MalformedPatternException, match=text):
        build_search(pattern)
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(ValueError, match=text):
        CEP.pattern(stream, pattern)


def test_what_is_allowed_at_the_edge() -> None:
    build_search(begin().not_followed_by("b").within(5))
    build_search(begin().within(5).not_followed_by("b"))
    build_search(begin().not_followed_by("b").within(5, WithinType.PREVIOUS_AND_CURRENT))
    build_search(begin().within(5).next("b").within(5, WithinType.PREVIOUS_AND_CURRENT))
    assert begin().times(0, 3).get_quantifier().has_property(QuantifierProperty.OPTIONAL)
    assert build_search(begin().within(0)).pattern.within_ms is None


def test_a_skip_strategy_says_what_it_skips_to() -> None:
    strategy = AfterMatchSkipStrategy.skip_to_first("a").throw_exception_on_miss()
    assert (strategy.get_pattern_name(), strategy.is_skip_strategy()) == ("a", True)
    assert not AfterMatchSkipStrategy.no_skip().is_skip_strategy()
    assert AfterMatchSkipStrategy.skip_past_last_event() == AfterMatchSkipStrategy.skip_past_last_event()
    with pytest.raises(TypeError, match="is for skip_to_first"):
        AfterMatchSkipStrategy.no_skip().throw_exception_on_miss()
