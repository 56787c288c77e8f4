"""Uploaded programs, and the stored programs that a restarted session resumes.

`Uploads` are checked on arrival, and kept until they are deleted.

`Definitions` pass from a session to its successor (`high-availability.type`). Below `high-availability.storageDir` and
the cluster's id, each program that has not ended has a directory. It contains the program's file and `program.json`,
which is written last and atomically. A directory without `program.json` is ignored. The state of jobs is in their
checkpoints; `penstock.recovery.from-latest` finds the latest one by the job's name.
"""

from __future__ import annotations

import io
import posixpath
import re
import shutil
import stat
import time
import uuid
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote

import msgspec

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, MissingPathError, WrongValueError, shorten
from penstock.base.options import (
    CHECKPOINTING_DIR,
    HIGH_AVAILABILITY_CLUSTER_ID,
    HIGH_AVAILABILITY_DIR,
    HIGH_AVAILABILITY_TYPE,
)
from penstock.codecs.file_systems import url_to_fs
from penstock.connectors.file import filesystem
from penstock.server.session.channel import Submission, Uploaded
from penstock.storage.files import absolute_url

MAIN: Final = "__main__"
_NAME: Final = re.compile(r"\w[\w.+-]{0,199}\.(py|zip)")
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_(.+)")
#: Limits of an archive: its number of files, and its unpacked bytes beyond its own size.
FILES_MAX: Final = 10_000
INFLATION_MAX: Final = 20
INFLATED_BYTES_FREE: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Program:
    """A checked program.

    Attributes:
        name: the name of its file: `.py`, or `.zip` for an archive of modules.
        data: the file's content.
    """

    name: str
    data: bytes

    @property
    def is_archive(self) -> bool:
        """Whether the program consists of several files."""
        return self.name.endswith(".zip")

    def entries(self) -> tuple[str, ...]:
        """Return the modules that run if none is named."""
        if not self.is_archive:
            return (MAIN,)
        with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            return (MAIN,) if f"{MAIN}.py" in archive.namelist() else ()

    def place(self, directory: Path) -> None:
        """Write the program into a directory."""
        if not self.is_archive:
            (directory / self.name).write_bytes(self.data)
            return
        with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            archive.extractall(directory)


def checked(name: str, data: bytes) -> Program:
    """Check a program and return it: a script must compile, and an archive must be safe to unpack.

    Raises:
        WrongValueError: if it is invalid, with the reason.
    """
    name = PurePosixPath(name.replace("\\", "/")).name
    if name.endswith(".jar"):
        raise WrongValueError(f"{shorten(name)} is a jar: Penstock runs Python programs, as .py or .zip")
    if not _NAME.fullmatch(name):
        raise WrongValueError(f"a program is a .py or .zip file with a plain name, not {shorten(name)!r}")
    if name.endswith(".py"):
        _check_script(name, data)
    else:
        _check_archive(name, data)
    return Program(name, data)


def _check_script(name: str, data: bytes) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise WrongValueError(f"{name} is no Python program: {error}") from error


def _check_archive(name: str, data: bytes) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            broken = archive.testzip() if _is_bounded(infos, len(data)) else None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise WrongValueError(f"{name} is no archive that can be read: {error}") from error
    if broken is not None:
        raise WrongValueError(f"{name} is damaged at {shorten(broken)}")
    if not _is_bounded(infos, len(data)):
        raise WrongValueError(f"{name} holds more than {FILES_MAX} files, or far more bytes than it has")
    for info in infos:
        path = PurePosixPath(info.filename.replace("\\", "/"))
        is_link = stat.S_ISLNK(info.external_attr >> 16)
        if path.is_absolute() or ".." in path.parts or is_link or "\0" in info.filename:
            raise WrongValueError(f"{name} has a file outside of it, or a link: {shorten(info.filename)!r}")


def _is_bounded(infos: list[zipfile.ZipInfo], size: int) -> bool:
    inflated = sum(info.file_size for info in infos)
    return len(infos) <= FILES_MAX and inflated <= INFLATED_BYTES_FREE + INFLATION_MAX * size


class Uploads:
    """The uploaded programs of one session, in a directory; files that are already there are included."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def add(self, name: str, data: bytes) -> Uploaded:
        """Check a program and store it.

        Raises:
            WrongValueError: if it is invalid.
        """
        program = checked(name, data)
        upload_id = f"{uuid.uuid4()}_{program.name}"
        partial = self._directory / f".{upload_id}"
        partial.write_bytes(program.data)
        partial.rename(self._directory / upload_id)
        return self._uploaded(self._directory / upload_id, program.name, program.entries())

    def all(self) -> list[Uploaded]:
        """Return all uploaded programs, newest first."""
        uploads = []
        for path in self._directory.iterdir():
            known = _ID.fullmatch(path.name)
            if known is not None and path.is_file():
                name = known.group(2)
                uploads.append(self._uploaded(path, name, Program(name, path.read_bytes()).entries()))
        return sorted(uploads, key=lambda upload: (-upload.at_ms, upload.upload_id))

    def get(self, upload_id: str) -> Program:
        """Return an uploaded program.

        Raises:
            MissingPathError: if it does not exist.
        """
        path, name = self._path(upload_id)
        return Program(name, path.read_bytes())

    def remove(self, upload_id: str) -> None:
        """Delete an uploaded program.

        Raises:
            MissingPathError: if it does not exist.
        """
        self._path(upload_id)[0].unlink(missing_ok=True)

    def _path(self, upload_id: str) -> tuple[Path, str]:
        known = _ID.fullmatch(upload_id)
        path = self._directory / upload_id
        if known is None or "/" in upload_id or not path.is_file():
            raise MissingPathError(f"no program {shorten(upload_id)!r} was uploaded")
        return path, known.group(2)

    @staticmethod
    def _uploaded(path: Path, name: str, entries: tuple[str, ...]) -> Uploaded:
        try:
            at_ms = int(path.stat().st_mtime * 1000)
        except OSError:
            at_ms = int(time.time() * 1000)
        return Uploaded(path.name, name, at_ms, entries)


def placed(program: Program, directory: Path) -> None:
    """Write a program into a new directory, which is removed if that fails."""
    directory.mkdir(mode=0o700, parents=True)
    try:
        program.place(directory)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


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
