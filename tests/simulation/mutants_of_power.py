"""Planted bugs in what is synced, and when: each shows only when the power is cut at a bad moment (G8, G11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tests.simulation.planting import Mutant, around

from penstock.drivers.simulation import checkpoint_store as store_module
from penstock.drivers.simulation.checkpoint_store import MemoryStore
from penstock.drivers.simulation.disk import LEADERS
from penstock.drivers.simulation.simulation import History, run_seed
from penstock.drivers.simulation.stepwise_history import run_stepwise_seed
from penstock.storage.leadership import MARKS_DIRECTORY


def _left_out(step: str) -> Any:
    return mock.patch.object(MemoryStore, step, return_value=None)


def leave_the_bytes_of_state_files_unsynced() -> Any:
    return _left_out("sync_state_file")


def leave_the_names_of_state_files_unsynced() -> Any:
    return _left_out("sync_state_names")


def rename_metadata_before_its_bytes_are_synced() -> Any:
    return _left_out("sync_partial")


def _without_sync(step: str) -> Any:
    """What follows a sync of names happens, and the sync does not."""

    def call(original: Any, store: MemoryStore, directory: str) -> None:
        with mock.patch.object(store._disk, "sync_directory"):
            original(store, directory)

    return around(MemoryStore, step, call)


def let_sinks_commit_before_the_name_of_the_metadata_is_synced() -> Any:
    return _without_sync("sync_metadata")


def go_on_from_what_a_dead_job_master_had_not_synced() -> Any:
    return _without_sync("sync_found")


@contextmanager
def delete_the_checkpoint_before_while_the_new_one_may_vanish() -> Iterator[None]:
    """The name of the new one is synced after the deletion, and not before it."""

    def delete(original: Any, store: MemoryStore, paths: list[str]) -> None:
        original(store, paths)
        for directory in store._disk.promised:
            store._disk.sync_directory(directory)

    with _without_sync("sync_metadata"), around(MemoryStore, "delete", delete):
        yield


def _named(directory: str, step: str) -> Any:
    def call(original: Any, store: MemoryStore, path: str) -> None:
        if not path.startswith(directory):
            original(store, path)

    return around(MemoryStore, step, call)


def leave_the_names_of_marks_unsynced() -> Any:
    return _named(MARKS_DIRECTORY, "sync_name")


def leave_the_bytes_of_marks_unsynced() -> Any:
    return _named(MARKS_DIRECTORY, "sync_named")


def leave_the_record_of_what_was_found_unsynced() -> Any:
    return _named(LEADERS, "sync_named")


@contextmanager
def leave_directories_unsynced() -> Iterator[None]:
    def make(cache: Any, path: str) -> None:
        above = path.rpartition("/")[0]
        if not cache.is_directory(path):
            make(cache, above)
            cache.make_directory(path)

    with mock.patch.object(store_module, "make_directories", make), _left_out("sync_what_others_made"):
        yield


@dataclass(frozen=True)
class FoundBy:
    """The kinds of violation that give a mutant away, and a seed of a execution mode that is known to find it."""

    kinds: tuple[str, ...]
    seed: int
    run: Callable[[int], History] = run_seed


#: Each mutant, and seeds that are known to find it.
MUTANTS_OF_POWER: dict[Mutant, FoundBy] = {
    leave_the_bytes_of_state_files_unsynced: FoundBy(("power-cut",), 28),
    leave_the_names_of_state_files_unsynced: FoundBy(("power-cut",), 204, run_stepwise_seed),
    rename_metadata_before_its_bytes_are_synced: FoundBy(("power-cut",), 16),
    let_sinks_commit_before_the_name_of_the_metadata_is_synced: FoundBy(("power-cut",), 28),
    go_on_from_what_a_dead_job_master_had_not_synced: FoundBy(("outside", "power-cut"), 91, run_stepwise_seed),
    delete_the_checkpoint_before_while_the_new_one_may_vanish: FoundBy(("power-cut",), 126),
    leave_the_names_of_marks_unsynced: FoundBy(("output",), 4, run_stepwise_seed),
    leave_the_bytes_of_marks_unsynced: FoundBy(("failed",), 16),
    leave_the_record_of_what_was_found_unsynced: FoundBy(("failed",), 17),
    leave_directories_unsynced: FoundBy(("power-cut",), 47),
}
