"""Workers that live and hold the job up are named, and replaced where an option asks for it (E2)."""

from __future__ import annotations

import pytest
from tests.runtime.job.master_rig import MasterRig, running, two_vertices

from penstock.runtime.job.slow_workers import AGAIN_MS, WINDOW_MS
from penstock.runtime.protocol import DeclineCheckpoint, ExecutionId, Heartbeat, TaskMetrics

AT = "operator 'Map', subtask 2/2, in nap (program.py:12)"
STILL = f"its loop has not turned for 30000 ms; it is at {AT}"
#: Nothing but slowness is looked at.
QUIET = {"execution.checkpointing.interval": None}
REPLACES = QUIET | {"penstock.slow-workers.replace-after": "60 s"}


def beat(rig: MasterRig, worker_id: str = "w2", still_ms: int = 0, busy_ms: int | None = None) -> None:
    rig.master.on_message(Heartbeat(worker_id, AT if still_ms else "", still_ms, busy_ms))


def named(rig: MasterRig) -> list[str]:
    return [line for line in rig.logs if line.startswith("worker w")]


def slow(rig: MasterRig) -> dict[str, tuple[str, int | None]]:
    """Of workers that are slow: why, and since when."""
    workers = rig.master.view().workers
    return {worker.worker_id: (worker.slow, worker.slow_since_ms) for worker in workers if worker.slow is not None}


# --- stuck -----------------------------------------------------------------------------------------------------------


def test_a_worker_whose_loop_does_not_turn_is_named_with_function_and_tasks() -> None:
    """E2: in the log and in the view, with the moment since which it is so."""
    rig = running(conf=QUIET)
    rig.advance(40_000)
    beat(rig, still_ms=29_999)
    assert (named(rig), slow(rig)) == ([], {})
    beat(rig, still_ms=30_000)
    assert named(rig) == [
        f"worker w2 (host host, process 1002) is stuck: {STILL}. It has 'source (2/2)' and 'sink (2/2)'"
    ]
    assert slow(rig) == {"w2": (STILL, 10_000)}


def test_it_is_named_once_and_after_long_again() -> None:
    """E2: a log is for people."""
    rig = running(conf=QUIET)
    for _ in range(AGAIN_MS // 10_000):
        beat(rig, still_ms=30_000)
        rig.advance(10_000)
    assert len(named(rig)) == 1
    beat(rig, still_ms=30_000)
    assert len(named(rig)) == 2


def test_when_its_loop_turns_again_that_is_said_too() -> None:
    rig = running(conf=QUIET)
    beat(rig, still_ms=30_000)
    beat(rig)
    beat(rig)
    assert named(rig)[1:] == ["worker w2 (host host, process 1002): its loop turns again"]
    assert slow(rig) == {}


@pytest.mark.parametrize("worker_id", ["w2", "w9"])
def test_a_worker_without_tasks_holds_nothing_up(worker_id: str) -> None:
    """E2: one that waits for its tasks, or whose heartbeat comes when it is gone."""
    rig = MasterRig(workers=1, conf=QUIET)
    beat(rig, worker_id, still_ms=100_000)
    assert named(rig) == []


def test_cancelled_tasks_that_do_not_end_are_told_of_elsewhere() -> None:
    """F4: two lines about one thing are one too many."""
    rig = running(conf=REPLACES)
    rig.master.cancel()
    beat(rig, still_ms=100_000)
    assert (named(rig), rig.released) == ([], [])


# --- replaced --------------------------------------------------------------------------------------------------------


def test_no_worker_is_replaced_by_default() -> None:
    """E2: whatever it is at may be what the program wants."""
    rig = running(conf=QUIET)
    beat(rig, still_ms=10**7)
    assert (rig.released, rig.status) == ([], "RUNNING")


def test_a_stuck_worker_is_replaced_after_the_time_that_an_option_gives() -> None:
    """E2, G8: as one that was lost; the failure says why, and what was lost with it."""
    rig = running(conf=REPLACES)
    beat(rig, still_ms=59_999)
    assert (rig.released, rig.status) == ([], "RUNNING")
    beat(rig, still_ms=60_000)
    assert rig.released == ["w2"]
    (record,) = rig.master.view().failures
    assert (record.worker_id, record.process_id, record.lost) == ("w2", 1002, ("source (2/2)", "sink (2/2)"))
    reason = f"its loop has not turned for 60000 ms; it is at {AT} (penstock.slow-workers.replace-after)"
    assert reason in record.text
    rig.end_cancelled()
    rig.advance(100)
    rig.register(1)
    rig.run_all()
    assert (rig.status, slow(rig), rig.requested) == ("RUNNING", {}, [2, 1])


def test_a_worker_whose_tasks_open_is_not_replaced() -> None:
    """E2: a model may take long to load, and it would take as long in another worker; but it is named."""
    rig = MasterRig(conf=REPLACES)
    for task in rig.deployed:
        rig.say("INITIALIZING", task.execution)
    rig.say("RUNNING", ExecutionId(0, 1, 0))
    beat(rig, still_ms=100_000)
    assert (rig.released, len(named(rig))) == ([], 1)


def test_a_task_that_waits_to_be_deployed_behind_a_stuck_one_is_no_reason_to_wait() -> None:
    """E2: nothing happens in a worker whose loop does not turn."""
    rig = MasterRig(conf=REPLACES)
    rig.say("INITIALIZING", ExecutionId(0, 1, 0))
    rig.say("RUNNING", ExecutionId(0, 1, 0))
    beat(rig, still_ms=60_000)
    assert rig.released == ["w2"]


# --- checkpoints -----------------------------------------------------------------------------------------------------

SOURCES, SINKS = [ExecutionId(0, i, 0) for i in range(4)], [ExecutionId(1, i, 0) for i in range(4)]


def waits(*missing: ExecutionId, after_ms: int = 1_000, timeout: str = "10 min") -> MasterRig:
    """Checkpoint 1 of four sources and four sinks, which all acknowledge after a while but for the missing ones."""
    conf = {"execution.checkpointing.interval": "10 s", "execution.checkpointing.timeout": timeout}
    rig = running(graph=two_vertices(4), conf=conf)
    rig.advance(10_000)
    rig.advance(after_ms)
    rig.acknowledge(1, *(e for e in rig.executions if e not in missing))
    return rig


WAITS = (
    "checkpoint 1 waits for it: 'sink (3/4)' on worker w3 (host host, process 1003) has not acknowledged; 7 others "
    "have, the last 1000 ms after it began"
)


def test_the_one_task_that_a_checkpoint_waits_for_is_named() -> None:
    """E2, G6: when the others have acknowledged for longer than penstock.slow-workers.threshold."""
    rig = waits(SINKS[2])
    rig.advance(29_999)
    beat(rig)
    assert (named(rig), slow(rig)) == ([], {})
    rig.advance(1_001)
    beat(rig)
    assert named(rig) == [f"worker w3 (host host, process 1003) holds up a checkpoint: {WAITS}"]
    assert slow(rig) == {"w3": (WAITS, 11_000)}
    rig.acknowledge(1, SINKS[2])
    rig.advance(1_000)
    beat(rig)
    assert slow(rig) == {}


def test_tasks_that_wait_for_its_barrier_are_not_named() -> None:
    """E2, G6: without the barrier of one source, no sink can acknowledge."""
    rig = waits(SOURCES[1], *SINKS)
    rig.advance(31_000)
    beat(rig)
    (line,) = named(rig)
    assert "'source (2/4)' on worker w2 (host host, process 1002) has not acknowledged; 3 others have" in line
    assert "sink" not in line


@pytest.mark.parametrize(
    ("missing", "after_ms"),
    [((*SOURCES, *SINKS), 0), (tuple(SINKS), 0), (tuple(SINKS[:3]), 0), ((SINKS[2],), 20_000)],
)
def test_many_that_are_slow_are_no_stragglers(missing: tuple[ExecutionId, ...], after_ms: int) -> None:
    """E2, G6: nor is one that takes a little longer than the others do, where all take long."""
    rig = waits(*missing, after_ms=after_ms)
    rig.advance(31_000)
    beat(rig)
    assert (named(rig), slow(rig)) == ([], {})


def test_a_checkpoint_that_times_out_says_who_was_missing_and_where_that_is() -> None:
    """E2, G6: in the history of checkpoints, and in the failure when the job fails for it."""
    rig = waits(SINKS[2], timeout="60 s")
    rig.master.on_message(Heartbeat("w3", AT, 55_000))
    rig.advance(59_000)
    missing = f"'sink (3/4)' on worker w3 (host host, process 1003) has not acknowledged; it is at {AT}"
    view = rig.master.view()
    record = view.checkpoints.history[-1]
    assert record.failure == f"not complete within 60000 ms: {missing}"
    assert missing in view.failures[0].text


def test_with_many_missing_those_are_named_that_the_others_wait_for() -> None:
    """G6: all that are missing are counted."""
    rig = waits(*SOURCES[1:], *SINKS, timeout="60 s")
    rig.advance(59_000)
    record = rig.master.view().checkpoints.history[-1]
    assert str(record.failure).split(": ", 1)[1].split("; ") == [
        *(f"'source ({i}/4)' on worker w{i} (host host, process 100{i}) has not acknowledged" for i in (2, 3, 4)),
        "nor have 4 tasks that read from these",
    ]


def test_a_declined_checkpoint_names_the_task() -> None:
    """G6: by the name that the user knows."""
    rig = running()
    rig.advance(1_000)
    rig.master.on_message(DeclineCheckpoint(SINKS[1], 1, "disk full", is_failure=True))
    (record,) = rig.master.view().checkpoints.history
    assert record.failure == "declined by 'sink (2/2)': disk full"


# --- behind its peers ------------------------------------------------------------------------------------------------


def work(rig: MasterRig, busy: dict[str, int], seconds: int) -> None:
    """Workers take 100 records a second each; each is busy for a share (%) of the time."""
    for _ in range(seconds // 10):
        rig.advance(10_000)
        now_ms = rig.clock.steady_ms()
        for number, (worker_id, share) in enumerate(busy.items()):
            for vertex in (0, 1):
                rig.master.on_message(TaskMetrics(ExecutionId(vertex, number, 0), now_ms // 10, 0, 0))
            beat(rig, worker_id, busy_ms=now_ms * share // 100)


def test_a_worker_for_which_a_record_costs_far_more_is_named_and_why() -> None:
    """E2: `pace` has what is compared; nobody is replaced for that."""
    rig = running(graph=two_vertices(4), conf=REPLACES)
    busy = {"w1": 10, "w2": 10, "w3": 100, "w4": 10}
    work(rig, busy, 3 * WINDOW_MS // 1_000)
    (line,) = named(rig)
    assert line == (
        "worker w3 (host host, process 1003) is behind its peers: it is busy 100% of the time, and a record costs it "
        "10 times as much of that as its peers: 100 records of 'source' in a busy second, where the median of the "
        "others is 1,000. Its host may be slow, or its records may cost more"
    )
    assert (list(slow(rig)), rig.released) == (["w3"], [])


def test_and_when_it_keeps_up_again() -> None:
    rig = running(graph=two_vertices(4), conf=QUIET)
    work(rig, {"w1": 10, "w2": 10, "w3": 100, "w4": 10}, 3 * WINDOW_MS // 1_000)
    rig.lose("w3")
    assert list(slow(rig)) == []
