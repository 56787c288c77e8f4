"""Where a job without job master goes on that is to go on from the newest checkpoint of its name."""

from __future__ import annotations

from penstock.common import options
from penstock.common.configuration import Configuration
from penstock.common.errors import CheckpointError, JobExecutionError
from penstock.core.checkpoint.latest import choose_latest, finished_before, refusal_of_latest
from penstock.core.checkpoint.recovery import read_through, refusal_to_fall_back
from penstock.core.job.job_graph import JobGraph
from penstock.core.ports import JobListener
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import CheckpointMetadata


class HasEnded(Exception):
    """A job of the name has come to its end: there is nothing left to do."""


def latest_of_name(
    store: FileCheckpointStore, job_graph: JobGraph, configuration: Configuration, listener: JobListener
) -> CheckpointMetadata | None:
    """The newest whole checkpoint; None when there is none, and the job begins as it would without.

    Raises:
        HasEnded: if nothing is left to do.
        JobExecutionError: if what there is cannot be read, or going past what is damaged would commit something again.
    """
    name, option = job_graph.name, options.RECOVERY_FROM_LATEST.key()
    refuses = job_graph.commits and configuration.read(options.RECOVERY_PAST_DAMAGED) == "refuse"
    try:
        choice = choose_latest(store.left_by(name))
        for line in choice.damaged:
            listener.on_log(line)
        if choice.damaged and refuses:
            raise JobExecutionError(name, refusal_of_latest(choice))
        if choice.end is not None:
            raise HasEnded(f"{option}: {finished_before(choice.end)}")
        candidates = list(choice.checkpoints)
        if choice.path is not None:
            candidates = [store.load(choice.path)]
        while candidates:
            metadata = candidates.pop(0)
            try:
                read_through(store, metadata)
            except CheckpointError as error:
                damage = f"{metadata.external_path} cannot be restored: {error}"
                listener.on_log(damage)
                if not candidates:
                    raise
                if refuses:
                    before = str(candidates[0].external_path)
                    raise JobExecutionError(name, refusal_to_fall_back(damage, before)) from error
            else:
                return metadata
    except (CheckpointError, OSError) as error:
        raise JobExecutionError(name, f"{option}: what jobs of this name have left cannot be read: {error}") from error
    listener.on_log(f"{option}: no job named {name!r} has left a checkpoint")
    return None
