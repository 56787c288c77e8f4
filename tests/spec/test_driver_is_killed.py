"""The program that runs a job is killed, and started again: the answer is whole, each record once (G8, G9)."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.datastream.environments import local_environment
from tests.spec.kill_driver import kill_and_check

from penstock.base.errors import ConfigurationError

pytestmark = pytest.mark.slow

COUNT = 3_000
PROGRAM = """
import json
import sys
from penstock.common import Configuration, Encoder, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink

here, action, count, rate, mode, options = sys.argv[1:]
configuration = Configuration.from_dict({
    "execution.target": "local",
    "execution.checkpointing.dir": f"{here}/checkpoints",
    "execution.checkpointing.interval": "100 ms",
    "execution.checkpointing.savepoint-dir": f"{here}/savepoints",
    "penstock.recovery.from-latest": "true",
    "penstock.on-sigterm": action,
    "execution.runtime-mode": mode,
    "execution.micro-batch.interval": "100 ms",
    "execution.micro-batch.max-records": str(int(rate) // 10 or count),
    **json.loads(options),
})
env = StreamExecutionEnvironment.get_execution_environment(configuration)
source = DataGeneratorSource(lambda n: n, int(count), float(rate) or None if mode == "STREAMING" else None)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
counts = numbers.key_by(lambda n: n % 7).reduce(lambda a, b: b).uid("last").map(str)
sink = FileSink.for_row_format(f"{here}/out", Encoder.simple_string_encoder()).build()
counts.sink_to(sink).uid("out")
env.execute("counts")
print("executed", flush=True)
"""


@contextmanager
def started(
    directory: Path, action: str = "none", rate: int = 0, mode: str = "STREAMING", options: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    more = json.dumps(options or {})
    arguments = [sys.executable, "-c", PROGRAM, str(directory), action, str(COUNT), str(rate), mode, more]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run_until_something_is_committed(directory: Path, action: str, number: int) -> tuple[int, str, str]:
    """The slow job, and what became of its program when it got the signal."""
    with started(directory, action, rate=500) as process:
        while process.poll() is None and not lines(directory):
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate()
    return process.returncode, out, err


def lines(directory: Path) -> list[int]:
    """All numbers in committed files. Hidden directories come and go while jobs run, so nothing looks into them."""
    return sorted(int(line) for path in directory.glob("out/[!.]*/part-*") for line in path.read_text().splitlines())


def check_that_it_goes_on(directory: Path) -> str:
    assert 0 < len(lines(directory)) < COUNT
    with started(directory) as process:
        out, err = process.communicate()
    assert out == "executed\n", err
    assert lines(directory) == list(range(COUNT))
    assert jobs_left(directory) == []
    return err


def jobs_left(directory: Path) -> list[str]:
    """The directories of jobs among the checkpoints."""
    return [path.name for path in (directory / "checkpoints").iterdir() if path.name != "jobs"]


def test_kill(store_directory: Path) -> None:
    """G8, G9: after kill -9, with nothing retained by anybody's wish."""
    code, out, _ = run_until_something_is_committed(store_directory, "none", signal.SIGKILL)
    assert (code, out) == (-signal.SIGKILL, "")
    assert "/chk-" in check_that_it_goes_on(store_directory)


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH", "BATCH"])
def test_nothing_is_left_of_drivers_that_were_killed(mode: str) -> None:
    """E7, G8, G9: no process, no checkpoint, no hidden file; `tests.spec.kill_driver` kills a hundred."""
    report = kill_and_check(random.Random(1), 3, mode, "local", 8_000, 2_000.0, (0.8, 1.8))
    assert "output equal, nothing left" in report


def test_sigterm_stops_with_a_savepoint(store_directory: Path) -> None:
    """H2: `execute` returns, the program goes on to its end, and the next one begins from the savepoint."""
    code, out, err = run_until_something_is_committed(store_directory, "stop-with-savepoint", signal.SIGTERM)
    assert (code, out) == (0, "executed\n"), err
    (savepoint,) = (store_directory / "savepoints").iterdir()
    assert f"the job was stopped with savepoint {savepoint}" in err
    assert savepoint.name in check_that_it_goes_on(store_directory)


def test_sigterm_cancels(store_directory: Path) -> None:
    """E5: `execute` raises, as after any cancellation."""
    code, out, err = run_until_something_is_committed(store_directory, "cancel", signal.SIGTERM)
    assert (code, out) == (1, "")
    assert "it was cancelled" in err


def test_sigterm_as_ever(store_directory: Path) -> None:
    """E1: without the option the program ends at once, and its job with it."""
    code, out, _ = run_until_something_is_committed(store_directory, "none", signal.SIGTERM)
    assert (code, out) == (-signal.SIGTERM, "")
    check_that_it_goes_on(store_directory)


def test_the_handler_of_before_is_back(store_directory: Path) -> None:
    """E1: signals are the program's own again when `execute` has returned, and are left alone in other threads."""
    env = local_environment(penstock__on_sigterm="cancel")
    before = signal.getsignal(signal.SIGTERM)
    env.from_collection([1]).print()
    env.execute()
    assert signal.getsignal(signal.SIGTERM) is before
    env.from_collection([1]).print()
    thread = threading.Thread(target=env.execute)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_savepoint_needs_a_directory() -> None:
    """H2: said before anything runs."""
    env = local_environment(penstock__on_sigterm="stop-with-savepoint")
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match=r"set execution\.checkpointing\.savepoint-dir too"):
        env.execute()
