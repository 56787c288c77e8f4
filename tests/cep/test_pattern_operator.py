"""The operator of patterns: time, late events, results, state, and what goes wrong; on both backends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from tests.cep.searching import (
    TIMED_OUT,
    a_then_b,
    feed,
    kept,
    letter,
    make_operator,
    opened,
    stage,
    text,
    texts,
)

from penstock.base.output_tag import OutputTag
from penstock.cep import (
    AfterMatchSkipStrategy,
    IterativeCondition,
    Pattern,
    PatternProcessFunction,
    RichIterativeCondition,
    WithinType,
)
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.patterns.conditions import PatternSettings
from penstock.runtime.operators.patterns.pattern_operator import PartialMatchLimitError
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MAX_WATERMARK, Watermark
from penstock.state.keys import assign_key_group, subtask_of_key_group
from penstock.testing import ProcessingTime, Record, run_hostile

LATE = OutputTag("late")


# --- event time -----------------------------------------------------------------------------------------------------


def test_events_are_taken_in_the_order_of_their_times(backend: str) -> None:
    with closing(opened(make_operator(a_then_b()))) as harness:
        harness.process(("k", "b", 3), 3)
        harness.process(("k", "a", 1), 1)
        harness.process(("k", "a", 2), 2)
        assert harness.values == []
        harness.watermark(2)
        assert harness.values == []
        harness.watermark(3)
        assert harness.output == [Record(("a1 b3", 3), 3), Record(("a2 b3", 3), 3)]
        assert harness.watermarks == [2, 3]


def test_events_of_one_time_are_taken_as_they_came_or_by_a_comparator() -> None:
    events = [("k", "b", 2), ("k", "a", 1)]
    with closing(opened(make_operator(a_then_b()))) as harness:
        harness.process_batch(events, [5, 5])
        harness.watermark(5)
        assert harness.values == []
    with closing(opened(make_operator(a_then_b(), compare=lambda one, other: one[2] - other[2]))) as harness:
        harness.process_batch(events, [5, 5])
        harness.watermark(5)
        assert texts(harness) == ["a1 b2"]


def test_late_events_are_counted_or_go_to_a_side_output() -> None:
    with closing(opened(make_operator(a_then_b()))) as harness:
        harness.watermark(5)
        harness.process_batch([("k", "a", 5), ("k", "a", 6)], [5, 6])
        assert harness.counters[LATE_RECORDS] == 1
    with closing(opened(make_operator(a_then_b(), late_tag="late"))) as harness:
        assert harness.operator.late_outputs() == ("late",)
        harness.watermark(5)
        harness.process_batch([("k", "a", 5), ("k", "a", 6)], [5, 6])
        assert harness.side_output(LATE) == [Record(("k", "a", 5), 5)]
        assert LATE_RECORDS not in harness.counters


def test_event_time_needs_timestamps() -> None:
    with closing(opened(make_operator(a_then_b()))) as harness, pytest.raises(TypeError, match="in_processing_time"):
        harness.process(("k", "a", 1))


def test_a_partial_match_takes_too_long_when_the_watermark_says_so(backend: str) -> None:
    with closing(opened(make_operator(a_then_b()))) as harness:
        feed(harness, "a a")
        harness.watermark(10)
        assert harness.side_output(TIMED_OUT) == []
        harness.watermark(11)
        assert harness.side_output(TIMED_OUT) == [Record(("a1", 11), 11)]
        harness.watermark(MAX_WATERMARK)
        assert harness.side_output(TIMED_OUT) == [Record(("a1", 11), 11), Record(("a2", 12), 12)]
        assert set(kept(harness).values()) == {0}


def test_what_must_not_follow_at_the_end_is_waited_for(backend: str) -> None:
    """The match has the time that came, as in Flink: that of the next event, or the watermark."""
    pattern = stage("a").not_followed_by("b").where(letter("b")).within(10)
    with closing(opened(make_operator(pattern))) as harness:
        feed(harness, "a b a x")
        harness.watermark(12)
        assert harness.values == []
        harness.watermark(15)
        assert harness.output == [Record(("a3", 15), 15)]
        feed(harness, "a", begin=20)
        feed(harness, "x", begin=33)
        harness.watermark(50)
        assert harness.output[1:] == [Record(("a20", 33), 33)]
        assert set(kept(harness).values()) == {0}


def test_the_time_since_the_event_before_has_a_timer_of_its_own(backend: str) -> None:
    third = a_then_b(None).followed_by("c").where(letter("c"))
    pattern = third.within(3, WithinType.PREVIOUS_AND_CURRENT)
    with closing(opened(make_operator(pattern))) as harness:
        feed(harness, "a x x x x b x c a b x x c")
        harness.watermark(12)
        assert texts(harness) == ["a1 b6 c8"]
        harness.watermark(MAX_WATERMARK)
        assert harness.side_output(TIMED_OUT)[0] == Record(("a9 b10", 13), 13)


# --- processing time ------------------------------------------------------------------------------------------------


def test_processing_time_takes_events_as_they_come(backend: str) -> None:
    with closing(opened(make_operator(a_then_b(), event_time=False))) as harness:
        harness.process(("k", "a", 1))
        harness.advance_processing_time(9)
        harness.process(("k", "b", 2), 77)
        assert harness.output == [Record(("a1 b2", None), None)]
        harness.process(("k", "a", 3))
        harness.advance_processing_time(10)
        assert harness.side_output(TIMED_OUT) == [Record(("a3", None), None)]
        assert harness.operator.next_timer_ms() is None


def test_processing_time_sorts_events_of_one_ms_by_a_comparator() -> None:
    factory = make_operator(a_then_b(), event_time=False, compare=lambda one, other: one[2] - other[2])
    with closing(opened(factory)) as harness:
        harness.process_batch([("k", "b", 2), ("k", "a", 1)])
        assert harness.operator.next_timer_ms() == 1
        harness.advance_processing_time(1)
        assert texts(harness) == ["a1 b2"]
        harness.process_batch([("k", "b", 4), ("k", "a", 3)])
        harness.end()
        assert texts(harness) == ["a1 b2", "a3 b4"]


# --- results --------------------------------------------------------------------------------------------------------


def test_a_function_has_side_outputs_of_both_kinds() -> None:
    tag = OutputTag("seen")

    class Sides(PatternProcessFunction):
        def process_match(self, match: dict[str, list[Any]], ctx: Any) -> Iterator[Any]:
            ctx.output(tag, text(match))
            yield tag, ctx.current_processing_time()
            yield list(match)

    with closing(opened(make_operator(a_then_b(), Sides()))) as harness:
        feed(harness, "a b")
        harness.watermark(9)
        assert harness.output == [Record(["a", "b"], 2)]
        assert harness.side_output(tag) == [Record("a1 b2", 2), Record(0, 2)]


def test_what_took_too_long_goes_to_side_outputs_alone() -> None:
    class Wrong(PatternProcessFunction):
        def process_match(self, match: Any, ctx: Any) -> list[Any]:
            return []

        def process_timed_out_match(self, match: Any, ctx: Any) -> list[Any]:
            return ["no tag"]

    with closing(opened(make_operator(a_then_b(), Wrong()))) as harness:
        feed(harness, "a")
        with pytest.raises(UserCodeError) as caught:
            harness.watermark(50)
        assert "process_timed_out_match()" in str(caught.value.what)
        assert "go to side outputs alone" in str(caught.value.__cause__)


def test_a_tuple_is_not_several_results() -> None:
    class Wrong(PatternProcessFunction):
        def process_match(self, match: Any, ctx: Any) -> Any:
            return "one", "other"

    with closing(opened(make_operator(a_then_b(), Wrong()))) as harness:
        feed(harness, "a b")
        with pytest.raises(UserCodeError) as caught:
            harness.watermark(9)
        assert caught.value.what == "process_match()"
        assert "process_match() returned ('one', 'other') (tuple): it must yield" in str(caught.value.__cause__)


def test_the_condition_that_raises_is_named_with_its_event() -> None:
    pattern = stage("a").followed_by("b").where(lambda event: event[9])
    with closing(opened(make_operator(pattern))) as harness:
        feed(harness, "x x")
        harness.watermark(2)  # nobody waits for b, so nobody asks its condition
        feed(harness, "a x", begin=3)
        with pytest.raises(UserCodeError) as caught:
            harness.watermark(9)
        assert (caught.value.record, caught.value.what) == (("k", "x", 4), "the condition of stage 'b'")
        assert isinstance(caught.value.__cause__, IndexError)


def test_the_first_condition_is_named_too() -> None:
    with closing(opened(make_operator(Pattern.begin("a").where(lambda event: 1 / event[2])))) as harness:
        harness.process_batch([("k", "a", 1), ("k", "a", 0)], [1, 2])
        with pytest.raises(UserCodeError) as caught:
            harness.watermark(9)
        assert (caught.value.record, caught.value.what) == (("k", "a", 0), "the condition of stage 'a'")


def test_a_skip_that_cannot_be_fails() -> None:
    pattern = Pattern.begin("a", AfterMatchSkipStrategy.skip_to_first("a").throw_exception_on_miss()).where(letter("a"))
    with closing(opened(make_operator(pattern))) as harness:
        feed(harness, "a")
        with pytest.raises(UserCodeError) as caught:
            harness.watermark(9)
        assert "Could not skip to first element of a match" in str(caught.value.__cause__)


# --- conditions -----------------------------------------------------------------------------------------------------


def test_an_iterative_condition_sees_what_its_partial_match_has_taken(backend: str) -> None:
    asked: list[Any] = []

    def grows(event: Any, ctx: Any) -> bool:
        before = list(ctx.get_events_for_pattern("b"))
        asked.append((ctx.timestamp(), [one[2] for one in before], list(ctx.get_events_for_pattern("z"))))
        return len(before) < 2

    loop = stage("a").followed_by("b").where(letter("b")).where(IterativeCondition.of(grows)).one_or_more()
    with closing(opened(make_operator(loop.followed_by("c").where(letter("c"))))) as harness:
        feed(harness, "a x b b b c")
        harness.watermark(9)
        assert sorted(texts(harness)) == ["a1 b3 c6", "a1 b34 c6"]
    assert (3, [], []) in asked
    assert (5, [3, 4], []) in asked
    assert 2 not in [time for time, *_ in asked]


def test_a_simple_condition_is_asked_once_for_an_event() -> None:
    asked: list[int] = []

    def condition(event: Any) -> bool:
        asked.append(event[2])
        return "b" in event[1]

    pattern = stage("a").followed_by_any("b").where(condition)
    with closing(opened(make_operator(pattern))) as harness:
        feed(harness, "x a a a b")
        harness.watermark(9)
        assert sorted(texts(harness)) == ["a2 b5", "a3 b5", "a4 b5"]
    assert asked == [2, 3, 4, 5], "no match can begin with the first event, so nothing is asked about it"


def test_rich_conditions_are_opened_and_closed() -> None:
    calls: list[str] = []

    class Rich(RichIterativeCondition):
        def open(self, runtime_context: Any) -> None:
            calls.append(f"open in {runtime_context.get_index_of_this_subtask()}")

        def close(self) -> None:
            calls.append("close")

        def filter(self, value: Any, ctx: Any) -> bool:
            return self.get_runtime_context().get_number_of_parallel_subtasks() == 1

    with closing(opened(make_operator(Pattern.begin("a").where(Rich())))) as harness:
        feed(harness, "x")
        harness.watermark(9)
        assert texts(harness) == ["a1"]
    assert calls == ["open in 0", "close"]


# --- state ----------------------------------------------------------------------------------------------------------


def test_an_event_is_in_state_once_and_a_key_without_any_keeps_nothing(backend: str) -> None:
    pattern = stage("a").one_or_more().followed_by("b").where(letter("b")).within(100)
    with closing(opened(make_operator(pattern))) as harness:
        feed(harness, "a a a a")
        feed(harness, "x x", key="j")
        harness.watermark(9)
        assert kept(harness)["cep_partial_matches"] == 1
        keyed = harness.context.keyed
        keyed.current_key = "k"
        events = harness.operator._events  # type: ignore[attr-defined]
        assert sorted(event[2] for event in events.values()) == [1, 2, 3, 4]
        harness.watermark(MAX_WATERMARK)
        keyed.current_key = "k"
        assert list(events.values()) == []
        assert kept(harness)["cep_partial_matches"] == 0


def test_an_event_that_changes_nothing_marks_no_state() -> None:
    with closing(opened(make_operator(a_then_b(None)))) as harness:
        feed(harness, "a")
        harness.watermark(1)
        harness.snapshot(1)
        harness.notify_complete(1)
        before = harness.context.keyed.table("cep_partial_matches").entries(None)["k"][0]
        feed(harness, "x x", begin=2)
        harness.watermark(9)
        assert harness.context.keyed.table("cep_partial_matches").entries(None)["k"][0] == before == 1


EVENTS = [
    *(Record(("k", one, time), time) for time, one in enumerate("aabxcab", start=1)),
    Watermark(4),
    *(Record(("k", one, time), time) for time, one in enumerate("bcacb", start=8)),
    Watermark(9),
    Record(("k", "c", 13), 13),
    Watermark(40),
    Record(("k", "a", 50), 50),
]
LOOP = (
    Pattern.begin("a", AfterMatchSkipStrategy.skip_past_last_event())
    .where(lambda event: "a" in event[1])
    .one_or_more()
    .followed_by("b")
    .where(lambda event: "b" in event[1])
    .followed_by("c")
    .where(lambda event: "c" in event[1])
    .within(20)
)


def test_nothing_depends_on_batches_snapshots_or_restarts(backend: str) -> None:
    sizes: Any = (1, 3) if backend == "rocksdb" else (1, 2, 1000)
    expected = [("a12 b3 c5", 5), ("a6 b7 c9", 9), ("a10 b12 c13", 13)]
    run_hostile(make_operator(LOOP), EVENTS, expected, {TIMED_OUT: [("a50", 70)]}, batch_sizes=sizes)


def test_processing_time_does_not_depend_on_them_either(backend: str) -> None:
    inputs = [
        Record(("k", "a", 1)),
        ProcessingTime(3),
        Record(("k", "b", 2)),
        Record(("k", "a", 3)),
        ProcessingTime(50),
        Record(("k", "b", 4)),
    ]
    run_hostile(
        make_operator(a_then_b(), event_time=False),
        inputs,
        [("a1 b2", None)],
        {TIMED_OUT: [("a3", None)]},
        batch_sizes=(1, 2),
    )


def test_partial_matches_go_to_the_subtask_of_their_key(backend: str) -> None:
    keys = [f"key {number}" for number in range(6)]
    snapshots = []
    for subtask in range(2):
        with closing(opened(make_operator(a_then_b(None)), parallelism=2, subtask=subtask)) as harness:
            for key in keys:
                if subtask_of_key_group(assign_key_group(key, 128), 128, 2) == subtask:
                    feed(harness, "a", key=key)
            harness.watermark(5)
            snapshots.append(harness.snapshot(1))
    found = []
    for subtask in range(3):
        with closing(opened(make_operator(a_then_b(None)), *snapshots, parallelism=3, subtask=subtask)) as harness:
            for key in keys:
                if subtask_of_key_group(assign_key_group(key, 128), 128, 3) == subtask:
                    harness.process((key, "b", 8), 8)
            harness.watermark(9)
            found += texts(harness)
    assert found == ["a1 b8"] * len(keys)


@dataclass
class Event:
    kind: str
    number: int

    def __getitem__(self, index: int) -> Any:
        return ("k", self.kind, self.number)[index]


def test_batch_execution_ends_a_key_with_its_last_event() -> None:
    with closing(opened(make_operator(a_then_b()))) as harness:
        harness.process_batch([Event("a", 1), Event("b", 2), Event("a", 3)], [1, 2, 3])
        harness.operator.end_keys()
        assert texts(harness) == ["a1 b2"]
        assert harness.side_output(TIMED_OUT) == [Record(("a3", 13), 13)]
        harness.process_batch([Event("a", 4), Event("b", 5)], [1, 2])
        harness.operator.end_keys()
        assert texts(harness) == ["a1 b2", "a4 b5"], "event time begins again for the next keys"


# --- limits ---------------------------------------------------------------------------------------------------------


def test_too_many_partial_matches_of_a_key_fail_the_job() -> None:
    factory = make_operator(a_then_b(None), settings=PatternSettings(partials_max=2))
    with closing(opened(factory)) as harness:
        feed(harness, "a a")
        feed(harness, "a a", key="j")
        harness.watermark(5)
        feed(harness, "a", begin=6)
        with pytest.raises(PartialMatchLimitError, match="key 'k' has more than 2 partial matches") as caught:
            harness.watermark(9)
        assert caught.value.suppresses_restart


def test_or_the_oldest_are_dropped_and_counted(backend: str) -> None:
    factory = make_operator(a_then_b(None), settings=PatternSettings(partials_max=2, drops_oldest=True))
    with closing(opened(factory)) as harness:
        feed(harness, "a a a a b")
        harness.watermark(9)
        assert texts(harness) == ["a3 b5", "a4 b5"]
        assert harness.counters["numPartialMatchesDropped"] == 2


def test_a_match_that_waits_for_what_is_dropped_leaves() -> None:
    strategy = AfterMatchSkipStrategy.skip_to_next()
    pattern = Pattern.begin("a", strategy).where(letter("a")).followed_by("b").where(letter("b")).times(2)
    other = pattern.consecutive()
    factory = make_operator(other, settings=PatternSettings(partials_max=2, drops_oldest=True))
    with closing(opened(factory)) as harness:
        feed(harness, "a x a x a")
        harness.watermark(9)
        assert harness.counters["numPartialMatchesDropped"] == 1
        feed(harness, "b b", begin=10)
        harness.watermark(20)
        assert texts(harness) == ["a3 b1011", "a5 b1011"]
