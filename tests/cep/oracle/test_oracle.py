"""The oracle gives what Flink's page on CEP and Flink's own tests say."""

from __future__ import annotations

from tests.cep.oracle.answers import answer
from tests.cep.oracle.specifications import Condition, Contiguity, Event, Not, Skip, Specification, Stage

RELAXED, STRICT, ANY = Contiguity.RELAXED, Contiguity.STRICT, Contiguity.ANY


def stage(kind: str, name: str = "", link: Contiguity = RELAXED, **quantifier: object) -> Stage:
    return Stage(name or kind, Condition(kind), link=link, **quantifier)  # type: ignore[arg-type]


def found(specification: Specification, text: str) -> list[str]:
    """Matches, shown as their events; the text is events as `a1` or `a@5` (at a time), numbered from 0."""
    events = []
    for number, word in enumerate(text.split()):
        kind, _, time = word.partition("@")
        events.append((int(time) if time else number, Event("k", kind[0], 0, number)))
    names = text.split()
    shown = []
    for match in answer(specification, events).matches:
        numbers = sorted(number for _, taken in match.shown for number in taken)
        shown.append(" ".join(names[number].partition("@")[0] for number in numbers))
    return shown


def test_contiguity_of_two_stages() -> None:
    for link, wanted in ((STRICT, []), (RELAXED, ["a b1"]), (ANY, ["a b1", "a b2"])):
        assert found(Specification((stage("a"), stage("b", link=link))), "a c b1 b2") == wanted


def test_contiguity_within_loops() -> None:
    cases = {
        STRICT: {"a b3 c"},
        RELAXED: {"a b1 c", "a b1 b2 c", "a b1 b2 b3 c", "a b2 c", "a b2 b3 c", "a b3 c"},
        ANY: {"a b1 c", "a b1 b2 c", "a b1 b3 c", "a b1 b2 b3 c", "a b2 c", "a b2 b3 c", "a b3 c"},
    }
    for inner, wanted in cases.items():
        last = stage("c", link=STRICT if inner is STRICT else RELAXED)
        pattern = Specification((stage("a"), stage("b", link=ANY, most=None, inner=inner), last))
        assert set(found(pattern, "a b1 d1 b2 d2 b3 c")) == wanted


def test_combinations() -> None:
    pattern = Specification((stage("c"), stage("a", most=None, inner=ANY), stage("b")))
    assert len(found(pattern, "c d a1 a2 a3 d a4 b")) == 8  # the loop begins with the first a: it is followed_by


def test_until() -> None:
    pattern = Specification((stage("a", most=None, until=Condition("b")),))
    assert sorted(found(pattern, "a1 c a2 b a3")) == ["a1", "a1 a2", "a2", "a3"]


def test_skip_strategies() -> None:
    """The loop is strict: else `b1 b2 b3` could go on, and what begins with `b2` would have to wait for it."""
    cases = {
        Skip(): ["b1 b2 b3 c", "b2 b3 c", "b3 c"],
        Skip("skip_to_next"): ["b1 b2 b3 c", "b2 b3 c", "b3 c"],
        Skip("skip_past_last_event"): ["b1 b2 b3 c"],
        Skip("skip_to_first", "b"): ["b1 b2 b3 c", "b2 b3 c", "b3 c"],
        Skip("skip_to_last", "b"): ["b1 b2 b3 c", "b3 c"],
    }
    for skip, wanted in cases.items():
        loop = stage("b", most=None, is_greedy=True, inner=STRICT)
        assert found(Specification((loop, stage("c")), skip), "b1 b2 b3 c") == wanted


def test_skip_to_first_of_a_later_stage() -> None:
    parts = (
        stage("abc", "1", link=STRICT),
        stage("bc", "2", link=STRICT),
        stage("c", "3", link=STRICT, most=None, is_greedy=True, inner=STRICT),
        stage("d", link=STRICT),
    )
    assert found(Specification(parts), "a b c1 c2 c3 d") == ["a b c1 c2 c3 d", "b c1 c2 c3 d", "c1 c2 c3 d"]
    assert found(Specification(parts, Skip("skip_to_first", "3")), "a b c1 c2 c3 d") == [
        "a b c1 c2 c3 d",
        "c1 c2 c3 d",
    ]


def test_skip_to_next_takes_the_first_match() -> None:
    parts = (stage("a"), stage("b", most=None))
    assert found(Specification(parts), "a b1 b2 b3") == ["a b1", "a b1 b2", "a b1 b2 b3"]
    assert found(Specification(parts, Skip("skip_to_next")), "a b1 b2 b3") == ["a b1"]


def test_a_last_not_followed_by() -> None:
    parts = (stage("a"), Not("b", Condition("b")))
    for specification in (Specification(parts, window_ms=3), Specification(parts, not_window_ms=3)):
        assert found(specification, "a1@1 b1@2 a2@4 c@5 b2@10 a3@11 b3@13") == ["a2"]


def test_a_not_before_an_optional_end() -> None:
    parts = (stage("a"), Not("b", Condition("b")), stage("c", least=1, most=2, is_optional=True))
    found_ = found(Specification(parts, window_ms=3), "a1@1 b1@2 a2@10 c1@11 c2@12 a3@20 c3@21 c4@24")
    assert found_ == ["a1", "a2", "a2 c1", "a2 c1 c2", "a3", "a3 c3"]


def test_of_matches_of_one_moment_the_longest_leaves() -> None:
    parts = (stage("a", most=None, inner=ANY), stage("c"), Not("b", Condition("b")))
    pattern = Specification(parts, Skip("skip_past_last_event"), window_ms=5)
    assert found(pattern, "a1@1 a2@2 a3@3 c1@4 c2@10") == ["a1 a2 a3 c1"]
