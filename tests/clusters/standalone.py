"""A standalone Spark whose master, workers and drivers are each in a host of their own.

There are three workers of one core each, and the job takes two: so it always spans two hosts, and has a slot at hand.
Spark and Python are those of this environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
from tests.class_archive import ARCHIVE, options
from tests.clusters.network import Host, Network, kill
from tests.spec.kill_executor import EXECUTOR, wait_for
from tests.zookeeper_server import server_command

MASTER = "spark-master"
WORKERS = ("worker-1", "worker-2", "worker-3")
DRIVERS = ("driver-1", "driver-2")
#: The host of the ZooKeeper by which drivers elect who leads, where they do.
ZOOKEEPER = "zookeeper"
ZOOKEEPER_PORT = 2181
PORT = 7077
URL = f"spark://{MASTER}:{PORT}"
HOME = Path(pyspark.__file__).parent
PYTHON_WORKER = "pyspark"

#: What drivers ask of Spark.
SPARK_SETTINGS = {
    "spark.cores.max": str(len(WORKERS)),
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": options(ARCHIVE),
    "spark.sql.shuffle.partitions": "2",
    "spark.python.daemon.module": "penstock.drivers.spark.daemon",
}


class Driver:
    """A process that drives the job of `tests.clusters.job`, and what it has said."""

    def __init__(self, host: Host, folder: Path, number: int, arguments: Mapping[str, Any]) -> None:
        self.host = host
        self.log = folder / f"driver-{number}.log"
        #: in the order in which it was said
        self.said: list[dict[str, Any]] = []
        environment = {
            "SPARK_HOME": "",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_SUBMIT_OPTS": options(ARCHIVE),
            "SPARK_LOCAL_DIRS": "/tmp",
        }
        with self.log.open("wb") as log:
            self.process = host.start(
                [sys.executable, "-m", "tests.clusters.job", json.dumps(arguments)],
                environment={key: value for key, value in environment.items() if value},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                self.said.append(json.loads(line))

    def when(self, what: str) -> float | None:
        """When it said so first (s); None if it has not yet."""
        return next((word["at_s"] for word in self.said if word["what"] == what), None)

    @property
    def progress(self) -> dict[str, Any]:
        """The last that it said of its job: status, restarts, workers (id, address, process)."""
        return next((word for word in reversed(self.said) if word["what"] == "progress"), {})

    @property
    def workers(self) -> list[tuple[str, str, int]]:
        """The workers of its job."""
        return [(name, address, process) for name, address, process in self.progress.get("workers", ())]

    def end(self) -> None:
        """Kill it, if it still runs."""
        kill(self.process.pid)
        self.process.wait()
        self._thread.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3_000:]


class Standalone:
    """The cluster, while it runs.

    Attributes:
        network: its hosts.
        folder: what all hosts see; logs are there, too.
    """

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self.folder = folder
        self._drivers: list[Driver] = []

    def begin(self) -> None:
        """Start master and workers, and wait until the workers have registered."""
        self._launch(MASTER, "master.Master", "--host", MASTER, "--port", str(PORT), "--webui-port", "0")
        wait_for(lambda: "New state: ALIVE" in self.log_of(MASTER), "the master is up")
        for name in WORKERS:
            arguments = ("--cores", "1", "--memory", "600m", "--host", name, "--webui-port", "0", URL)
            self._launch(name, "worker.Worker", *arguments)
        for name in WORKERS:
            wait_for(lambda name=name: "Successfully registered" in self.log_of(name), f"{name} is registered")

    def log_of(self, name: str) -> str:
        """What a daemon of Spark has logged."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def drive(self, host: str, arguments: Mapping[str, Any]) -> Driver:
        """Start a driver; see `tests.clusters.job` for its arguments, of which folder, master and Spark's are added."""
        settings = {**SPARK_SETTINGS, **arguments.get("settings", {})}
        whole = {"folder": str(self.folder), "master": URL, **arguments, "settings": settings}
        driver = Driver(self.network[host], self.folder, len(self._drivers), whole)
        self._drivers.append(driver)
        return driver

    def executors(self) -> list[tuple[str, int]]:
        """The executors' JVMs: host and process."""
        return [(name, process) for name in WORKERS for process in self.network[name].find(EXECUTOR)]

    def python_workers(self) -> list[tuple[str, int]]:
        """Python processes that executors have for tasks, without the daemons that fork them."""
        found = []
        for name in WORKERS:
            processes = self.network[name].find("daemon pyspark.worker")
            found += [(name, process) for process in processes if _parent(process) in processes]
        return found

    def find_host(self, process: int) -> str | None:
        """In which host a process runs."""
        return next((name for name, host in self.network.hosts.items() if host.has(process)), None)

    def end(self) -> None:
        """Kill the drivers; the rest goes with its hosts."""
        for driver in self._drivers:
            driver.end()

    def _launch(self, name: str, role: str, *arguments: str) -> None:
        """A daemon of Spark, which ends with its host."""
        environment = {
            "SPARK_HOME": str(HOME),
            "SPARK_WORKER_DIR": "/tmp/work",
            "SPARK_LOCAL_DIRS": "/tmp",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": options(ARCHIVE),
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.network[name].start(command, environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def begin_election(self) -> None:
        """Start a ZooKeeper; it is ready by the time that a driver has started, or the driver waits for it."""
        command = server_command(ZOOKEEPER_PORT, Path("/tmp/zookeeper"))
        with (self.folder / f"{ZOOKEEPER}.log").open("wb") as log:
            self.network[ZOOKEEPER].start(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _parent(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@contextlib.contextmanager
def standalone(folder: Path, seed: int = 0, elects: bool = False) -> Iterator[Standalone]:
    """A cluster that ends with the context, and leaves its logs in the folder; `elects`: with a ZooKeeper."""
    os.environ.pop("SPARK_HOME", None)
    hosts = [MASTER, *WORKERS, *DRIVERS, *((ZOOKEEPER,) if elects else ())]
    with Network(hosts, [folder], seed=seed) as network:
        cluster = Standalone(network, folder)
        try:
            if elects:
                cluster.begin_election()
            cluster.begin()
            yield cluster
        finally:
            cluster.end()
