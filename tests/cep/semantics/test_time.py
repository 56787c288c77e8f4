"""A5: order, lateness, windows, and partial matches whose time is over."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cep.operators import LATE, TIMED_OUT, as_words, matches, operator_factory, parse_events, run, time_outs
from tests.cep.oracle.specifications import Event
from tests.cep.semantics.stages import begin, then

from penstock.cep import EventComparator, Pattern, WithinType
from penstock.common import Duration, Time
from penstock.testing import OneInputOperatorHarness

AB = ("a", "b")


def ab() -> Pattern:
    return then(begin("a"), "next", "b")


def opened(pattern: Pattern, **options: Any) -> OneInputOperatorHarness:
    harness = OneInputOperatorHarness(operator_factory(pattern, **options))
    harness.open()
    return harness


def test_events_wait_for_the_watermark_and_are_sorted_by_their_time() -> None:
    harness = opened(ab())
    (_, b), (_, a) = parse_events("b a")
    harness.process(b, 10)
    harness.process(a, 5)
    assert harness.values == []
    harness.watermark(9)
    assert harness.values == []
    harness.watermark(10)
    assert [value[1] for value in harness.values] == [(("a", (1,)), ("b", (0,)))]


def test_events_of_one_time_stay_in_the_order_in_which_they_came() -> None:
    assert matches(ab(), "a@5 b@5") == ["a b"]
    assert matches(ab(), "b@5 a@5") == []


def test_a_comparator_orders_events_of_one_time() -> None:
    class ByKind(EventComparator):
        def compare(self, first: Event, second: Event) -> int:
            return (first.kind > second.kind) - (first.kind < second.kind)

    assert matches(ab(), "b@5 a@5", comparator=ByKind()) == ["b a"]
    assert matches(ab(), "b@5 a@5", comparator=lambda first, second: ord(first.kind) - ord(second.kind)) == ["b a"]
    assert matches(ab(), "b@5 a@6", comparator=ByKind()) == []


def test_late_events_go_to_a_side_output() -> None:
    """Late is what is not later than the watermark."""
    harness = opened(ab())
    harness.watermark(10)
    (_, a), (_, b), (_, more) = parse_events("a b c")
    harness.process(a, 9)
    harness.process(b, 10)
    harness.process(more, 11)
    assert [record.value for record in harness.side_output(LATE)] == [a, b]


def test_the_windows_right_border_is_open() -> None:
    assert matches(ab().within(10), "a@1 b@10") == ["a b"]
    assert matches(ab().within(10), "a@1 b@11") == []


@pytest.mark.parametrize("length", [10, Duration.of_millis(10), Time.milliseconds(10)])
def test_lengths_of_time(length: Any) -> None:
    assert matches(ab().within(length), "a@1 b@10") == ["a b"]
    assert matches(ab().within(length), "a@1 b@11") == []


def test_the_shortest_window_counts() -> None:
    pattern = then(then(begin("a"), "followed_by", "b").within(5), "followed_by", "c").within(10)
    assert matches(pattern, "a@0 b@1 c@4") == ["a b c"]
    assert matches(pattern, "a@0 b@1 c@5") == []


def test_a_window_since_the_event_before() -> None:
    pattern = then(then(begin("a"), "followed_by", "b"), "followed_by", "c").within(3, WithinType.PREVIOUS_AND_CURRENT)
    assert matches(pattern, "a@0 b@50 c@52") == ["a b c"]
    assert matches(pattern, "a@0 b@1 c@4") == []


def test_a_window_between_the_events_of_a_loop() -> None:
    """`times(2, window_time=3)`: the longest gap between the two."""
    for quantified in (lambda p: p.times(2, window_time=3), lambda p: p.times_or_more(2, window_time=3)):
        pattern = quantified(then(begin("a"), "followed_by", "b"))
        assert matches(pattern, "a@0 b1@50 b2@52") == ["a b1 b2"]
        assert matches(pattern, "a@0 b1@1 b2@4") == []


def test_time_outs_tell_what_there_was() -> None:
    pattern = then(then(begin("a"), "followed_by", "b"), "followed_by", "c").within(10)
    assert time_outs(pattern, "a1@0 a2@1 b@2 c@3 a3@20") == {"a3"}
    assert time_outs(pattern, "a1@0 b@2 a2@5 c@10") == {"a1 b", "a2"}


def test_a_time_out_has_the_time_at_which_the_window_was_over() -> None:
    for text, wanted in (("a@3 c@12", set()), ("a@3 c@13", {13}), ("a@3", {13})):  # c puts an end to it, before 13
        assert {record.value[2] for record in run(ab().within(10), text).side_output(TIMED_OUT)} == wanted


def test_a_time_out_since_the_event_before() -> None:
    pattern = then(then(begin("a"), "followed_by", "b"), "followed_by", "c").within(3, WithinType.PREVIOUS_AND_CURRENT)
    found = {record.value[1:] for record in run(pattern, "a@0 b@5").side_output(TIMED_OUT)}
    assert found == {((("a", (0,)), ("b", (1,))), 8)}


def test_time_outs_come_with_the_watermark_and_without_another_event() -> None:
    harness = opened(ab().within(10))
    ((_, a),) = parse_events("a")
    harness.process(a, 3)
    harness.watermark(12)
    assert harness.side_output(TIMED_OUT) == []
    harness.watermark(13)
    assert len(harness.side_output(TIMED_OUT)) == 1


def test_without_a_window_nothing_is_timed_out() -> None:
    assert time_outs(ab(), "a@0") == set()


def test_a_match_has_the_time_of_the_event_that_completed_it() -> None:
    assert [record.value[2] for record in run(ab(), "a@3 b@7").output] == [7]


def test_keys_do_not_see_each_other() -> None:
    harness = opened(ab())
    (_, a), (_, b) = parse_events("a b")
    harness.process(a, 1)
    harness.process(b._replace(key="other"), 2)
    harness.end()
    assert harness.values == []


def test_without_keys_there_is_one_automaton_for_all() -> None:
    harness = opened(ab(), is_keyed=False)
    (_, a), (_, b) = parse_events("a b")
    harness.process(a, 1)
    harness.process(b._replace(key="other"), 2)
    harness.end()
    assert len(harness.values) == 1


def test_in_processing_time_events_are_taken_as_they_come() -> None:
    harness = opened(ab().within(10), in_processing_time=True)
    (_, a), (_, b) = parse_events("a1 b1")
    harness.process(a)
    harness.advance_processing_time(9)
    harness.process(b)
    assert [as_words(value[1], "a1 b1") for value in harness.values] == ["a1 b1"]
    harness.process(a)
    harness.advance_processing_time(10)
    assert len(harness.side_output(TIMED_OUT)) == 1
    harness.process(b)
    assert len(harness.values) == 1
