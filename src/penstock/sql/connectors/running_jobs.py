"""Snapshots of running jobs, for queries against their state: found, taken, shared, kept while read, and deleted.

A snapshot is a savepoint that the job takes while it goes on. It depends on no file of the job, so nothing that the job
does later, such as deleting checkpoints, restarting or ending, can take it from a query. Every state backend writes it
in the same readable format, with all state in one consistent cut.

**Costs to the job** are bounded by two rules. Queries share a snapshot that is new enough for them, and waiting
queries share the next one. There is a pause between the end of a snapshot and the start of the next one.

**How long a snapshot exists.** Each query that uses it has a claim, which ends some time after the query. A snapshot
without claims is deleted, and so are all of them when the process ends. The end of a query in
BATCH mode is unknown here, so its claim lasts for a fixed time.

Snapshots are shared by the queries of one process. Thread-safe.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from penstock.base.errors import OperationError, PenstockError, shorten
from penstock.base.options import CHECKPOINTING_DIR, SAVEPOINT_DIR
from penstock.server.attachment import dispatcher
from penstock.server.dispatcher import DispatchedJob
from penstock.storage.savepoints import delete_directory

_log = logging.getLogger("penstock.state")

#: The directory of snapshots below a job's own directory of savepoints or checkpoints.
DIRECTORY: Final = "state-queries"
#: How long (s) a snapshot stays after a streaming query: the query's job may restart, and another query may follow.
GRACE_SECONDS: Final = 30.0
#: How often (s) a wait looks whether the query was cancelled, and how often a savepoint over REST is polled.
LOOK_SECONDS: Final = 0.1
#: The timeout (s) of an answer over REST.
ANSWER_SECONDS: Final = 60.0
_ENDED: Final = ("FINISHED", "CANCELED", "FAILED", "SUSPENDED")

Check = Callable[[], None]


class ObservedJob(ABC):
    """A running job whose state is read.

    Attributes:
        key: identifies the job.
        title: names it in errors.
    """

    key: str
    title: str

    @abstractmethod
    def begin_savepoint(self) -> Future[str]:
        """Ask the job for a savepoint; the future has its directory, or the error."""


class JobOfProcess(ObservedJob):
    """A job that this process knows: its own, or one of a program in its session.

    Args:
        job: the job.
        directory: where to put the snapshot; None for the job's own directory.
    """

    def __init__(self, job: DispatchedJob, directory: str | None) -> None:
        self.key = job.job_id
        self.title = f"{job.name!r} ({job.job_id})"
        self._job = job
        self._directory = directory

    def begin_savepoint(self) -> Future[str]:
        """See `ObservedJob`."""
        read = self._job.configuration.read
        own = read(SAVEPOINT_DIR) or read(CHECKPOINTING_DIR)
        directory = self._directory or (None if own is None else f"{own.rstrip('/')}/{DIRECTORY}")
        if directory is None:
            raise OperationError(
                f"it has no directory for a snapshot: set {SAVEPOINT_DIR.key()} or {CHECKPOINTING_DIR.key()} for the "
                "job, or 'snapshot.directory' for the table"
            )
        return self._job.handle.trigger_savepoint(directory)


def find_job(job_id: str | None, name: str | None, directory: str | None) -> ObservedJob:
    """Return a running job that this process knows.

    Args:
        job_id: its id; or None.
        name: its name; or None.
        directory: where to put its snapshots; None for its own directory.

    Raises:
        OperationError: if no such job runs, or several do; the message names the running jobs.
    """
    jobs = dispatcher().jobs()
    matches = [job for job in jobs if (job.job_id == job_id.lower() if job_id is not None else job.name == name)]
    running = [job for job in matches if not job.has_ended]
    if len(running) == 1:
        return JobOfProcess(running[0], directory)
    known = [(job.job_id, job.name) for job in jobs if not job.has_ended]
    ended = f"{matches[-1].handle.status().name}" if matches else None
    raise not_one_job(job_id or name or "", ended, len(running), known, "this process, or name its 'job.rest-address'")


def not_one_job(
    named: str, ended: str | None, count: int, running: Sequence[tuple[str, str]], where: str
) -> OperationError:
    """Return the error for a name that does not identify one running job.

    Args:
        named: the id or the name.
        ended: the status of an ended job of that name; None without one.
        count: how many running jobs have the name.
        running: the ids and names of all running jobs.
        where: where a job should run.
    """
    listing = ", ".join(f"{job_id} ({shorten(name)})" for job_id, name in running[:5]) or "none"
    if count:
        return OperationError(
            f"{count} running jobs are called {shorten(named)!r}: give the 'job.id' of one: {listing}"
        )
    if ended is not None:
        return OperationError(
            f"job {shorten(named)!r} is {ended}, and its state is no longer in memory: read its last savepoint or "
            "retained checkpoint with 'state.path'"
        )
    return OperationError(f"no job {shorten(named)!r} runs here; there are: {listing}. Start it in {where}")


_rest_calls: Final = ThreadPoolExecutor(4, "penstock-state-query")


class JobOfServer(ObservedJob):
    """A job that a REST API controls, such as that of a session. Its snapshots must be readable from here.

    Args:
        address: the root of the API, such as `http://localhost:8081`.
        token: the token to send; None for none.
        job_id: the id of the job; or None.
        name: its name; or None.
        directory: where to put the snapshot; None for the job's directory of savepoints.

    Raises:
        OperationError: if no such job runs there, or several do, or nothing answers.
    """

    def __init__(
        self, address: str, token: str | None, job_id: str | None, name: str | None, directory: str | None
    ) -> None:
        self._address = address.rstrip("/") if "://" in address else f"http://{address}"
        self._token = token
        self._directory = directory
        jobs = self._call("GET", "/jobs/overview")["jobs"]
        matches = [job for job in jobs if (job["jid"] == job_id.lower() if job_id is not None else job["name"] == name)]
        running = [job for job in matches if job["state"] not in _ENDED]
        if len(running) != 1:
            known = [(job["jid"], job["name"]) for job in jobs if job["state"] not in _ENDED]
            ended = matches[-1]["state"] if matches else None
            raise not_one_job(job_id or name or "", ended, len(running), known, f"the session at {self._address}")
        self._job_id = str(running[0]["jid"])
        self.key = f"{self._address}/{self._job_id}"
        self.title = f"{running[0]['name']!r} ({self._job_id}) at {self._address}"

    def begin_savepoint(self) -> Future[str]:
        """See `ObservedJob`."""
        return _rest_calls.submit(self._take)

    def _take(self) -> str:
        path = f"/jobs/{self._job_id}/savepoints"
        body = {"target-directory": self._directory, "cancel-job": False}
        request = self._call("POST", path, body)["request-id"]
        while (answer := self._call("GET", f"{path}/{request}"))["status"]["id"] != "COMPLETED":
            time.sleep(LOOK_SECONDS)
        operation = answer["operation"]
        if "location" not in operation:
            cause = operation["failure-cause"]["stack-trace"].strip().splitlines()
            raise OperationError(cause[-1] if cause else "the savepoint failed")
        return str(operation["location"])

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        try:
            request = Request(self._address + path, data, headers, method=method)
            with urlopen(request, timeout=ANSWER_SECONDS) as response:
                return json.loads(response.read())
        except HTTPError as error:
            with error:
                text = error.read().decode("utf-8", "replace")
            remedy = ": set 'job.rest-token'" if error.code in (401, 403) else ""
            raise OperationError(f"{self._address} answers {error.code} {shorten(text)}{remedy}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise OperationError(f"no REST API answers at {self._address}: {error}") from error


@dataclass
class _Snapshot:
    """A savepoint, when (s) it began, and the claims on it with the time (s) at which each ends."""

    path: str
    begun: float
    claims: dict[str, float] = field(default_factory=dict)


@dataclass
class _Series:
    """The snapshots of one job: the newest one, and when (s) it was complete."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    latest: _Snapshot | None = None
    completed: float = -math.inf


@dataclass(frozen=True, slots=True)
class Claim:
    """A query's claim on a snapshot in the directory `path`."""

    path: str
    number: str


class Snapshots:
    """See the module docstring.

    Args:
        delete: deletes the directory of a savepoint.
        now: a clock (s).
    """

    def __init__(
        self, delete: Callable[[str], None] = delete_directory, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._delete = delete
        self._now = now
        self._changed = threading.Condition()
        self._series: dict[str, _Series] = {}
        self._snapshots: dict[str, _Snapshot] = {}
        self._reaper: threading.Thread | None = None

    def claim(self, job: ObservedJob, not_before: float, pause: float, retention: float, check: Check) -> Claim:
        """Claim a snapshot of a job: a known one that is new enough, or a new one.

        Args:
            job: the job.
            not_before: the earliest time (s, monotonic) at which the snapshot may have begun.
            pause: the minimum time (s) between the end of one snapshot and the begin of the next.
            retention: how long (s) the claim lasts unless it is kept or released.
            check: called while this waits; raises if the query was cancelled.

        Raises:
            PenstockError: if the job takes no savepoint.
        """
        with self._changed:
            series = self._series.setdefault(job.key, _Series())
        while not series.lock.acquire(timeout=LOOK_SECONDS):
            check()
        try:
            if (claim := self._claim_latest(series, not_before, retention)) is not None:
                return claim
            while (rest := series.completed + pause - self._now()) > 0:
                check()
                time.sleep(min(rest, LOOK_SECONDS))
            begun = self._now()
            path = self._wait(job.begin_savepoint(), check)
            series.completed = self._now()
            with self._changed:
                series.latest = self._snapshots[path] = _Snapshot(path, begun)
                return self._add_claim(series.latest, retention)
        finally:
            series.lock.release()

    def _claim_latest(self, series: _Series, not_before: float, retention: float) -> Claim | None:
        with self._changed:
            latest = series.latest
            if latest is None or latest.begun < not_before or latest.path not in self._snapshots:
                return None
            return self._add_claim(latest, retention)

    def _add_claim(self, snapshot: _Snapshot, retention: float) -> Claim:
        claim = Claim(snapshot.path, uuid.uuid4().hex)
        snapshot.claims[claim.number] = self._now() + retention
        if self._reaper is None:
            self._reaper = threading.Thread(target=self._reap, name="penstock-state-snapshots", daemon=True)
            self._reaper.start()
        return claim

    def _wait(self, taken: Future[str], check: Check) -> str:
        """Wait for a savepoint. If the query is cancelled meanwhile, the savepoint is deleted once it is complete."""
        try:
            while True:
                try:
                    return taken.result(LOOK_SECONDS)
                except FutureTimeoutError:
                    if taken.done():
                        raise
                    check()
        except BaseException:
            taken.add_done_callback(self._drop)
            raise

    def _drop(self, taken: Future[str]) -> None:
        if not taken.cancelled() and taken.exception() is None:
            self._remove(taken.result())

    def keep(self, claim: Claim) -> bool:
        """Let a claim last until it is released; return False if its snapshot has been deleted."""
        return self._set_end(claim, math.inf)

    def release(self, claim: Claim, after: float) -> None:
        """Let a claim end after a time (s)."""
        self._set_end(claim, self._now() + after)

    def _set_end(self, claim: Claim, ends: float) -> bool:
        with self._changed:
            snapshot = self._snapshots.get(claim.path)
            if snapshot is not None:
                snapshot.claims[claim.number] = ends
                self._changed.notify_all()
            return snapshot is not None

    def _reap(self) -> None:
        """Delete snapshots without claims, until no snapshot is left."""
        while True:
            with self._changed:
                if not self._snapshots:
                    self._reaper = None
                    return
                expired = self._pop_expired()
                if not expired:
                    ends = min(max(snapshot.claims.values()) for snapshot in self._snapshots.values())
                    self._changed.wait(None if ends == math.inf else max(ends - self._now(), 0.0))
            for path in expired:
                self._remove(path)

    def _pop_expired(self) -> list[str]:
        now = self._now()
        expired = [path for path, snapshot in self._snapshots.items() if max(snapshot.claims.values()) <= now]
        for path in expired:
            del self._snapshots[path]
        return expired

    def paths(self) -> list[str]:
        """Return the directories of all snapshots."""
        with self._changed:
            return list(self._snapshots)

    def delete_all(self) -> None:
        """Delete all snapshots: the process ends."""
        with self._changed:
            paths = list(self._snapshots)
            self._snapshots.clear()
            self._changed.notify_all()
        for path in paths:
            self._remove(path)

    def _remove(self, path: str) -> None:
        try:
            self._delete(path)
        except (PenstockError, OSError) as error:
            _log.warning("the snapshot %s could not be deleted: %s", path, error)


#: the snapshots of this process
SNAPSHOTS: Final = Snapshots()
atexit.register(SNAPSHOTS.delete_all)


__all__ = ["GRACE_SECONDS", "SNAPSHOTS", "Claim", "JobOfServer", "ObservedJob", "Snapshots", "find_job"]
