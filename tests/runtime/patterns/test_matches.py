"""Which matches a pattern has. Events are texts: the letters of the conditions that hold for them."""

from __future__ import annotations

import pickle
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.runtime.patterns.naive import holding, matches_of, naive_matches

from penstock.runtime.patterns.matcher import Matcher, Skip, SkipError, SkipStrategy, TimedOut
from penstock.runtime.patterns.memory import NO_LINK, Memory
from penstock.runtime.patterns.pattern import Contiguity, Group, Pattern, Stage, Times

pytestmark = pytest.mark.slow

STRICT, RELAXED, ANY = Contiguity.STRICT, Contiguity.RELAXED, Contiguity.NON_DETERMINISTIC
A = Stage("a", 0)


def texts(pattern: Pattern, events: str, strategy: SkipStrategy | None = None) -> list[str]:
    """The matches as text: a stage and its places, such as `a0 b12`."""
    found = []
    for path in matches_of(pattern, events.split(), strategy or SkipStrategy()):
        stages: dict[str, str] = {}
        for name, place in path:
            stages[name] = stages.get(name, name) + str(place)
        found.append(" ".join(stages.values()))
    return found


def test_strict_contiguity_lets_nothing_in_between() -> None:
    assert texts(Pattern((A, Stage("b", 1))), "a b a x b") == ["a0 b1"]


def test_relaxed_contiguity_passes_over_what_does_not_fit() -> None:
    assert texts(Pattern((A, Stage("b", 1, RELAXED))), "a x b b") == ["a0 b2"]


def test_non_deterministic_contiguity_passes_over_what_fits_too() -> None:
    assert texts(Pattern((A, Stage("b", 1, ANY))), "a x b b") == ["a0 b2", "a0 b3"]


def test_a_loop_gives_a_match_for_each_length() -> None:
    pattern = Pattern((Stage("a", 0, times=Times(1, None, inner=STRICT)),))
    assert texts(pattern, "a a x a") == ["a0", "a01", "a1", "a3"]


def test_a_greedy_loop_keeps_what_the_next_stage_could_take() -> None:
    loop = Times(1, None, is_greedy=True, inner=STRICT)
    greedy = Pattern((A, Stage("b", 1, times=loop), Stage("c", 2)))
    assert texts(greedy, "a b bc bc c") == ["a0 b123 c4"]
    reluctant = Pattern((A, Stage("b", 1, times=Times(1, None, inner=STRICT)), Stage("c", 2)))
    assert texts(reluctant, "a b bc bc c") == ["a0 b1 c2", "a0 b12 c3", "a0 b123 c4"]


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        (Times(2, 2, inner=STRICT), ["a0 b12 c3"]),
        (Times(2, None, inner=STRICT), ["a0 b12 c3"]),
        (Times(3, None, inner=STRICT), []),
        (Times(1, 3, is_optional=True, inner=STRICT), ["a0 b12 c3"]),
        (Times(1, 1, inner=STRICT), []),
    ],
)
def test_how_often(times: Times, wanted: list[str]) -> None:
    assert texts(Pattern((A, Stage("b", 1, times=times), Stage("c", 2))), "a b b c") == wanted


def test_a_greedy_loop_is_not_over_before_an_event_that_it_could_not_take() -> None:
    """As in Flink: with nothing but an optional stage behind it, it never ends without that one."""
    parts = (A, Stage("b", 1, times=Times(1, None, is_greedy=True, inner=STRICT)))
    pattern = Pattern((*parts, Stage("c", 2, times=Times(is_optional=True))))
    assert texts(pattern, "a b x") == []
    assert texts(pattern, "a b c") == ["a0 b1 c2"]


def test_an_optional_stage_may_be_missing() -> None:
    pattern = Pattern((A, Stage("b", 1, times=Times(is_optional=True)), Stage("c", 2)))
    assert texts(pattern, "a c a b c") == ["a0 c1", "a2 b3 c4"]


def test_a_stop_condition_ends_a_loop_and_is_not_taken() -> None:
    loop = Times(1, None, until=3)
    pattern = Pattern((A, Stage("b", 1, RELAXED, loop), Stage("c", 2, RELAXED)))
    assert texts(pattern, "a b bd b c") == ["a0 b1 c4"]


def test_a_group_is_repeated_as_a_whole() -> None:
    group = Group((A, Stage("b", 1)), times=Times(2, 2, inner=STRICT))
    assert texts(Pattern((group, Stage("c", 2))), "a b a b c") == ["a02 b13 c4"]
    loop = Group((A, Stage("b", 1)), times=Times(1, None, inner=STRICT))
    assert sorted(texts(Pattern((loop, Stage("c", 2))), "a b a b c")) == ["a02 b13 c4", "a2 b3 c4"]


def test_an_optional_group_may_be_missing() -> None:
    group = Group((Stage("b", 1), Stage("c", 2)), times=Times(is_optional=True))
    assert texts(Pattern((A, group, Stage("d", 3))), "a d a b c d") == ["a0 d1", "a2 b3 c4 d5"]


def test_the_right_border_of_the_window_is_open() -> None:
    parts = (A, Stage("b", 1, RELAXED))
    assert texts(Pattern(parts, within_ms=2), "a x b") == []
    assert texts(Pattern(parts, within_ms=3), "a x b") == ["a0 b2"]


def test_what_takes_too_long_comes_out_as_it_is() -> None:
    matcher, held = Matcher(Pattern((A, Stage("b", 1, RELAXED)), within_ms=10), SkipStrategy()), Memory.empty()
    matcher.process(Memory(held), "a", 0, lambda number, link: number == 0)
    assert matcher.deadline_ms(Memory(held)) == 10
    assert matcher.advance(Memory(held), 9).timed_out == []
    assert matcher.advance(Memory(held), 10).timed_out == [TimedOut({"a": ["a"]}, 10)]
    assert Memory(held).is_empty
    assert held[1:] == [[], [], {}, {}]


LOOP = Pattern((Stage("a", 0, times=Times(2, None, inner=STRICT)), Stage("b", 1)))


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        (SkipStrategy(), ["a012 b3", "a12 b3"]),
        (SkipStrategy(Skip.TO_NEXT), ["a012 b3", "a12 b3"]),
        (SkipStrategy(Skip.PAST_LAST), ["a012 b3"]),
        (SkipStrategy(Skip.TO_LAST, "a"), ["a012 b3"]),
        (SkipStrategy(Skip.TO_FIRST, "a"), ["a012 b3", "a12 b3"]),
        (SkipStrategy(Skip.TO_FIRST, "b"), ["a012 b3"]),
        (SkipStrategy(Skip.TO_LAST, "z"), ["a012 b3", "a12 b3"]),
    ],
)
def test_what_is_skipped_after_a_match(strategy: SkipStrategy, wanted: list[str]) -> None:
    assert sorted(texts(LOOP, "a a a b x", strategy)) == wanted


def test_a_match_waits_for_those_that_began_earlier() -> None:
    pattern = Pattern((A, Stage("b", 1, RELAXED), Stage("c", 2, RELAXED)), within_ms=5)
    events = "a ab c"
    assert texts(pattern, events, SkipStrategy(Skip.TO_NEXT)) == ["a0 b1 c2"]
    # The second one may still be skipped by what began with event 0, until that has taken too long.
    two = Pattern((A, Stage("b", 1, RELAXED, Times(2, 2, inner=STRICT))), within_ms=4)
    assert texts(two, "a x a b x", SkipStrategy(Skip.PAST_LAST)) == []


def test_a_skip_that_cannot_be_fails_where_it_has_to() -> None:
    with pytest.raises(SkipError, match="Could not skip to first element of a match"):
        texts(LOOP, "a a b", SkipStrategy(Skip.TO_FIRST, "a", True))
    with pytest.raises(SkipError, match="Could not skip to z"):
        texts(LOOP, "a a b", SkipStrategy(Skip.TO_LAST, "z", True))


def test_a_condition_sees_the_events_taken_so_far() -> None:
    """Each event is greater than the one before: the condition looks at the last one that was taken."""
    matcher, held = Matcher(Pattern((Stage("a", 0, times=Times(3, 3, inner=STRICT)),)), SkipStrategy()), Memory.empty()
    found = []
    for place, value in enumerate([1, 5, 4, 6, 7]):
        memory = Memory(held)

        def grows(number: int, link: int, value: int = value, memory: Memory = memory) -> bool:
            return link == NO_LINK or value > memory.events(link)["a"][-1]

        found += matcher.process(memory, value, place, grows).matches
    assert found == [{"a": [4, 6, 7]}]


# --- against all ways there are --------------------------------------------------------------------------------------

events = st.lists(st.sampled_from(["", "a", "b", "c", "ab", "bc", "ac", "abc"]), max_size=7)


@st.composite
def patterns(draw: Any, contiguities: tuple[Contiguity, ...], has_greedy: bool, has_window: bool = True) -> Pattern:
    """Up to three stages; where there are greedy ones, the last one has to be there, and is not greedy."""
    count = draw(st.integers(1, 3))
    parts = []
    for number in range(count):
        least = draw(st.integers(1, 2))
        most = draw(st.sampled_from([least, least + 1, None]))
        is_greedy = has_greedy and number < count - 1 and most != least and draw(st.booleans())
        inner = draw(st.sampled_from(contiguities))
        is_optional = draw(st.booleans()) and not (has_greedy and number == count - 1)
        times = Times(least, most, is_optional, is_greedy, inner)
        parts.append(Stage("abc"[number], number, draw(st.sampled_from(contiguities)), times))
    return Pattern(tuple(parts), draw(st.sampled_from([None, None, 2, 4])) if has_window else None)


@settings(max_examples=1500, deadline=None)
@given(patterns((STRICT, RELAXED, ANY), False), events)
def test_all_matches_are_found_once(pattern: Pattern, given_events: list[str]) -> None:
    assert sorted(matches_of(pattern, given_events)) == sorted(naive_matches(pattern, given_events))


@settings(max_examples=1500, deadline=None)
@given(patterns((STRICT,), True), events)
def test_greedy_stages_are_the_longest_they_can_be(pattern: Pattern, given_events: list[str]) -> None:
    assert sorted(matches_of(pattern, given_events)) == sorted(naive_matches(pattern, given_events))


@settings(max_examples=1500, deadline=None)
@given(patterns((STRICT,), True, False), events, st.sampled_from([Skip.TO_NEXT, Skip.PAST_LAST]))
def test_skipping_leaves_out_matches_in_order(pattern: Pattern, given_events: list[str], skip: Skip) -> None:
    left = {(path[0][1], path[-1][1]) for path in naive_matches(pattern, given_events)}
    # An event that fits nowhere ends all partial matches, so that no match waits any more.
    found = matches_of(pattern, [*given_events, ""], SkipStrategy(skip))
    for begin, end in [(path[0][1], path[-1][1]) for path in found]:
        # Of matches that begin with the same event, any may be the first, as in Flink's queue.
        assert (begin, end) in left
        assert begin == min(left)[0]
        first = begin + 1 if skip is Skip.TO_NEXT else end + 1
        left = {match for match in left if match[0] >= first}
    assert not left


@settings(max_examples=300, deadline=None)
@given(patterns((STRICT, RELAXED, ANY), False), events, st.integers(0, 7))
def test_what_is_remembered_can_be_stored(pattern: Pattern, given_events: list[str], stop: int) -> None:
    """A matcher that goes on with a copy of the memory gives what is missing."""
    matcher, held, found = Matcher(pattern, SkipStrategy(Skip.PAST_LAST)), Memory.empty(), []
    for place, event in enumerate(given_events):
        if place == stop:
            matcher, held = Matcher(pattern, SkipStrategy(Skip.PAST_LAST)), pickle.loads(pickle.dumps(held))
        memory = Memory(held)
        matches = matcher.advance(memory, place).matches
        matches += matcher.process(memory, place, place, holding(event)).matches
        found += [tuple((name, one) for name, places in match.items() for one in places) for match in matches]
    assert found == matches_of(pattern, given_events, SkipStrategy(Skip.PAST_LAST))
