"""Events out of views: each thing that happens is told once, and what cannot be told is counted (A1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.runtime.job.master_rig import MasterRig, running

from penstock.drivers.running_job import MOVES_MAX, Moves
from penstock.runtime.checkpoint.statistics import HISTORY_MAX
from penstock.runtime.job.view import FAILURES_MAX
from penstock.server.events import (
    CheckpointEvent,
    Deriver,
    EventsMissedEvent,
    JobEvent,
    JobFailureEvent,
    JobRestartEvent,
    JobStatusChangeEvent,
    WorkerLostEvent,
    WorkerRegisteredEvent,
)


class Quiet:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_job_status(self, status: str, reason: str | None) -> None:
        self.heard.append((status, reason))

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        self.heard.append(payload)

    def on_log(self, line: str) -> None:
        self.heard.append(line)


class Look:
    """A job that is looked at now and then."""

    def __init__(self, rig: MasterRig) -> None:
        self.rig = rig
        self.deriver = Deriver("job-1", "job")

    def new(self) -> list[JobEvent]:
        return self.deriver.take([], self.rig.master.view())


def of(events: Sequence[JobEvent], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def complete(rig: MasterRig) -> None:
    """One checkpoint, from trigger to completion."""
    rig.advance(1_000)
    rig.acknowledge(rig.triggered()[-1])


def test_each_worker_is_told_of_once() -> None:
    look = Look(running())
    first = of(look.new(), WorkerRegisteredEvent)
    assert [(event.worker_id, event.host, event.process_id) for event in first] == [
        ("w1", "host", 1001),
        ("w2", "host", 1002),
    ]
    assert (first[0].job_id, first[0].job_name) == ("job-1", "job")
    assert look.new() == []


def test_a_lost_worker_is_told_of_with_its_tasks_and_the_failure_that_it_is() -> None:
    look = Look(running())
    look.new()
    look.rig.lose("w2")
    events = look.new()
    (lost,) = of(events, WorkerLostEvent)
    assert (lost.worker_id, lost.host, lost.process_id) == ("w2", "host", 1002)
    assert len(lost.lost) == 2
    (failure,) = of(events, JobFailureEvent)
    assert failure.number == 1
    assert "w2" in failure.text
    look.rig.end_cancelled()
    look.rig.advance(100)
    look.rig.run_all()
    assert [event.restarts for event in of(look.new(), JobRestartEvent)] == [1]
    assert look.new() == []


def test_more_failures_than_are_kept_are_counted() -> None:
    look = Look(
        running(
            conf={"restart-strategy.fixed-delay.attempts": "100", "penstock.restart.identical-failures-max": "1000"}
        )
    )
    look.new()
    for number in range(FAILURES_MAX + 3):
        look.rig.fail(reason=f"broken for the {number}. time")
        look.rig.end_cancelled()
        look.rig.advance(100)
        look.rig.run_all()
    events = look.new()
    (missed,) = of(events, EventsMissedEvent)
    assert (missed.what, missed.count) == ("failures", 3)
    assert [event.number for event in of(events, JobFailureEvent)] == list(range(4, FAILURES_MAX + 4))
    assert look.new() == []


def moves_after(statuses: Sequence[str]) -> tuple[Moves, Quiet]:
    quiet = Quiet()
    moves = Moves(quiet)
    for status in statuses:
        moves.on_job_status(status, f"to {status}")
    return moves, quiet


def test_moves_are_told_one_by_one_however_quick_they_were() -> None:
    moves, quiet = moves_after(["CREATED", "RUNNING", "FAILING", "RESTARTING", "CREATED", "RUNNING"])
    deriver = Deriver("job-1", "job")
    events = of(deriver.take(moves.after(0), None), JobStatusChangeEvent)
    assert [(event.old_status, event.new_status) for event in events] == [
        (None, "CREATED"),
        ("CREATED", "RUNNING"),
        ("RUNNING", "FAILING"),
        ("FAILING", "RESTARTING"),
        ("RESTARTING", "CREATED"),
        ("CREATED", "RUNNING"),
    ]
    assert events[0].reason == "to CREATED"
    assert moves.after(deriver.last_move) == []
    assert len(quiet.heard) == 6


def test_moves_that_are_no_longer_kept_are_counted() -> None:
    moves, _ = moves_after(["RUNNING"] * (MOVES_MAX + 5))
    events = Deriver("job-1", "job").take(moves.after(0), None)
    (missed,) = of(events, EventsMissedEvent)
    assert (missed.what, missed.count) == ("moves", 5)
    assert len(events) == MOVES_MAX + 1


def test_the_listener_behind_hears_everything() -> None:
    moves, quiet = moves_after(["RUNNING"])
    moves.on_log("line")
    moves.on_client_output("print", 1, b"x")
    assert quiet.heard == [("RUNNING", "to RUNNING"), "line", b"x"]


def test_a_checkpoint_is_told_of_when_it_begins_and_when_it_ends() -> None:
    look = Look(running())
    look.new()
    look.rig.advance(1_000)
    events = of(look.new(), CheckpointEvent)
    assert [(event.checkpoint_id, event.status) for event in events] == [(1, "IN_PROGRESS")]
    look.rig.acknowledge(1)
    events = of(look.new(), CheckpointEvent)
    assert [(event.checkpoint_id, event.status) for event in events] == [(1, "COMPLETED")]
    assert look.new() == []


def test_checkpoints_between_two_looks_are_all_told_of() -> None:
    look = Look(running())
    look.new()
    for _ in range(3):
        complete(look.rig)
    events = of(look.new(), CheckpointEvent)
    assert sorted((event.checkpoint_id, event.status) for event in events) == [
        (number, status) for number in (1, 2, 3) for status in ("COMPLETED", "IN_PROGRESS")
    ]


def test_more_checkpoints_than_are_kept_are_counted() -> None:
    look = Look(running())
    look.new()
    for _ in range(HISTORY_MAX + 4):
        complete(look.rig)
    events = look.new()
    assert [(event.what, event.count) for event in of(events, EventsMissedEvent)] == [("checkpoints", 4)]
    assert len([event for event in of(events, CheckpointEvent) if event.status == "COMPLETED"]) == HISTORY_MAX
    assert look.new() == []
