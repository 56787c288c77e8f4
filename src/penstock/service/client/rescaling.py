"""Rescaling of vertices of a running job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.base.errors import OperationError, WrongValueError
from penstock.service.client.jobs import ENDED, resolve_job_id, resolve_vertex
from penstock.service.client.rest_client import RestClient, first_line

PAUSE_SECONDS: Final = 0.5


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
        sleep(PAUSE_SECONDS)
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
