"""A process that runs one query as often as it is asked to: Penstock's or Flink's.

A line of standard input is a command. Each is answered by a line that begins with "nexmark"; the process begins with
the answer "ready". "refused" and a reason is an answer, too, and the last one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from benchmarks.nexmark_sql.regimes import Regime
from benchmarks.processes import peak_bytes, restart_peak

ROOT: Final = Path(__file__).parents[2]
_SERVER: Final = Path(__file__).with_name("serving.py")
#: how long an answer may take: a JVM that collects garbage without end gives none
PATIENCE_S: Final = 600


class RefusedError(Exception):
    """Says why a side does not run a query."""


class EndedError(Exception):
    """Says how a side came to its end amid a run."""


@dataclass(frozen=True)
class Run:
    """What one run of a query took.

    Attributes:
        wall_s: from its execution, which includes planning and starting the job, to its end.
        cpu_s: processor time of the process.
        peak_bytes: the most memory that the process had resident, with the events.
        checkpoints: how many were completed.
        checkpoint_bytes: the size of the state that the last of them refers to.
        latencies_ms: the median and the 99th percentile, from when an event is due to its row in the sink.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int = 0
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    latencies_ms: tuple[int, int] | None = None


class Memory(NamedTuple):
    """Bytes behind all events: what the query keeps beyond them, and a savepoint."""

    beyond_events: int
    savepoint: int


def measure_folder(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


class QueryProcess:
    """See the module's text.

    Args:
        command: starts it.
        log: a file for what it says beside its answers.
        environment: variables that it gets beside those of this process.
        patience_s: how long an answer may take.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._log = log
        self._patience_s = patience_s
        self._is_ready = False
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> Self:
        try:
            self._answer()
        except BaseException:
            self._end()
            raise
        self._is_ready = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def run(self, events: int, per_second: int | None = None) -> Run:
        """Run the query over the first of the events. Raises `EndedError` if the process does not survive it."""
        process = str(self._process.pid)
        restart_peak(process)
        answer = json.loads(self.ask(f"run {events} {per_second or 0}"))
        return replace(Run(**answer), peak_bytes=peak_bytes(process))

    def ask(self, command: str) -> str:
        """Return the answer to a command."""
        pipe: Any = self._process.stdin
        with suppress(BrokenPipeError):  # it has ended, which the answer tells
            pipe.write(command + "\n")
            pipe.flush()
        return self._answer()

    def _answer(self) -> str:
        """Read the next answer; other lines are the program's own."""
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            self._process.kill()

        timer = threading.Timer(self._patience_s, give_up)
        timer.start()
        error = EndedError if self._is_ready else RefusedError
        try:
            pipe: Any = self._process.stdout
            for line in pipe:
                if line.startswith("nexmark refused "):
                    raise error(line[16:].strip())
                if line.startswith("nexmark "):
                    return str(line[8:]).strip()
        finally:
            timer.cancel()
        if is_late.is_set():
            raise error(f"no answer within {self._patience_s} s")
        raise error(f"the process ended: {self._log.read_text()[-500:]}")

    def _end(self) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._process.wait()


class PenstockProcess(QueryProcess):
    """Penstock, with the package and the benchmarks of a checkout.

    Args:
        folder: the benchmark's files.
        name: the query.
        events: how many there are.
        regime: how it runs.
        scratch: an empty folder, for checkpoints and what the query reads and writes.
        checkout: the root of the repository, or of a worktree of another revision.
    """

    def __init__(
        self, folder: Path, name: str, events: int, regime: Regime, scratch: Path, checkout: Path = ROOT
    ) -> None:
        settings = {
            "folder": str(folder),
            "name": name,
            "events": events,
            "rate": regime.event_rate,
            "mini_batch": regime.mini_batch,
            "options": regime.options(scratch / "checkpoints"),
            "scratch": str(scratch),
            "with_latency": regime.rate is not None,
            "source": str(checkout / "src"),
        }
        # Neither the folder of the server nor this checkout may hide the modules of the other.
        command = [sys.executable, "-P", str(_SERVER), json.dumps(settings)]
        path = os.pathsep.join([str(checkout / "src"), str(checkout)])
        super().__init__(command, scratch / "log", {"PYTHONPATH": path})

    def measure_state(self, folder: Path) -> Memory:
        """Stop the query with a savepoint behind all events. What the process's peak grows by counts as memory."""
        return Memory(int(self.ask(f"state {folder}")), measure_folder(folder))
