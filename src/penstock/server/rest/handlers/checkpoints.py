"""Checkpoints over REST: statistics, configuration and details of a job, and checkpoints and savepoints on request.

**Requests.** One request starts a checkpoint or a savepoint, others poll it.

`DataSets` are cluster data sets, Flink's store for cached tables. Penstock keeps none, and answers as Flink does
without any.
"""

from __future__ import annotations

import logging
import posixpath
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Annotated, Any, Final, Literal

import msgspec

from penstock.base import options
from penstock.base.errors import CheckpointError, OperationError, shorten
from penstock.drivers.running_job import JobHandle
from penstock.runtime.checkpoint.statistics import CheckpointStatus
from penstock.runtime.job.view import JobView
from penstock.server.rest.calls.context import RestContext
from penstock.server.rest.calls.routing import Call, Route, bad_request, not_found
from penstock.server.rest.handlers.jobs import QueueStatus
from penstock.server.rest.messages.checkpoints import (
    Checkpoint,
    Checkpoints,
    TaskCheckpointDetails,
    checkpoint_details,
    checkpoints,
    find_checkpoint,
    task_checkpoint_details,
)
from penstock.server.rest.messages.jobs import FailureCause, failure_cause
from penstock.storage.files import absolute_url
from penstock.storage.metadata import METADATA_NAME, MissingMetadataError
from penstock.storage.savepoints import check_disposable, delete_snapshot, open_snapshot, real_directory

#: The interval that Flink reports, and its web UI expects, when periodic checkpoints are off.
_NO_INTERVAL: Final = 2**63 - 1


class Externalization(msgspec.Struct, frozen=True):
    """Whether checkpoints outlive a job."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfig(msgspec.Struct, frozen=True):
    """The checkpoint settings; times in ms. Penstock has no state changelog."""

    mode: Literal["exactly_once", "at_least_once"]
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool = True
    state_changelog_enabled: bool = False
    changelog_periodic_materialization_interval: int = 0
    changelog_storage: str = "none"


def statistics(call: Call) -> Any:
    """Return counts, summaries, the latest checkpoints and the history."""
    return call.once_a_view("checkpoints", checkpoints)


def config(call: Call) -> CheckpointConfig:
    """Return the checkpoint settings of a job."""
    settings = call.job().configuration
    retention = settings.read(options.CHECKPOINT_RETENTION)
    is_heap, is_stored = (
        settings.read(options.STATE_BACKEND) == "hashmap",
        settings.read(options.CHECKPOINTING_DIR) is not None,
    )
    exactly_once = settings.read(options.CHECKPOINTING_MODE) == "EXACTLY_ONCE"
    return CheckpointConfig(
        mode="exactly_once" if exactly_once else "at_least_once",
        interval=settings.read(options.CHECKPOINTING_INTERVAL_MS) or _NO_INTERVAL,
        timeout=settings.read(options.CHECKPOINTING_TIMEOUT_MS),
        min_pause=settings.read(options.CHECKPOINTING_MIN_PAUSE_MS),
        max_concurrent=settings.read(options.CHECKPOINTING_MAX_CONCURRENT),
        externalization=Externalization(
            retention != "NO_EXTERNALIZED_CHECKPOINTS", retention != "RETAIN_ON_CANCELLATION"
        ),
        state_backend="HashMapStateBackend" if is_heap else "EmbeddedRocksDBStateBackend",
        checkpoint_storage="FileSystemCheckpointStorage" if is_stored else "JobManagerCheckpointStorage",
        unaligned_checkpoints=settings.read(options.UNALIGNED_ENABLED),
        tolerable_failed_checkpoints=settings.read(options.CHECKPOINTING_TOLERABLE_FAILURES),
        aligned_checkpoint_timeout=settings.read(options.ALIGNED_TIMEOUT_MS),
    )


def details(call: Call) -> Any:
    """Return one checkpoint with its vertices."""
    return call.once_a_view(
        f"checkpoint {call.path['checkpointid']}", lambda view: checkpoint_details(view, _found(call, view))
    )


def subtasks(call: Call) -> Any:
    """Return one checkpoint with the subtasks of a vertex."""
    name = f"checkpoint {call.path['checkpointid']} {call.path['vertexid']}"
    return call.once_a_view(name, lambda view: task_checkpoint_details(_found(call, view), call.vertex(view)))


def _found(call: Call, view: Any) -> Any:
    record = find_checkpoint(view, int(call.path["checkpointid"]))
    if record is None:
        raise not_found(f"Could not find checkpointing statistics for checkpoint {call.path['checkpointid']}.")
    return record


_OF_JOB = "/jobs/:jobid/checkpoints"
CHECKPOINTS_ROUTES = [
    Route("GET", _OF_JOB, statistics, "The checkpoints of a job.", Checkpoints, access="reveals"),
    Route("GET", f"{_OF_JOB}/config", config, "How checkpoints are taken.", CheckpointConfig),
    Route("GET", f"{_OF_JOB}/details/:checkpointid", details, "A checkpoint.", Checkpoint, access="reveals"),
    Route(
        "GET",
        f"{_OF_JOB}/details/:checkpointid/subtasks/:vertexid",
        subtasks,
        "A checkpoint, by the subtasks of a vertex.",
        TaskCheckpointDetails,
    ),
]


HexId = Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{32}$")]


class Triggered(msgspec.Struct, frozen=True, rename="kebab"):
    """The id of a started operation, for polling it."""

    request_id: str


class SavepointRequest(msgspec.Struct, frozen=True):
    """Takes a savepoint."""

    target_directory: str | None = msgspec.field(name="target-directory", default=None)
    cancel_job: bool = msgspec.field(name="cancel-job", default=False)
    format_type: Literal["CANONICAL", "NATIVE"] | None = msgspec.field(name="formatType", default=None)
    trigger_id: HexId | None = msgspec.field(name="triggerId", default=None)


class StopRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Ends a job with a savepoint."""

    target_directory: str | None = None
    drain: bool = False
    format_type: Literal["CANONICAL", "NATIVE"] | None = None
    trigger_id: HexId | None = None


class CheckpointRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Takes a checkpoint."""

    checkpoint_type: Literal["CONFIGURED", "FULL", "INCREMENTAL"] = "CONFIGURED"
    trigger_id: HexId | None = None


class DisposalRequest(msgspec.Struct, frozen=True, rename="kebab"):
    """Deletes a savepoint."""

    savepoint_path: str | None = None


class SavepointInfo(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """The path of the savepoint, or the reason for its failure."""

    location: str | None = None
    failure_cause: FailureCause | None = None


class SavepointState(msgspec.Struct, frozen=True):
    """The state of a savepoint operation."""

    status: QueueStatus
    operation: SavepointInfo | None


class CheckpointInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The id of the checkpoint, or the reason for its failure."""

    checkpoint_id: int | None = None
    failure_cause: FailureCause | None = None


class CheckpointState(msgspec.Struct, frozen=True):
    """The state of a checkpoint operation."""

    status: QueueStatus
    operation: CheckpointInfo | None


class DisposalInfo(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """The reason why the savepoint was not deleted, if it was not."""

    failure_cause: FailureCause | None = None


class DisposalState(msgspec.Struct, frozen=True):
    """The state of the deletion of a savepoint."""

    status: QueueStatus
    operation: DisposalInfo | None


_log = logging.getLogger("penstock.rest")

_IN_PROGRESS: Final = QueueStatus("IN_PROGRESS")
_COMPLETED: Final = QueueStatus("COMPLETED")
#: How long (s) a checkpoint waits until the job can take one, and how often it retries.
_ROOM_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.25
_pool: Final = ThreadPoolExecutor(4, "penstock-rest-operation")


def savepoint(call: Call) -> Triggered:
    """Take a savepoint; the job goes on or is cancelled."""
    request = call.json(SavepointRequest)
    _check_format(request.format_type)

    def begin() -> Future[str]:
        handle = call.job().handle
        if request.cancel_job:
            return handle.cancel_with_savepoint(request.target_directory)
        return handle.trigger_savepoint(request.target_directory)

    return _begin(call, "savepoint", request.trigger_id, begin)


def stop(call: Call) -> Triggered:
    """End the job with a savepoint."""
    request = call.json(StopRequest)
    _check_format(request.format_type)
    return _begin(
        call,
        "savepoint",
        request.trigger_id,
        lambda: call.job().handle.stop_with_savepoint(request.drain, request.target_directory),
    )


def _check_format(format_type: str | None) -> None:
    if format_type == "NATIVE":
        raise bad_request(
            "formatType NATIVE is not supported: all state backends read one format of savepoints; take CANONICAL"
        )


def checkpoint(call: Call) -> Triggered:
    """Take a checkpoint. Checkpoints are incremental, except full ones, which rewrite all state."""
    request = call.json(CheckpointRequest)
    is_full = request.checkpoint_type == "FULL"
    return _begin(call, "checkpoint", request.trigger_id, lambda: _pool.submit(_trigger, call.job().handle, is_full))


def _trigger(handle: JobHandle, is_full: bool) -> int | None:
    """Trigger a checkpoint, or wait for the next one if another is in progress; None if none begins for a while.

    A job that always has a checkpoint in progress has no room for another, and its next one is as good. After a request
    for a full one, the next periodic checkpoint is full, and repeating the request returns its id.
    """
    checkpoint_id = handle.trigger_checkpoint(is_full).result()
    if checkpoint_id is not None:
        return checkpoint_id
    known = _newest(handle.get_view().result())
    until = time.monotonic() + _ROOM_SECONDS
    while time.monotonic() < until:
        time.sleep(_PAUSE_SECONDS)
        newest = _newest(handle.get_view().result())
        checkpoint_id = newest if newest > known and not is_full else handle.trigger_checkpoint(is_full).result()
        if checkpoint_id is not None:
            return checkpoint_id
    return None


def _newest(view: JobView) -> int:
    """Return the highest checkpoint id so far; 0 before the first checkpoint."""
    return max((record.checkpoint_id for record in (*view.in_progress, *view.checkpoints.history)), default=0)


def _begin(call: Call, kind: str, trigger_id: str | None, begin: Callable[[], Future[Any]]) -> Triggered:
    return Triggered(call.context.operations.begin(kind, call.path["jobid"], begin, trigger_id))


def savepoint_state(call: Call) -> SavepointState:
    """Return the state of a savepoint operation."""
    future = call.context.operations.find("savepoint", call.path["jobid"], call.path["triggerid"])
    if not future.done():
        return SavepointState(_IN_PROGRESS, None)
    if (error := get_error(future)) is not None:
        return SavepointState(_COMPLETED, SavepointInfo(failure_cause=failure_cause(error)))
    return SavepointState(_COMPLETED, SavepointInfo(future.result()))


def checkpoint_state(call: Call) -> CheckpointState:
    """Return the state of a checkpoint operation."""
    future = call.context.operations.find("checkpoint", call.path["jobid"], call.path["triggerid"])
    if not future.done():
        return CheckpointState(_IN_PROGRESS, None)
    error = get_error(future)
    if error is None and future.result() is None:
        error = CheckpointError("no checkpoint: the job is not in a state to take one, or takes none")
    if error is not None:
        return CheckpointState(_COMPLETED, CheckpointInfo(failure_cause=failure_cause(error)))
    return _checkpoint_state(call.view(), future.result())


def _checkpoint_state(view: JobView, checkpoint_id: int) -> CheckpointState:
    """Return a checkpoint's state by its recorded outcome, because checkpoints soon leave the job's short history."""
    outcomes = dict(view.checkpoints.outcomes)
    record = find_checkpoint(view, checkpoint_id)
    if record is not None and record.status is not CheckpointStatus.IN_PROGRESS:
        outcomes[checkpoint_id] = record.failure if record.status is CheckpointStatus.FAILED else None
    if checkpoint_id in outcomes:
        failure = outcomes[checkpoint_id]
        if failure is None:
            return CheckpointState(_COMPLETED, CheckpointInfo(checkpoint_id))
        failed = CheckpointError(f"checkpoint {checkpoint_id} failed: {failure}")
        return CheckpointState(_COMPLETED, CheckpointInfo(failure_cause=failure_cause(failed)))
    if record is None and (view.status.is_terminal_state() or any(known > checkpoint_id for known in outcomes)):
        why = "the job ended before it was complete" if view.status.is_terminal_state() else "its outcome is unknown"
        lost = CheckpointError(
            f"checkpoint {checkpoint_id}: {why}; its metadata, if it is there, says that it is complete"
        )
        return CheckpointState(_COMPLETED, CheckpointInfo(failure_cause=failure_cause(lost)))
    return CheckpointState(_IN_PROGRESS, None)


def get_error(future: Future[Any]) -> BaseException | None:
    """Return the error of an operation; None if it succeeded."""
    if future.cancelled():
        return OperationError("the job is over")
    error = future.exception()
    return OperationError("the job is over") if isinstance(error, CancelledError) else error


def dispose(call: Call) -> Triggered:
    """Delete a savepoint."""
    path = call.json(DisposalRequest).savepoint_path
    if not path:
        raise bad_request('Bad request received. "savepoint-path" names the savepoint to delete.')
    delete = lambda: _pool.submit(_delete, call.context, path)  # noqa: E731
    return Triggered(call.context.operations.begin("disposal", "", delete))


def _delete(context: RestContext, path: str) -> None:
    """Delete a savepoint or checkpoint.

    Refuse other programs' directories, which may also contain a `_metadata` file.
    """
    try:
        snapshot = open_snapshot(path)
    except MissingMetadataError as error:
        raise CheckpointError(f"{path} is no savepoint: there is no {METADATA_NAME} in it") from error
    ended, roots = set(), set()
    for job, view in context.views():
        root = job.configuration.read(options.CHECKPOINTING_DIR)
        if root is not None:
            roots.add(absolute_url(root))
        if view.status.is_terminal_state():
            ended.add(view.job_id)
        elif _uses(view, job.configuration.read(options.RECOVERY_PATH), snapshot.directory):
            raise CheckpointError(f"{path} is in use by job {view.name!r} ({view.job_id})")
    check_disposable(snapshot, ended.__contains__, sorted(roots))
    left = delete_snapshot(snapshot, sorted(roots))
    if left:
        _log.warning(
            "%s: the savepoint is deleted; its directory stays, because other files are in it: %s",
            snapshot.url,
            shorten(", ".join(left)),
        )


def _uses(view: JobView, begins_from: str | None, directory: str) -> bool:
    """Return whether a job may need the snapshot in a directory.

    That is the snapshot it started from, and any checkpoint beside its own, because these share files.
    """
    known = view.checkpoints
    checkpoints = [
        record.path for record in (known.last, *known.history) if record is not None and not record.is_savepoint
    ]
    began = [begins_from]
    if known.restored is not None:
        began.append(known.restored.path)
        checkpoints += [] if known.restored.is_savepoint else [known.restored.path]
    if any(path and real_directory(path)[1] == directory for path in began):
        return True
    above = posixpath.dirname(directory)
    return any(path and posixpath.dirname(real_directory(path)[1]) == above for path in checkpoints)


def disposal_state(call: Call) -> DisposalState:
    """Return the state of the deletion of a savepoint."""
    future = call.context.operations.find("disposal", "", call.path["triggerid"])
    if not future.done():
        return DisposalState(_IN_PROGRESS, None)
    error = get_error(future)
    return DisposalState(_COMPLETED, DisposalInfo(None if error is None else failure_cause(error)))


_JOB = "/jobs/:jobid"
SAVEPOINTS_ROUTES = [
    Route(
        "POST",
        f"{_JOB}/savepoints",
        savepoint,
        "Takes a savepoint.",
        Triggered,
        202,
        "changes",
        body=SavepointRequest,
    ),
    Route("POST", f"{_JOB}/stop", stop, "Ends a job with a savepoint.", Triggered, 202, "changes", body=StopRequest),
    Route(
        "GET",
        f"{_JOB}/savepoints/:triggerid",
        savepoint_state,
        "What has become of it.",
        SavepointState,
        access="reveals",
    ),
    Route(
        "POST",
        f"{_JOB}/checkpoints",
        checkpoint,
        "Takes a checkpoint.",
        Triggered,
        202,
        "changes",
        body=CheckpointRequest,
    ),
    Route(
        "GET",
        f"{_JOB}/checkpoints/:triggerid",
        checkpoint_state,
        "What has become of it.",
        CheckpointState,
        access="reveals",
    ),
    Route(
        "POST",
        "/savepoint-disposal",
        dispose,
        "Deletes a savepoint.",
        Triggered,
        access="changes",
        body=DisposalRequest,
    ),
    Route(
        "GET",
        "/savepoint-disposal/:triggerid",
        disposal_state,
        "What has become of that.",
        DisposalState,
        access="reveals",
    ),
]


class DataSet(msgspec.Struct, frozen=True, rename="camel"):
    """A cached data set."""

    id: str
    is_complete: bool


class DataSets(msgspec.Struct, frozen=True, rename="camel"):
    """All cached data sets."""

    data_sets: list[DataSet]


def data_sets(call: Call) -> DataSets:
    """Return an empty list."""
    return DataSets([])


def delete(call: Call) -> Any:
    """Answer 404, because no data set exists."""
    raise not_found(f"Data set {call.path['datasetid']} not found")


def delete_state(call: Call) -> Any:
    """Answer 404, because no deletion was started."""
    raise not_found(f"Operation not found under key: {call.path['triggerid']}")


DATASETS_ROUTES = [
    Route("GET", "/datasets", data_sets, "Cached data sets: none.", DataSets),
    Route("DELETE", "/datasets/:datasetid", delete, "Deletes a cached data set.", Triggered, 202, "changes"),
    Route(
        "GET", "/datasets/delete/:triggerid", delete_state, "What has become of that.", DisposalState, access="reveals"
    ),
]


ROUTES = (*CHECKPOINTS_ROUTES, *SAVEPOINTS_ROUTES, *DATASETS_ROUTES)
