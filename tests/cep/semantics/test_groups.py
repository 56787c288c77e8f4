"""Patterns in place of a stage."""

from __future__ import annotations

import pytest
from tests.cep.operators import matches
from tests.cep.semantics.stages import begin, kind, then

from penstock.cep import Pattern


def group() -> Pattern:
    """b, followed by c."""
    return then(begin("b"), "followed_by", "c")


@pytest.mark.parametrize(
    ("link", "wanted"),
    [("next", []), ("followed_by", ["a b1 c"]), ("followed_by_any", ["a b1 c", "a b2 c"])],
)
def test_contiguity_in_front_of_a_group_is_that_of_its_first_stage(link: str, wanted: list[str]) -> None:
    assert matches(getattr(begin("a"), link)(group()), "a d b1 b2 c") == wanted


def test_a_pattern_may_begin_with_a_group() -> None:
    assert matches(then(Pattern.begin(group()), "followed_by", "d"), "b c d") == ["b c d"]


def test_a_group_comes_a_number_of_times() -> None:
    pattern = then(begin("a").followed_by(group()).times(2), "followed_by", "d")
    assert matches(pattern, "a b1 c1 d1 b2 c2 d2") == ["a b1 c1 b2 c2 d2"]


def test_a_group_that_is_a_loop() -> None:
    pattern = then(begin("a").followed_by(group()).one_or_more(), "next", "d")
    assert set(matches(pattern, "a b1 c1 d1 b2 c2 d2")) == {"a b1 c1 d1", "a b1 c1 b2 c2 d2"}


def test_an_optional_group() -> None:
    pattern = then(begin("a").followed_by(group()).optional(), "followed_by", "d")
    assert sorted(matches(pattern, "a b c d")) == ["a b c d", "a d"]
    assert matches(pattern, "a b d") == ["a d"]


@pytest.mark.parametrize(
    ("inner", "wanted"),
    [
        ("consecutive", []),
        (None, ["b1 c1 b2 c2"]),
        ("allow_combinations", ["b1 c1 b2 c2", "b1 c1 b3 c2"]),
    ],
)
def test_contiguity_between_the_rounds_of_a_group(inner: str | None, wanted: list[str]) -> None:
    pattern = Pattern.begin(group()).times(2)
    pattern = pattern if inner is None else getattr(pattern, inner)()
    found = [match for match in matches(pattern, "b1 c1 d b2 b3 c2") if match.startswith("b1")]
    assert found == wanted


def test_consecutive_rounds_lie_side_by_side() -> None:
    pattern = Pattern.begin(then(begin("b"), "next", "c")).times(2).consecutive()
    assert matches(pattern, "b1 c1 b2 c2 d b3 c3") == ["b1 c1 b2 c2"]


def test_until_ends_the_rounds_of_a_group() -> None:
    pattern = Pattern.begin(group()).one_or_more().until(kind("d"))
    assert matches(pattern, "b1 c1 b2 c2 d b3 c3") == ["b1 c1", "b1 c1 b2 c2", "b2 c2", "b3 c3"]


def test_until_ends_a_round_that_has_begun() -> None:
    pattern = Pattern.begin(group()).one_or_more().until(kind("d"))
    assert matches(pattern, "b1 d c1") == []


def test_a_groups_stages_keep_their_names_in_the_match() -> None:
    from tests.cep.operators import run

    record = run(Pattern.begin(group()).times(2), "b1 c1 b2 c2").output[0]
    assert record.value[1] == (("b", (0, 2)), ("c", (1, 3)))


def test_groups_in_groups() -> None:
    inner = then(begin("b"), "next", "c")
    outer = then(Pattern.begin(inner).times(2), "followed_by", "d")
    pattern = then(begin("a").followed_by(outer).times(2), "followed_by", "e")
    assert matches(pattern, "a b1 c1 b2 c2 d1 b3 c3 b4 c4 d2 e") == ["a b1 c1 b2 c2 d1 b3 c3 b4 c4 d2 e"]
