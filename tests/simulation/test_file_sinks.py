"""The file sink as it is, in simulated jobs: each row is to be seen once, whatever happens, power cuts included."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from tests.simulation.find_mutants import list_violation_kinds
from tests.simulation.mutants_of_files import MUTANTS_OF_FILES
from tests.simulation.mutants_of_hidden_files import MUTANTS_OF_HIDDEN_FILES
from tests.simulation.planting import Mutant

from penstock.connectors.file import filesystem
from penstock.connectors.file.filesystem import (
    create_held,
    list_all,
    remove_unless_held,
    rename,
    sync_names,
    write_whole,
)
from penstock.drivers.simulation import simulation
from penstock.drivers.simulation.disk import PageCache
from penstock.drivers.simulation.file_sinks import SHARE, file_sink, hidden, written
from penstock.drivers.simulation.outside_world import Outside, present
from penstock.drivers.simulation.simulation import History, Simulation, run_seed
from penstock.drivers.simulation.stepwise_history import run_batch_seed, run_stepwise_seed

pytestmark = pytest.mark.slow

#: Enough for every fault that concerns files.
SEEDS = range(1, 260)
STEPS_MAX = 10_000
STEPWISE_SEEDS = range(1, 260)
BASE = "penstock-sim://a-world/out"


def test_histories_whose_sinks_write_files() -> None:
    """G9: jobs stop, change and go on; workers, job masters and the power fail."""
    seen = Counter[str]()
    for seed in SEEDS:
        simulated = Simulation(seed)
        sinks = [s.uid for s in simulated.scenario.topology.stages if s.make_sink is file_sink]
        if sinks:
            history = simulated.run()
            assert not history.violations, (seed, history.violations)
            seen.update({key: history.faults[key] for key in ("kill", "master-kill", "power-cut", "kill-within-call")})
            seen.update(histories=1, stops=history.events["stopped"], hidden=len(hidden(simulated.jobs.disk)))
            seen.update(rows=sum(len(written(simulated.jobs.disk, sink)) for sink in sinks))
    assert seen["histories"] > 20
    assert seen["rows"] > 800
    assert min(seen[key] for key in ("kill", "master-kill", "power-cut", "stops", "hidden")) > 0, seen


@pytest.mark.parametrize("mutant", MUTANTS_OF_FILES, ids=lambda mutant: mutant.__name__)
def test_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, seed = MUTANTS_OF_FILES[mutant]
    monkeypatch.setattr(simulation, "STEPS_MAX", STEPS_MAX)
    with mutant():
        found = list_violation_kinds(run_seed(seed).violations)
    assert found.intersection(kinds), found
    assert not run_seed(seed).violations


@pytest.mark.parametrize("mutant", MUTANTS_OF_HIDDEN_FILES, ids=lambda mutant: mutant.__name__)
def test_bug_planted_in_epochs_and_batches_is_found(mutant: Mutant) -> None:
    found_by = MUTANTS_OF_HIDDEN_FILES[mutant]
    with mutant():
        found = list_violation_kinds(found_by.run(found_by.seed).violations)
    assert found.intersection(found_by.kinds), found
    assert not found_by.run(found_by.seed).violations


@pytest.mark.parametrize("run", [run_stepwise_seed, run_batch_seed])
def test_epochs_and_batches_write_files(run: Callable[[int], History]) -> None:
    """G9: tasks die or write late, the power fails, others are at work in the directories, and files vanish."""
    seen = Counter[str]()
    for seed in STEPWISE_SEEDS:
        if random.Random(f"file sinks of stepwise-{seed}").random() < SHARE:
            history = run(seed)
            assert not history.violations, (seed, history.violations)
            seen += history.events + history.faults
    wanted = {"cut off", "task died", "file step failed", "driver died in a commit", "power-cut"}
    assert wanted | {"neighbour began", "neighbour died", "file moved away"} <= set(seen), seen


# --- the simulated file system, through what connectors ask of it ----------------------------------------------------


@pytest.fixture
def world():
    with present("a-world", Outside(random.Random(1))) as world:
        yield world


def test_files_are_written_renamed_and_listed(world: Outside) -> None:
    write_whole(f"{BASE}/a/one", b"rows")
    rename(f"{BASE}/a/one", f"{BASE}/b/two")
    assert list_all(BASE) == [f"{BASE}/b/two"]
    assert filesystem.read_bytes(f"{BASE}/b/two") == b"rows"
    assert filesystem.size_or_none(f"{BASE}/a/one") is None
    filesystem.remove([f"{BASE}/b/two", f"{BASE}/b/two"])
    filesystem.remove_empty_directories(BASE)
    assert not world.files.files
    assert not world.files.is_directory("out")


def test_a_rename_survives_once_its_directory_is_synced(world: Outside) -> None:
    write_whole(f"{BASE}/a/one", b"rows")
    rename(f"{BASE}/a/one", f"{BASE}/b/two")
    assert not world.files.is_durable("out/b/two")
    sync_names([f"{BASE}/b/two"])
    assert world.files.is_durable("out/b/two")


def test_a_file_survives_in_a_directory_whose_maker_has_died(world: Outside) -> None:
    """It had made the directory, or the one above, and had not synced that; others found it and went on."""

    def committed(made: tuple[str, ...]) -> PageCache:
        world.files = cache = PageCache()
        for directory in made:
            cache.make_directory(directory)
        write_whole(f"{BASE}/a/one", b"rows")
        rename(f"{BASE}/a/one", f"{BASE}/b/two")
        sync_names([f"{BASE}/b/two"])
        return cache

    for made in (("out",), ("out", "out/b"), ("out", "out/a")):
        for seed in range(50):
            cache = committed(made)
            cache.lose_power(random.Random(seed))
            assert cache.files.get("out/b/two") == b"rows", (made, seed)


def test_a_file_is_held_as_long_as_its_process_lives(world: Outside) -> None:
    alive = {"worker-1"}
    world.process, world.is_alive = lambda: "worker-1", alive.__contains__
    create_held(f"{BASE}/one").write(b"rows")
    assert not remove_unless_held(f"{BASE}/one")
    alive.clear()
    assert remove_unless_held(f"{BASE}/one")
    assert not world.files.files
