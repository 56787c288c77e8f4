"""The life of a task as tables: which moves there are, and what each phase permits."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from penstock.runtime.task.processing import PERMITTED, PHASE_MOVES, May, Phase, TaskLife


def life_in(phase: Phase) -> TaskLife:
    """A life that has come to a phase by the shortest way."""
    ways: dict[Phase, list[Phase]] = {Phase.CREATED: []}
    for seen in itertools.chain.from_iterable(itertools.repeat(list(Phase), len(Phase))):
        if seen in ways:
            for following in PHASE_MOVES[seen]:
                ways.setdefault(following, [*ways[seen], following])
    life = TaskLife()
    for following in ways[phase]:
        life.move(following)
    return life


@pytest.mark.parametrize("phase", list(Phase))
def test_a_life_makes_the_moves_of_the_table_and_no_others(phase: Phase) -> None:
    for following in Phase:
        life = life_in(phase)
        if following in PHASE_MOVES[phase]:
            life.move(following)
            assert life.phase is following
        else:
            with pytest.raises(AssertionError, match=f"from {phase.value} to {following.value}"):
                life.move(following)
            assert life.phase is phase


def test_every_life_can_end_at_any_time_and_ends_once() -> None:
    for phase, moves in PHASE_MOVES.items():
        assert (Phase.TERMINAL in moves) is (phase is not Phase.TERMINAL)
    assert PHASE_MOVES[Phase.TERMINAL] == frozenset()


@pytest.mark.parametrize("phase", list(Phase))
def test_what_a_task_may_do_follows_its_phase(phase: Phase) -> None:
    life = life_in(phase)
    assert life.may == PERMITTED[phase]
    life.validate()


def test_no_record_moves_before_all_are_open_or_behind_the_end_of_the_data() -> None:
    assert {p for p, may in PERMITTED.items() if may.run_operators} == {Phase.PROCESSING, Phase.DRAINING}


def test_a_draining_task_takes_nothing_in_but_a_source_begins_checkpoints() -> None:
    may = PERMITTED[Phase.DRAINING]
    assert (may.take_input, may.take_barriers, may.inject_barriers) == (False, False, True)


def test_operators_are_closed_once() -> None:
    """F3: a task in CLOSING has closed them itself."""
    assert PERMITTED[Phase.CLOSING] == PERMITTED[Phase.TERMINAL] == May()


def test_the_diagram_of_the_architecture_shows_the_table() -> None:
    text = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()
    shown = set(re.findall(r"^ +([A-Z_]+) --> ([A-Z_]+)", text, re.MULTILINE))
    moves = {(phase.value, to.value) for phase, following in PHASE_MOVES.items() for to in following}
    by_failure = {(phase.value, "TERMINAL") for phase in Phase if phase not in (Phase.CLOSING, Phase.TERMINAL)}
    assert shown == moves - by_failure
