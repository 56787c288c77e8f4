"""Checkpoints of a job: statistics, configuration, details."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from penstock.base.options import (
    ALIGNED_TIMEOUT_MS,
    CHECKPOINT_RETENTION,
    CHECKPOINTING_DIR,
    CHECKPOINTING_INTERVAL_MS,
    CHECKPOINTING_MAX_CONCURRENT,
    CHECKPOINTING_MIN_PAUSE_MS,
    CHECKPOINTING_MODE,
    CHECKPOINTING_TIMEOUT_MS,
    CHECKPOINTING_TOLERABLE_FAILURES,
    STATE_BACKEND,
    UNALIGNED_ENABLED,
)
from penstock.operations.rest.calls.errors import not_found
from penstock.operations.rest.calls.routing import Call, Route
from penstock.operations.rest.shapes.checkpoints import (
    Checkpoint,
    Checkpoints,
    checkpoint_details,
    checkpoints,
    find_checkpoint,
)
from penstock.operations.rest.shapes.subtask_checkpoints import TaskCheckpointDetails, task_checkpoint_details

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
    retention = settings.read(CHECKPOINT_RETENTION)
    is_heap, is_stored = settings.read(STATE_BACKEND) == "hashmap", settings.read(CHECKPOINTING_DIR) is not None
    exactly_once = settings.read(CHECKPOINTING_MODE) == "EXACTLY_ONCE"
    return CheckpointConfig(
        mode="exactly_once" if exactly_once else "at_least_once",
        interval=settings.read(CHECKPOINTING_INTERVAL_MS) or _NO_INTERVAL,
        timeout=settings.read(CHECKPOINTING_TIMEOUT_MS),
        min_pause=settings.read(CHECKPOINTING_MIN_PAUSE_MS),
        max_concurrent=settings.read(CHECKPOINTING_MAX_CONCURRENT),
        externalization=Externalization(
            retention != "NO_EXTERNALIZED_CHECKPOINTS", retention != "RETAIN_ON_CANCELLATION"
        ),
        state_backend="HashMapStateBackend" if is_heap else "EmbeddedRocksDBStateBackend",
        checkpoint_storage="FileSystemCheckpointStorage" if is_stored else "JobManagerCheckpointStorage",
        unaligned_checkpoints=settings.read(UNALIGNED_ENABLED),
        tolerable_failed_checkpoints=settings.read(CHECKPOINTING_TOLERABLE_FAILURES),
        aligned_checkpoint_timeout=settings.read(ALIGNED_TIMEOUT_MS),
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
ROUTES = [
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
