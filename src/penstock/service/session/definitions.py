"""The stored programs that a restarted session resumes from its predecessor (`high-availability.type`).

Below `high-availability.storageDir` and the cluster's id, each program that has not ended has a directory. It contains
the program's file and `program.json`, which is written last and atomically. A directory without `program.json` is
ignored. The state of jobs is in their checkpoints; `penstock.recovery.from-latest` finds the latest one by the job's
name.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import msgspec
from fsspec.core import url_to_fs

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.options import (
    CHECKPOINTING_DIR,
    HIGH_AVAILABILITY_CLUSTER_ID,
    HIGH_AVAILABILITY_DIR,
    HIGH_AVAILABILITY_TYPE,
)
from penstock.connectors.file import filesystem
from penstock.operations.rest.calls.programs import Submission
from penstock.service.session.uploads import Program
from penstock.storage.files import absolute_url

_PROGRAM: Final = "program.json"


class Definition(msgspec.Struct, frozen=True):
    """A program and how to run it. The options may contain secrets, so the owner must protect the directory."""

    program_id: str
    name: str
    arguments: tuple[str, ...]
    entry: str | None
    options: dict[str, str]
    began_ms: int

    def submission(self) -> Submission:
        """Return the original submission."""
        return Submission(self.arguments, self.entry, self.options, self.program_id)


class Definitions:
    """The stored programs of one cluster id, in its directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._directory = posixpath.join(directory, "programs")

    def put(self, definition: Definition, program: Program) -> None:
        """Store a program durably, before it starts."""
        directory = self._place(definition.program_id)
        filesystem.write_whole(posixpath.join(directory, program.name), program.data)
        filesystem.write_whole(posixpath.join(directory, _PROGRAM), msgspec.json.encode(definition))

    def remove(self, program_id: str) -> None:
        """Remove a program that has ended."""
        fs, root = url_to_fs(self._place(program_id))
        record = posixpath.join(root, _PROGRAM)
        if fs.exists(record):
            fs.rm_file(record)
        if fs.exists(root):
            fs.rm(root, recursive=True)

    def all(self) -> list[tuple[Definition, Program]]:
        """Return the programs that have not ended, in start order."""
        fs, root = url_to_fs(self._directory)
        if not fs.exists(root):
            return []
        programs = []
        for directory in fs.ls(root, detail=False):
            record = posixpath.join(directory, _PROGRAM)
            if fs.exists(record):
                definition = msgspec.json.decode(fs.cat_file(record), type=Definition)
                data = fs.cat_file(posixpath.join(directory, definition.name))
                programs.append((definition, Program(definition.name, data)))
        return sorted(programs, key=lambda item: (item[0].began_ms, item[0].program_id))

    def _place(self, program_id: str) -> str:
        return posixpath.join(self._directory, program_id)


def cluster_directory(configuration: Configuration) -> str | None:
    """Return the directory for the data of a cluster id that outlives its session; None without high availability.

    Raises:
        ConfigurationError: if no directory is set, or it is in the memory of this process.
    """
    kind = configuration.read(HIGH_AVAILABILITY_TYPE)
    if kind == "NONE":
        return None
    directory = configuration.read(HIGH_AVAILABILITY_DIR)
    if directory is None:
        raise ConfigurationError(
            f"{HIGH_AVAILABILITY_TYPE.key()} is {kind}: set {HIGH_AVAILABILITY_DIR.key()} too, where the session keeps "
            "its programs"
        )
    url = absolute_url(directory)
    if url.startswith("memory://"):
        raise ConfigurationError(f"{HIGH_AVAILABILITY_DIR.key()} is {directory}, in the memory of this process")
    cluster = quote(configuration.read(HIGH_AVAILABILITY_CLUSTER_ID).strip("/"), safe="") or "default"
    return posixpath.join(url, cluster)


def with_checkpoints(options: Mapping[str, str], directory: str) -> dict[str, str]:
    """Return the options with a checkpoint directory: without one, a job could not continue after the session ends."""
    return {CHECKPOINTING_DIR.key(): posixpath.join(directory, "checkpoints"), **options}
