"""Planted bugs in file sinks of epochs and batches, and in what a sink makes of files that others have moved (G9)."""

from __future__ import annotations

from typing import Any
from unittest import mock

from tests.simulation.mutants_of_files import (
    leave_directories_of_files_unsynced,
    leave_the_names_of_hidden_files_unsynced,
)
from tests.simulation.mutants_of_power import FoundBy
from tests.simulation.planting import Mutant, around

from penstock.connectors.file import committer, sink
from penstock.connectors.file import part_files as hidden_files
from penstock.connectors.file import part_files as staging
from penstock.connectors.file.committer import FileCommitter
from penstock.connectors.file.filesystem import remove
from penstock.connectors.file.part_files import is_part
from penstock.connectors.file.sink import FileCommitLog
from penstock.drivers.simulation.stepwise_history import run_batch_seed, run_stepwise_seed
from penstock.drivers.stepwise.flow import SinkCommits
from penstock.storage.leadership import LeftByJobs


def commit_epochs_before_the_bytes_are_synced() -> Any:
    return mock.patch.object(hidden_files, "make_durable", return_value=None)


def commit_batches_before_the_bytes_are_synced() -> Any:
    return mock.patch.object(hidden_files, "make_durable", return_value=None)


def commit_batches_before_the_list_is_written() -> Any:
    def write(original: Any, log: FileCommitLog, committables: Any) -> None:
        log._written = log._list(committables)

    return around(FileCommitLog, "write", write)


def remove_the_list_of_a_batch_and_leave_the_files() -> Any:
    """What a run that died had made visible stays, and the next run writes it again."""
    return mock.patch.object(sink, "_remove", return_value=0)


def forget_what_was_written_when_the_list_is_gone() -> Any:
    def take_back(original: Any, log: FileCommitLog) -> None:
        log._written = None
        original(log)

    return around(FileCommitLog, "take_back", take_back)


def let_files_vanish_silently() -> Any:
    return mock.patch.object(FileCommitter, "_on_missing", return_value=None)


def take_for_lost_what_a_reader_took() -> Any:
    """What restored state names is missed as if it had never been visible."""

    def recommit(original: Any, self: FileCommitter, committables: Any) -> None:
        self.commit(committables)

    return around(FileCommitter, "recommit", recommit)


def remove_what_others_write() -> Any:
    """The files of other jobs that live, as if their processes had died."""

    def remove_unless_held(path: str) -> bool:
        remove([path])
        return True

    return mock.patch.object(staging, "remove_unless_held", remove_unless_held)


def remove_what_others_have_closed() -> Any:
    """A file that is closed may be in a checkpoint, though its process has died."""
    return mock.patch.object(staging, "is_open_part", is_part)


def leave_what_died_in_micro_batches() -> Any:
    return mock.patch.object(committer, "remove_what_died", return_value=None)


def leave_what_tasks_of_forerunners_left() -> Any:
    """Those that ran twice, and did not count."""
    return mock.patch.object(SinkCommits, "end_forerunners", return_value=None)


def forget_drivers_that_left_no_directory() -> Any:
    """They may have died in their first checkpoint, when sinks had closed files."""

    def of_master(original: Any, left: LeftByJobs, number: int, before: Any, has_left: Any) -> Any:
        return original(left, number, [one for one in before if has_left(one[1])], has_left)

    return around(LeftByJobs, "of_master", of_master)


#: Each mutant, and seeds that are known to find it.
MUTANTS_OF_HIDDEN_FILES: dict[Mutant, FoundBy] = {
    leave_the_names_of_hidden_files_unsynced: FoundBy(("neighbour",), 33, run_stepwise_seed),
    leave_directories_of_files_unsynced: FoundBy(("output",), 33, run_stepwise_seed),
    commit_epochs_before_the_bytes_are_synced: FoundBy(("output",), 185, run_stepwise_seed),
    commit_batches_before_the_bytes_are_synced: FoundBy(("neighbour",), 66, run_batch_seed),
    commit_batches_before_the_list_is_written: FoundBy(("output",), 11, run_batch_seed),
    remove_the_list_of_a_batch_and_leave_the_files: FoundBy(("atomic", "output"), 52, run_batch_seed),
    forget_what_was_written_when_the_list_is_gone: FoundBy(("atomic",), 3716, run_batch_seed),
    let_files_vanish_silently: FoundBy(("output",), 45, run_stepwise_seed),
    take_for_lost_what_a_reader_took: FoundBy(("output", "vanished"), 24, run_stepwise_seed),
    remove_what_others_write: FoundBy(("neighbour",), 16, run_stepwise_seed),
    remove_what_others_have_closed: FoundBy(("neighbour",), 62, run_batch_seed),
    leave_what_died_in_micro_batches: FoundBy(("leaked-file",), 777, run_stepwise_seed),
    leave_what_tasks_of_forerunners_left: FoundBy(("leaked-file",), 3488, run_stepwise_seed),
    forget_drivers_that_left_no_directory: FoundBy(("leaked-file",), 3488, run_stepwise_seed),
}
