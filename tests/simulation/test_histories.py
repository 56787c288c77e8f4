"""Histories of whole clusters keep every promise; the same seed is the same history; planted bugs are found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.effort import tries
from tests.simulation.fresh_seeds import FRESH_SEEDS, fresh_seeds
from tests.simulation.mutants import MUTANTS, planted

from penstock.drivers.simulation.cli import main
from penstock.drivers.simulation.oracle import outputs
from penstock.drivers.simulation.participants import KINDS
from penstock.drivers.simulation.scenario import MODES, with_latency_markers
from penstock.drivers.simulation.simulation import Simulation, run_seed

pytestmark = pytest.mark.slow

#: Enough for each kind of fault to happen.
SEEDS = (*range(1_100, 1_200), 1_204)
A_TEST = 50
DETERMINISTIC_SEEDS = tries(10)


def _pinned() -> list[int]:
    lines = Path(__file__).with_name("pinned_seeds.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def _failures(seeds: range) -> str:
    failed = {seed: found for seed in seeds if (found := run_seed(seed).violations)}
    return "\n".join(f"penstock-sim --seeds {s}..{s} --trace\n{found}" for s, found in failed.items())


@pytest.mark.parametrize("offset", range(0, FRESH_SEEDS, A_TEST))
def test_fresh_histories_keep_their_promises(offset: int) -> None:
    """G5, G8, G9, G10: random jobs through random faults, of which none changes what is committed."""
    first = fresh_seeds().start + offset
    failures = _failures(range(first, first + A_TEST))
    assert not failures, failures


def test_fresh_histories_with_latency_markers_keep_their_promises() -> None:
    """G5, G8, G9, G10: markers are in the channels beside records and barriers, and change nothing."""
    first = fresh_seeds().start
    with with_latency_markers():
        failures = _failures(range(first, first + A_TEST // 2))
    assert not failures, failures.replace("--trace", "--latency-markers --trace")


@pytest.mark.parametrize("seed", _pinned())
def test_pinned_seed_keeps_its_promises(seed: int) -> None:
    """G5, G8, G9, G10: histories that once found a fault."""
    assert not run_seed(seed).violations


def test_same_seed_is_same_history() -> None:
    for seed in range(DETERMINISTIC_SEEDS):
        once, again = run_seed(seed, is_traced=True), run_seed(seed, is_traced=True)
        assert len(once.log) > 50
        assert once.log == again.log


def test_history_does_not_depend_on_hash_order() -> None:
    command = [sys.executable, "-m", "penstock.drivers.simulation.cli", "--seeds", "51..53", "--trace"]
    traces = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": str(h)}, capture_output=True, text=True, check=False
        ).stdout
        for h in (1, 2)
    }
    without_speed = {"\n".join(line for line in t.splitlines() if "histories/s" not in line) for t in traces}
    assert len(without_speed) == 1


def test_tracing_does_not_change_the_history() -> None:
    for seed in range(5):
        traced, plain = run_seed(seed, is_traced=True), run_seed(seed)
        assert (traced.steps, traced.virtual_ms, traced.status) == (plain.steps, plain.virtual_ms, plain.status)


def test_without_faults_nothing_is_lost_or_repeated() -> None:
    for seed in range(20):
        simulation = Simulation(seed, without_faults=True)
        history = simulation.run()
        assert history.status == "FINISHED"
        assert not history.violations
        expected = outputs(simulation.scenario.topology)
        assert any(counter.total() for counter in expected.values()) or not history.commits


def test_histories_keep_their_promises_and_meet_every_kind_of_fault() -> None:
    seen = set[str]()
    events = set[str]()
    modes = set[str]()
    resumed = set[str]()
    for seed in SEEDS:
        history = run_seed(seed)
        assert not history.violations, f"penstock-sim --seeds {seed}..{seed} --trace"
        seen |= history.faults.keys()
        events |= history.events.keys()
        resumed |= (+history.resumed).keys()
        modes.add(history.mode)
    assert modes == set(MODES)
    assert events >= {"begun partly finished", "cancelled", "resumed", "stopped", "stopped with drain"}
    assert resumed >= {
        "other parallelism",
        "other operators",
        "other chaining",
        "from a checkpoint",
        "from hashmap to rocksdb",
        "from rocksdb to rocksdb",
    }
    assert events >= {f"asked: {kind}" for kind in KINDS}
    assert seen >= {
        "complete-done-but-error",
        "complete-refused",
        "complete-torn",
        "delete-done-but-error",
        "delete-refused",
        "delete-torn",
        "doubled-message",
        "dropped-connection",
        "kill",
        "kill-within-call",
        "late-store",
        "listing-refused",
        "master-kill",
        "master-kill-within-call",
        "read-error",
        "silent-kill",
        "slow-background",
        "slow-channel",
        "slow-executor",
        "user-error",
        "write-done-but-error",
        "write-refused",
        "write-torn",
        "zombie",
    }


@pytest.mark.parametrize("mode", MODES)
def test_mode_can_be_chosen(mode: str) -> None:
    history = run_seed(1, mode=mode)
    assert history.mode == mode
    assert not history.violations


def test_command_prints_speed_and_how_to_replay() -> None:
    with planted(next(iter(MUTANTS))):
        result = CliRunner().invoke(main, ["--seeds", "1..3"])
    assert "histories/s" in result.output
    assert "resumed: " in result.output
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
