"""A session as its commands see it: starting and stopping it, submitting programs, and following them to the end."""

from __future__ import annotations

import io
import os
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.base.errors import MissingPathError, OperationError
from penstock.base.options import PYTHON_FILES, RECOVERY_FROM_LATEST, RECOVERY_PATH
from penstock.cli.client import rest_client
from penstock.cli.program.launch import ProgramSpec, end_of_log, started_detached
from penstock.cli.program.reports import RESTORE_SECONDS
from penstock.drivers.global_configuration import OPTIONS_VARIABLE, handed_over

_PROCESS: Final = "penstock.cli.session.process"
#: How long (s) a session may take to end its programs, and the interval between checks.
STOP_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 0.1


def run_attached(name: str, options: Mapping[str, str]) -> None:
    """Replace this process with the session. Returns only through an error of the operating system."""
    sys.stdout.flush()
    os.execvpe(sys.executable, _command(name), {**os.environ, OPTIONS_VARIABLE: handed_over(options)})


def run_detached(name: str, options: Mapping[str, str], log: Path) -> rest_client.KnownSession:
    """Start the session, and return when it accepts programs.

    Raises:
        OperationError: if it ends before that; the message has the end of its output.
    """
    environment = {**os.environ, OPTIONS_VARIABLE: handed_over(options)}
    with started_detached(_command(name), environment, log) as (process, reports):
        for event in reports:
            if event["event"] == "session" and (known := rest_client.find_session(event["address"])) is not None:
                return known
    raise OperationError(f"the session ended with {process.wait()}; its output is in {log}\n{end_of_log(log)}")


def _command(name: str) -> list[str]:
    return [sys.executable, "-m", _PROCESS, name]


def stop(named: str, options: Mapping[str, str]) -> str:
    """End a session, given its name or address, and return its address. Wait for its end if it runs on this host.

    Raises:
        OperationError: if the session does not exist, or does not end.
    """
    known = next((session for session in rest_client.sessions() if session.name == named), None)
    if known is not None:
        address = rest_client.Address(known.address, known.token, options.get("security.ssl.rest.certificate"))
    elif ":" in named:
        address = rest_client.resolve_address(named, options)
        known = rest_client.find_session(address.url)
    else:
        running = ", ".join(session.name for session in rest_client.sessions()) or "none"
        raise OperationError(f"no session {named!r} runs on this host (there is {running}); name its host:port")
    rest_client.RestClient(address).request("DELETE", "/cluster")
    until = time.monotonic() + STOP_SECONDS
    while known is not None and rest_client.is_held(known.name):
        if time.monotonic() > until:
            raise OperationError(f"session {known.name!r} has not ended in {STOP_SECONDS:g} s: process {known.process}")
        time.sleep(PAUSE_SECONDS)
    return address.url


#: The shortest and the longest pause (s) between two requests for a program's status.
FOLLOW_PAUSE_SECONDS: Final = (0.05, 0.5)


class SubmittedProgram:
    """Submits a program to a session, which starts it.

    Raises:
        OperationError: if the session cannot be reached, or rejects the program.
    """

    def __init__(
        self, client: rest_client.RestClient, spec: ProgramSpec, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._client = client
        self._sleep = sleep
        options = spec.options or {}
        self._restores = RECOVERY_PATH.key() in options or options.get(RECOVERY_FROM_LATEST.key()) == "true"
        name, content = bundle(spec)
        uploaded = client.upload("/jars/upload", "jarfile", name, content)["filename"].rpartition("/")[2]
        options = {key: value for key, value in (spec.options or {}).items() if key != PYTHON_FILES.key()}
        body = {
            "programArgsList": list(spec.arguments),
            "entryClass": spec.target if spec.is_module else None,
            "flinkConfiguration": options,
        }
        try:
            #: 32 hexadecimal digits
            self.program_id = str(client.request("POST", f"/jars/{uploaded}/run-application", body)["applicationid"])
        finally:
            client.request("DELETE", f"/jars/{uploaded}")

    def wait_for_job(self) -> str:
        """Return the id of the program's first job once it has started, and restored its savepoint if it has one.

        Raises:
            OperationError: if the program ends before that; the message has the end of its output. Also if the job
                cannot
                start from the savepoint; the message has the reason.
        """
        program = self._wait(lambda program: bool(program["jobs"]), lambda: None)
        if program["jobs"]:
            job = str(program["jobs"][0])
            if self._restores:
                self._wait_for_restore(job)
            return job
        failure = program["failure"] or ""
        raise OperationError(f"the program ended with {program['exit-code']} before it began a job\n{failure}".strip())

    def _wait_for_restore(self, job: str) -> None:
        until = time.monotonic() + RESTORE_SECONDS
        while time.monotonic() < until:
            details = self._client.get(f"/jobs/{job}")
            if details["state"] == "FAILED":
                result = self._client.get(f"/jobs/{job}/execution-result").get("job-execution-result") or {}
                cause = result.get("failure-cause") or {"stack-trace": f"job {job} has failed"}
                raise OperationError(rest_client.first_line(cause["stack-trace"]))
            tasks = [vertex["tasks"] for vertex in details["vertices"]]
            begun = all(
                sum(count for state, count in counts.items() if state in ("RUNNING", "FINISHED"))
                == sum(counts.values())
                for counts in tasks
            )
            if details["state"] in ("FINISHED", "CANCELED") or (details["state"] == "RUNNING" and begun):
                return
            self._sleep(FOLLOW_PAUSE_SECONDS[0])

    def follow(self, write: Callable[[str], None]) -> int:
        """Pass on the program's output until it ends; return its exit code as a shell reports it."""
        begin = 0

        def look() -> None:
            nonlocal begin
            while (output := self._client.get(f"/programs/{self.program_id}/output?from={begin}"))["next"] > begin:
                write(output["text"])
                begin = output["next"]

        program = self._wait(lambda program: False, look)
        look()
        code = int(program["exit-code"])
        return code if code >= 0 else 128 - code

    def _wait(self, is_enough: Callable[[dict[str, Any]], bool], look: Callable[[], None]) -> dict[str, Any]:
        pause, longest = FOLLOW_PAUSE_SECONDS
        while True:
            program: dict[str, Any] = self._client.get(f"/programs/{self.program_id}")
            look()
            if is_enough(program) or program["status"] != "RUNNING":
                return program
            self._sleep(pause)
            pause = min(2 * pause, longest)


def bundle(spec: ProgramSpec) -> tuple[str, bytes]:
    """Return a program as one file: the script, or an archive of it and the files of `python.files`.

    Raises:
        MissingPathError: if a file is missing.
    """
    files = [file for file in (spec.options or {}).get(PYTHON_FILES.key(), "").split(",") if file]
    if not files and not spec.is_module:
        return os.path.basename(spec.target), Path(spec.target).read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        if not spec.is_module:
            archive.write(spec.target, "__main__.py")
        for file in files:
            for name, content in _modules(Path(file)):
                if name not in archive.namelist():
                    archive.writestr(name, content)
    return f"{Path(spec.target).stem}.zip", buffer.getvalue()


def _modules(path: Path) -> Sequence[tuple[str, bytes]]:
    """Return the files that would be on the import path, with their names there."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        return [(file.relative_to(path).as_posix(), file.read_bytes()) for file in files]
    if not path.is_file():
        raise MissingPathError(f"{PYTHON_FILES.key()}: there is no {path}")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return [(info.filename, archive.read(info)) for info in archive.infolist() if not info.is_dir()]
    return [(path.name, path.read_bytes())]
