"""Decides whether the workers of a session that Penstock starts can fork from Penstock's own daemon; see `daemon`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
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
