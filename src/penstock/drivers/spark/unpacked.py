"""PySpark's modules from the folder in which they also lie, not from the archive that Spark puts ahead of it.

Spark starts Python workers with `PYTHONPATH` set to `python/lib/pyspark.zip` and the archive of Py4J. Python compiles a
module of an archive in every process. Before each task PySpark calls `importlib.invalidate_caches`, after which Python
3.11 and 3.12 read the contents of the archive again for each package that was imported from it: 0.1 s to 0.5 s a task.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: where the folder is, seen from the archive: the package of PyPI, and Spark's own distribution
_FOLDERS: Final = (("lib", "python", "pyspark"), ("lib",))


def leave_archives() -> None:
    """Let this process find PySpark's modules in their folder. Called before it imports any of them."""
    paths = without_archives(sys.path)
    for archive in set(sys.path).difference(paths):
        sys.path_importer_cache.pop(archive, None)
    sys.path[:] = paths


def without_archives(paths: Sequence[str]) -> list[str]:
    """A search path for modules without archives of PySpark and Py4J that also lie unpacked in a folder.

    The folder takes the place of the archive, unless the path has it anyway, as it has Python's own `site-packages`.
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
