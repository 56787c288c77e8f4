"""Planted bugs in the file sink, which runs in simulated jobs as it is, on the simulated disk (G9)."""

from __future__ import annotations

from typing import Any
from unittest import mock

from tests.simulation.planting import Mutant

from penstock.connectors.file import committer
from penstock.connectors.file import part_files as hidden_files
from penstock.connectors.file import sink as writer
from penstock.connectors.file.part_files import PartNames
from penstock.drivers.simulation.file_sinks import SimulatedFiles


def leave_the_names_of_hidden_files_unsynced() -> Any:
    return mock.patch.object(writer, "sync_names", return_value=None)


def leave_the_bytes_of_hidden_files_unsynced() -> Any:
    return mock.patch.object(hidden_files, "make_durable", return_value=None)


def leave_the_names_of_committed_files_unsynced() -> Any:
    return mock.patch.object(committer, "sync_names", return_value=None)


def leave_directories_of_files_unsynced() -> Any:
    return mock.patch("penstock.base.durable_files.sync_directories", return_value=None)


def leave_what_former_attempts_have_hidden() -> Any:
    return mock.patch.object(PartNames, "is_stale", return_value=False)


def hold_no_file() -> Any:
    """So a job that begins removes what another one is writing."""
    return mock.patch.object(SimulatedFiles, "hold", return_value=True)


#: Each mutant, the kinds of violation that give it away, and a seed that is known to find it.
MUTANTS_OF_FILES: dict[Mutant, tuple[tuple[str, ...], int]] = {
    leave_the_bytes_of_hidden_files_unsynced: (("waiter",), 57),
    leave_the_names_of_committed_files_unsynced: (("output", "waiter"), 57),
    leave_what_former_attempts_have_hidden: (("leaked-file",), 3),
    hold_no_file: (("task-failed",), 184),
}
