"""A5: how often a stage comes: the table of Flink's page, line by line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.cep.operators import matches
from tests.cep.semantics.stages import begin, then

from penstock.cep import Pattern

#: What is called on the stage b of `a b c`, and how many of the events b1, b2, … a match may have.
TABLE: dict[str, tuple[Callable[[Pattern], Pattern], set[int]]] = {
    "times(4)": (lambda b: b.times(4), {4}),
    "times(4).optional()": (lambda b: b.times(4).optional(), {0, 4}),
    "times(2, 4)": (lambda b: b.times(2, 4), {2, 3, 4}),
    "times(2, 4).optional()": (lambda b: b.times(2, 4).optional(), {0, 2, 3, 4}),
    "times(0, 2)": (lambda b: b.times(0, 2), {0, 1, 2}),
    "one_or_more()": (lambda b: b.one_or_more(), {1, 2, 3, 4, 5}),
    "one_or_more().optional()": (lambda b: b.one_or_more().optional(), {0, 1, 2, 3, 4, 5}),
    "times_or_more(2)": (lambda b: b.times_or_more(2), {2, 3, 4, 5}),
    "times_or_more(2).optional()": (lambda b: b.times_or_more(2).optional(), {0, 2, 3, 4, 5}),
    "optional()": (lambda b: b.optional(), {0, 1}),
    "once": (lambda b: b, {1}),
}
#: The same, where a match has as many of the five as it may.
GREEDY: dict[str, tuple[Callable[[Pattern], Pattern], set[int]]] = {
    "one_or_more().greedy()": (lambda b: b.one_or_more().greedy(), {5}),
    "one_or_more().optional().greedy()": (lambda b: b.one_or_more().optional().greedy(), {5}),
    "times_or_more(2).greedy()": (lambda b: b.times_or_more(2).greedy(), {5}),
    "times_or_more(2).optional().greedy()": (lambda b: b.times_or_more(2).optional().greedy(), {5}),
    "times(2, 5).greedy()": (lambda b: b.times(2, 5).greedy(), {5}),
    "times(2, 5).optional().greedy()": (lambda b: b.times(2, 5).optional().greedy(), {5}),
}
TEXT = "a b1 b2 b3 b4 b5 c"


@pytest.mark.parametrize("quantifier", [*TABLE, *GREEDY])
def test_how_many(quantifier: str) -> None:
    quantified, wanted = (TABLE | GREEDY)[quantifier]
    pattern = then(quantified(then(begin("a"), "followed_by", "b")), "followed_by", "c")
    found = matches(pattern, TEXT)
    assert sorted(len(match.split()) - 2 for match in found) == sorted(wanted)
    # The stage before takes the first b that comes: a match has the first so many.
    assert all(match.split()[1:-1] == [f"b{n}" for n in range(1, len(match.split()) - 1)] for match in found)


def test_fewer_are_no_match() -> None:
    for quantified in (lambda b: b.times(2), lambda b: b.times_or_more(2), lambda b: b.times(2, 3).greedy()):
        assert matches(then(quantified(then(begin("a"), "followed_by", "b")), "followed_by", "c"), "a b1 c") == []


def test_a_loop_at_the_end_matches_with_each_event() -> None:
    assert matches(then(begin("a"), "followed_by", "b").one_or_more(), "a b1 b2 b3") == [
        "a b1",
        "a b1 b2",
        "a b1 b2 b3",
    ]


def test_an_optional_end_matches_at_once_without_it() -> None:
    assert matches(then(begin("a"), "followed_by", "b").optional(), "a b") == ["a", "a b"]


def test_an_optional_begin() -> None:
    assert matches(then(begin("a").optional(), "followed_by", "b"), "a b") == ["a b", "b"]


def test_greedy_goes_on_behind_what_it_does_not_take() -> None:
    pattern = then(then(begin("a"), "followed_by", "b").one_or_more().greedy(), "followed_by", "c")
    assert matches(pattern, "a b1 d b2 c") == ["a b1 b2 c"]


def test_a_greedy_range_takes_its_most() -> None:
    """More than its most is passed over by no stage: what begins with a1 ends with b3."""
    pattern = then(then(begin("a"), "followed_by", "b").times(1, 2).greedy(), "followed_by", "c")
    assert matches(pattern, "a b1 b2 c") == ["a b1 b2 c"]
    assert matches(pattern, "a b1 b2 b3 c") == []
