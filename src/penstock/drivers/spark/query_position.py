"""The position of Spark's streaming query, as bytes for Penstock's checkpoints.

A query's checkpoint location contains all data that Spark needs to continue: `metadata`, the query's id; `offsets/<n>`,
the end of each batch; `sources/`, the notes of each source; `commits/<n>`, the completed batches. An archive is taken
while batch n is being processed, and contains all of that except the commits. It has the offsets of batch n and of the
one before it, where batch n begins. Of a log of files it has the last `*.compact` and the files that follow it. A
location that is made from the archive lacks the commit of batch n, so Spark repeats batch n, and a job that has
completed it skips it. Only Penstock's checkpoint decides whether a batch is complete. Log entries that Spark has
written since do not affect the archive.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.base.errors import OperationError

_COMPACT = ".compact"


@dataclass(frozen=True)
class QueryPosition:
    """The last batch that a checkpoint covers; travels in the enumerators' state.

    `sources`: the operator ids of the sources that the query reads, in its order. `archive`: see the module docstring;
    the first of the sources has the bytes, the others keep it empty.
    """

    batch_id: int
    sources: tuple[str, ...]
    archive: bytes


def archive_position(location: Path, batch_id: int) -> bytes:
    """Archive the data that the query needs to repeat batch `batch_id`. Call it while Spark waits for that batch's end.

    Raises:
        PenstockError: if the query keeps state of its own, which is more than a position.
    """
    if any(path.is_file() for path in location.glob("state/**/*")):
        raise OperationError(
            "a streaming data frame keeps state in Spark (an aggregation, a join, dropDuplicates), which Penstock's "
            "checkpoints do not hold: move that part after from_dataframe()"
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(_needed(location, batch_id)):
            name = path.relative_to(location).as_posix()
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def lay_out(archive: bytes, location: Path) -> None:
    """Create a checkpoint location from an archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        files.extractall(location)


def _needed(location: Path, batch_id: int) -> Iterator[Path]:
    yield location / "metadata"
    yield location / "offsets" / str(batch_id)
    if batch_id > 0:
        yield location / "offsets" / str(batch_id - 1)
    sources = location / "sources"
    for directory in [sources, *(path for path in sources.rglob("*") if path.is_dir())]:
        if directory.is_dir():
            yield from _of_log(directory)


def _of_log(directory: Path) -> Iterator[Path]:
    """Yield the files of a directory, without files that a compact one replaces and a file system's own files."""
    files = [path for path in directory.iterdir() if path.is_file() and not path.name.startswith(".")]
    numbers = {path: number for path in files if (number := path.name.removesuffix(_COMPACT)).isdecimal()}
    last = max((int(numbers[path]) for path in numbers if path.name.endswith(_COMPACT)), default=-1)
    for path in files:
        is_replaced = path in numbers and (
            int(numbers[path]) < last or (int(numbers[path]) == last and not path.name.endswith(_COMPACT))
        )
        if not is_replaced:
            yield path
