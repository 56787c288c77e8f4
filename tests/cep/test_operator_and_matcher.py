"""The operator, which asks conditions for many events at once and leaves out what nobody waits for, beside the matcher,
which is given each event."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.cep.searching import TIMED_OUT, letter, make_operator, opened, stage, text

from penstock.cep import AfterMatchSkipStrategy, IterativeCondition, Pattern, WithinType
from penstock.runtime.operators.patterns.conditions import ConditionsAtWork
from penstock.runtime.operators.patterns.pattern_operator import PatternOperator
from penstock.runtime.patterns.matcher import Matcher
from penstock.runtime.patterns.moves import Moves
from penstock.runtime.records import MAX_WATERMARK
from penstock.testing import trace_pattern


def few(event: object, ctx: object) -> bool:
    return len(list(ctx.get_events_for_pattern("b"))) < 2  # type: ignore[attr-defined]


def then(pattern: Pattern, name: str) -> Pattern:
    return pattern.followed_by(name).where(letter(name))


PATTERNS: dict[str, Callable[[], Pattern]] = {
    "strict": lambda: stage("a").next("b").where(letter("b")).within(6),
    "relaxed": lambda: then(then(stage("a"), "b"), "c").within(5),
    "any": lambda: stage("a").followed_by_any("b").where(letter("b")),
    "absent": lambda: stage("a").not_followed_by("b").where(letter("b")).within(3),
    "absent between": lambda: then(stage("a").not_followed_by("b").where(letter("b")), "c"),
    "not next": lambda: then(stage("a").not_next("b").where(letter("b")), "c").within(5),
    "loop": lambda: then(then(stage("a"), "b").one_or_more().until(letter("d")), "c").within(8),
    "greedy": lambda: then(stage("a").one_or_more().consecutive().greedy(), "b").within(7),
    "optional first": lambda: then(stage("a").optional(), "b").within(4),
    "iterative": lambda: then(then(stage("a"), "b").where(IterativeCondition.of(few)).one_or_more(), "c").within(7),
    "since last": lambda: then(then(stage("a"), "b").within(2, WithinType.PREVIOUS_AND_CURRENT), "c").within(9),
    "anything": lambda: Pattern.begin("a").next("b").where(letter("b")),
    "skipping to first": lambda: (
        Pattern.begin("a", AfterMatchSkipStrategy.skip_to_first("a")).where(letter("a")).one_or_more().consecutive()
    ),
    "consecutive": lambda: then(stage("a").one_or_more().consecutive(), "b"),
    "skipping": lambda: then(
        Pattern.begin("a", AfterMatchSkipStrategy.skip_past_last_event()).where(letter("a")).one_or_more(), "b"
    ).within(6),
}


LETTERS = st.sampled_from(["", "a", "b", "c", "d", "ab", "bc"])


def told(name: str, events: list[tuple[str, str, int]], step: int) -> list[Any]:
    """What the operator tells, with times: watermarks come behind some of the events."""
    with closing(opened(make_operator(PATTERNS[name]()))) as harness:
        for event in events:
            harness.process(event, event[2])
            if event[2] % step == 0:
                harness.watermark(event[2] - 1)
        harness.watermark(MAX_WATERMARK)
        return [harness.values, [record.value for record in harness.side_output(TIMED_OUT)]]


@pytest.mark.parametrize("name", PATTERNS)
@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(LETTERS, st.integers(0, 3)), max_size=12), st.integers(1, 5))
def test_both_give_the_same_matches(name: str, drawn: list[tuple[str, int]], step: int) -> None:
    events, time = [], 1
    for letters, gap in drawn:
        time += gap
        events.append(("k", letters, time))
    times = [event[2] for event in events]
    wanted = [text(match) for match in trace_pattern(PATTERNS[name](), events, times).matches]
    found = told(name, events, step)
    assert sorted(value[0] for value in found[0]) == sorted(wanted)
    with one_by_one():
        assert told(name, events, step) == found


def one_by_one() -> Any:
    """The operator leaves all conditions to the matcher, as after an error, and leaves out no event."""
    return mock.patch.object(ConditionsAtWork, "evaluate", return_value=None)


def test_a_match_that_would_have_the_wrong_time_is_found() -> None:
    """If events that change nothing are left out although the time of the next one is that of a match."""
    events = [("k", "a", 1), ("k", "", 5)]
    with one_by_one():
        wanted = told("absent", events, 9)
    assert told("absent", events, 9) == wanted
    with mock.patch.object(Matcher, "minds_time", False):
        assert told("absent", events, 9) != wanted


@pytest.mark.parametrize(
    ("owner", "name", "planted"),
    [
        (Moves, "_after_idle", lambda moves, symbol: moves[symbol]),
        (Matcher, "settle", lambda matcher, memory: None),
        (PatternOperator, "_is_unsettled", lambda operator, data: False),
    ],
    ids=["forgotten at the next event", "forgotten at the end of a batch", "not looked for in a key"],
)
def test_an_idle_event_that_is_forgotten_is_found(owner: Any, name: str, planted: Any) -> None:
    chance = random.Random(1)
    cases = []
    for _ in range(60):
        times = sorted(chance.choices(range(1, 12), k=6))
        cases.append([("k", chance.choice(("a", "b", "", "")), time) for time in times])
    patterns = ("strict", "greedy", "not next")
    with one_by_one():
        wanted = [told(pattern, case, 3) for pattern in patterns for case in cases]
    assert [told(pattern, case, 3) for pattern in patterns for case in cases] == wanted
    with mock.patch.object(owner, name, planted):
        assert [told(pattern, case, 3) for pattern in patterns for case in cases] != wanted
