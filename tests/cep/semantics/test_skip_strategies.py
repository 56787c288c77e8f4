"""A5: which matches there are besides one that was told."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cep.operators import matches
from tests.cep.semantics.stages import begin, kind, then

from penstock.cep import AfterMatchSkipStrategy as Skip
from penstock.cep import Pattern
from penstock.runtime.operators.base import UserCodeError

STRATEGIES: dict[str, Any] = {
    "no_skip": Skip.no_skip(),
    "skip_to_next": Skip.skip_to_next(),
    "skip_past_last_event": Skip.skip_past_last_event(),
    "skip_to_first": Skip.skip_to_first("b"),
    "skip_to_last": Skip.skip_to_last("b"),
}


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        ("no_skip", ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        ("skip_to_next", ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        ("skip_past_last_event", ["b1 b2 b3 c"]),
        ("skip_to_first", ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        ("skip_to_last", ["b1 b2 b3 c", "b3 c"]),
    ],
)
def test_the_table(strategy: str, wanted: list[str]) -> None:
    """`b+ c` over `b1 b2 b3 c`. The loop is strict and greedy, so that nothing that began earlier goes on living."""
    pattern = begin("b", STRATEGIES[strategy]).one_or_more().consecutive().greedy()
    assert matches(then(pattern, "next", "c"), "b1 b2 b3 c") == wanted


@pytest.mark.parametrize(
    ("skip", "wanted"),
    [
        (Skip.no_skip(), ["a b c1 c2 c3 d", "b c1 c2 c3 d", "c1 c2 c3 d"]),
        (Skip.skip_to_first("loop"), ["a b c1 c2 c3 d", "c1 c2 c3 d"]),
    ],
)
def test_skip_to_first_of_a_later_stage(skip: Skip, wanted: list[str]) -> None:
    """`(a | b | c) (b | c) c+ d` over `a b c1 c2 c3 d`."""
    pattern = Pattern.begin("first", skip).where(kind("a", "b", "c")).next("second").where(kind("b", "c"))
    pattern = pattern.next("loop").where(kind("c")).one_or_more().consecutive().greedy()
    assert matches(then(pattern, "next", "d"), "a b c1 c2 c3 d") == wanted


@pytest.mark.parametrize(
    ("skip", "wanted"),
    [(Skip.no_skip(), ["a b1", "a b1 b2", "a b1 b2 b3"]), (Skip.skip_to_next(), ["a b1"])],
)
def test_skip_to_next_keeps_one_match_a_first_event(skip: Skip, wanted: list[str]) -> None:
    assert matches(then(begin("a", skip), "followed_by", "b").one_or_more(), "a b1 b2 b3") == wanted


def test_skip_past_last_event_begins_behind_the_match() -> None:
    pattern = then(begin("a", Skip.skip_past_last_event()), "followed_by", "b")
    assert matches(pattern, "a1 a2 b1 a3 b2") == ["a1 b1", "a3 b2"]


def test_a_match_waits_for_one_that_began_earlier() -> None:
    """b2 completes `a2 b2` in the order of events; `a1 … c` began before, so it is told first, and takes the other."""
    pattern = Pattern.begin("a", Skip.skip_past_last_event()).where(kind("a"))
    pattern = pattern.followed_by("middle").where(kind("x")).optional().followed_by("end").where(kind("c"))
    assert matches(pattern, "a1 a2 x c") == ["a1 x c"]


def test_a_match_that_waits_leaves_when_the_earlier_one_is_over() -> None:
    pattern = Pattern.begin("long", Skip.skip_past_last_event()).where(kind("a", "b"))
    pattern = pattern.next("end").where(kind("c"))
    assert matches(pattern, "a b c") == ["b c"]


def test_a_stage_without_event_skips_nothing() -> None:
    pattern = begin("a", Skip.skip_to_first("b"))
    pattern = then(then(pattern, "followed_by", "b").optional(), "followed_by", "c").within(100)
    assert matches(pattern, "a1 a2 c") == ["a1 c", "a2 c"]


def test_throw_exception_on_miss_where_the_stage_has_no_event() -> None:
    pattern = begin("a", Skip.skip_to_first("b").throw_exception_on_miss())
    pattern = then(then(pattern, "followed_by", "b").optional(), "followed_by", "c")
    with pytest.raises(UserCodeError) as raised:
        matches(pattern, "a c")
    assert "skip to b" in str(raised.value.__cause__)


def test_throw_exception_on_miss_where_nothing_would_be_skipped() -> None:
    """The stage's event is the first of the match, which would be found again and again."""
    pattern = then(begin("a", Skip.skip_to_first("a").throw_exception_on_miss()), "followed_by", "b")
    with pytest.raises(UserCodeError) as raised:
        matches(pattern, "a b")
    assert "first" in str(raised.value.__cause__)
