"""Runs the tests against one bug at a time, in a copy of the working tree."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tests.mutation.mutators import Mutation
from tests.mutation.selection import ROOT, select_tests

#: what is run against a bug takes at most this, in s; a run that does not end finds the bug
LIMIT_S: Final = 180
#: of which the tests take at most this
TESTS_S: Final = 120
#: the programs that follow the tests, by the folder of the module
_RANDOM: Final[dict[str, list[list[str]]]] = {
    "sql": [["tests.table.differential", "--queries", "60"]],
    "runtime": [["tests.datastream.random_programs", "--programs", "80"]],
    "state": [["tests.datastream.random_programs", "--programs", "80"]],
}
#: simulated clusters, after them
_SIMULATED: Final = ("runtime", "state", "storage")
#: how many test files one process takes, nearest to the module first: most bugs fall to the first of them
_FILES_OF_A_RUN: Final = (3, 12, 48)
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What became of a bug.

    Attributes:
        path, line, before, after: the bug.
        found_by: the test or command that found it; None where all passed.
        seconds: how long that took.
    """

    path: str
    line: int
    before: str
    after: str
    found_by: str | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Tree:
    """A copy of the working tree in which bugs are planted; its other modules are compiled once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.rmtree(directory, ignore_errors=True)
        for name in ("src", "tests", "benchmarks", "examples", "docs"):
            shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "CHANGELOG.md", "README.md"):
            shutil.copy(ROOT / name, directory / name)
        self._compile()

    def try_bug(self, path: str, mutation: Mutation) -> Outcome:
        """Plant a bug, run what may find it, and take it out again."""
        file = self.directory / path
        text, times = file.read_text(), file.stat()
        file.write_text(mutation.applied(text))
        begun = time.monotonic()
        try:
            found_by = self._found_by(path, begun + LIMIT_S)
        finally:
            file.write_text(text)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        seconds = round(time.monotonic() - begun, 1)
        return Outcome(path, mutation.line, mutation.before, mutation.after, found_by, seconds)

    def failing(self, tests: list[str]) -> list[str]:
        """Those of the tests that fail in the tree as it is."""
        if not tests:
            return []
        _, output = self._run(["pytest", "-q", "-p", "no:cacheprovider", *tests], time.monotonic() + 3600)
        return _FAILED.findall(output)

    def _found_by(self, path: str, deadline: float) -> str | None:
        until = min(deadline, time.monotonic() + TESTS_S)
        for number, tests in enumerate(_runs(select_tests(path))):
            options = ["-x", "-q", "-m", "not spark", "-p", "no:cacheprovider", "--timeout", "60"]
            status, output = self._run(["pytest", *options, *tests], until)
            if status not in (0, None, 5):
                failed = _FAILED.search(output)
                return failed[1] if failed else "the tests do not start"
            if status is None:
                if number == 0 and self._hangs(output):
                    return "a test that does not end"
                break
        folder = Path(path).parts[2]
        commands = list(_RANDOM.get(folder, []))
        if folder in _SIMULATED:
            commands.append(["penstock.drivers.simulation.cli", "--seeds", "60"])
        for command in commands:
            status, _ = self._run(command, deadline)
            if status not in (0, None):
                return " ".join(command)
        return None

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.directory / "src"), str(self.directory)])}

    def _compile(self) -> None:
        """Keep the bytecode of modules and tests, for else each run compiles them all."""
        collect = ["pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
        for command in (["compileall", "-q", "src", "benchmarks"], collect):
            subprocess.run(
                [sys.executable, "-m", *command],
                cwd=self.directory,
                env=self._environment,
                stdout=subprocess.DEVNULL,
                check=True,
            )

    @staticmethod
    def _hangs(output: str) -> bool:
        """Whether nothing had passed when the time was over: otherwise there were only too many tests."""
        return not re.search(r"^[.s]+", output, re.MULTILINE)

    def _run(self, command: list[str], deadline: float) -> tuple[int | None, str]:
        """The exit status and the output; None where the time was over."""
        left = deadline - time.monotonic()
        if left < 5:
            return None, "."
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=self.directory,
            env={**self._environment, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
        return process.returncode, output


def _runs(tests: list[str]) -> Iterator[list[str]]:
    """The test files that one process takes, in turn."""
    rest = iter(tests)
    for size in (*_FILES_OF_A_RUN, len(tests)):
        if chunk := list(islice(rest, size)):
            yield chunk
