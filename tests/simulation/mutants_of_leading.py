"""Planted bugs in who leads: two job masters of one job, of which one does not know that it was deposed (E7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from msgspec.structs import replace
from tests.simulation.planting import Mutant, around

from penstock.drivers.simulation import disk as disk_module
from penstock.drivers.simulation.checkpoint_store import LeadingStore, MemoryStore
from penstock.drivers.simulation.disk import LEADERS
from penstock.runtime.checkpoint.pending import StoreCalls
from penstock.runtime.master.epochs import EpochMaster
from penstock.runtime.master.steps import DeleteJobs, EndSinks
from penstock.storage.leadership import MASTER_PREFIX, DeposedError


def _blind(name: str) -> Any:
    """A call of the store that looks for nobody."""

    def call(original: Any, store: LeadingStore, *args: Any) -> Any:
        with mock.patch.object(LeadingStore, "check_leads", return_value=None):
            return original(store, *args)

    return around(LeadingStore, name, call)


def complete_without_a_look_who_leads() -> Any:
    return _blind("complete")


def revoke_without_a_look_who_leads() -> Any:
    return _blind("revoke")


def take_the_number_of_the_one_that_leads() -> Any:
    """So neither of the two is deposed."""

    def take(store: MemoryStore) -> int:
        number = max(1, store._disk.leader)
        store.make_directories(LEADERS)
        store._disk.write(f"{LEADERS}/{MASTER_PREFIX}{number}", store.job_id.encode())
        return number

    return mock.patch.object(MemoryStore, "take_number", take)


def look_for_nobody() -> Any:
    return mock.patch.object(LeadingStore, "check_leads", return_value=None)


def look_before_the_checkpoint_is_visible() -> Any:
    def complete(original: Any, store: LeadingStore, *args: Any) -> Any:
        store.check_leads()
        with mock.patch.object(LeadingStore, "check_leads", return_value=None):
            return original(store, *args)

    return around(LeadingStore, "complete", complete)


def take_a_number_after_looking() -> Any:
    """What another master completes in between is not found, and lets its sinks commit."""

    def take_over(store: LeadingStore, job_name: str) -> Any:
        left = store._store.read_retained(job_name)
        store.between()
        store._number = store._store.take_number()
        left = replace(left, number=store._number)
        store._store.put_found(left)
        return left

    return mock.patch.object(LeadingStore, "take_over", take_over)


def count_all_that_is_there() -> Any:
    return mock.patch.object(disk_module, "checkpoint_counts", return_value=True)


def record_nothing_that_was_found() -> Any:
    return mock.patch.object(MemoryStore, "put_found", return_value=None)


def take_being_deposed_for_a_failed_write() -> Any:
    def run(original: Any, calls: StoreCalls, work: Any, done: Any) -> None:
        calls._effects.run(work, done)

    return around(StoreCalls, "run", run)


def delete_what_the_job_begins_from() -> Any:
    """Before there is a checkpoint of its own."""

    def with_sources(original: Any, master: EpochMaster, *args: Any) -> Any:
        yield DeleteJobs(master._forerunners.to_delete)
        yield from original(master, *args)

    return around(EpochMaster, "with_sources", with_sources)


@contextmanager
def end_sinks_without_a_look_who_leads() -> Iterator[None]:
    def end(master: EpochMaster) -> Any:
        yield EndSinks()

    def with_sources(original: Any, master: EpochMaster, *args: Any) -> Any:
        try:
            yield from original(master, *args)
        except DeposedError:
            yield EndSinks()
            raise

    with mock.patch.object(EpochMaster, "_end_sinks", end), around(EpochMaster, "with_sources", with_sources):
        yield


#: Each mutant, the kinds of violation that give it away, and seeds that are known to find it, as far as one is needed.
FoundBySeeds = dict[Mutant, tuple[tuple[str, ...], tuple[int, ...]]]
FOUND_IN_STREAMS: FoundBySeeds = {
    complete_without_a_look_who_leads: (("output", "order"), (23, 24, 165)),
    look_for_nobody: (("output", "order", "failed"), (23, 24, 30)),
    take_the_number_of_the_one_that_leads: (("output", "order", "outside"), (24, 50)),
    take_being_deposed_for_a_failed_write: (("stalled", "split-brain"), (30, 87, 254)),
    count_all_that_is_there: (("lost", "outside"), (3315,)),
    record_nothing_that_was_found: (("lost", "outside"), (3315,)),
}
FOUND_IN_EPOCHS: FoundBySeeds = {
    complete_without_a_look_who_leads: (("output",), (5, 10, 14)),
    look_for_nobody: (("output",), (5, 10, 12)),
    take_the_number_of_the_one_that_leads: (("output",), (5, 10, 12)),
    look_before_the_checkpoint_is_visible: (("output",), (10, 44, 63)),
    take_a_number_after_looking: (("output",), (66, 79)),
    end_sinks_without_a_look_who_leads: (("output", "outside"), (34, 66, 79)),
    revoke_without_a_look_who_leads: (("output", "outside"), (114, 2122)),
    count_all_that_is_there: (("output",), (156, 328)),
    record_nothing_that_was_found: (("output",), (328, 417)),
    delete_what_the_job_begins_from: (("output",), (5, 6, 7)),
}
