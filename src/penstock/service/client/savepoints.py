"""Savepoints, checkpoints, stopping and cancelling, with the output of Flink's client."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import click

from penstock.base.errors import OperationError
from penstock.service.client.jobs import ENDED, overview, resolve_job_id
from penstock.service.client.rest_client import RestClient

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
