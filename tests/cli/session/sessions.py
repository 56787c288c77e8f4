"""Sessions that tests start, in a home directory of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import OperationError
from penstock.cli.client.rest_client import Address, KnownSession, RestClient, sessions
from penstock.cli.program.launch import ProgramSpec
from penstock.cli.session.client import SubmittedProgram, stop

#: Runs until it is stopped, in steps of a few milliseconds; `crash` and `exit` break its process when a file appears.
PROGRAM = """
import os, sys, threading, time
from pathlib import Path
from penstock.datastream import StreamExecutionEnvironment

name, then, file = sys.argv[1], sys.argv[2], Path(sys.argv[3])
print("program", name, "in", os.getcwd(), flush=True)

def crash():
    while not file.exists():
        time.sleep(0.01)
    os._exit(9)

if then == "crash":
    threading.Thread(target=crash, daemon=True).start()
if then == "raise":
    raise ValueError("no job here")
if then == "nothing":
    sys.exit(0)
env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(50)

class Slowly:
    def __call__(self, value):
        if value % 100 == 0:
            time.sleep(0.002)
        return value

numbers = env.from_collection(range(3 if then == "ends" else 10**7)).map(Slowly()).uid("slow")
numbers.key_by(lambda value: value % 2).sum().uid("sum").filter(lambda value: False).print().uid("print")
env.execute(name)
print("after", name)
"""


class SessionRig:
    """A session, and how to ask it."""

    def __init__(self, known: KnownSession, program: Path) -> None:
        self.known = known
        self.client = RestClient(Address(known.address, known.token))
        self.program = program
        self.file = program.with_name("crash")

    def submit(self, name: str, then: str = "goes on", **options: str) -> SubmittedProgram:
        """Give it the program."""
        spec = ProgramSpec(str(self.program), (name, then, str(self.file)), options)
        return SubmittedProgram(self.client, spec)

    def run(self, name: str, then: str = "goes on", **options: str) -> str:
        """The same; the id of the job, which has begun."""
        return self.submit(name, then, **options).wait_for_job()

    def state(self, job: str) -> str:
        """Where a job is in its life."""
        return str(self.client.get(f"/jobs/{job}")["state"])

    def checkpoints(self, job: str) -> int:
        """How many checkpoints a job has completed."""
        return int(self.client.get(f"/jobs/{job}/checkpoints")["counts"]["completed"])


def until(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What a condition gives when it holds."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it does not come to hold"
        time.sleep(0.05)
    return found


@contextmanager
def session_in(home: Path, options: Mapping[str, str], name: str = "tested") -> Iterator[SessionRig]:
    """A session whose files are in a directory."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in [key for key in os.environ if key.endswith("_CONF_DIR")]:
            patch.delenv(variable)
        patch.setenv("HOME", str(home))
        program = home / "program.py"
        program.write_text(PROGRAM)
        given = [f"-D{key}={value}" for key, value in {"rest.port": "0", **options}.items()]
        command = [sys.executable, "-m", "penstock.cli.main", "session", "start", "-d", "--name", name, *given]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        try:
            (known,) = sessions()
            yield SessionRig(known, program)
        finally:
            with suppress(OperationError):
                stop(name, {})
