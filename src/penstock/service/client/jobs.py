"""Jobs as the command line names them: by id, by name, or by a prefix of either."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from penstock.base.errors import OperationError, WrongValueError
from penstock.service.client.rest_client import RestClient

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
