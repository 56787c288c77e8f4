"""Power cuts in simulated histories: nothing that somebody was told of is lost, and no sync could be left out."""

import random

import pytest
from tests.simulation.find_mutants import list_violation_kinds
from tests.simulation.mutants_of_power import MUTANTS_OF_POWER
from tests.simulation.planting import Mutant

from penstock.base.errors import MissingPathError
from penstock.drivers.simulation import simulation
from penstock.drivers.simulation.disk import PageCache, make_directories
from penstock.drivers.simulation.execution_mode_changes import run_changing_seed
from penstock.drivers.simulation.scenario import power_cut
from penstock.drivers.simulation.simulation import run_seed
from penstock.drivers.simulation.stepwise_history import run_stepwise_seed

pytestmark = pytest.mark.slow

RUNS = {"sim": run_seed, "stepwise": run_stepwise_seed, "changing": run_changing_seed}
#: Enough for cuts within a step of the store and after one.
SEEDS = range(1, 60)
CUTS_MIN = 15
#: After the last fault: enough for a history that ends.
STEPS_MAX = 10_000
IMAGES = 200


def images(cache_of, read):
    """What may be there after a power cut, by chance."""
    found = set()
    for seed in range(IMAGES):
        cache = cache_of()
        cache.lose_power(random.Random(seed))
        found.add(read(cache))
    return found


@pytest.mark.parametrize("execution_mode", RUNS)
def test_power_cuts_in_every_execution_mode(execution_mode: str) -> None:
    """G8, G11: a new job master goes on; what was acknowledged is there, and output is exact."""
    cuts = deaths = 0
    for seed in SEEDS:
        if power_cut(f"{execution_mode}-{seed}"):
            history = RUNS[execution_mode](seed)
            assert not history.violations, (seed, history.violations)
            cuts += history.faults["power-cut"]
            deaths += history.faults["kill-within-store"]
    assert cuts >= CUTS_MIN
    assert deaths > 0


@pytest.mark.parametrize("mutant", MUTANTS_OF_POWER, ids=lambda mutant: mutant.__name__)
def test_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    found_by = MUTANTS_OF_POWER[mutant]
    monkeypatch.setattr(simulation, "STEPS_MAX", STEPS_MAX)
    with mutant():
        found = list_violation_kinds(found_by.run(found_by.seed).violations)
    assert found.intersection(found_by.kinds), found
    assert not found_by.run(found_by.seed).violations


# --- the page cache --------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_synced_may_be_torn_empty_or_gone() -> None:
    def written() -> PageCache:
        cache = PageCache()
        cache.write("file", b"bytes")
        return cache

    found = images(written, lambda cache: cache.files.get("file"))
    assert found == {None, b"", b"b", b"by", b"byt", b"byte", b"bytes"}


def test_what_is_synced_survives() -> None:
    def synced() -> PageCache:
        cache = PageCache()
        make_directories(cache, "a/b")
        cache.write("a/b/file", b"bytes")
        cache.sync_file("a/b/file")
        cache.sync_directory("a/b")
        return cache

    assert synced().is_durable("a/b/file")
    assert images(synced, lambda cache: cache.files.get("a/b/file")) == {b"bytes"}


def test_a_directory_that_is_not_synced_takes_all_with_it() -> None:
    def made() -> PageCache:
        cache = PageCache()
        cache.make_directory("a")
        cache.write("a/file", b"bytes")
        cache.sync_file("a/file")
        cache.sync_directory("a")
        return cache

    assert images(made, lambda cache: cache.files.get("a/file")) == {None, b"bytes"}
    with pytest.raises(MissingPathError):
        PageCache().write("a/file", b"")


def test_a_rename_is_one_step_and_others_may_overtake_it() -> None:
    def renamed() -> PageCache:
        cache = PageCache()
        for name in ("one", "two"):
            cache.write(name, name.encode())
            cache.sync_file(name)
        cache.sync_directory("")
        cache.rename("one", "new")
        cache.unlink("two")
        return cache

    names = images(renamed, lambda cache: tuple(sorted(cache.files)))
    assert names == {("new", "two"), ("new",), ("one", "two"), ("one",)}


def test_a_rename_between_directories_reaches_the_device_with_either() -> None:
    def moved(synced: str) -> PageCache:
        cache = PageCache()
        for directory in ("a", "b"):
            make_directories(cache, directory)
        cache.write("a/file", b"bytes")
        cache.sync_file("a/file")
        cache.rename("a/file", "b/file")
        cache.sync_directory(synced)
        return cache

    for synced in ("a", "b"):
        assert images(lambda synced=synced: moved(synced), lambda cache: tuple(cache.files)) == {("b/file",)}


def test_without_power_nothing_changes() -> None:
    cache = PageCache()
    cache.lose_power(random.Random(1))
    cache.write("file", b"")
    cache.make_directory("a")
    assert not cache.files
    assert not cache.is_directory("a")
