"""Where a stepwise job begins: at the newest checkpoint of its name, at a given path, or from nothing (G8, H2)."""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError, JobExecutionError
from penstock.base.options import RECOVERY_FROM_LATEST, RECOVERY_PATH
from penstock.core.checkpoint.latest import (
    Choice,
    Forerunners,
    choose_latest,
    finished_before,
    forerunners,
    refusal_of_latest,
)
from penstock.core.checkpoint.recovery import fallen_back, must_not_fall_back, refusal_to_fall_back
from penstock.core.checkpoint.restore import check_fit, to_initial_metadata
from penstock.core.checkpoint.settings import CheckpointSettings
from penstock.core.graph.job_graph import JobGraph
from penstock.core.master.steps import Load, Log, ReadThrough, Steps, TakeOver
from penstock.storage.job_marks import LeftByJobs
from penstock.storage.metadata import CheckpointMetadata


class HasEnded(Exception):
    """A job of this name has already ended, so nothing is left to do."""


class Latest(NamedTuple):
    """The checkpoint that a job continues from, if any, and the jobs that it continues."""

    metadata: CheckpointMetadata | None
    forerunners: Forerunners


def begin_from_latest(job_graph: JobGraph, job_id: str, configuration: Configuration) -> Steps[Latest]:
    """Return the newest intact checkpoint of the job's name, and the jobs that this one continues.

    Raises:
        HasEnded: if nothing is left to do.
        JobExecutionError: if the checkpoint cannot be read or does not fit the job, or if falling back past a damaged
            one would commit something again.
    """
    name, option = job_graph.name, RECOVERY_FROM_LATEST.key()
    try:
        left: LeftByJobs = yield TakeOver(name)
        if left.damaged:
            raise CheckpointError(left.damaged[0])
        choice = choose_latest(left)
        before = forerunners(left, choice, CheckpointSettings.of(configuration).retain_on_cancel, job_id)
        for line in choice.damaged:
            yield Log(line)
        if choice.damaged and must_not_fall_back(job_graph, configuration):
            raise JobExecutionError(name, refusal_of_latest(choice))
        if choice.end is not None:
            raise HasEnded(f"{option}: {finished_before(choice.end)}")
        if choice.is_empty:
            yield Log(f"{option}: no job named {name!r} has left a checkpoint")
            return Latest(None, before)
        metadata, skipped = yield from _newest_whole(choice, job_graph, configuration)
        if skipped:
            yield Log(fallen_back(skipped, str(metadata.external_path)))
    except (CheckpointError, OSError) as error:
        raise JobExecutionError(name, f"{option}: cannot read what jobs of this name have left: {error}") from error
    fitting = yield from _fitting(metadata, option, job_graph, configuration)
    return Latest(fitting, before)


def _newest_whole(
    choice: Choice, job_graph: JobGraph, configuration: Configuration
) -> Steps[tuple[CheckpointMetadata, list[str]]]:
    """Return the newest readable checkpoint, and the paths of the newer ones, which are skipped."""
    skipped = list(choice.skipped)
    candidates = list(choice.checkpoints)
    if choice.path is not None:
        candidates = [(yield Load(choice.path, job_graph.name, claims(configuration)))]
    while True:
        metadata = candidates.pop(0)
        try:
            yield ReadThrough(metadata)
        except CheckpointError as error:
            damage = f"{metadata.external_path} cannot be restored: {error}"
            yield Log(damage)
            skipped.append(str(metadata.external_path))
            if not candidates:
                raise
            if must_not_fall_back(job_graph, configuration):
                before = str(candidates[0].external_path)
                raise JobExecutionError(job_graph.name, refusal_to_fall_back(damage, before)) from error
        else:
            return metadata, skipped


def claims(configuration: Configuration) -> bool:
    """Return whether the job deletes the snapshot it begins from, once it has a checkpoint of its own."""
    return CheckpointSettings.of(configuration).claims_initial


def begin_from_path(job_graph: JobGraph, configuration: Configuration) -> Steps[CheckpointMetadata | None]:
    """Return the checkpoint or savepoint that the configuration names; None if it names nothing.

    Raises:
        JobExecutionError: if it cannot be read, or does not fit the job.
    """
    path, option = configuration.read(RECOVERY_PATH), RECOVERY_PATH.key()
    if path is None:
        return None
    try:
        metadata: CheckpointMetadata = yield Load(path, job_graph.name, claims(configuration))
        yield ReadThrough(metadata)
    except Exception as error:
        raise JobExecutionError(job_graph.name, f"{option} {path} cannot be read: {error}") from error
    return (yield from _fitting(metadata, option, job_graph, configuration))


def _fitting(
    metadata: CheckpointMetadata, option: str, job_graph: JobGraph, configuration: Configuration
) -> Steps[CheckpointMetadata]:
    try:
        lines = check_fit(metadata, job_graph, configuration)
    except CheckpointError as misfit:
        where = f"{option} {metadata.external_path}"
        raise JobExecutionError(job_graph.name, f"{where} does not fit the job: {misfit}") from misfit
    for line in lines:
        yield Log(line)
    yield Log(f"begins from {metadata.external_path}")
    return to_initial_metadata(metadata, configuration)
