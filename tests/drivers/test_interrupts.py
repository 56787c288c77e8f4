"""Ctrl-C while a function's C code holds Python's lock, so that no Python code can handle it (F4)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.drivers.cancellation import ends_on_second_interrupt

PROGRAM = """
import contextlib, ctypes, os, signal, sys, threading, time
from penstock.datastream import closeable_iterator
from penstock.drivers import running_job
from tests.datastream.environments import local_environment

waits = threading.Event()
original = running_job.ends_on_second_interrupt

@contextlib.contextmanager
def noted():
    with original():
        waits.set()
        yield

running_job.ends_on_second_interrupt = closeable_iterator.ends_on_second_interrupt = noted

def hold(value):
    waits.wait()
    while sys._current_frames()[threading.main_thread().ident].f_code.co_name not in ("wait", "take_item"):
        time.sleep(0.01)
    time.sleep(0.1)  # it no longer asks for the lock
    sys.setswitchinterval(1e6)  # no other thread gets the lock between two calls
    holding = ctypes.PyDLL(None)
    for _ in range(COUNT):
        holding.kill(os.getpid(), signal.SIGINT)
        holding.usleep(20_000)
    sys.setswitchinterval(0.005)
    os.write(1, b"returned\\n")
    return value

hold.__globals__["COUNT"] = int(sys.argv[1])
env = local_environment(execution__runtime_mode=sys.argv[2])
made = env.from_collection([1]).map(lambda value: sys.modules["__main__"].hold(value)).name("holds")
try:
    if sys.argv[3] == "collect":
        list(made.execute_and_collect())
    else:
        made.print()
        env.execute()
except KeyboardInterrupt:
    print("interrupted")
"""


def run(interrupts: int, mode: str = "STREAMING", how: str = "execute") -> subprocess.CompletedProcess[str]:
    """A program whose function sends so many SIGINTs while it holds the lock, and then returns."""
    root = Path(__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    command = [sys.executable, "-c", PROGRAM, str(interrupts), mode, how]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=150)


@pytest.mark.parametrize(("mode", "how"), [("STREAMING", "execute"), ("STREAMING", "collect"), ("BATCH", "execute")])
def test_second_interrupt_ends_a_process_that_cannot_handle_the_first(mode: str, how: str) -> None:
    """F4: nothing else ends it, except SIGKILL."""
    ended = run(200, mode, how)
    assert ended.returncode == -signal.SIGINT, ended.stderr
    assert "returned" not in ended.stdout


def test_first_interrupt_is_handled_when_the_function_returns() -> None:
    """F4: the job is cancelled, as by any Ctrl-C."""
    ended = run(1)
    assert ended.stdout.splitlines()[-1] == "interrupted"
    assert ended.returncode == 0, ended.stderr


def interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_interrupts_that_are_handled_end_nothing() -> None:
    """F4: each has the effect that it has without, also afterwards."""
    before = signal.getsignal(signal.SIGINT)
    with ends_on_second_interrupt():
        for _ in range(3):
            interrupt()
        with ends_on_second_interrupt():
            interrupt()
        interrupt()
    assert signal.getsignal(signal.SIGINT) is before
    for _ in range(2):
        interrupt()


def test_program_that_ignores_interrupts_keeps_ignoring_them() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ends_on_second_interrupt():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
