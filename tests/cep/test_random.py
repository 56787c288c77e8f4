"""A5: the operator finds what the oracle finds: on both backends, in every execution mode, at changing parallelisms."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner
from tests.cep.drawn import Case, draw_case
from tests.cep.oracle.answers import answer
from tests.cep.oracle.specifications import NO_SKIP, Contiguity, Not, Stage
from tests.cep.oracle_check import Run
from tests.cep.random import check_job, check_seed, main, on_backend
from tests.effort import tries
from tests.simulation.planting import around

from penstock.runtime.operators.patterns.conditions import ConditionsAtWork
from penstock.runtime.operators.patterns.sieve import Sieve
from penstock.runtime.operators.patterns.waiting import _Part
from penstock.runtime.patterns.automaton import Trees
from penstock.runtime.patterns.matcher import Matcher, SkipStrategy
from penstock.runtime.patterns.matcher import Skip as SkipType
from penstock.runtime.patterns.memory import Memory
from penstock.runtime.patterns.moves import Idleness, Moves
from penstock.runtime.records import MIN_TIMESTAMP
from penstock.testing import OneInputOperatorHarness


def wrong(seeds: Sequence[int], with_restarts: bool) -> dict[int, list[str]]:
    return {seed: found for seed in seeds if (found := check_seed(seed, with_restarts))}


@pytest.mark.parametrize("with_restarts", [False, True], ids=["left alone", "restarted"])
def test_the_operator_finds_what_the_oracle_finds(with_restarts: bool) -> None:
    assert wrong(range(1, 1 + tries(120)), with_restarts) == {}


def test_the_operator_finds_it_on_rocksdb() -> None:
    with on_backend("rocksdb"):
        assert wrong(range(1001, 1001 + tries(30)), True) == {}


@pytest.mark.parametrize("mode", ["streaming", "batch", "micro-batch"])
def test_whole_jobs_find_it(mode: str) -> None:
    cases = [draw_case(seed) for seed in range(2001, 2001 + tries(25))]
    assert [found for found in check_job(cases, mode) if found] == []


def test_the_cases_meet_everything_there_is() -> None:
    cases = [draw_case(seed) for seed in range(400)]
    parts = [part for case in cases for part in case.specification.parts]
    stages = [part for part in parts if isinstance(part, Stage)]
    assert len(parts) > len(stages)
    assert {part.is_next for part in parts if not isinstance(part, Stage)} == {True, False}
    assert len({(s.least, s.most, s.is_optional, s.is_greedy, s.inner, s.link) for s in stages}) > 100
    assert any(s.parts for s in stages)
    assert any(s.until for s in stages)
    assert any(s.window_ms for s in stages)
    assert len({case.specification.skip.kind for case in cases}) == 5
    assert any(case.late() for case in cases)
    assert sum(has_matches(case) for case in cases) > 100


def has_matches(case: Case) -> bool:
    return any(answer(case.specification, events).matches for events in case.in_time().values())


def relaxed(case: Case) -> Case:
    """A similar case in which events that fit no stage change nothing, and watermarks are rare."""
    parts = [
        replace(part, link=Contiguity.RELAXED, least=1, most=1, is_optional=False, is_greedy=False, until=None)
        if isinstance(part, Stage)
        else replace(part, is_next=False)
        for part in case.specification.parts
        if isinstance(part, Not) or not part.parts
    ]
    if not parts or not isinstance(parts[0], Stage):
        return case
    specification = replace(case.specification, parts=tuple(parts))
    if specification.skip.stage not in [None, *(stage.name for stage in specification.stages())]:
        specification = replace(specification, skip=NO_SKIP)
    inputs = [entry for place, entry in enumerate(case.inputs) if not isinstance(entry, int) or place % 3 == 0]
    return replace(case, specification=specification, inputs=tuple(inputs))


def told(case: Case, restart_seed: int, ask_all_at_once: Callable[[], bool]) -> list[Any]:
    """What the operator tells of a case, key by key; conditions may be left to the matcher, which asks for each."""
    run = Run(case, OneInputOperatorHarness, random.Random(restart_seed), True)
    original = ConditionsAtWork.evaluate
    with mock.patch.object(ConditionsAtWork, "evaluate", lambda *args: original(*args) if ask_all_at_once() else None):
        run.run()
    return [[row for row in rows if row[0] == key] for rows in (run.matches, run.time_outs) for key in "kl"]


def test_it_does_not_matter_how_conditions_are_evaluated() -> None:
    """All at once, one by one as after an error, or now so and now so; over restarts."""
    for seed in range(3001, 3001 + tries(120)):
        for case in (draw_case(seed), relaxed(draw_case(seed))):
            wanted = told(case, seed, lambda: True)
            assert told(case, seed, lambda: False) == wanted, str(case)
            flips = iter(random.Random(seed).choices((True, False), k=1000))
            assert told(case, seed, partial(next, flips)) == wanted, str(case)


def keep_the_last_event_of_a_match(original: Any, strategy: Any, path: Any) -> Any:
    kept = original(strategy, path)
    return kept - 1 if strategy.skip is SkipType.PAST_LAST and kept else kept


def forget_what_a_stage_has_taken(original: Any, memory: Any, link: int, stage: str) -> Any:
    return original(memory, link, stage)[:1]


def match_with_no_optional_end(original: Any, trees: Any, state: int, known: Any) -> Any:
    original(trees, state, known)
    return False


def miss_that_a_stop_was_reached(original: Any, trees: Any, state: int, known: Any) -> Any:
    return [found for found in original(trees, state, known) if found[1].target not in trees._automaton.stops]


def let_no_match_time_out_at_an_event(original: Any, matcher: Any, sequences: Any, listener: Any) -> None:
    original(matcher, sequences, replace(listener, expire=lambda memory, time_ms: None))


def leave_out_keys_with_a_started_match(original: Any, sieve: Any, rows: Any, may_begin: Any, active: Any) -> Any:
    return original(sieve, rows, may_begin, ())


def forget_which_events_were_taken(original: Any, part: Any, up_to: int) -> Any:
    due = original(part, up_to)
    part.taken_ms = MIN_TIMESTAMP
    return due


def forget_an_event_with_its_first_reference(original: Any, memory: Any, number: int) -> None:
    memory.counts[number] = 1
    original(memory, number)


def move_nothing_at_the_beginning_of_a_match(original: Any, moves: Any, row: Any) -> bool:
    return False


def swap_the_answers_of_a_symbol(original: Any, moves: Any, symbol: Any) -> Any:
    known = original(moves, symbol)
    return dict(zip(known, reversed(known.values()), strict=True))


@pytest.mark.parametrize(
    ("owner", "name", "mutate", "first"),
    [
        (SkipStrategy, "_first_kept", keep_the_last_event_of_a_match, 1),
        (Memory, "collect_events", forget_what_a_stage_has_taken, 130),
        (Trees, "_may_end", match_with_no_optional_end, 1),
        (Trees, "_allowed", miss_that_a_stop_was_reached, 220),
        (Matcher, "run", let_no_match_time_out_at_an_event, 1),
        (Sieve, "_leave_active", leave_out_keys_with_a_started_match, 1),
        (Moves, "idleness", lambda original, moves: Idleness.NOTHING, 1),
        (Moves, "_known", swap_the_answers_of_a_symbol, 1),
        (Memory, "_drop", forget_an_event_with_its_first_reference, 1),
        (Moves, "_moves_any", move_nothing_at_the_beginning_of_a_match, 1),
        (_Part, "take", forget_which_events_were_taken, 1),
    ],
)
def test_a_bug_in_the_engine_is_found(owner: Any, name: str, mutate: Any, first: int) -> None:
    with around(owner, name, mutate):
        assert any(check_seed(seed, False) for seed in range(first, first + 100))


def test_the_command_says_how_many_differ() -> None:
    result = CliRunner().invoke(main, ["--cases", "3", "--restarts"])
    assert "3 cases, 0 differ" in result.output
    assert result.exit_code == 0
