"""Patterns that are none: what is refused, and with which error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.cep.operators import operator_factory
from tests.cep.semantics.stages import begin, kind, then

from penstock.cep import AfterMatchSkipStrategy, MalformedPatternException, Pattern, WithinType


def group() -> Pattern:
    return Pattern.begin(then(begin("a"), "next", "b"))


MALFORMED: dict[str, Callable[[], Any]] = {
    "two quantifiers": lambda: begin("a").one_or_more().times(2),
    "a loop twice": lambda: begin("a").times(2).one_or_more(),
    "a NOT that comes more than once": lambda: begin("a").not_next("b").one_or_more(),
    "a NOT that comes a number of times": lambda: begin("a").not_followed_by("b").times(2),
    "optional twice": lambda: begin("a").optional().optional(),
    "a NOT that is optional": lambda: begin("a").not_next("b").optional(),
    "optional behind a greedy stage": lambda: begin("a").one_or_more().greedy().followed_by("b").optional(),
    "greedy that comes once": lambda: begin("a").greedy(),
    "a greedy group": lambda: group().one_or_more().greedy(),
    "greedy combinations": lambda: begin("a").one_or_more().allow_combinations().greedy(),
    "consecutive that comes once": lambda: begin("a").consecutive(),
    "combinations of one": lambda: begin("a").allow_combinations(),
    "consecutive combinations": lambda: begin("a").one_or_more().consecutive().allow_combinations(),
    "until without a loop": lambda: begin("a").until(kind("b")),
    "until of a number of times": lambda: begin("a").times(2).until(kind("b")),
    "until twice": lambda: begin("a").one_or_more().until(kind("b")).until(kind("c")),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str) -> None:
    with pytest.raises(MalformedPatternException):
        MALFORMED[name]()


MALFORMED_AS_A_WHOLE: dict[str, Callable[[], Pattern]] = {
    "two stages of a name": lambda: begin("a").next("a"),
    "the same name in a group": lambda: begin("a").next(then(begin("b"), "next", "a")),
    "a strategy's stage that is not there": lambda: begin("a", AfterMatchSkipStrategy.skip_to_first("b")).next("c"),
    "a last not_followed_by without a window": lambda: begin("a").not_followed_by("b"),
    "a gap longer than the whole": lambda: begin("a").next("b").within(20, WithinType.PREVIOUS_AND_CURRENT).within(10),
}


@pytest.mark.parametrize("name", MALFORMED_AS_A_WHOLE)
def test_malformed_as_a_whole(name: str) -> None:
    with pytest.raises(MalformedPatternException):
        operator_factory(MALFORMED_AS_A_WHOLE[name]())


def test_malformed_is_a_value_error() -> None:
    assert issubclass(MalformedPatternException, ValueError)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: begin("a").times(0),
        lambda: begin("a").times(3, 2),
        lambda: begin("a").times_or_more(0),
    ],
)
def test_numbers_that_are_none(wrong: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"\d"):
        wrong()


@pytest.mark.parametrize("link", ["not_next", "not_followed_by"])
def test_a_not_behind_an_optional_stage_is_not_supported(link: str) -> None:
    with pytest.raises(NotImplementedError):
        getattr(begin("a").next("b").optional(), link)("c")


@pytest.mark.parametrize("method", ["where", "or_"])
def test_a_group_has_no_condition_of_its_own(method: str) -> None:
    with pytest.raises(NotImplementedError):
        getattr(group(), method)(kind("a"))
