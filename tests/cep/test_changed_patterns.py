"""A job that begins from the state of another pattern: refused with what differs, or led over where that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from tests.cep.searching import TIMED_OUT, feed, letter, make_operator, opened, stage, texts

from penstock.cep import AfterMatchSkipStrategy, Pattern, WithinType
from penstock.cep.pattern_stream import build_search
from penstock.runtime.operators.patterns.conditions import PatternSettings
from penstock.runtime.operators.patterns.pattern_operator import ChangedPatternError
from penstock.runtime.patterns.automaton import Description, build_automaton, describe_pattern, differences
from penstock.runtime.records import MAX_WATERMARK

ALLOWED = PatternSettings(allows_change=True)


def three() -> Pattern:
    pattern = stage("a").followed_by("b").where(letter("b")).one_or_more()
    return pattern.followed_by("c").where(letter("c")).within(100)


def described(pattern: Pattern) -> Description:
    made = build_search(pattern).pattern
    return describe_pattern(made, build_automaton(made))


def stored(pattern: Pattern, letters: str) -> bytes:
    with closing(opened(make_operator(pattern))) as harness:
        feed(harness, letters)
        harness.watermark(20)
        return harness.snapshot(1)


def next_stage(pattern: Pattern, name: str = "c") -> Pattern:
    return pattern.followed_by(name).where(letter(name)).within(100)


def b_stage(change: Callable[[Pattern], object]) -> Pattern:
    pattern = stage("a").followed_by("b").where(letter("b"))
    change(pattern)
    return next_stage(pattern)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (next_stage(stage("a")), ["stage 'b' is gone"]),
        (next_stage(three(), "d"), ["stage 'd' is new"]),
        (b_stage(lambda b: b.times(2)), ["stage 'b' is 'followed by, 2 times', and was 'followed by, 1 or more'"]),
        (
            b_stage(lambda b: b.one_or_more(5).consecutive().greedy()),
            [
                "stage 'b' is 'followed by, 1 or more, consecutive, greedy, less than 5 ms apart', "
                "and was 'followed by, 1 or more'"
            ],
        ),
        (three().within(99), ["a match takes less than 99 ms, and took less than 100 ms"]),
        (
            three().within(7, WithinType.PREVIOUS_AND_CURRENT),
            ["stage 'c' is 'followed by, within 7 ms', and was 'followed by'"],
        ),
        (
            Pattern.begin(three()).times(2).within(100),
            [
                "stage 'a' is 'in a group (first, 2 times): next', and was 'first'",
                "stage 'b' is 'in a group (first, 2 times): followed by, 1 or more', and was 'followed by, 1 or more'",
                "stage 'c' is 'in a group (first, 2 times): followed by', and was 'followed by'",
            ],
        ),
        (three(), []),
    ],
)
def test_differences_are_told_by_stages(changed: Pattern, told: list[str]) -> None:
    assert differences(described(three()), described(changed)) == told
    assert Description.of_state(described(changed).to_state()) == described(changed)


def test_a_changed_pattern_is_refused(backend: str) -> None:
    snapshot = stored(three(), "a b")
    with pytest.raises(ChangedPatternError, match="belongs to another pattern: stage 'b' is gone") as caught:
        opened(make_operator(next_stage(stage("a"))), snapshot)
    assert caught.value.suppresses_restart
    assert "pipeline.cep.allow-changed-pattern" in str(caught.value)


def test_other_conditions_and_another_strategy_are_no_change(backend: str) -> None:
    snapshot = stored(three(), "a b")
    pattern = Pattern.begin("a", AfterMatchSkipStrategy.skip_to_next()).where(letter("z"))
    pattern = pattern.followed_by("b").where(letter("z")).one_or_more().followed_by("c").where(letter("z")).within(100)
    with closing(opened(make_operator(pattern), snapshot)) as harness:
        feed(harness, "z", begin=21)
        harness.watermark(MAX_WATERMARK)
        assert texts(harness) == ["a1 b2 c21"]


def test_partial_matches_whose_stages_are_the_same_go_on_by_what_follows_now(backend: str) -> None:
    snapshot = stored(three(), "a b a")
    longer = stage("a").followed_by("b").where(letter("b")).one_or_more()
    longer = next_stage(next_stage(longer, "d"), "c")
    with closing(opened(make_operator(longer, settings=ALLOWED), snapshot)) as harness:
        assert harness.counters == {"numPartialMatchesDropped": 1}, "what waited for c, ahead of which d is now"
        feed(harness, "c b d c", begin=21)
        harness.watermark(50)
        assert sorted(texts(harness)) == ["a1 b222 d23 c24", "a3 b22 d23 c24"]
        assert harness.snapshot(2)


def test_partial_matches_of_changed_stages_are_dropped_and_counted(backend: str) -> None:
    snapshot = stored(three(), "a b a")
    changed = b_stage(lambda b: b.times(2))
    with closing(opened(make_operator(changed, settings=ALLOWED), snapshot)) as harness:
        assert harness.counters == {"numPartialMatchesDropped": 3}
        feed(harness, "b b c", begin=21)
        harness.watermark(50)
        assert texts(harness) == []


def test_another_window_counts_from_now_on(backend: str) -> None:
    snapshot = stored(three(), "a x")
    with closing(opened(make_operator(three().within(30), settings=ALLOWED), snapshot)) as harness:
        harness.watermark(31)
        assert [record.value for record in harness.side_output(TIMED_OUT)] == [("a1", 31)]


def test_a_match_that_waited_for_what_is_dropped_leaves(backend: str) -> None:
    strategy = AfterMatchSkipStrategy.skip_to_next()

    def pattern(times: int) -> Pattern:
        a = Pattern.begin("a", strategy).where(letter("a")).followed_by("b").where(letter("b"))
        return a.followed_by("c").where(letter("c")).times(times).followed_by("d").where(letter("d")).within(100)

    snapshot = stored(pattern(2), "a b ac b c c d")
    with closing(opened(make_operator(pattern(2)), snapshot)) as harness:
        harness.watermark(30)
        before = texts(harness)
    with closing(opened(make_operator(pattern(3), settings=ALLOWED), snapshot)) as harness:
        harness.watermark(30)
        assert set(before) <= set(texts(harness))


def test_each_subtask_tells_once(backend: str) -> None:
    """The description is not multiplied by restarts and other parallelisms."""
    snapshot = stored(three(), "a b")
    for _ in range(3):
        with closing(opened(make_operator(three()), snapshot)) as harness:
            snapshot = harness.snapshot(2)
            assert len(harness.context.operator_state.list_state("cep_pattern", "union").get()) == 1
