"""Operations on a server's jobs for the commands: looking jobs up, savepoints, stopping, rescaling, and reading logs.

**Names.** The command line identifies a job by its id, its name, or a prefix of either.

**Savepoints, checkpoints, stopping and cancelling** print the output of Flink's client.

**Rescaling** changes the parallelism of vertices of a running job.

**Logs** come over REST: their last lines, and new lines as they appear.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import click

from penstock.base.errors import OperationError, WrongValueError
from penstock.cli.client.rest_client import RestClient, first_line

#: The final states of jobs.
ENDED: Final = ("FINISHED", "CANCELED", "FAILED", "SUSPENDED")
_ID: Final = re.compile("[0-9a-fA-F]{32}")
_FORMAT: Final = "%d.%m.%Y %H:%M:%S"
_INSERTS: Final = "insert-into_"
_PATH: Final = re.compile(r"[^.,]+\.[^.,]+\.(?P<table>[^.,]+)")


def short_name(name: str) -> str:
    """Return a job's name without the catalogs and databases that an unnamed SQL statement puts into it.

    >>> short_name("insert-into_default_catalog.default_database.orders")
    'insert-into_orders'
    """
    if not name.startswith(_INSERTS):
        return name
    paths = name.removeprefix(_INSERTS).split(",")
    tables = [path["table"] if (path := _PATH.fullmatch(part)) else part for part in paths]
    return _INSERTS + ",".join(tables)


def resolve_job_id(client: RestClient, named: str) -> str:
    """Return the id of the job that `named` identifies. Running jobs take precedence over ended ones.

    Raises:
        WrongValueError: if no job matches, or more than one.
        OperationError: if the server does not answer.
    """
    if _ID.fullmatch(named):
        return named.lower()
    jobs = overview(client)
    exact = [job for job in jobs if named in _names(job)]
    begun = [
        job
        for job in jobs
        if job["jid"].startswith(named.lower()) or any(name.startswith(named) for name in _names(job))
    ]
    matches = exact or begun
    running = [job for job in matches if job["state"] not in ENDED]
    meant = running or matches
    if len(meant) == 1:
        return str(meant[0]["jid"])
    if not meant:
        raise WrongValueError(f"no job has the id or name {named!r}: penstock list -a shows all")
    listing = ", ".join(f"{job['jid']} ({job['name']})" for job in meant[:5])
    raise WrongValueError(f"{named!r} names {len(meant)} jobs: {listing}. Give more of the id or name")


def _names(job: dict[str, Any]) -> tuple[str, str]:
    return job["name"], short_name(job["name"])


def overview(client: RestClient) -> list[dict[str, Any]]:
    """Return all jobs of the server, oldest first."""
    jobs: list[dict[str, Any]] = client.get("/jobs/overview")["jobs"]
    return sorted(jobs, key=lambda job: job["start-time"])


def format_job(job: dict[str, Any]) -> str:
    """Format a job as `flink list` does, with its short name."""
    begun = datetime.fromtimestamp(job["start-time"] / 1000)
    return f"{begun.strftime(_FORMAT)} : {job['jid']} : {short_name(job['name'])} ({job['state']})"


def resolve_vertex(job: dict[str, Any], named: str) -> dict[str, Any]:
    """Return the vertex of a job that `named` identifies: by its id or name, a prefix or any part of either.

    Raises:
        OperationError: if no vertex matches, or more than one.
    """
    vertices: list[dict[str, Any]] = job["vertices"]
    for fits in (str.__eq__, str.startswith, str.__contains__):
        matches = [vertex for vertex in vertices if fits(vertex["name"], named) or fits(vertex["id"], named)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            break
    names = ", ".join(repr(vertex["name"]) for vertex in vertices)
    raise OperationError(f"{named!r} names {len(matches)} vertices of the job, which has {names}")


def only_running(client: RestClient) -> str:
    """Return the id of the only running job.

    Raises:
        WrongValueError: if no job runs, or more than one.
    """
    running = [job for job in overview(client) if job["state"] not in ENDED]
    if len(running) != 1:
        names = ", ".join(job["name"] for job in running[:5])
        raise WrongValueError(f"name a job: {len(running)} are running{f' ({names})' if names else ''}")
    return str(running[0]["jid"])


#: How long (s) a stopped job's workers may take to end, and then its program.
RELEASE_SECONDS: Final = 60.0
END_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.1

Say = Callable[[str], None]
Outcome = dict[str, Any]


def say(is_json: bool) -> Say:
    """Return a function that prints lines, or discards them if JSON follows."""
    return (lambda line: None) if is_json else click.echo


def where_client_stands(path: str | None) -> str | None:
    """Return a path for the server, relative to the working directory of the command, not of the server."""
    return path if path is None or "://" in path or "::" in path else os.path.abspath(path)


def stop(
    client: RestClient, named: str, directory: str | None, drain: bool, form: str, detached: bool, echo: Say
) -> Outcome:
    """Stop a job with a savepoint.

    Raises:
        OperationError: if the job cannot be stopped; it then goes on.
    """
    job = resolve_job_id(client, named)
    echo(f'{"Draining" if drain else "Suspending"} job "{job}" with a {form} savepoint.')
    body = {"targetDirectory": where_client_stands(directory), "drain": drain, "formatType": form}
    mode = " in detached mode" if detached else ""
    echo(f"Triggering stop-with-savepoint{mode} for job {job}.")
    trigger = client.request("POST", f"/jobs/{job}/stop", body)["request-id"]
    if detached:
        echo(f"Successfully trigger stop-with-savepoint in detached mode, triggerId: {trigger}")
        return {"job": job, "trigger": trigger}
    path = _written(client, job, trigger, echo)
    wait_until_released(client, job)
    return {"job": job, "savepoint": path}


def wait_until_released(
    client: RestClient,
    job: str,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Return when a stopped job has released its workers, and a program that ends with it has released its port.

    The next command can then start the job again. A session goes on, and so does a program that runs other jobs or has
    more to do; the latter is given `END_SECONDS`.
    """
    with suppress(OperationError):  # the server has ended
        is_session = client.get("/config")["features"]["web-submit"]
        until = now() + RELEASE_SECONDS
        while client.get(f"/jobs/{job}/execution-result")["status"]["id"] != "COMPLETED" and now() < until:
            sleep(PAUSE_SECONDS)
        until = now() + END_SECONDS
        while not is_session and now() < until and all(entry["state"] in ENDED for entry in overview(client)):
            sleep(PAUSE_SECONDS)


def savepoint(client: RestClient, named: str, directory: str | None, form: str, detached: bool, echo: Say) -> Outcome:
    """Take a savepoint of a job, which goes on.

    Raises:
        OperationError: if the savepoint cannot be taken.
    """
    job = resolve_job_id(client, named)
    mode = " in detached mode" if detached else ""
    echo(f"Triggering savepoint{mode} for job {job}.")
    body = {"target-directory": where_client_stands(directory), "cancel-job": False, "formatType": form}
    trigger = client.request("POST", f"/jobs/{job}/savepoints", body)["request-id"]
    if detached:
        echo(f"Successfully trigger manual savepoint, triggerId: {trigger}")
        return {"job": job, "trigger": trigger}
    path = _written(client, job, trigger, echo)
    echo("You can resume your program from this savepoint with the run command.")
    return {"job": job, "savepoint": path}


def dispose(client: RestClient, path: str, echo: Say) -> Outcome:
    """Delete a savepoint.

    Raises:
        OperationError: if the savepoint cannot be deleted.
    """
    echo(f"Disposing savepoint '{path}'.")
    trigger = client.request("POST", "/savepoint-disposal", {"savepoint-path": where_client_stands(path)})["request-id"]
    echo("Waiting for response...")
    client.completed(f"/savepoint-disposal/{trigger}")
    echo(f"Savepoint '{path}' disposed.")
    return {"disposed": path}


def checkpoint(client: RestClient, named: str, full: bool, echo: Say) -> Outcome:
    """Take a checkpoint of a job.

    Raises:
        OperationError: if the checkpoint cannot be taken.
    """
    job = resolve_job_id(client, named)
    echo(f"Triggering checkpoint for job {job}.")
    body = {"checkpointType": "FULL" if full else "CONFIGURED"}
    trigger = client.request("POST", f"/jobs/{job}/checkpoints", body)["request-id"]
    echo("Waiting for response...")
    number = client.completed(f"/jobs/{job}/checkpoints/{trigger}").get("checkpointId")
    echo(f"Checkpoint {number} for job {job} completed.")
    echo("You can resume your program from this checkpoint with the run command.")
    return {"job": job, "checkpoint": number}


def cancel(client: RestClient, named: str, echo: Say) -> Outcome:
    """Cancel a job; it may take a moment to end."""
    job = resolve_job_id(client, named)
    echo(f"Cancelling job {job}.")
    client.request("PATCH", f"/jobs/{job}?mode=cancel")
    echo(f"Cancelled job {job}.")
    return {"job": job}


def cancel_with_savepoint(client: RestClient, named: str, directory: str | None, echo: Say) -> Outcome:
    """Take a savepoint of a job, and cancel it.

    Raises:
        OperationError: if the savepoint cannot be taken; the job then goes on.
    """
    job = resolve_job_id(client, named)
    echo('DEPRECATION WARNING: Cancelling a job with savepoint is deprecated. Use "stop" instead.')
    echo(f"Cancelling job {job} with savepoint to {directory or 'default savepoint directory'}.")
    body = {"target-directory": where_client_stands(directory), "cancel-job": True}
    trigger = client.request("POST", f"/jobs/{job}/savepoints", body)["request-id"]
    path = client.completed(f"/jobs/{job}/savepoints/{trigger}").get("location")
    echo(f"Cancelled job {job}. Savepoint stored in {path}.")
    return {"job": job, "savepoint": path}


def _written(client: RestClient, job: str, trigger: str, echo: Say) -> str:
    echo("Waiting for response...")
    path = str(client.completed(f"/jobs/{job}/savepoints/{trigger}").get("location"))
    echo(f"Savepoint completed. Path: {path}")
    return path


RESCALE_PAUSE_SECONDS: Final = 0.5


def parse_parallelisms(texts: Sequence[str]) -> dict[str, int]:
    """Parse parallelisms by vertex, from `VERTEX=N`.

    Raises:
        WrongValueError: for a text of another form.
    """
    parallelisms = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        if not name or not equals or not number.isdigit() or not int(number):
            raise WrongValueError(f"write VERTEX=N, with a parallelism of at least 1, not {text!r}")
        parallelisms[name] = int(number)
    return parallelisms


def rescale(
    client: RestClient,
    named: str,
    parallelisms: Mapping[str, int],
    detached: bool,
    echo: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Request the parallelisms and, unless detached, wait until the job has them.

    Raises:
        OperationError: if the job refuses, has no such vertex, ends meanwhile, or goes on unchanged for lack of slots.
    """
    job_id = resolve_job_id(client, named)
    job = client.get(f"/jobs/{job_id}")
    changed = {resolve_vertex(job, name)["id"]: number for name, number in parallelisms.items()}
    bounds = {
        vertex["id"]: {"parallelism": {"lowerBound": 1, "upperBound": changed.get(vertex["id"], vertex["parallelism"])}}
        for vertex in job["vertices"]
    }
    known = _ended(client, job_id).keys()
    echo(f"Rescaling job {job_id}.")
    client.request("PUT", f"/jobs/{job_id}/resource-requirements", bounds)
    if detached:
        return {"job": job_id}
    echo("Waiting for response...")
    while True:
        job = client.get(f"/jobs/{job_id}")
        if job["state"] in ENDED:
            raise OperationError(f"job {job_id} is {job['state']}, and was not rescaled")
        now = {vertex["id"]: vertex for vertex in job["vertices"]}
        if job["state"] == "RUNNING" and all(
            now[vertex_id]["parallelism"] == number for vertex_id, number in changed.items()
        ):
            break
        over = next((entry for uuid, entry in _ended(client, job_id).items() if uuid not in known), None)
        if over is not None and over["terminalState"] != "COMPLETED":
            raise OperationError(f"job {job_id} was not rescaled: {_reason(over)}")
        if over is not None:
            job = client.get(f"/jobs/{job_id}")  # the previous answer may predate the end of the rescale
            if job["state"] == "RUNNING":
                break  # an adaptive job runs at the parallelism that the slots allow
        sleep(RESCALE_PAUSE_SECONDS)
    for vertex in job["vertices"]:
        echo(f"{vertex['name']}: {vertex['parallelism']}")
    return {"job": job_id, "parallelism": {vertex["name"]: vertex["parallelism"] for vertex in job["vertices"]}}


def _ended(client: RestClient, job_id: str) -> dict[str, dict[str, Any]]:
    """Return ended requests by id, newest first; Flink's default scheduler keeps no history of them."""
    try:
        history = client.get(f"/jobs/{job_id}/rescales/history")
    except OperationError:
        return {}
    return {
        entry["rescaleUuid"]: entry
        for entry in history
        if entry["terminalState"] is not None and entry["triggerCause"] == "UPDATE_REQUIREMENT"
    }


def _reason(rescale: Mapping[str, Any]) -> str:
    texts = [state["stringifiedException"] for state in rescale["schedulerStates"]]
    return next((first_line(text) for text in reversed(texts) if text), str(rescale["terminatedReason"]))


#: The interval (s) at which a followed log is read.
LOG_PAUSE_SECONDS: Final = 1.0
#: The number of characters at the end of a log that find the position again after a bounded log dropped its beginning.
ANCHOR: Final = 2_000


def log_path(client: RestClient, job: str | None, worker: str | None, is_stdout: bool) -> str:
    """Return the path of the log.

    Raises:
        WrongValueError: if no job or worker matches, or several do.
    """
    kind = "stdout" if is_stdout else "log"
    query = "" if job is None else f"?job={resolve_job_id(client, job)}"
    if worker is None:
        return f"/jobmanager/{kind}{query}"
    ids = [taskmanager["id"] for taskmanager in client.get("/taskmanagers")["taskmanagers"]]
    matches = [worker_id for worker_id in ids if worker_id == worker] or [
        worker_id for worker_id in ids if worker_id.startswith(worker)
    ]
    if len(matches) != 1:
        raise WrongValueError(f"{worker!r} names {len(matches)} workers; there are {', '.join(ids) or 'none'}")
    return f"/taskmanagers/{matches[0]}/{kind}"


class LogReader:
    """Reads one log."""

    def __init__(self, client: RestClient, path: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._path = path
        self._sleep = sleep

    def lines(self, last: int, follow: bool) -> Iterator[str]:
        """Yield the last lines and, with `follow`, new lines without end."""
        text = self._client.text("GET", self._path)
        lines = text.splitlines()
        yield from lines[max(0, len(lines) - last) :]
        while follow:
            self._sleep(LOG_PAUSE_SECONDS)
            now = self._client.text("GET", self._path)
            yield from added(text, now).splitlines()
            text = now

    def as_json(self, line: str) -> str:
        """Format a line as a JSON object."""
        return json.dumps({"log": self._path.partition("?")[0].removeprefix("/"), "line": line}, ensure_ascii=False)


def added(before: str, now: str) -> str:
    """Return the text added to a log, which may have dropped its beginning or started over."""
    if now.startswith(before):
        return now[len(before) :]
    anchor = before[-ANCHOR:]
    at = now.rfind(anchor) if anchor else -1
    return now if at < 0 else now[at + len(anchor) :]
