"""Files and their places in the archive."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

#: The library's folder in the archive; an interpreter finds it relative to its own place in `bin`.
LIBRARY: Final = f"{sys.platlibdir}/python{sys.version_info[0]}.{sys.version_info[1]}"
PACKAGES: Final = f"{LIBRARY}/site-packages"


class Placed(NamedTuple):
    """A file and its place in the archive."""

    source: Path
    target: str


def with_bytecode(source: Path, target: str) -> Iterator[Placed]:
    """Yield a file and, if it exists, its compiled form, so that executors need not compile their imports."""
    yield Placed(source, target)
    if source.suffix == ".py":
        compiled = Path(importlib.util.cache_from_source(str(source)))
        if compiled.is_file():
            folder = target.rpartition("/")[0]
            yield Placed(compiled, f"{folder}/__pycache__/{compiled.name}")


def tree(folder: Path, target: str, without: Collection[str] = ()) -> Iterator[Placed]:
    """Yield all files below a folder, except the folder's entries with the given names.

    Compiled files are included only if their source exists.
    """
    for entry in sorted(folder.iterdir()):
        if entry.name in without or entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from tree(entry, f"{target}/{entry.name}")
        elif entry.is_file():
            yield from with_bytecode(entry, f"{target}/{entry.name}")
