"""Jobs in this process whose functions do not return, or end the program: nothing hangs without a word."""

from __future__ import annotations

import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import local_environment

from penstock.base.errors import JobExecutionError, UserFunctionError
from penstock.drivers import cancellation
from penstock.drivers.cancellation import PATIENCE_MS, CancellationPatience

MODES = ["STREAMING", "BATCH", "MICRO_BATCH"]


# --- when ----------------------------------------------------------------------------------------------------------


def test_patience_is_for_a_while() -> None:
    """F4: the first word after a few seconds, then one every interval; after the timeout no more waiting."""
    patience = CancellationPatience(interval_ms=20_000, timeout_ms=60_000, grace_ms=0, now_ms=0)
    assert patience.next_ms() == PATIENCE_MS
    assert [t for t in range(0, 60_000, 1_000) if patience.takes_word(t)] == [3_000, 23_000, 43_000]
    assert not patience.is_over(59_999)
    assert patience.is_over(60_000)


def test_patience_ends_when_asked_again() -> None:
    """F4: but an orderly end has its chance, and ending by force its time."""
    patience = CancellationPatience(20_000, 0, 0, now_ms=0)
    assert not patience.is_over(10**9)
    patience.on_cancelled_again(10)
    assert not patience.is_over(PATIENCE_MS - 1)
    assert patience.is_over(PATIENCE_MS)
    patience = CancellationPatience(20_000, 60_000, 5_000, now_ms=0)
    patience.on_cancelled_again(10_000)
    assert not patience.is_over(14_999)
    assert patience.is_over(15_000)


# --- a function that does not return -------------------------------------------------------------------------------


class Held:
    """A function that waits for the test."""

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()

    def __reduce__(self) -> Any:
        return the_held, ()  # it is not copied

    def hold(self, value: int) -> int:
        self.begun.set()
        self.released.wait()
        return value


_HELD: list[Held] = []


def the_held() -> Held:
    """The only one there is."""
    return _HELD[0]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Nobody has any patience; the function returns when the test is over, and no thread is left."""
    monkeypatch.setattr(cancellation, "PATIENCE_MS", 0)
    before = set(threading.enumerate())
    _HELD[:] = [Held()]
    yield _HELD[0]
    _HELD[0].released.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive(), thread


@pytest.mark.parametrize("mode", MODES)
def test_a_function_that_does_not_return_is_named(mode: str, held: Held) -> None:
    """F4: with operator, subtask, function and line, while whoever cancelled the job waits."""
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.put(record.getMessage())  # type: ignore[method-assign]
    env = local_environment(execution__runtime_mode=mode)
    env.from_collection([1]).map(held.hold).name("holds").print()
    job = env.execute_async("job")
    assert held.begun.wait(60)
    logging.getLogger("penstock.job").addHandler(handler)
    try:
        job.cancel()
        line = said.get(timeout=60)
    finally:
        logging.getLogger("penstock.job").removeHandler(handler)
    held.released.set()
    with pytest.raises(JobExecutionError, match=r"it was cancelled$"):
        job.wait()
    assert "s ago, but a function does not return: operator 'holds', subtask 1/1, in Held.hold" in line
    assert "test_cancellation.py:" in line


@pytest.mark.parametrize("mode", MODES)
def test_cancelled_twice_nobody_waits_for_it(mode: str, held: Held) -> None:
    """F4: the waiting ends with an error that says what is left."""
    env = local_environment(execution__runtime_mode=mode)
    env.from_collection([1]).map(held.hold).name("holds").print()
    job = env.execute_async("job")
    assert held.begun.wait(60)
    job.cancel()
    job.cancel()
    with pytest.raises(JobExecutionError, match=r"abandoned, which is at operator 'holds', subtask 1/1, in Held"):
        job.wait()
    job.end()  # does not wait either


def test_nobody_waits_longer_than_the_timeout(held: Held) -> None:
    """F4: task.cancellation.timeout ends the waiting without being asked."""
    env = local_environment(task__cancellation__timeout="1 ms")
    env.from_collection([1]).map(held.hold).name("holds").print()
    job = env.execute_async("job")
    assert held.begun.wait(60)
    job.cancel()
    with pytest.raises(JobExecutionError, match="it was cancelled, and has not ended after"):
        job.wait()


# --- a function that ends the program ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_function_that_calls_sys_exit_fails_the_job(mode: str) -> None:
    """F4: with the operator's name and the user's traceback, rather than ending a thread that others wait for."""

    def leave(value: int) -> int:
        sys.exit(3)

    env = local_environment(execution__runtime_mode=mode)
    env.from_collection([1]).map(abs).map(leave).name("leaves").print()
    with pytest.raises(UserFunctionError, match="in leave") as caught:
        env.execute()
    assert caught.value.operator_name == "leaves"
    assert caught.value.cause_text == "SystemExit: 3"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
def test_whatever_a_function_raises_ends_the_job(mode: str, error: type[BaseException]) -> None:
    """F4: nothing that is raised ends the job's thread without a word."""

    def leave(value: int) -> int:
        raise error("of the function's own")

    env = local_environment(execution__runtime_mode=mode)
    env.from_collection([1]).map(leave).print()
    with pytest.raises(JobExecutionError, match=error.__name__):
        env.execute()


# --- real loops ----------------------------------------------------------------------------------------------------

PROGRAM = """
import logging, signal, sys, threading, time
from tests.datastream.environments import local_environment

begun = threading.Event()

def spin(value):
    spin.begun.set()
    while True:
        pass

def functions_of_main():
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back

def interrupt_main():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

def interrupt_another():
    # The system may choose any thread. It does not wake the one that waits.
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

class InterruptsAgain(logging.Handler):
    def emit(self, record):
        if "does not return" in record.getMessage():
            interrupt()

def stream():
    env = local_environment()
    return env.from_collection([1]).map(lambda value: sys.modules["__main__"].spin(value)).name("spins")

def begin():
    endless = stream()
    endless.print()
    return endless.get_execution_environment().execute_async("endless")

def wait_for_job():
    begin().wait()

def wait_for_results():
    with stream().execute_and_collect("endless") as results:
        list(results)

spin.begun = begun
"""

CANCELS_TWICE = """
job = begin()
begun.wait()
job.cancel()
job.cancel()
try:
    job.wait()
except Exception as error:
    print(error)
"""

INTERRUPTED_TWICE = """
for handler in (logging.StreamHandler(), InterruptsAgain()):  # in this order, because an interrupt ends the program
    logging.getLogger("penstock.job").addHandler(handler)
# The first Ctrl-C comes when the program waits.
def interrupt_once_it_waits():
    begun.wait()
    while not {"wait_until_done", "take_item"} & set(functions_of_main()):
        time.sleep(0.01)
    interrupt()

threading.Thread(target=interrupt_once_it_waits).start()
try:
    wait()
except KeyboardInterrupt:
    print("interrupted")
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + program], env=environ, capture_output=True, text=True, timeout=150
    )


def test_an_endless_loop_cancelled_twice() -> None:
    """F4: the program goes on, and ends, with a loop left behind."""
    ended = run(CANCELS_TWICE)
    assert ended.returncode == 0, ended.stderr
    assert "job 'endless' failed: it was cancelled, and has not ended after" in ended.stdout
    assert "operator 'spins', subtask 1/1, in stream.<locals>.<lambda>" in ended.stdout


@pytest.mark.parametrize("thread", ["main", "another"])
def test_an_endless_loop_interrupted_twice(thread: str) -> None:
    """F4: the first Ctrl-C cancels the job; the second, after the loop was named, ends the waiting."""
    ended = run(f"interrupt, wait = interrupt_{thread}, wait_for_job" + INTERRUPTED_TWICE)
    assert (ended.returncode, ended.stdout) == (0, "interrupted\n"), ended.stderr
    assert "s ago, but a function does not return: operator 'spins'" in ended.stderr
    assert "endless: no longer waiting for it; its thread is abandoned, which is at operator" in ended.stderr


@pytest.mark.parametrize("thread", ["main", "another"])
def test_results_of_an_endless_loop_interrupted_twice(thread: str) -> None:
    """F4: the first Ctrl-C closes the results, which waits for the job; the second ends that."""
    ended = run(f"interrupt, wait = interrupt_{thread}, wait_for_results" + INTERRUPTED_TWICE)
    assert (ended.returncode, ended.stdout) == (0, "interrupted\n"), ended.stderr
    assert "s ago, but a function does not return: operator 'spins'" in ended.stderr
