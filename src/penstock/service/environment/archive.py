"""Writes files into a compressed tar, which appears only when it is complete. The same files produce the same bytes."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from penstock.base.errors import OperationError, ResourceError, WrongValueError
from penstock.service.environment.placed import Placed

#: Spark chooses how to unpack an archive by these file extensions.
ENDINGS: Final = (".tar.gz", ".tgz")
#: A compromise between packing time and transfer time.
COMPRESSION: Final = 4


def check_output(output: Path, force: bool) -> None:
    """Check that the archive may be written there, before any work is done.

    Raises:
        WrongValueError: if Spark would not unpack an archive of this name.
        OperationError: if the file already exists and `force` is not set.
    """
    if not output.name.endswith(ENDINGS):
        raise WrongValueError(f"{output} is no name for the archive: Spark unpacks it only if it ends in .tar.gz")
    if output.exists() and not force:
        raise OperationError(f"{output} already exists; name another file, or replace it with --force")


def write(output: Path, files: Iterable[Placed], links: Mapping[str, str], programs: Mapping[str, str]) -> int:
    """Write the archive; return the total size of its unpacked files in bytes.

    Args:
        output: the archive's path; an existing file is replaced.
        files: the files to add; if two have the same target, the first wins.
        links: symbolic links and their destinations.
        programs: scripts and their text.

    Raises:
        ResourceError: if the file cannot be written.
    """
    unpacked = 0
    try:
        descriptor, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}-")
        try:
            with (
                os.fdopen(descriptor, "wb") as raw,
                gzip.GzipFile("", "wb", COMPRESSION, raw, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w", dereference=True) as archive,
            ):
                for target, source in sorted({file.target: file.source for file in reversed([*files])}.items()):
                    unpacked += _add(archive, source, target)
                for target, destination in links.items():
                    link = tarfile.TarInfo(target)
                    link.type, link.linkname = tarfile.SYMTYPE, destination
                    archive.addfile(link)
                for target, text in programs.items():
                    program = tarfile.TarInfo(target)
                    program.mode, program.size = 0o755, len(text.encode())
                    archive.addfile(program, io.BytesIO(text.encode()))
            os.chmod(name, 0o644)
            os.replace(name, output)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise ResourceError(f"{output} cannot be written: {error}") from None
    return unpacked


def _add(archive: tarfile.TarFile, source: Path, target: str) -> int:
    """Add a file without its owner, keeping only whether it is executable; return its size in bytes."""
    about = archive.gettarinfo(source, target)
    about.uid = about.gid = 0
    about.uname = about.gname = ""
    about.mtime = int(about.mtime)  # a compiled module records the time of its source in whole seconds
    about.mode = 0o755 if about.mode & 0o111 else 0o644
    if not about.isreg():  # a hard link to a file that is already in the archive
        about.type, about.linkname = tarfile.REGTYPE, ""
        about.size = source.stat().st_size
    with source.open("rb") as content:
        archive.addfile(about, content)
    return about.size
