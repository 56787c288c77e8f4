"""Histories of whole clusters keep every promise; the same seed is the same history; planted bugs are found."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.simulation.mutants import MUTANTS, Mutant, planted

from penstock.drivers.simulation.cli import main
from penstock.drivers.simulation.reference import outputs
from penstock.drivers.simulation.simulation import Simulation, run_seed

SEEDS = range(1_000, 1_150)
MUTANT_SEEDS_MAX = 600


def _pinned() -> list[int]:
    lines = Path(__file__).with_name("pinned_seeds.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, 25))
def test_histories_keep_their_promises(first: int) -> None:
    failed = {seed: found for seed in range(first, first + 25) if (found := run_seed(seed).violations)}
    assert not failed, "\n".join(f"penstock-sim --seeds {s}..{s} --trace\n{found}" for s, found in failed.items())


@pytest.mark.parametrize("seed", _pinned())
def test_pinned_seed_keeps_its_promises(seed: int) -> None:
    assert not run_seed(seed).violations


def test_same_seed_is_same_history() -> None:
    for seed in range(20):
        once, again = run_seed(seed, is_traced=True), run_seed(seed, is_traced=True)
        assert len(once.log) > 50
        assert once.log == again.log


def test_history_does_not_depend_on_hash_order() -> None:
    command = [sys.executable, "-m", "penstock.drivers.simulation.cli", "--seeds", "3..5", "--trace"]
    traces = {
        subprocess.run(command, env={"PYTHONHASHSEED": str(h)}, capture_output=True, text=True, check=False).stdout
        for h in (1, 2)
    }
    without_speed = {"\n".join(line for line in t.splitlines() if "histories/s" not in line) for t in traces}
    assert len(without_speed) == 1


def test_tracing_does_not_change_the_history() -> None:
    for seed in range(5):
        traced, plain = run_seed(seed, is_traced=True), run_seed(seed)
        assert (traced.steps, traced.virtual_ms, traced.status) == (plain.steps, plain.virtual_ms, plain.status)


def test_without_faults_nothing_is_restarted() -> None:
    for seed in range(20):
        simulation = Simulation(seed, without_faults=True)
        history = simulation.run()
        kinds = {violation.split(":")[0] for violation in history.violations}
        assert history.status == "FINISHED"
        assert "output" not in kinds
        expected = outputs(simulation.scenario.topology)
        assert any(counter.total() for counter in expected.values()) or not history.commits


def test_histories_meet_every_kind_of_fault() -> None:
    seen = set[str]()
    for seed in SEEDS:
        seen |= run_seed(seed).faults.keys()
    assert seen >= {
        "kill",
        "kill-within-call",
        "silent-kill",
        "zombie",
        "user-error",
        "read-error",
        "write-refused",
        "write-torn",
        "write-done-but-error",
        "complete-refused",
        "complete-torn",
        "complete-done-but-error",
        "slow-background",
        "slow-channel",
        "slow-executor",
    }


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_planted_bug_is_found(mutant: Mutant) -> None:
    kinds = MUTANTS[mutant]
    for seed in range(1, MUTANT_SEEDS_MAX):
        with planted(mutant):
            found = run_seed(seed).violations
        # A seed that breaks a promise without the mutant too proves nothing about it.
        if any(violation.startswith(kinds) for violation in found) and not _breaks(seed, kinds):
            return
    pytest.fail(f"{mutant.__name__} went unnoticed in {MUTANT_SEEDS_MAX} seeds")


def _breaks(seed: int, kinds: tuple[str, ...]) -> bool:
    return any(violation.startswith(kinds) for violation in run_seed(seed).violations)


def test_command_prints_speed_and_how_to_replay() -> None:
    with planted(next(iter(MUTANTS))):
        result = CliRunner().invoke(main, ["--seeds", "1..3"])
    assert "histories/s" in result.output
    assert "seeds 1..3" in result.output


def test_command_prints_one_log_line_a_transition() -> None:
    result = CliRunner().invoke(main, ["--seeds", "7..7", "--trace"])
    lines = result.output.splitlines()
    assert lines[0].startswith("seed 7: ")
    assert any("job RUNNING" in line for line in lines)


@pytest.mark.parametrize("text", ["x", "1..", "..", "1..b", "0", "5..1"])
def test_command_refuses_what_is_no_range(text: str) -> None:
    result = CliRunner().invoke(main, ["--seeds", text])
    assert result.exit_code == 2
    assert "neither a number of seeds nor a range" in result.output
