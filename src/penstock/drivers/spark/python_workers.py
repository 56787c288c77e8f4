"""Decides whether the workers of a session that Penstock starts can fork from Penstock's own daemon; see `daemon`.

Imports PySpark's modules from their unpacked folder instead of the archive that Spark puts ahead of it.

Spark starts Python workers with `PYTHONPATH` set to `python/lib/pyspark.zip` and the Py4J archive. Python compiles a
module of an archive in every process. Before each task, PySpark calls `importlib.invalidate_caches`; Python 3.11 and
3.12 then read the archive's contents again for each package imported from it: 0.1 s to 0.5 s a task.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

DAEMON_SETTING: Final = "spark.python.daemon.module"
DAEMON: Final = "penstock.drivers.spark.daemon"
#: environment variable that lists the packages of Penstock's API for the daemon to load
LOADED: Final = "PENSTOCK_DAEMON_LOADS"
_APIS: Final = ("penstock.datastream", "penstock.table")

_FIND: Final = """
import os, sys
print(any(os.path.isfile(os.path.join(path, *sys.argv[1].split(".")) + ".py") for path in sys.path))
"""
_FIND_SECONDS_MAX: Final = 20


def warm_settings(settings: Mapping[str, str], executable: str) -> dict[str, str]:
    """Return the settings with the daemon, if Spark runs on threads of this process and its Python finds the module.

    The daemon loads the packages that the program has loaded: `penstock.table` takes a second in each worker.

    On other machines, Penstock may arrive with the job, after the daemon has started.
    """
    master = settings.get("spark.master", "")
    on_threads = master == "local" or master.startswith("local[")
    if not on_threads or DAEMON_SETTING in settings or not _finds_daemon(executable):
        return dict(settings)
    loaded = [name for name in _APIS if name in sys.modules] or _APIS[:1]
    return {f"spark.executorEnv.{LOADED}": " ".join(loaded), **settings, DAEMON_SETTING: DAEMON}


def _finds_daemon(executable: str) -> bool:
    """Return whether that Python finds the daemon: a daemon that does not start would fail every worker."""
    command = [executable, "-c", _FIND, DAEMON]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FIND_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return completed.stdout.strip() == "True"


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
