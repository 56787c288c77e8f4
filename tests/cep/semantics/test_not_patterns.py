"""Events that must not come."""

from __future__ import annotations

from tests.cep.operators import matches, time_outs
from tests.cep.semantics.stages import begin, then

from penstock.cep import Pattern, WithinType


def test_not_next_looks_at_the_next_event_only() -> None:
    pattern = then(then(begin("a"), "not_next", "b"), "followed_by", "c")
    assert matches(pattern, "a b c") == []
    assert matches(pattern, "a c") == ["a c"]
    assert matches(pattern, "a d b c") == ["a c"]


def test_not_followed_by_looks_at_all_events_up_to_the_next_of_the_match() -> None:
    pattern = then(then(begin("a"), "not_followed_by", "b"), "followed_by", "c")
    assert matches(pattern, "a b c") == []
    assert matches(pattern, "a d b c") == []
    assert matches(pattern, "a d c b") == ["a c"]


def test_a_not_event_ends_every_way_to_go_on() -> None:
    pattern = then(then(begin("a"), "not_followed_by", "b"), "followed_by_any", "c")
    assert matches(pattern, "a c1 c2 b c3") == ["a c1", "a c2"]


def test_a_not_ahead_of_an_optional_stage_holds_for_what_is_behind_it_too() -> None:
    """`a`, no b, `c?`, `d`: b may come between c and d, and not between a and d."""
    pattern = then(then(begin("a"), "not_followed_by", "b"), "followed_by_any", "c").optional()
    pattern = then(pattern, "followed_by_any", "d")
    assert matches(pattern, "a c b d") == ["a c d"]
    assert matches(pattern, "a b d") == []


def test_a_not_ahead_of_a_loop_ends_with_the_loops_first_event() -> None:
    pattern = then(then(begin("a"), "not_followed_by", "c"), "followed_by", "b").one_or_more()
    found = matches(then(pattern, "followed_by", "d"), "a b1 c b4 b5 b6 d")
    assert sorted(found) == ["a b1 b4 b5 b6 d", "a b1 b4 b5 d", "a b1 b4 d", "a b1 d"]


def last_not(within_type: WithinType = WithinType.FIRST_AND_LAST) -> Pattern:
    return then(begin("a"), "not_followed_by", "b").within(3, within_type)


def test_a_last_not_followed_by_matches_when_its_window_has_passed() -> None:
    for within_type in WithinType:
        assert matches(last_not(within_type), "a1@1 b1@2 a2@4 c@5 b2@10 a3@11 b3@13") == ["a2"]


def test_a_last_not_followed_by_has_no_time_outs() -> None:
    assert time_outs(last_not(), "a1@1 b1@2 a2@4 c@5 b2@10") == set()


def test_an_event_at_the_right_border_comes_too_late_to_matter() -> None:
    assert matches(last_not(), "a1@1 b1@4") == ["a1"]
    assert matches(last_not(), "a1@1 b1@3") == []


def test_a_last_not_next_matches_with_the_next_event() -> None:
    pattern = then(begin("a"), "not_next", "b")
    assert matches(pattern, "a1 b a2 c") == ["a2"]
    assert matches(pattern, "a1") == []


def test_a_not_ahead_of_an_optional_end_does_not_hold_back_the_match_without_it() -> None:
    pattern = then(then(begin("a"), "not_followed_by", "b"), "followed_by", "c").times(0, 2).within(3)
    found = matches(pattern, "a1@1 b1@2 a2@10 c1@11 c2@12 a3@20 c3@21 c4@24")
    assert found == ["a1", "a2", "a2 c1", "a2 c1 c2", "a3", "a3 c3"]


def test_of_matches_that_wait_for_the_end_of_a_window_the_longest_leaves_first() -> None:
    from penstock.cep import AfterMatchSkipStrategy

    pattern = begin("a", AfterMatchSkipStrategy.skip_past_last_event()).one_or_more().allow_combinations()
    pattern = then(then(pattern, "followed_by", "c"), "not_followed_by", "b").within(5)
    assert matches(pattern, "a1@1 a2@2 a3@3 c1@4 c2@10") == ["a1 a2 a3 c1"]
