"""Idle events that are passed over change nothing that is told: beside the oracle, and beside all events offered."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from tests.cep.drawn import CONTIGUITIES, Case, draw_specification
from tests.cep.operators import operator_factory, shown
from tests.cep.oracle.specifications import NO_SKIP, Event, Not, Stage
from tests.cep.oracle_check import Run, differences
from tests.cep.random import on_backend
from tests.cep.searching import letter, make_operator, opened, stage, text
from tests.effort import tries

from penstock.cep import Pattern, PatternProcessFunction
from penstock.runtime.operators.patterns import pattern_operator
from penstock.runtime.operators.patterns.conditions import ConditionsAtWork
from penstock.runtime.operators.patterns.pattern_operator import PatternOperator
from penstock.runtime.operators.patterns.sieve import PassedEvents
from penstock.runtime.patterns.matcher import Matcher
from penstock.runtime.patterns.moves import Moves
from penstock.testing import OneInputOperatorHarness

FRESH = random.SystemRandom().randrange(1 << 32)


class TellMatches(PatternProcessFunction):
    """Tells matches alone: partial matches that time out only go."""

    def process_match(self, match: dict[str, list[Event]], ctx: Any) -> Iterable[Any]:
        yield next(iter(match.values()))[0].key, shown(match), ctx.timestamp()


def draw_case(seed: int) -> Case:
    """Conditions look at the event alone; events of kind z fit none of them."""
    chance = random.Random(f"passed {seed}")
    specification = draw_specification(chance)
    while specification.skip.stage is not None:
        specification = draw_specification(chance)
    parts = tuple(plain(part, chance) for part in specification.parts)
    if chance.random() < 0.8:
        specification = replace(specification, skip=NO_SKIP)
    return Case(replace(specification, parts=parts), tuple(draw_inputs(chance)))


def plain(part: Any, chance: random.Random) -> Any:
    """The part with conditions that look at the event alone, and more often a loop."""
    if part.condition is not None:
        part = replace(part, condition=replace(part.condition, rising=None, fewer=None))
    if isinstance(part, Not):
        return part
    if part.parts:
        return replace(part, parts=tuple(plain(inner, chance) for inner in part.parts))
    if part.most == 1 and not part.is_optional and not part.window_ms and chance.random() < 0.3:
        part = replace(part, least=chance.choice((1, 1, 2)), most=None, inner=chance.choice(CONTIGUITIES))
    return part


def draw_inputs(chance: random.Random) -> Iterator[tuple[int, Event] | int]:
    now, keys, kinds = 0, chance.choice(("k", "kl")), chance.choice(("abcdzzz", "aabbzz", "abcz", "abzzzz"))
    for number in range(chance.randint(4, 7) + 4 * (len(keys) - 1)):
        now += chance.choice((0, 0, 1, 1, 2))
        yield max(0, now - chance.choice((0, 0, 1))), Event(chance.choice(keys), chance.choice(kinds), 0, number)
        if chance.random() < 0.3:
            yield max(0, now - chance.choice((0, 1, 2)))


class QuietRun(Run):
    """A case whose time-outs nobody looks at. `offers_all`: whether a batch has no symbols, as after an error."""

    def __init__(self, case: Case, seed: int, is_restored: bool, offers_all: Callable[[], bool]) -> None:
        super().__init__(case, OneInputOperatorHarness, random.Random(seed) if is_restored else None, seed % 2 == 0)
        self._factory = operator_factory(case.specification.pattern(), TellMatches())
        self._offers_all = offers_all
        self._passed_max = random.Random(seed).choice((0, 3, 1000))

    def run(self) -> None:
        original = ConditionsAtWork.evaluate
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(pattern_operator, "PASSED_MAX", self._passed_max))
            stack.enter_context(
                mock.patch.object(
                    ConditionsAtWork, "evaluate", lambda *args: None if self._offers_all() else original(*args)
                )
            )
            super().run()

    def by_key(self) -> list[Any]:
        return [[match for match in self.matches if match[0] == key] for key in "kl"]


def find_difference(seed: int, is_restored: bool, with_oracle: bool) -> str | None:
    """What is wrong with the case of a seed."""
    case = draw_case(seed)
    passing, offering = QuietRun(case, seed, is_restored, bool), QuietRun(case, seed, is_restored, lambda: True)
    flips = random.Random(seed)
    mixed = QuietRun(case, seed, is_restored, lambda: flips.random() < 0.3)
    try:
        for run in (passing, offering, mixed):
            run.run()
    except Exception as error:  # noqa: BLE001 - told as what is wrong with the case
        return f"{seed}: {type(error).__name__}: {error}"
    if not passing.by_key() == offering.by_key() == mixed.by_key():
        return f"{seed}: {passing.by_key()} or {mixed.by_key()} instead of {offering.by_key()}\n{case}"
    wrong = [line for line in differences(case, passing) if "time-out" not in line] if with_oracle else []
    return f"{seed}: {wrong}\n{case}" if wrong else None


def find_differences(first: int, count: int, is_restored: bool, with_oracle: bool) -> list[str]:
    found = (find_difference(seed, is_restored, with_oracle) for seed in range(first, first + count))
    return [text for text in found if text is not None]


@contextmanager
def counted_steps() -> Iterator[list[Any]]:
    """The partial matches of keys before and after the steps that are made up for."""
    steps: list[Any] = []
    original = Matcher.settle

    def settle(matcher: Matcher, memory: Any, *args: Any) -> None:
        before = memory.partials
        original(matcher, memory, *args)
        steps.append((before, memory.partials))

    with mock.patch.object(Matcher, "settle", settle):
        yield steps


@pytest.mark.parametrize("is_restored", [False, True], ids=["left alone", "restarted"])
def test_nothing_that_is_told_changes(is_restored: bool) -> None:
    print(f"seeds from {FRESH}")
    with counted_steps() as steps:
        assert find_differences(FRESH, tries(60), is_restored, with_oracle=True) == []
    assert sum(before != after for before, after in steps) > tries(2)


def test_nothing_changes_on_rocksdb() -> None:
    print(f"seeds from {FRESH}")
    with on_backend("rocksdb"):
        assert find_differences(FRESH, tries(12), True, with_oracle=False) == []


def then(pattern: Pattern, name: str) -> Pattern:
    return pattern.followed_by(name).where(letter(name))


def loop() -> Pattern:
    looping = then(stage("a"), "b").one_or_more().greedy().until(letter("d"))
    return then(looping, "d").within(20)


#: in turns, with a watermark behind each: an idle event decides whether the last one of the first two ends a match
SHOWING = ("a b,,bd", "a b,bd", "a b,a,bd", "a b,c a,,,bd", "a b,c,b,,,d", "a b,a b,a,b d")


def tell(turns: str, restores_at: int) -> list[str]:
    """The matches of a loop over events of these letters; there is a restore before a turn."""
    factory, number = make_operator(loop(), TellLetters()), 0
    harness, values = opened(factory), []
    for turn, letters in enumerate(turns.split(",")):
        if turn == restores_at:
            snapshot = harness.snapshot(1)
            values += harness.values
            harness.close()
            harness = opened(factory, snapshot)
        for one in letters.split(" "):
            number += 1
            harness.process(("k", one, number), number)
        harness.watermark(number)
    values += harness.values
    harness.close()
    return values


class TellLetters(PatternProcessFunction):
    """Tells matches alone."""

    def process_match(self, match: dict[str, list[Any]], ctx: Any) -> Iterable[Any]:
        yield text(match)


def tell_all() -> list[list[str]]:
    return [tell(turns, restores_at) for turns in SHOWING for restores_at in range(4)]


def test_an_event_that_shows_idle_ones_meets_their_steps() -> None:
    with mock.patch.object(ConditionsAtWork, "evaluate", return_value=None):
        wanted = tell_all()
    assert tell_all() == wanted
    assert [] in wanted


@pytest.mark.parametrize(
    ("owner", "name", "planted"),
    [
        (Moves, "hides_idle", lambda moves, symbol: True),
        (Matcher, "settle", lambda matcher, memory, is_idle=True: None),
        (PassedEvents, "drain", lambda passed: {}),
        (PassedEvents, "forget", lambda passed, up_to: passed._turns.clear()),
        (PatternOperator, "_settle_passed", lambda operator: operator._sieve.passed.drain()),
    ],
    ids=["shown", "no step", "no key", "forgotten too early", "not made up for"],
)
def test_a_bug_is_found(owner: Any, name: str, planted: Any) -> None:
    with mock.patch.object(ConditionsAtWork, "evaluate", return_value=None):
        wanted = tell_all()
    with mock.patch.object(owner, name, planted):
        assert tell_all() != wanted


def test_the_cases_have_loops_of_all_kinds() -> None:
    parts = [part for seed in range(1000) for part in draw_case(seed).specification.parts]
    loops = [part for part in parts if isinstance(part, Stage) and part.most is None and not part.parts]
    kinds = {(loop.inner, loop.is_greedy, loop.is_optional, loop.until is not None) for loop in loops}
    assert len(kinds) == 20  # all but greedy ones in all combinations, which the library refuses
