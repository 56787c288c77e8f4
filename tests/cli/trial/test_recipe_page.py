"""docs/kafka-to-postgresql.md runs as it stands, but for the ports, which others may have."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.ports import free_port

from penstock.base.errors import PenstockError
from penstock.cli.trial.servers import find_programs

PAGE = (Path(__file__).parents[3] / "docs" / "kafka-to-postgresql.md").read_text()
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^```(?:python|sql)\n(?:#|--) (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORTS = {"kafka": "9092", "postgres": "5433"}
#: of PostgreSQL, which differs from one machine to another
VERSION = re.compile(r"PostgreSQL \d+\.\d+")
WAIT_S = 120


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for everything, which the user who runs PostgreSQL may enter."""
    made = Path(tempfile.mkdtemp(prefix="penstock-recipe-"))
    made.chmod(0o755)
    (made / "tmp").mkdir()
    yield made
    shutil.rmtree(made)


class Terminals:
    """The servers in terminals of their own, and a shell."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "TMPDIR": str(folder / "tmp"), "COLUMNS": "200"}
        self._environment.pop("PYTHONPATH", None)
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._errors = (folder / "errors").open("w")
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    def serve(self, command: str) -> str:
        """Start a server; what it has printed when it serves."""
        log = self._folder / f"server-{len(self._servers)}"
        with log.open("w") as output:
            self._servers[command] = subprocess.Popen(
                command.split(), stdout=output, stderr=output, env=self._environment
            )
        deadline = time.monotonic() + WAIT_S
        while "Ctrl-C" not in log.read_text():
            assert self._servers[command].poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        return log.read_text()

    def type(self, command: str) -> str:
        """Run a command in the shell; what it prints."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{command}\necho :end:\n")
        self._shell.stdin.flush()
        lines = iter(self._shell.stdout.readline, "")
        found: list[str] = []
        for line in lines:
            if line == ":end:\n":
                return "".join(found)
            found.append(line)
        raise AssertionError((self._folder / "errors").read_text())

    def press_ctrl_c(self) -> list[int]:
        """End the servers as the page says; what they end with."""
        for server in self._servers.values():
            server.send_signal(signal.SIGINT)
        return [server.wait(WAIT_S) for server in self._servers.values()]

    def close(self) -> None:
        for server in self._servers.values():
            if server.poll() is None:
                server.terminate()
                server.wait()
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()
        self._errors.close()


def commands_of(page: str) -> Iterator[tuple[str, str]]:
    """Each command of the page, and what it prints there."""
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


@pytest.mark.slow
def test_the_page_runs_and_prints_what_it_says(folder: Path) -> None:
    """A2, E1, G9: each order is counted once, through a kill -9 of the job; nothing is left of the servers."""
    try:
        find_programs(os.environ)
    except PenstockError as error:
        pytest.skip(str(error))
    page = PAGE
    for name, port in PORTS.items():
        page = page.replace(f"penstock try {name}", f"penstock try {name} --port {port}")
        page = page.replace(port, str(free_port()))
    for name, text in FILE.findall(page):
        (folder / name).write_text(text)
    terminals = Terminals(folder)
    try:
        for command, shown in commands_of(page):
            printed = terminals.serve(command) if " try " in command else terminals.type(command)
            assert VERSION.sub("PostgreSQL", printed) == VERSION.sub("PostgreSQL", shown), errors(folder)
        terminals.type("kill $!")
        assert terminals.press_ctrl_c() == [0, 0]
    finally:
        terminals.close()
    assert list((folder / "tmp").glob("penstock-try-*")) == []


def errors(folder: Path) -> str:
    log = folder / "takings.log"
    return (folder / "errors").read_text() + (log.read_text()[-5000:] if log.exists() else "")
