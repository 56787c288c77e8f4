"""A5: the operator finds what the oracle finds: on both backends, in every tempo, restarted at other parallelisms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cep.drawn import Case, draw_case
from tests.cep.oracle.answers import answer
from tests.cep.oracle.specifications import Stage
from tests.cep.random import check_job, check_seed, main, on_backend
from tests.effort import tries
from tests.simulation.planting import around

from penstock.runtime.patterns.automaton import Trees
from penstock.runtime.patterns.matcher import Skip as SkipType
from penstock.runtime.patterns.matcher import SkipStrategy
from penstock.runtime.patterns.memory import Memory


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


@pytest.mark.parametrize(
    ("owner", "name", "mutate", "first"),
    [
        (SkipStrategy, "_first_kept", keep_the_last_event_of_a_match, 1),
        (Memory, "collect_events", forget_what_a_stage_has_taken, 130),
        (Trees, "_may_end", match_with_no_optional_end, 1),
        (Trees, "_allowed", miss_that_a_stop_was_reached, 220),
    ],
)
def test_a_bug_in_the_engine_is_found(owner: Any, name: str, mutate: Any, first: int) -> None:
    with around(owner, name, mutate):
        assert any(check_seed(seed, False) for seed in range(first, first + 100))


def test_the_command_says_how_many_differ() -> None:
    result = CliRunner().invoke(main, ["--cases", "3", "--restarts"])
    assert "3 cases, 0 differ" in result.output
    assert result.exit_code == 0
