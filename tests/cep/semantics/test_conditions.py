"""Which events a stage takes."""

from __future__ import annotations

from typing import Any

from tests.cep.operators import matches
from tests.cep.oracle.specifications import Event
from tests.cep.semantics.stages import begin, kind, then

from penstock.cep import (
    BooleanConditions,
    IterativeCondition,
    Pattern,
    RichAndCondition,
    RichIterativeCondition,
    RichNotCondition,
    RichOrCondition,
    SimpleCondition,
)


class Small(SimpleCondition):
    def filter(self, value: Event, ctx: Any = None) -> bool:
        return value.value < 3


def test_a_stage_without_condition_takes_any_event() -> None:
    assert matches(Pattern.begin("any"), "a b") == ["a", "b"]


def test_where_twice_is_and() -> None:
    assert matches(begin("a").where(Small()), "a1 a5 b1") == ["a1"]


def test_or_is_or() -> None:
    assert matches(begin("a").or_(kind("b")), "a b c") == ["a", "b"]


def test_where_and_or_in_their_order() -> None:
    """(a or b) and small."""
    assert matches(begin("a").or_(kind("b")).where(Small()), "a1 a5 b1 b5") == ["a1", "b1"]


def test_conditions_made_of_others() -> None:
    a, small = SimpleCondition.of(kind("a")), Small()
    for condition, wanted in (
        (RichAndCondition(a, small), ["a1"]),
        (RichOrCondition(a, small), ["a1", "a5", "b1"]),
        (RichNotCondition(a), ["b1", "b5"]),
        (BooleanConditions.true_function(), ["a1", "a5", "b1", "b5"]),
        (BooleanConditions.false_function(), []),
    ):
        assert matches(Pattern.begin("one").where(condition), "a1 a5 b1 b5") == wanted


def test_subtype() -> None:
    assert matches(begin("a").subtype(Event), "a b") == ["a"]
    assert matches(begin("a").subtype(str), "a b") == []


def test_an_iterative_condition_sees_what_its_own_stage_has_taken() -> None:
    """Flink's example: while the sum of the values stays below five."""

    def below_five(event: Event, ctx: Any) -> bool:
        return event.kind == "b" and event.value + sum(e.value for e in ctx.get_events_for_pattern("b")) < 5

    pattern = begin("a").next("b").where(IterativeCondition.of(below_five)).one_or_more()
    assert matches(pattern, "a b1 b2 b3 b1") == ["a b1", "a b1 b2", "a b1 b2 b1"]


def test_an_iterative_condition_sees_what_earlier_stages_have_taken() -> None:
    def more(event: Event, ctx: Any) -> bool:
        (first,) = ctx.get_events_for_pattern("a")
        return bool(event.value > first.value)

    pattern = begin("a").followed_by("more").where(IterativeCondition.of(more))
    assert matches(pattern, "a2 b1 a5 b3") == ["a2 a5"]


def test_an_iterative_condition_sees_no_event_of_a_stage_that_has_taken_none() -> None:
    pattern = (
        begin("a")
        .followed_by("b")
        .where(IterativeCondition.of(lambda event, ctx: not list(ctx.get_events_for_pattern("c"))))
    )
    assert matches(then(pattern, "followed_by", "c"), "a b c") == ["a b c"]


def test_an_iterative_condition_knows_the_time() -> None:
    pattern = Pattern.begin("late").where(IterativeCondition.of(lambda _, ctx: (ctx.timestamp() or 0) >= 5))
    assert matches(pattern, "a@4 b@5 c@6") == ["b", "c"]


def test_a_rich_condition_is_opened_and_closed() -> None:
    calls = []

    class Counting(RichIterativeCondition):
        def open(self, runtime_context: Any) -> None:
            calls.append(("open", runtime_context.get_index_of_this_subtask()))

        def close(self) -> None:
            calls.append(("close", 0))

        def filter(self, value: Event, ctx: Any) -> bool:
            calls.append(("filter", value.value))
            return True

    from tests.cep.operators import run

    run(Pattern.begin("one").where(Counting()), "a7").close()
    assert calls[0] == ("open", 0)
    assert ("filter", 7) in calls
    assert calls[-1] == ("close", 0)


def test_until_ends_a_loop() -> None:
    """`(a+ until b)` over `a1 c a2 b a3`: neither `a1 a2 a3` nor `a2 a3`."""
    found = matches(begin("a").one_or_more().until(kind("b")), "a1 c a2 b a3")
    assert sorted(found) == ["a1", "a1 a2", "a2", "a3"]


def test_until_is_asked_before_where() -> None:
    """An event that would end the loop is not taken, though the stage's condition holds."""
    pattern = Pattern.begin("a").where(kind("a", "b")).one_or_more().until(kind("b"))
    assert matches(pattern, "a1 b a2") == ["a1", "a2"]


def test_the_event_that_ends_a_loop_may_be_taken_by_the_next_stage() -> None:
    pattern = then(begin("a").one_or_more().greedy().until(kind("b")), "followed_by", "b")
    assert matches(pattern, "a1 a2 b1 a3 b2") == ["a1 a2 b1", "a2 b1", "a3 b2"]
