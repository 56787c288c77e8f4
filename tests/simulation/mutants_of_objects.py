"""Planted bugs in what is done where checkpoints are objects: trust in late listings, puts over what is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.simulation.doubtful import LATE, run_doubtful
from tests.simulation.mutants_of_power import FoundBy
from tests.simulation.planting import Mutant, around

from penstock.drivers.simulation.object_store import ObjectStore
from penstock.drivers.simulation.simulation import History
from penstock.drivers.simulation.stepwise_history import run_stepwise_seed
from penstock.storage.leadership import (
    FOUND_PREFIX,
    MARK_PREFIX,
    KeyedLeaders,
    decode_found,
    deposed_error,
    number_of_file,
)


def _listed(leaders: KeyedLeaders) -> int:
    names = leaders._files.names(leaders._directory)
    return max((number for name in names if (number := number_of_file(name)) is not None), default=0)


def look_who_leads_in_a_listing() -> Any:
    """So a master that was deposed just now does not see it."""

    def check(leaders: KeyedLeaders, number: int) -> None:
        if _listed(leaders) > number:
            raise deposed_error("simulated", number, number + 1)

    return mock.patch.object(KeyedLeaders, "check", check)


def take_the_number_after_the_highest_that_is_listed() -> Any:
    """Put over the one of the master that has it."""

    def take(leaders: KeyedLeaders, job_id: str) -> int:
        number = _listed(leaders) + 1
        leaders._files.put(leaders._path("master-", number), job_id.encode())
        return number

    return mock.patch.object(KeyedLeaders, "take", take)


def begin_from_the_newest_checkpoint_that_is_listed() -> Any:
    return mock.patch.object(KeyedLeaders, "known_checkpoints", return_value=set())


def record_no_newest_checkpoint() -> Any:
    """So a successor begins from what is listed."""
    return mock.patch.object(KeyedLeaders, "note_newest", return_value=None)


def record_only_the_newest() -> Any:
    """Which may be revoked, and then none is known."""
    return mock.patch(
        "penstock.drivers.simulation.object_store.ids_to_note", lambda known, checkpoint_id: (checkpoint_id,)
    )


@contextmanager
def put_metadata_whatever_is_there() -> Iterator[None]:
    """Over a revocation, for instance."""

    def put_new(original: Any, store: ObjectStore, directory: str, data: bytes) -> None:
        store._disk.files.pop(f"{directory}/_metadata", None)
        original(store, directory, data)

    with around(ObjectStore, "put_new", put_new):
        yield


def look_for_marks_in_a_listing() -> Any:
    def marks(leaders: KeyedLeaders) -> Any:
        names = leaders._files.names(leaders._directory)
        numbers = sorted(int(name.removeprefix(MARK_PREFIX)) for name in names if name.startswith(MARK_PREFIX))
        read = [(number, leaders._files.read(leaders._path(MARK_PREFIX, number))) for number in numbers]
        return [(number, data) for number, data in read if data is not None]

    return mock.patch.object(KeyedLeaders, "_marks", marks)


def look_for_what_was_found_in_a_listing() -> Any:
    def found(leaders: KeyedLeaders) -> Any:
        names = leaders._files.names(leaders._directory)
        prefix = FOUND_PREFIX
        number = max((int(n.removeprefix(prefix)) for n in names if n.startswith(prefix)), default=0)
        data = leaders._files.read(leaders._path(prefix, number))
        return None if data is None else decode_found(data, "")

    return mock.patch.object(KeyedLeaders, "found", found)


def delete_only_the_metadata_that_is_listed() -> Any:
    def listing(original: Any, store: ObjectStore, known_ids: Any = ()) -> Any:
        return original(store)

    return around(ObjectStore, "listing", listing)


def delete_what_was_found_before_it_is_found_again() -> Any:
    """The record of the master before goes first; then the new one dies."""

    def note(original: Any, leaders: KeyedLeaders, found: Any) -> None:
        before = leaders.found()
        if before is not None:
            leaders._files.delete(leaders._path(FOUND_PREFIX, before.number))
        original(leaders, found)

    return around(KeyedLeaders, "note", note)


def _late_writes(seed: int) -> History:
    return run_doubtful(seed, LATE)[0]


#: Each mutant, the kinds of violation that give it away, and a seed of a execution mode that is known to find it.
MUTANTS_OF_OBJECTS: dict[Mutant, FoundBy] = {
    look_who_leads_in_a_listing: FoundBy(("output", "outside"), 38, run_stepwise_seed),
    take_the_number_after_the_highest_that_is_listed: FoundBy(("output",), 34, run_stepwise_seed),
    begin_from_the_newest_checkpoint_that_is_listed: FoundBy(("output",), 1, run_stepwise_seed),
    record_no_newest_checkpoint: FoundBy(("checkpoint-id",), 47),
    record_only_the_newest: FoundBy(("output",), 1098, run_stepwise_seed),
    put_metadata_whatever_is_there: FoundBy(("missing-file",), 3, _late_writes),
    look_for_marks_in_a_listing: FoundBy(("output",), 5, run_stepwise_seed),
    look_for_what_was_found_in_a_listing: FoundBy(("output",), 14, run_stepwise_seed),
    delete_only_the_metadata_that_is_listed: FoundBy(("missing-file",), 28),
    delete_what_was_found_before_it_is_found_again: FoundBy(("output",), 174, run_stepwise_seed),
}
