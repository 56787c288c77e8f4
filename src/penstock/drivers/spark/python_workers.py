"""Python workers of Spark: how they start fast, and the settings, services and executor of a worker.

`warm_settings` decides whether the workers of a session that Penstock starts can fork from Penstock's own daemon; see
`daemon`.

`leave_archives` makes this process import PySpark's modules from their unpacked folder instead of the archive that
Spark puts ahead of it. Spark starts Python workers with `PYTHONPATH` set to `python/lib/pyspark.zip` and the Py4J
archive. Python compiles a module of an archive in every process. Before each task, PySpark calls
`importlib.invalidate_caches`; Python 3.11 and 3.12 then read the archive's contents again for each package imported
from it: 0.1 s to 0.5 s a task.

`WorkerSettings` and `WorkerServices` are the settings and services of a worker. `TaskExecutorFactory` builds its task
executor.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from penstock.drivers.event_loop import EndedTasks
from penstock.drivers.logs import LoggedStates
from penstock.drivers.worker_storage import BackendSettings, StorageSettings
from penstock.runtime.task.executor import TaskExecutor

if TYPE_CHECKING:
    from penstock.drivers.logs import LogSettings
    from penstock.drivers.spark.sockets import WorkerKeys
    from penstock.runtime.ports import Background, Clock, Coroutines, MasterGateway, Network
    from penstock.runtime.protocol import ChannelId, ExecutionId, ToWorker
    from penstock.runtime.records import Buffer


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


#: The outcome of a worker, as its Spark task returns it.
RELEASED = "released"
ORPHANED = "orphaned"
FAILED = "failed"
RETRIED = "retried"


class HostedTask(Protocol):
    """A task of an executor."""

    @property
    def execution(self) -> ExecutionId: ...


class Executor(Protocol):
    """The executor that a worker runs (`runtime.task.executor.TaskExecutor`), as its loop sees it."""

    shut_down: bool

    @property
    def tasks(self) -> Sequence[HostedTask]: ...

    def on_message(self, message: ToWorker) -> None: ...

    def on_buffer(self, channel: ChannelId, buffer: Buffer) -> None: ...

    def on_credit(self, channel: ChannelId, credit: int) -> None: ...

    def step(self) -> bool: ...

    def next_deadline(self) -> int | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class WorkerServices:
    """The services that a worker passes to its executor."""

    worker_id: str
    clock: Clock
    network: Network
    master: MasterGateway
    background: Background
    coroutines: Coroutines


@dataclass(frozen=True)
class WorkerSettings:
    """All settings that a worker needs to start."""

    worker_id: str
    keys: WorkerKeys
    master_address: str
    is_local: bool
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    frame_bytes_max: int
    record_bytes_max: int
    make_executor: Callable[[WorkerServices], Executor]
    script: bytes = b""
    logs: LogSettings | None = None


@dataclass(frozen=True)
class TaskExecutorFactory:
    """Builds a worker's `TaskExecutor`; is pickled and sent to the worker."""

    storage: StorageSettings
    backends: BackendSettings

    def __call__(self, services: WorkerServices) -> TaskExecutor:
        master = LoggedStates(services.master)
        executor = TaskExecutor(
            services.worker_id,
            clock=services.clock,
            network=services.network,
            master=master,
            background=services.background,
            storage=self.storage.storage(),
            backends=self.backends.backends(),
            coroutines=services.coroutines,
            cycles=EndedTasks(),
        )
        master.tasks = lambda: executor.tasks
        return executor
