"""A pattern operator under test. Events are (key, letters, …): a stage takes those with its letter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.base.output_tag import OutputTag
from penstock.cep import Pattern, PatternProcessFunction, TimedOutPartialMatchHandler
from penstock.cep.pattern_stream import build_search
from penstock.runtime.operators.patterns.conditions import PatternSettings
from penstock.runtime.operators.patterns.pattern_operator import EventTimePatternOperator, ProcessingTimePatternOperator
from penstock.testing import OneInputOperatorHarness

TIMED_OUT = OutputTag("timed out")


def first(event: Any) -> Any:
    return event[0]


def letter(one: str) -> Callable[[Any], bool]:
    return lambda event: one in event[1]


def stage(name: str) -> Pattern:
    """A pattern that begins with the stage of a letter."""
    return Pattern.begin(name).where(letter(name))


def a_then_b(within: int | None = 10) -> Pattern:
    return stage("a").followed_by("b").where(letter("b")).within(within)


class Shown(PatternProcessFunction, TimedOutPartialMatchHandler):
    """Each match as text, such as `a1 b23`, with its time."""

    def process_match(self, match: dict[str, list[Any]], ctx: Any) -> Iterator[Any]:
        yield text(match), ctx.timestamp()

    def process_timed_out_match(self, match: dict[str, list[Any]], ctx: Any) -> Iterator[Any]:
        yield TIMED_OUT, (text(match), ctx.timestamp())


def text(match: dict[str, list[Any]]) -> str:
    return " ".join(name + "".join(str(event[2]) for event in events) for name, events in match.items())


def make_operator(pattern: Pattern, function: Any = None, event_time: bool = True, **given: Any) -> Any:
    """What makes the operator of a pattern. `given`: a comparator, a late tag, and settings."""
    search = replace(build_search(pattern, given.get("compare")), late_tag=given.get("late_tag"))
    kind = EventTimePatternOperator if event_time else ProcessingTimePatternOperator
    return partial(kind, search, function or Shown(), first, given.get("settings", PatternSettings()))


def opened(factory: Any, *snapshots: bytes, **options: Any) -> OneInputOperatorHarness:
    harness = OneInputOperatorHarness(factory, **options)
    harness.restore(*snapshots)
    harness.open()
    return harness


def feed(harness: OneInputOperatorHarness, letters: str, key: str = "k", begin: int = 1) -> None:
    """Events a ms apart, each with its time as number."""
    for time, one in enumerate(letters.split(), start=begin):
        harness.process((key, one, time), time)


def texts(harness: OneInputOperatorHarness) -> list[str]:
    return [value[0] for value in harness.values]


def kept(harness: OneInputOperatorHarness) -> dict[str, int]:
    """How many entries there are in each state."""
    keyed = harness.context.keyed
    names = ("cep_partial_matches", "cep_waiting_events", "cep_deadlines")
    found = {}
    for name in names:
        table = keyed.table(name)
        found[name] = sum(len(entries) for entries in table.panes.values()) + len(table.lone or ())
    return found
