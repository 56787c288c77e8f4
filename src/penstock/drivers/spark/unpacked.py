"""Imports PySpark's modules from their unpacked folder instead of the archive that Spark puts ahead of it.

Spark starts Python workers with `PYTHONPATH` set to `python/lib/pyspark.zip` and the Py4J archive. Python compiles a
module of an archive in every process. Before each task, PySpark calls `importlib.invalidate_caches`; Python 3.11 and
3.12 then read the archive's contents again for each package imported from it: 0.1 s to 0.5 s a task.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: path components from the folder to the archive: in the PyPI package, and in Spark's own distribution
_FOLDERS: Final = (("lib", "python", "pyspark"), ("lib",))


def leave_archives() -> None:
    """Make this process find PySpark's modules in their folder. Call this before importing any of them."""
    paths = without_archives(sys.path)
    for archive in set(sys.path).difference(paths):
        sys.path_importer_cache.pop(archive, None)
    sys.path[:] = paths


def without_archives(paths: Sequence[str]) -> list[str]:
    """Return a module search path without PySpark and Py4J archives that are also unpacked in a folder.

    The folder replaces the archive, unless the path already contains it, as it does Python's own `site-packages`.
    """
    left: list[str] = []
    for path in paths:
        folder = _unpacked(Path(path)) if path.endswith(".zip") else None
        if folder is None:
            left.append(path)
        elif str(folder) not in paths and str(folder) not in left:
            left.append(str(folder))
    return left


def _unpacked(archive: Path) -> Path | None:
    package = archive.name.partition("-")[0].removesuffix(".zip")
    if package not in ("pyspark", "py4j"):
        return None
    for names in _FOLDERS:
        folder = archive.parents[len(names)]
        is_spark = archive.parents[len(names) - 1].name == names[-1] and (folder / "pyspark" / "__init__.py").is_file()
        if is_spark and (folder / package / "__init__.py").is_file():
            return folder
    return None
