"""Derives events from the history that a job keeps, poll by poll.

Status changes, checkpoints, failures and everything else are numbered or dated where they happen, and the job keeps the
latest of each. So polling twice a second finds all of them, unless more has happened in between than is kept; that is
an event as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.core.checkpoint.statistics import CheckpointRecord, CheckpointStatistics, CheckpointStatus
from penstock.core.job.history import FailureRecord
from penstock.core.job.view import JobView
from penstock.drivers.moves import Move
from penstock.operations.events.model import (
    CheckpointEvent,
    EventsMissedEvent,
    JobEvent,
    JobFailureEvent,
    JobRestartEvent,
    JobStatusChangeEvent,
    RescaleEvent,
    WorkerLeavingEvent,
    WorkerLostEvent,
    WorkerRegisteredEvent,
)


class Deriver:
    """Creates the events of one job. It remembers only which events it has reported."""

    def __init__(self, job_id: str, job_name: str) -> None:
        self._base: dict[str, Any] = {"job_id": job_id, "job_name": job_name}
        self._move = 0
        self._status: str | None = None
        self._triggered: set[int] = set()
        self._settled: set[int] = set()
        self._statistics = CheckpointStatistics()
        self._failure = 0
        self._restarts = 0
        self._rescaled: set[tuple[int, int]] = set()
        self._workers: set[str] = set()
        self._leaving: set[str] = set()

    @property
    def last_move(self) -> int:
        """The number of the last reported status change."""
        return self._move

    def take(self, moves: Sequence[Move], view: JobView | None) -> list[JobEvent]:
        """Return the events since the last call, in the order of time.

        Args:
            moves: the status changes after `last_move`.
            view: the current view of the job; None if it is unknown.
        """
        events = list(self._moves(moves))
        if view is not None:
            events += self._derive_worker_events(view)
            events += self._checkpoints(view)
            events += self._failures(view)
            events += self._others(view)
        return sorted(events, key=lambda event: event.at_ms)

    def _moves(self, moves: Sequence[Move]) -> Iterator[JobEvent]:
        for move in moves:
            if move.number > self._move + 1:
                yield self._missed(move.at_ms, "moves", move.number - self._move - 1)
            self._move = move.number
            old, self._status = self._status, move.status
            yield JobStatusChangeEvent(
                at_ms=move.at_ms, old_status=old, new_status=move.status, reason=move.reason, **self._base
            )

    def _checkpoints(self, view: JobView) -> Iterator[JobEvent]:
        now, before = view.checkpoints, self._statistics
        self._statistics = now
        completed = failed = 0
        for record in reversed(now.history):
            yield from self._trigger(record)
            if record.checkpoint_id in self._settled:
                continue
            self._settled.add(record.checkpoint_id)
            completed += record.status is CheckpointStatus.COMPLETED
            failed += record.status is CheckpointStatus.FAILED
            yield self._checkpoint(record, record.triggered_ms + record.duration_ms)
        for record in view.in_progress:
            yield from self._trigger(record)
        missed = now.completed + now.savepoints - before.completed - before.savepoints - completed
        given_up = now.failed + now.given_up - before.failed - before.given_up
        missed = max(0, missed) + max(0, given_up - failed)
        if missed:
            yield self._missed(view.now_ms, "checkpoints", missed)
        checkpoint_ids = {record.checkpoint_id for record in (*now.history, *view.in_progress)}
        self._triggered &= checkpoint_ids
        self._settled &= checkpoint_ids

    def _trigger(self, record: CheckpointRecord) -> Iterator[JobEvent]:
        if record.checkpoint_id not in self._triggered:
            self._triggered.add(record.checkpoint_id)
            yield CheckpointEvent(
                at_ms=record.triggered_ms,
                checkpoint_id=record.checkpoint_id,
                status=CheckpointStatus.IN_PROGRESS.value,
                is_savepoint=record.is_savepoint,
                **self._base,
            )

    def _checkpoint(self, record: CheckpointRecord, at_ms: int) -> JobEvent:
        return CheckpointEvent(
            at_ms=at_ms,
            checkpoint_id=record.checkpoint_id,
            status=record.status.value,
            is_savepoint=record.is_savepoint,
            duration_ms=record.duration_ms,
            full_size=record.state_bytes,
            checkpointed_size=record.stored_bytes,
            path=record.path,
            reason=record.failure,
            **self._base,
        )

    def _failures(self, view: JobView) -> Iterator[JobEvent]:
        failures = [entry for failure in view.failures for entry in (failure, *failure.concurrent)]
        new = sorted((entry for entry in failures if entry.number > self._failure), key=lambda entry: entry.number)
        for failure in new:
            if failure.number > self._failure + 1:
                yield self._missed(failure.at_ms, "failures", failure.number - self._failure - 1)
            self._failure = failure.number
            yield from self._failure_events(failure)

    def _failure_events(self, failure: FailureRecord) -> Iterator[JobEvent]:
        if failure.lost and failure.worker_id is not None:
            yield WorkerLostEvent(
                at_ms=failure.at_ms,
                worker_id=failure.worker_id,
                host=failure.host,
                process_id=failure.process_id,
                lost=failure.lost,
                reason=failure.text,
                **self._base,
            )
        yield JobFailureEvent(
            at_ms=failure.at_ms,
            number=failure.number,
            text=failure.text,
            task=failure.task,
            worker_id=failure.worker_id,
            labels=failure.labels,
            **self._base,
        )

    def _derive_worker_events(self, view: JobView) -> Iterator[JobEvent]:
        for worker in view.workers:
            if worker.worker_id not in self._workers:
                yield WorkerRegisteredEvent(
                    at_ms=view.now_ms,
                    worker_id=worker.worker_id,
                    host=worker.host,
                    process_id=worker.process_id,
                    **self._base,
                )
        self._workers = {worker.worker_id for worker in view.workers}
        for leaving in reversed(view.departures):
            if leaving.worker_id not in self._leaving:
                yield WorkerLeavingEvent(
                    at_ms=leaving.at_ms,
                    worker_id=leaving.worker_id,
                    host=leaving.host,
                    process_id=leaving.process_id,
                    reason=leaving.reason,
                    **self._base,
                )
        self._leaving = {leaving.worker_id for leaving in view.departures}

    def _others(self, view: JobView) -> Iterator[JobEvent]:
        for restarts in range(self._restarts + 1, view.restarts + 1):
            yield JobRestartEvent(at_ms=view.now_ms, restarts=restarts, **self._base)
        self._restarts = max(self._restarts, view.restarts)
        for rescale in reversed(view.rescales):
            if (rescale.at_ms, rescale.attempt) not in self._rescaled:
                yield RescaleEvent(
                    at_ms=rescale.at_ms,
                    cause=rescale.cause.value,
                    changed=rescale.changed,
                    checkpoint_id=rescale.checkpoint_id,
                    **self._base,
                )
        self._rescaled = {(rescale.at_ms, rescale.attempt) for rescale in view.rescales}

    def _missed(self, at_ms: int, what: str, count: int) -> JobEvent:
        return EventsMissedEvent(at_ms=at_ms, what=what, count=count, **self._base)
