"""Somebody who does what the page says: saves files, types commands, looks at the job in a browser."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.servers.ports import free_port
from tests.tutorial.page import PAGE, Change, Command, File, Picture, things

#: How long (s) one command may take on a machine with other things to do.
COMMAND_S = 120
#: How long (s) what a command has begun may take to end.
END_S = 30
INSTALL = "pip install "
_PORTS = ("8081", "9249")


class Reader:
    """Works in an empty folder.

    Args:
        folder: where.
        programs: the directory of `penstock`, `python` and, for those who install, `pip`.
        install: types a command that installs; None leaves such commands out.
        look: takes a picture, of the page of the server at an address, for a job in a folder; None takes none.
    """

    def __init__(
        self,
        folder: Path,
        programs: Path,
        install: Callable[[str], None] | None = None,
        look: Callable[[Picture, str, Path], None] | None = None,
    ) -> None:
        self._folder = folder
        self._install = install
        self._look = look
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._environment["COLUMNS"] = "100"
        self._ports = {port: str(free_port()) for port in _PORTS}

    def read(self) -> None:
        """Do all that the page says; AssertionError where something else happens."""
        text = PAGE.read_text()
        for port, free in self._ports.items():
            text = text.replace(port, free)
        for thing in things(text):
            if isinstance(thing, File):
                path = self._folder / thing.name
                path.parent.mkdir(exist_ok=True)
                path.write_text(thing.text)
            elif isinstance(thing, Change):
                program = self._folder / "sales.py"
                program.write_text(thing.apply(program.read_text()))
            elif isinstance(thing, Picture):
                if self._look is not None:
                    self._look(thing, f"http://127.0.0.1:{self._ports['8081']}", self._folder)
            elif not thing.line.startswith(INSTALL):
                self._type(thing)
            elif self._install is not None:
                self._install(thing.line)

    def _type(self, command: Command) -> None:
        done = subprocess.run(
            ["bash", "-c", command.line],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, f"{command.line}: {done.stdout}{done.stderr}{self.logs()}"
        try:
            command.check(done.stdout, self._folder)
        except AssertionError as error:
            raise AssertionError(f"{command.line} printed\n{error}{done.stderr}{self.logs()}") from None

    def logs(self) -> str:
        """The end of what the programs have said."""
        return "".join(f"\n{path.name}:\n{path.read_text()[-3000:]}" for path in self._folder.glob("logs/*"))

    def wait(self) -> None:
        """Wait until nothing runs that the commands have begun; AssertionError if it does not end by itself."""
        deadline = time.monotonic() + END_S
        while left := self._processes():
            assert time.monotonic() < deadline, f"still there: {left}{self.logs()}"
            time.sleep(0.1)

    def close(self) -> None:
        """End all that the commands have begun."""
        for process in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _processes(self) -> list[int]:
        """Programs, Spark and workers: what is in the folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cwd"):
            # Some end just now, and others are somebody else's.
            with contextlib.suppress(OSError):
                if os.readlink(path) == str(self._folder.resolve()):
                    found.append(int(path.parent.name))
        return found
