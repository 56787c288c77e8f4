"""A5: what may lie between the events of a match."""

from __future__ import annotations

import pytest
from tests.cep.operators import matches
from tests.cep.semantics.stages import begin, kind, then

from penstock.cep import Pattern


@pytest.mark.parametrize(
    ("link", "wanted"),
    [("next", []), ("followed_by", ["a b1"]), ("followed_by_any", ["a b1", "a b2"])],
)
def test_between_two_stages(link: str, wanted: list[str]) -> None:
    """`a c b1 b2`: next lets nothing lie between, followed_by what does not match, followed_by_any anything."""
    assert matches(then(begin("a"), link, "b"), "a c b1 b2") == wanted


def test_next_takes_the_very_next_event() -> None:
    assert matches(then(begin("a"), "next", "b"), "a b1 b2") == ["a b1"]


def test_each_event_may_begin_a_match() -> None:
    assert matches(then(begin("a"), "followed_by", "b"), "a1 a2 b") == ["a1 b", "a2 b"]


def test_an_event_may_be_taken_by_more_than_one_stage_but_once_in_a_match() -> None:
    pattern = Pattern.begin("first").where(kind("a")).followed_by("second").where(kind("a"))
    assert matches(pattern, "a1 a2 a3") == ["a1 a2", "a2 a3"]


def loop(inner: str | None, last: str = "followed_by") -> Pattern:
    pattern = then(begin("a"), "followed_by_any", "b").one_or_more()
    pattern = pattern if inner is None else getattr(pattern, inner)()
    return then(pattern, last, "c")


def test_strict_within_a_loop() -> None:
    """Each d puts an end to what the loop has: only b3 is directly ahead of c."""
    assert matches(loop("consecutive", "next"), "a b1 d1 b2 d2 b3 c") == ["a b3 c"]


def test_relaxed_within_a_loop_is_the_default() -> None:
    wanted = {"a b1 c", "a b1 b2 c", "a b1 b2 b3 c", "a b2 c", "a b2 b3 c", "a b3 c"}
    found = matches(loop(None), "a b1 d1 b2 d2 b3 c")
    assert set(found) == wanted
    assert len(found) == len(wanted)


def test_combinations_within_a_loop() -> None:
    wanted = {"a b1 c", "a b1 b2 c", "a b1 b3 c", "a b1 b2 b3 c", "a b2 c", "a b2 b3 c", "a b3 c"}
    found = matches(loop("allow_combinations"), "a b1 d1 b2 d2 b3 c")
    assert set(found) == wanted
    assert len(found) == len(wanted)


@pytest.mark.parametrize(
    ("inner", "wanted"),
    [
        ("consecutive", {"c a1 b", "c a1 a2 b", "c a1 a2 a3 b"}),
        (None, {"c a1 b", "c a1 a2 b", "c a1 a2 a3 b", "c a1 a2 a3 a4 b"}),
        (
            "allow_combinations",
            {
                *("c a1 b", "c a1 a2 b", "c a1 a3 b", "c a1 a4 b"),
                *("c a1 a2 a3 b", "c a1 a2 a4 b", "c a1 a3 a4 b", "c a1 a2 a3 a4 b"),
            },
        ),
    ],
)
def test_consecutive_and_allow_combinations(inner: str | None, wanted: set[str]) -> None:
    """Flink's page lists matches that begin with a2 as well; those take followed_by_any in front of the loop."""
    pattern = then(begin("c"), "followed_by", "a").one_or_more()
    pattern = pattern if inner is None else getattr(pattern, inner)()
    found = matches(then(pattern, "followed_by", "b"), "c d a1 a2 a3 d a4 b")
    assert set(found) == wanted
    assert len(found) == len(wanted)
