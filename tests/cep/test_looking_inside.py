"""Patterns as pictures, and what becomes of each partial match."""

from __future__ import annotations

from typing import Any, ClassVar
from xml.etree import ElementTree

from penstock.cep import AfterMatchSkipStrategy, Pattern, RichIterativeCondition, WithinType
from penstock.testing import trace_pattern


def is_(letter: str) -> Pattern:
    return Pattern.begin(letter).where(lambda event: event == letter)


def shown() -> Pattern:
    group = is_("b").next("c").times(2, 3).consecutive()
    pattern = is_("a").not_followed_by('no "d"').followed_by(group).one_or_more().optional()
    return pattern.followed_by_any("e").one_or_more().greedy().until(bool).within(5, WithinType.PREVIOUS_AND_CURRENT)


def test_a_pattern_is_a_flowchart() -> None:
    assert shown().to_mermaid() == (
        "flowchart LR\n"
        '    s0["a"]\n'
        '    s1(["no #quot;d#quot;"])\n'
        '    subgraph s2["1 or more, optional"]\n'
        '        s3["b"]\n'
        '        s4["c<br/>2 to 3 times<br/>consecutive"]\n'
        "    end\n"
        '    s5["e<br/>1 or more<br/>greedy<br/>until<br/>within 5 ms of the event before"]\n'
        '    s0 -. "not followed by" .-> s1\n'
        '    s3 -- "next" --> s4\n'
        '    s0 -- "followed by" --> s3\n'
        '    s4 -- "followed by any" --> s5\n'
    )


def test_a_pattern_is_a_drawing() -> None:
    root = ElementTree.fromstring(shown().to_svg())
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"a", 'no "d"', "1 or more, optional", "b", "c", "not followed by", "followed by any", "until"} <= texts
    assert shown()._repr_html_() == shown().to_svg()


def test_a_trace_tells_what_lives_and_why_one_died() -> None:
    pattern = Pattern.begin("a", AfterMatchSkipStrategy.skip_past_last_event()).where(lambda event: event == "a")
    pattern = pattern.not_followed_by("n").where(lambda event: event == "n")
    pattern = pattern.followed_by("b").where(lambda event: event == "b").one_or_more()
    pattern = pattern.next("c").where(lambda event: event == "c").within(8)
    trace = trace_pattern(pattern, list("anabcax"))
    assert trace.matches == [{"a": ["a"], "b": ["b"], "c": ["c"]}]
    assert str(trace) == (
        "0 ms: 'a'\n"
        "    lives: a: 'a' -> b\n"
        "1 ms: 'n'\n"
        "    dies:  a: 'a' -> b (stage 'n' was met)\n"
        "2 ms: 'a'\n"
        "    lives: a: 'a' -> b\n"
        "3 ms: 'b'\n"
        "    lives: a: 'a', b: 'b' -> b\n"
        "4 ms: 'c'\n"
        "    match: a: 'a', b: 'b', c: 'c'\n"
        "    dies:  a: 'a', b: 'b' -> b (a match skips it)\n"
        "5 ms: 'a'\n"
        "    lives: a: 'a' -> b\n"
        "6 ms: 'x'\n"
        "    lives: a: 'a' -> b\n"
        "the end\n"
        "    late:  a: 'a' (it took too long)"
    )


def test_a_trace_has_times_of_its_own() -> None:
    pattern = is_("a").next("b").where(lambda event: event == "b")
    trace = trace_pattern(pattern, ["a", "x"], [10, 70])
    assert [step.time_ms for step in trace.steps] == [10, 70]
    assert trace.steps[1].died == [("a: 'a' -> b", "the event fits nowhere")]
    absent = is_("a").not_followed_by("b").where(lambda event: event == "b").within(5)
    assert trace_pattern(absent, ["a"]).steps[0].living == ["a: 'a' -> the end of its time"]
    assert trace_pattern(absent, ["a"]).matches == [{"a": ["a"]}]


class Known(RichIterativeCondition):
    """Knows its events from `open` on, as one that reads them from a file would."""

    closed: ClassVar[list[int]] = []

    def open(self, runtime_context: Any) -> None:
        self.known = {"a", f"subtask {runtime_context.get_index_of_this_subtask()}"}

    def filter(self, value: Any, ctx: Any) -> bool:
        return value in self.known

    def close(self) -> None:
        self.closed.append(len(self.known))


def test_a_trace_opens_and_closes_conditions() -> None:
    Known.closed.clear()
    trace = trace_pattern(Pattern.begin("known").where(Known()), ["b", "subtask 0"])
    assert trace.matches == [{"known": ["subtask 0"]}]
    assert Known.closed == [2]
