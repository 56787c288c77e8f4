"""A real ZooKeeper server, of the classes that PySpark brings along, on a port of loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

JARS = ("zookeeper-[0-9]", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java", "netty-", "commons-io")
#: The unit of its time-outs: a session may last from 2 to 20 of them.
TICK_MS = 1_000


class ZooKeeperServer:
    """Call `start`; what it has written is there when it starts again after `kill`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def quorum(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Return when it serves."""
        command = server_command(self.port, self._directory)
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self._serves():
            assert self._process.poll() is None, "ZooKeeper has ended"
            time.sleep(0.02)

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"srvr")
                return connection.recv(17) == b"Zookeeper version"  # other words as long as it only listens
        except OSError:
            return False

    def send_signal(self, number: int) -> None:
        assert self._process is not None, "ZooKeeper does not run"
        self._process.send_signal(number)

    def kill(self) -> None:
        """As by kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def server_command(port: int, directory: Path) -> list[str]:
    """What runs a server, on all addresses of its host."""
    options = "-Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dzookeeper.admin.enableServer=false"
    options += " -Dzookeeper.jmx.log4j.disable=true -Dzookeeper.preAllocSize=64 -Dzookeeper.4lw.commands.whitelist=srvr"
    arguments = ["org.apache.zookeeper.server.ZooKeeperServerMain", str(port), str(directory), str(TICK_MS)]
    return [java(), *options.split(), "-cp", class_path(), *arguments]


@contextmanager
def zookeeper_server(directory: Path) -> Iterator[ZooKeeperServer]:
    """One that serves."""
    server = ZooKeeperServer(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        pytest.skip("ZooKeeper needs Java, which is neither in JAVA_HOME nor on the PATH")
    return found


def class_path() -> str:
    jars = Path(pyspark.__file__).parent / "jars"
    found = [str(path) for name in JARS for path in jars.glob(f"{name}*.jar")]
    if not any("zookeeper-jute" in path for path in found):
        pytest.skip("this PySpark brings no ZooKeeper along")
    return os.pathsep.join(found)
