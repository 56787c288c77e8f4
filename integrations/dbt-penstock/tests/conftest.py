"""The gateway of the tests, and the profile of dbt's own test suite.

The gateway is a process of the Python that `PENSTOCK_PYTHON` names: one with Penstock. Jobs run in it without Spark,
queries in batch on Spark. Without that variable, the Python of the tests has to have Penstock. `PENSTOCK_GATEWAY_PORT`
names a gateway that runs already, for tests that do not kill it.
"""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests

pytest_plugins = ["dbt.tests.fixtures.project"]

START_SECONDS = 120


class GatewayProcess:
    """A gateway that can be killed and started again, at the same port."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        python = os.environ.get("PENSTOCK_PYTHON", sys.executable)
        command = [python, "-m", "penstock.cli.main", "gateway", "-t", "local", "--port", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            try:
                requests.get(f"http://127.0.0.1:{self.port}/info", timeout=1)
                return
            except requests.RequestException:
                time.sleep(0.1)
        raise RuntimeError(f"the gateway does not start:\n{self._log.read_text()[-4000:]}")

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal, and wait for its end."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(60)


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory):
    if "PENSTOCK_GATEWAY_PORT" in os.environ:
        yield SimpleNamespace(port=int(os.environ["PENSTOCK_GATEWAY_PORT"]))
        return
    if "PENSTOCK_PYTHON" not in os.environ and importlib.util.find_spec("penstock") is None:
        pytest.skip("needs Penstock: set PENSTOCK_PYTHON to the Python that has it")
    process = GatewayProcess(tmp_path_factory.mktemp("gateway") / "gateway.log")
    process.start()
    yield process
    process.end()


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the profile."""
    return tmp_path_factory.mktemp("penstock")


@pytest.fixture(scope="class")
def dbt_profile_target(gateway: GatewayProcess, root: Path):
    return {"type": "penstock", "host": "127.0.0.1", "port": gateway.port, "path": str(root), "threads": 2}
