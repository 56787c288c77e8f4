"""The checkpoint coordinator, under its job master: when it triggers, completes, aborts, retains."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runtime.job.master_rig import MasterRig, running, state_path

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.runtime.checkpoint.statistics import CheckpointSettings
from penstock.runtime.job.view import job_progress
from penstock.runtime.protocol import (
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    Failure,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)
from penstock.runtime.task.stream_task import task_settings
from penstock.storage.metadata import OperatorStateHandle, OperatorSubtaskState, StateFile

PREFIX = "execution.checkpointing."


def rig_with(**options: Any) -> MasterRig:
    """`min_pause="5 ms"` and so on."""
    return running(conf={PREFIX + key.replace("__", ".").replace("_", "-"): value for key, value in options.items()})


def completed(rig: MasterRig) -> list[int]:
    return sorted({m.checkpoint_id for m in rig.of(NotifyCheckpointComplete)})


def aborted(rig: MasterRig) -> list[int]:
    return sorted({m.checkpoint_id for m in rig.of(NotifyCheckpointAborted)})


def test_interval() -> None:
    """G6: a checkpoint is triggered every interval, at the sources only."""
    rig = rig_with()
    rig.advance(999)
    assert rig.triggered() == []
    rig.advance(1)
    assert [(m.execution.vertex, m.execution.subtask, m.timestamp_ms) for m in rig.of(TriggerCheckpoint)] == [
        (0, 0, 1000),
        (0, 1, 1000),
    ]
    rig.acknowledge(1)
    rig.advance(1000)
    assert rig.triggered() == [1, 2]


def test_off() -> None:
    """G6, J: without an interval nothing is ever triggered."""
    rig = running(conf={PREFIX + "interval": None, "restart-strategy.type": "none"})
    rig.advance(10**6)
    rig.end_of_data()
    rig.advance(10**6)
    assert rig.triggered() == []


def test_tasks_must_run_first() -> None:
    """G6: nothing is triggered before every task runs; the next interval tries again."""
    rig = MasterRig()
    rig.say("INITIALIZING", *rig.executions)
    rig.say("RUNNING", *rig.executions[:3])
    rig.advance(1000)
    assert rig.triggered() == []
    rig.say("RUNNING", rig.executions[3])
    rig.advance(1000)
    assert rig.triggered() == [1]


def test_complete_when_all_have_acknowledged() -> None:
    """G6: a checkpoint completes with the last acknowledgement; only then tasks are told, and once each."""
    rig = rig_with()
    rig.advance(1000)
    rig.acknowledge(1, *rig.executions[:3])
    rig.acknowledge(1, *rig.executions[:3])
    assert completed(rig) == []
    rig.acknowledge(1, rig.executions[3])
    assert [m.execution for m in rig.of(NotifyCheckpointComplete)] == rig.executions
    rig.acknowledge(1)
    assert rig.store.stored == [1]
    progress = job_progress(rig.master.view())
    assert (progress.checkpoints_completed, progress.last_checkpoint_id) == (1, 1)
    assert progress.last_checkpoint_bytes > 0


def test_tasks_hear_of_it_only_when_it_can_be_found() -> None:
    """G9: nobody commits before the metadata is visible: else a recovery could miss what was committed."""
    rig = rig_with()
    rig.advance(1000)
    rig.background.hold = True
    rig.acknowledge(1)
    assert completed(rig) == []
    rig.background.run()
    assert completed(rig) == [1]


def test_metadata_that_cannot_be_written_fails_the_checkpoint() -> None:
    """G6: a checkpoint whose metadata cannot be written is none, and counts as failed."""
    rig = rig_with(tolerable_failed_checkpoints=1)
    rig.store.unwritable = {1, 2}
    rig.advance(1000)
    rig.acknowledge(1)
    assert completed(rig) == []
    assert aborted(rig) == [1]
    assert rig.status == "RUNNING"
    rig.advance(1000)
    rig.acknowledge(2)
    assert rig.status == "FAILING"
    assert "disk full" in str(rig.master.failure)


def test_failure_while_the_metadata_is_being_written() -> None:
    """G8: a recovery waits until it is known whether a checkpoint became visible, and goes on from it if so."""
    rig = rig_with()
    rig.advance(1000)
    rig.background.hold = True
    rig.acknowledge(1)
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)
    assert {t.execution.attempt for t in rig.deployed} == {0}
    rig.background.hold = False
    rig.background.run()
    assert {(t.execution.attempt, t.restored_checkpoint_id) for t in rig.deployed} == {(1, 1)}
    assert rig.store.discarded == []


def test_min_pause() -> None:
    """G6: after a checkpoint has completed, at least the minimum pause goes by before the next."""
    rig = rig_with(min_pause="700 ms")
    rig.advance(1900)
    rig.acknowledge(1)
    rig.advance(699)
    assert rig.triggered() == [1]
    rig.advance(1)
    assert rig.triggered() == [1, 2]


@pytest.mark.parametrize(("took_ms", "pause_ms"), [(5, 5), (6, 6), (40, 40), (3000, 100)])
def test_records_have_as_much_time_as_checkpoints(took_ms: int, pause_ms: int) -> None:
    """G6: one that takes longer than a short interval is followed by a pause, not by the next one at once."""
    rig = rig_with(interval="5 ms")
    rig.advance(5)
    rig.advance(took_ms)
    rig.acknowledge(1)
    rig.advance(pause_ms - 1)
    assert rig.triggered() == [1]
    rig.advance(1)
    assert rig.triggered() == [1, 2]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_max_concurrent(limit: int) -> None:
    """G6: no more checkpoints are under way at once than allowed; a late one is triggered when there is room."""
    rig = rig_with(max_concurrent_checkpoints=limit)
    rig.advance(5000)
    assert rig.triggered() == list(range(1, limit + 1))
    rig.acknowledge(1)
    rig.advance(0)
    assert rig.triggered() == list(range(1, limit + 2))


def test_timeout() -> None:
    """G6: a checkpoint that takes too long is given up, said so to the tasks, deleted, and the next one may start."""
    rig = rig_with(timeout="300 ms", tolerable_failed_checkpoints=5)
    rig.advance(1299)
    assert aborted(rig) == []
    rig.advance(1)
    assert aborted(rig) == [1]
    assert rig.store.discarded == [1]
    rig.acknowledge(1)
    assert rig.store.stored == []
    rig.advance(700)
    assert rig.triggered() == [1, 2]


def test_tolerable_failures() -> None:
    """G6: failures in a row are tolerated up to the number; one more fails the job; a success begins anew."""
    rig = rig_with(timeout="100 ms", tolerable_failed_checkpoints=2)
    rig.advance(2500)
    assert aborted(rig) == [1, 2]
    rig.advance(500)
    rig.acknowledge(3)
    rig.advance(2500)
    assert rig.status == "RUNNING"
    rig.advance(1000)
    assert rig.status == "FAILING"
    assert "tolerable-failed-checkpoints is 2" in str(rig.master.failure)


def test_two_checkpoints_time_out_at_once() -> None:
    """G6: when several overdue checkpoints are found in one turn and the first fails the job, the master lives."""
    rig = rig_with(timeout="2500 ms", max_concurrent_checkpoints=2)
    rig.advance(2000)
    assert rig.triggered() == [1, 2]
    rig.clock.advance(5000)
    rig.master.on_time()
    assert rig.status == "FAILING"


def test_decline() -> None:
    """G6: a task that cannot take part ends the checkpoint; that counts as a failure only if it tried and failed."""
    rig = rig_with()
    rig.advance(1000)
    rig.master.on_message(DeclineCheckpoint(rig.executions[2], 1, "not ready"))
    assert aborted(rig) == [1]
    assert rig.status == "RUNNING"
    rig.advance(1000)
    rig.master.on_message(DeclineCheckpoint(rig.executions[2], 2, "disk full", is_failure=True))
    assert rig.status == "FAILING"
    assert "disk full" in str(rig.master.failure)


def test_late_answers_are_ignored() -> None:
    """G6: answers about a checkpoint that is over, or was never taken, change nothing."""
    rig = rig_with()
    rig.advance(1000)
    rig.acknowledge(1)
    rig.acknowledge(1)
    rig.acknowledge(99)
    rig.master.on_message(DeclineCheckpoint(rig.executions[0], 1, "late", is_failure=True))
    assert rig.status == "RUNNING"
    assert rig.store.stored == [1]
    assert aborted(rig) == []


def test_completion_subsumes_older_ones() -> None:
    """G6: a checkpoint that completes ends all older ones under way."""
    rig = rig_with(max_concurrent_checkpoints=3)
    rig.advance(3000)
    rig.acknowledge(2)
    assert completed(rig) == [2]
    assert aborted(rig) == [1]
    rig.acknowledge(1)
    rig.acknowledge(3)
    assert completed(rig) == [2, 3]
    assert rig.store.stored == [2, 3]


@pytest.mark.parametrize("retained", [1, 2, 3])
def test_retained(retained: int) -> None:
    """G6: the last N completed checkpoints are kept, older ones deleted."""
    rig = rig_with(num_retained=retained)
    for checkpoint_id in range(1, 6):
        rig.advance(1000)
        rig.acknowledge(checkpoint_id)
    assert rig.store.discarded == list(range(1, 6 - retained))


def test_enumerator_that_cannot_be_captured() -> None:
    """G6: an enumerator that fails in its snapshot fails the checkpoint, not the master."""
    rig = rig_with(tolerable_failed_checkpoints=1)
    enumerator: Any = rig.master._sources.coordinators["id-source"]._enumerator
    enumerator.breaks = True
    rig.advance(1000)
    assert rig.status == "RUNNING"
    rig.advance(1000)
    assert rig.status == "FAILING"
    assert "listing failed" in str(rig.master.failure)


def test_ids_only_grow() -> None:
    """G6: after a recovery ids go on where they were, whatever became of the last checkpoint."""
    rig = rig_with()
    rig.advance(1000)
    rig.fail()
    assert rig.store.discarded == [1]
    rig.end_cancelled()
    rig.advance(100)
    rig.run_all()
    rig.advance(1000)
    assert rig.triggered() == [1, 2]


def test_finished_tasks() -> None:
    """G10: checkpoints go on after tasks have finished: barriers start at the first ones that have not."""
    rig = rig_with()
    rig.say("FINISHED", rig.executions[0])
    rig.advance(1000)
    assert [m.execution.subtask for m in rig.of(TriggerCheckpoint)] == [1]
    rig.acknowledge(1, *rig.executions[1:])
    assert completed(rig) == [1]
    rig.say("FINISHED", rig.executions[1])
    rig.advance(1000)
    assert [(m.execution.vertex, m.execution.subtask) for m in rig.of(TriggerCheckpoint)][1:] == [(1, 0), (1, 1)]
    rig.acknowledge(2, *rig.executions[2:])
    rig.fail(rig.executions[2])
    rig.end_cancelled()
    rig.advance(100)
    assert [t.finished_on_restore for t in rig.deployed] == [True, True, False, False]


def test_partly_finished_operator_runs_again() -> None:
    """G10: an operator of which only some subtasks had finished is restored with the state of those that run."""
    rig = rig_with()
    rig.say("FINISHED", rig.executions[0])
    rig.advance(1000)
    rig.acknowledge(1, *rig.executions[1:])
    rig.fail(rig.executions[2])
    rig.end_cancelled()
    rig.advance(100)
    assert not any(t.finished_on_restore for t in rig.deployed)


# --- what is deleted ------------------------------------------------------------------------------------------------


def base_of(rig: MasterRig, checkpoint_id: int) -> dict[Any, tuple[StateFile, ...]]:
    """The files of a completed checkpoint, by task: what incremental snapshots build on."""
    (metadata,) = [m for m in rig.master.checkpoints.completed if m.checkpoint_id == checkpoint_id]
    return {
        execution: metadata.operators[execution.vertex].subtasks[execution.subtask].keyed["count"][0].files
        for execution in rig.executions
    }


def acknowledge_on(rig: MasterRig, checkpoint_id: int, base: Any) -> None:
    for execution in rig.executions:
        rig.acknowledge(checkpoint_id, execution, base=base[execution])


def test_shared_files_outlive_their_checkpoint() -> None:
    """G6, G7: a file of a subsumed checkpoint stays while a retained one builds on it, and goes with the last."""
    rig = rig_with()
    rig.advance(1000)
    rig.acknowledge(1)
    rig.advance(1000)
    acknowledge_on(rig, 2, base_of(rig, 1))
    assert rig.store.list_checkpoint_files(1) == sorted(state_path(1, e) for e in rig.executions), (
        "its metadata is gone"
    )
    rig.advance(1000)
    rig.acknowledge(3)
    assert rig.store.list_checkpoint_files(1) == rig.store.list_checkpoint_files(2) == []
    assert len(rig.store.list_checkpoint_files(3)) == 5


def test_bases_of_a_pending_checkpoint_stay() -> None:
    """G6, G7: a checkpoint in the making may build on one that is subsumed meanwhile: its files stay until then."""
    rig = rig_with(max_concurrent_checkpoints=2)
    rig.advance(1000)
    rig.acknowledge(1)
    base = base_of(rig, 1)
    rig.advance(2000)
    assert rig.triggered() == [1, 2, 3]
    rig.acknowledge(2)
    assert completed(rig) == [1, 2]
    assert set(rig.store.list_checkpoint_files(1)) >= {state_path(1, e) for e in rig.executions}
    acknowledge_on(rig, 3, base)
    assert completed(rig) == [1, 2, 3]
    assert rig.store.list_checkpoint_files(1) == sorted(state_path(1, e) for e in rig.executions)
    assert rig.store.list_checkpoint_files(2) == []


def test_nothing_in_the_making_is_deleted() -> None:
    """G6, G11: when one checkpoint is given up, the files of another one that is being written stay."""
    rig = rig_with(max_concurrent_checkpoints=2)
    rig.advance(2000)
    assert rig.triggered() == [1, 2]
    rig.acknowledge(2, *rig.executions[:2])
    rig.master.on_message(DeclineCheckpoint(rig.executions[0], 1, "not ready"))
    assert rig.store.list_checkpoint_files(1) == []
    assert set(rig.store.list_checkpoint_files(2)) == {state_path(2, e) for e in rig.executions[:2]}
    rig.acknowledge(2, *rig.executions[2:])
    assert completed(rig) == [2]


def test_what_is_being_written_keeps_its_files() -> None:
    """G6, G11: the metadata of checkpoint 1 is on its way when checkpoint 2 completes and subsumes it: it may become
    visible yet, so its files stay until that is known."""
    rig = rig_with(max_concurrent_checkpoints=2)
    rig.advance(2000)
    assert rig.triggered() == [1, 2]
    rig.background.hold = True
    rig.acknowledge(1)
    ((write, written),) = rig.background.waiting
    rig.background.waiting.clear()
    rig.background.hold = False
    rig.acknowledge(2)
    assert completed(rig) == [2]
    assert set(rig.store.list_checkpoint_files(1)) == {state_path(1, e) for e in rig.executions}
    written(write(), None)
    assert completed(rig) == [2]
    assert rig.store.list_checkpoint_files(1) == []


def test_files_written_late_go_with_the_next_collection() -> None:
    """G11: what a task still wrote for a checkpoint that had been given up is found and deleted later."""
    rig = rig_with()
    rig.advance(1000)
    rig.master.on_message(DeclineCheckpoint(rig.executions[0], 1, "not ready"))
    rig.acknowledge(1, rig.executions[1])
    assert len(rig.store.list_checkpoint_files(1)) == 1
    rig.advance(1000)
    rig.acknowledge(2)
    assert rig.store.list_checkpoint_files(1) == []


def test_one_collection_at_a_time() -> None:
    """G6: collections that are asked for while one is under way are done after it, once."""
    rig = rig_with(max_concurrent_checkpoints=3, tolerable_failed_checkpoints=9)
    rig.advance(3000)
    rig.background.hold = True
    for checkpoint_id in (1, 2, 3):
        rig.master.on_message(DeclineCheckpoint(rig.executions[0], checkpoint_id, "not ready"))
    assert len(rig.background.waiting) == 1
    rig.background.hold = False
    rig.background.run()
    assert rig.store.files == set()


def test_a_collection_that_fails_is_no_harm() -> None:
    """G6: when files cannot be deleted the job goes on, and the next collection tries again."""
    rig = rig_with()
    delete = rig.store.delete

    def refuses(paths: list[str]) -> None:
        raise OSError("permission denied")

    rig.store.delete = refuses
    for checkpoint_id in (1, 2):
        rig.advance(1000)
        rig.acknowledge(checkpoint_id)
    assert rig.status == "RUNNING"
    assert rig.store.list_checkpoint_files(1)
    rig.store.delete = delete
    rig.advance(1000)
    rig.acknowledge(3)
    assert {path.split("/")[1] for path in rig.store.files} == {"chk-3"}


def test_nothing_is_left_at_the_end() -> None:
    """G6, G11: after the end of the job, and a last sweep for what tasks wrote late, no file is left."""
    rig = rig_with()
    rig.advance(1000)
    rig.acknowledge(1)
    rig.advance(1000)
    rig.say("FINISHED", *rig.executions)
    rig.store.files.add(state_path(2, rig.executions[0]))
    rig.master.sweep()
    assert rig.store.files == set()


def test_a_failed_job_keeps_what_it_can_be_started_from() -> None:
    """G6, G8: when a job fails for good its last checkpoint stays whole, and nothing beside it."""
    rig = running(conf={"restart-strategy.type": "none"})
    rig.advance(1000)
    rig.acknowledge(1)
    rig.advance(1000)
    rig.fail()
    rig.end_cancelled()
    rig.master.sweep()
    assert rig.status == "FAILED"
    assert {path.split("/")[1] for path in rig.store.files} == {"chk-1"}
    assert len(rig.store.files) == 5


# --- by hand, and figures -------------------------------------------------------------------------------------------


def test_trigger_by_hand() -> None:
    """G6: a checkpoint can be triggered at any time, besides those of the interval; its id is returned."""
    rig = rig_with()
    rig.advance(300)
    assert rig.master.trigger_checkpoint() == 1
    assert {m.timestamp_ms for m in rig.of(TriggerCheckpoint)} == {300}
    rig.acknowledge(1)
    assert completed(rig) == [1]
    rig.advance(700)
    assert rig.triggered() == [1, 2]


def test_full_checkpoint_by_hand_takes_the_place_of_the_next_one() -> None:
    """G6: a job that always has one in the making would have no room for it."""
    rig = rig_with()
    rig.advance(1_000)
    assert rig.master.trigger_checkpoint(is_full=True) is None
    rig.advance(1_000)
    assert rig.master.trigger_checkpoint(is_full=True) is None
    rig.acknowledge(1)
    rig.advance(0)
    assert [(m.checkpoint_id, m.is_full) for m in rig.of(TriggerCheckpoint)[::2]] == [(1, False), (2, True)]
    assert rig.master.trigger_checkpoint() is None
    assert rig.master.trigger_checkpoint(is_full=True) == 2
    rig.acknowledge(2)
    rig.advance(1_000)
    assert [m.is_full for m in rig.of(TriggerCheckpoint)[4:]] == [False, False]


def test_full_checkpoint_that_nobody_asked_after_is_not_told_later() -> None:
    """G6: who asks an hour later gets one of then."""
    rig = rig_with()
    rig.advance(1_000)
    assert rig.master.trigger_checkpoint(is_full=True) is None
    rig.acknowledge(1)
    rig.advance(1_000)
    rig.acknowledge(2)
    rig.advance(500_000)
    rig.acknowledge(rig.triggered()[-1])
    assert rig.master.trigger_checkpoint(is_full=True) == rig.triggered()[-1] != 2


def test_trigger_by_hand_without_an_interval() -> None:
    """G6: by hand also when no interval is configured."""
    rig = running(conf={PREFIX + "interval": None})
    assert rig.master.trigger_checkpoint() == 1
    rig.acknowledge(1)
    assert completed(rig) == [1]


def test_no_trigger_by_hand_while_tasks_do_not_run() -> None:
    """G6: None when the job cannot take one: before its tasks run, while it recovers, and after its end."""
    rig = MasterRig()
    assert rig.master.trigger_checkpoint() is None
    rig.run_all()
    rig.fail()
    assert rig.master.trigger_checkpoint() is None
    rig.end_cancelled()
    rig.advance(100)
    rig.run_all()
    rig.say("FINISHED", *rig.executions)
    assert rig.master.trigger_checkpoint() is None


def test_what_is_stored_of_records_in_flight_is_told_apart_from_what_was_held_back() -> None:
    """G5: an aligned part holds records back and stores none of them."""
    rig = rig_with()
    rig.advance(1000)
    in_flight = OperatorStateHandle("channel", 3, StateFile(70, 1, data=b"x" * 70))
    own = OperatorStateHandle("split", 3, StateFile(30, 1, data=b"x" * 30))
    state = OperatorSubtaskState(operator={"_penstock_in_flight.in.0.0": (in_flight,), "positions": (own,)})
    first, *others = rig.executions
    rig.master.on_message(AcknowledgeCheckpoint(first, 1, {"id-source": state}, held_back_bytes=500))
    rig.acknowledge(1, *others, held_back_bytes=500)
    last = rig.master.checkpoints.statistics.last
    assert last is not None
    assert (last.held_back_bytes, last.persisted_bytes) == (2_000, 70)
    assert [part.persisted_bytes for part in last.parts] == [70, 0, 0, 0]


def test_a_checkpoint_that_ends_with_its_job_is_counted_as_given_up() -> None:
    """All that were triggered are complete, failed, given up or in progress."""
    rig = rig_with()
    rig.advance(1000)
    rig.acknowledge(1)
    rig.advance(1000)
    rig.say("FAILED", rig.executions[0], failure=Failure("broken"))
    statistics = rig.master.checkpoints.statistics
    assert (statistics.triggered, statistics.completed, statistics.failed, statistics.given_up) == (2, 1, 0, 1)


def test_figures_of_a_checkpoint() -> None:
    """G4, G7: durations are those of the slowest task, held-back bytes those of all; what is written is summed."""
    rig = rig_with()
    rig.advance(1000)
    for number, execution in enumerate(rig.executions):
        rig.clock.advance(10)
        rig.acknowledge(
            1,
            execution,
            alignment_ms=number,
            held_back_bytes=100 * number,
            sync_ms=2 * (3 - number),
            async_ms=5 * (number % 2),
            data=b"x" * 100,
        )
    statistics = rig.master.checkpoints.statistics
    assert (statistics.triggered, statistics.completed, statistics.failed) == (1, 1, 0)
    last = statistics.last
    assert last is not None
    assert (last.checkpoint_id, last.alignment_ms, last.held_back_bytes) == (1, 3, 600)
    assert (last.sync_ms, last.async_ms, last.duration_ms) == (6, 5, 40)
    assert (last.subtasks, last.acknowledged) == (4, 4)
    assert last.state_bytes >= 400


# --- settings -------------------------------------------------------------------------------------------------------


def configured(**options: Any) -> Configuration:
    configuration = Configuration()
    for key, value in options.items():
        configuration.set_string(PREFIX + key.replace("__", ".").replace("_", "-"), str(value))
    return configuration


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"unaligned__enabled": "true", "max_concurrent_checkpoints": 2}, "max-concurrent-checkpoints to 1"),
        ({"unaligned__enabled": "true", "mode": "AT_LEAST_ONCE"}, "needs .*EXACTLY_ONCE"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], complaint: str) -> None:
    """G5: options that cannot go together are an error that says which."""
    with pytest.raises(ConfigurationError, match=complaint):
        CheckpointSettings.of(configured(**options))


def test_what_tasks_are_told() -> None:
    """G4, G5: every option that concerns tasks reaches them."""
    told = task_settings(
        configured(
            interval="5 s", unaligned__enabled="true", aligned_checkpoint_timeout="30 s", max_alignment_bytes="3 kb"
        )
    )
    assert (told.checkpointing, told.exactly_once, told.unaligned) == (True, True, True)
    assert (told.alignment_timeout_ms, told.held_back_bytes_max) == (30_000, 3 * 1024)
    told = task_settings(configured(mode="AT_LEAST_ONCE"))
    assert (told.checkpointing, told.exactly_once, told.unaligned) == (False, False, False)
    assert told.held_back_bytes_max is None
    rig = rig_with(mode="AT_LEAST_ONCE")
    assert {task.settings.exactly_once for task in rig.deployed} == {False}


def test_the_promise_follows_the_mode() -> None:
    """J: what the job says it guarantees is what its mode gives."""
    assert "state is exactly once" in rig_with().logs[0]
    assert "state is at least once: after a failure records may count twice" in rig_with(mode="AT_LEAST_ONCE").logs[0]
    assert "state is exactly once" in rig_with(unaligned__enabled="true").logs[0]


def test_a_task_that_finishes_owes_nothing() -> None:
    """G6, G10: a checkpoint does not wait for the part of a task that has finished meanwhile: it counts as finished,
    with the state that it had in the checkpoint that it waited for."""
    rig = rig_with()
    rig.advance(1000)
    rig.acknowledge(1, finished=True)
    rig.advance(1000)
    rig.acknowledge(2, *rig.executions[1:])
    assert completed(rig) == [1]
    rig.say("FINISHED", rig.executions[0])
    assert completed(rig) == [1, 2]
    source = rig.master.checkpoints.completed[-1].operators[0]
    assert 0 in source.finished
    assert [file.path for file in source.subtasks[0].keyed["count"][0].files] == [state_path(1, rig.executions[0])]
    assert rig.status == "RUNNING"
