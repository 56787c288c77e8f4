"""Metrics by the names that Flink's REST API lists (A1)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.server.metrics.views import (
    BEGAN_MS,
    JOB_ID,
    SOURCE,
    WINDOW,
    Clock,
    Watched,
    figures,
    subtask_view,
    view_at,
)

from penstock.base.job import JobStatus
from penstock.runtime.checkpoint.statistics import CheckpointRecord, CheckpointStatistics, CheckpointStatus
from penstock.runtime.graph import ExecutionState
from penstock.runtime.job.view import JobView, RescaleCause, RescaleRecord, WorkerView
from penstock.runtime.protocol import OperatorFigures, ProcessFigures, TaskFigures
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.server.metrics.metric_store import MetricStore
from penstock.server.metrics.scopes import Scope, ThisProcess

Made = Callable[[JobView], tuple[Watched, MetricStore]]


@pytest.fixture
def made() -> Iterator[Made]:
    stores = []

    def make(view: JobView) -> tuple[Watched, MetricStore]:
        watched = Watched(view)
        stores.append(MetricStore(watched.dispatcher, watched.clock))
        return watched, stores[-1]

    yield make
    for store in stores:
        store.close()


def with_operator(own: OperatorFigures) -> TaskFigures:
    return figures(10, operators=(own,))


def test_a_vertex_lists_its_subtasks_and_their_operators(made: Made) -> None:
    _, store = made(view_at(10))
    listed = store.vertex(JOB_ID, WINDOW.operator_id)
    assert listed["0.numRecordsIn"] == listed["1.numRecordsIn"] == 1_000
    assert listed["1.Window_Reduce.numRecordsInPerSecond"] == 100
    assert listed["0.Print.currentOutputWatermark"] == 6_000
    assert listed["0.isBackPressured"] == "false"
    of_one = store.subtask(JOB_ID, WINDOW.operator_id, 1)
    assert {f"1.{name}": value for name, value in of_one.items()}.items() <= listed.items()


def test_what_is_not_known_has_no_metrics(made: Made) -> None:
    _, store = made(view_at(10))
    assert store.job("f" * 32) == {}
    assert store.vertex(JOB_ID, "f" * 32) == {}
    assert store.subtask(JOB_ID, SOURCE.operator_id, 2) == {}
    assert store.subtask(JOB_ID, SOURCE.operator_id, -1) == {}
    assert store.subtask("f" * 32, SOURCE.operator_id, 0) == {}
    assert store.taskmanager("worker-9") == {}
    assert store.jm_operator(JOB_ID, SOURCE.operator_id) == {}


def test_a_task_that_has_said_nothing_yet_lists_zeros_and_reports_nothing(made: Made) -> None:
    spoken = subtask_view(0, 1, 10)
    silent = replace(subtask_view(0, 0, 10), metrics=None)
    _, store = made(view_at(10, subtasks={0: (silent, spoken)}))
    listed = store.subtask(JOB_ID, SOURCE.operator_id, 0)
    assert listed.keys() == store.subtask(JOB_ID, SOURCE.operator_id, 1).keys()
    assert (listed["numRecordsOut"], listed["numRecordsOutPerSecond"], listed["isBackPressured"]) == (0, 0, "false")
    tasks = [
        one.variables for one in store.scoped() if one.scope is Scope.TASK and one.variables["task_name"] == "numbers"
    ]
    assert [one["subtask_index"] for one in tasks] == ["1"]


def test_the_driver_in_the_place_of_workers_lists_what_workers_do(made: Made) -> None:
    _, store = made(view_at(10))
    of_driver, of_worker = store.taskmanager("driver"), store.taskmanager("worker-0")
    assert of_driver["Status.Shuffle.Netty.UsedMemory"] == of_driver["Status.Flink.Memory.Managed.Total"] == 0
    assert of_worker.keys() - of_driver.keys() <= {"Status.Penstock.Slow"}


def test_what_a_function_measures_is_under_its_operator(made: Made) -> None:
    own = OperatorFigures(
        WINDOW.operator_id,
        counters={"sales.large": 3},
        gauges={"sales.rate": 0.5},
        distributions={"sizes": (4, 10.0, 1.0, 6.0)},
    )
    _, store = made(view_at(10, subtasks={1: (subtask_view(1, 0, 10, measured=with_operator(own)),)}))
    listed = store.vertex(JOB_ID, WINDOW.operator_id)
    assert listed["0.Window_Reduce.sales.large"] == 3
    assert listed["0.Window_Reduce.sales.rate"] == 0.5
    sizes = {name.rpartition("_")[2]: value for name, value in listed.items() if ".sizes_" in name}
    assert sizes == {"count": 4, "sum": 10, "min": 1, "max": 6, "mean": 2.5}


def test_without_figures_it_is_under_the_task(made: Made) -> None:
    """In batch execution nobody knows which operator counted."""
    subtask = subtask_view(1, 0, 10, more={"bare": True})
    assert subtask.metrics is not None
    counted = replace_metrics(subtask, counters={"large": 3})
    _, store = made(view_at(10, subtasks={1: (counted,)}))
    assert store.vertex(JOB_ID, WINDOW.operator_id)["0.large"] == 3


def replace_metrics(subtask, **changed):
    import msgspec

    return replace(subtask, metrics=msgspec.structs.replace(subtask.metrics, **changed))


def test_windows_count_late_records_from_the_beginning(made: Made) -> None:
    own = OperatorFigures(WINDOW.operator_id, counters={"late_records_dropped": 2})
    _, store = made(view_at(10))
    assert store.subtask(JOB_ID, WINDOW.operator_id, 0)["Window_Reduce.numLateRecordsDropped"] == 0
    assert "numbers.numLateRecordsDropped" not in store.subtask(JOB_ID, SOURCE.operator_id, 0)
    _, store = made(view_at(10, subtasks={1: (subtask_view(1, 0, 10, measured=with_operator(own)),)}))
    assert store.subtask(JOB_ID, WINDOW.operator_id, 0)["Window_Reduce.numLateRecordsDropped"] == 2


@pytest.mark.parametrize(("watermark", "lag"), [(BEGAN_MS, 10_000), (MIN_TIMESTAMP, -1), (MAX_WATERMARK, -1)])
def test_a_source_says_how_far_its_watermark_is_behind(made: Made, watermark: int, lag: int) -> None:
    own = OperatorFigures(SOURCE.operator_id, output_watermark_ms=watermark)
    _, store = made(view_at(10, subtasks={0: (subtask_view(0, 0, 10, measured=with_operator(own)),)}))
    assert store.subtask(JOB_ID, SOURCE.operator_id, 0)["numbers.watermarkLag"] == lag


def test_bytes_that_a_connector_counts_are_those_that_a_source_has_read(made: Made) -> None:
    own = OperatorFigures(SOURCE.operator_id, records_out=500, counters={"numBytesIn": 7_000})
    _, store = made(view_at(10, subtasks={0: (subtask_view(0, 0, 10, measured=with_operator(own)),)}))
    listed = store.subtask(JOB_ID, SOURCE.operator_id, 0)
    assert (listed["numbers.numBytesIn"], listed["numbers.numBytesInPerSecond"]) == (7_000, 700)
    assert (listed["numbers.numRecordsIn"], listed["numbers.numRecordsInPerSecond"]) == (500, 50)


def test_bytes_belong_to_the_ends_of_a_chain_and_what_is_sent_to_the_sink(made: Made) -> None:
    _, store = made(view_at(10))
    listed = store.subtask(JOB_ID, WINDOW.operator_id, 0)
    assert listed["Window_Reduce.numBytesIn"] == listed["numBytesIn"] == 100_000
    assert "Print.numBytesIn" not in listed
    assert listed["Print.numBytesOut"] == 100_000
    assert listed["Print.numRecordsSend"] == 1_000
    assert "numbers.numRecordsSend" not in store.subtask(JOB_ID, SOURCE.operator_id, 0)


@pytest.mark.parametrize(
    ("status", "uptime", "downtime"),
    [(JobStatus.RUNNING, 10_000, 0), (JobStatus.RESTARTING, 0, 4_000), (JobStatus.FINISHED, -1, -1)],
)
def test_a_job_says_for_how_long_it_runs_or_does_not(made: Made, status: JobStatus, uptime: int, downtime: int) -> None:
    since = {JobStatus.RUNNING: BEGAN_MS, **({status: BEGAN_MS + 6_000} if downtime else {})}
    _, store = made(view_at(10, status=status, since_ms=since))
    job = store.job(JOB_ID)
    assert (job["uptime"], job["downtime"]) == (uptime, downtime)
    assert job["runningState"] == int(status is JobStatus.RUNNING)
    assert job["restartingTime"] == downtime * (status is JobStatus.RESTARTING)


def test_before_the_first_checkpoint_there_is_none(made: Made) -> None:
    _, store = made(view_at(10))
    job = store.job(JOB_ID)
    assert job["lastCompletedCheckpointId"] == job["lastCheckpointDuration"] == job["lastCheckpointFullSize"] == -1
    assert job["lastCheckpointRestoreTimestamp"] == -1
    assert job["lastCheckpointExternalPath"] == "n/a"


def test_the_last_checkpoint_may_be_a_savepoint(made: Made) -> None:
    completed = CheckpointStatus.COMPLETED
    record = CheckpointRecord(3, completed, BEGAN_MS, duration_ms=20, state_bytes=500, stored_bytes=50, path="/chk-3")
    savepoint = CheckpointRecord(4, completed, BEGAN_MS + 100, True, 30, 500, stored_bytes=500, path="/savepoint")
    statistics = CheckpointStatistics().with_triggered().with_completed(record)
    _, store = made(view_at(10, checkpoints=statistics))
    job = store.job(JOB_ID)
    assert (job["lastCheckpointSize"], job["lastCheckpointFullSize"]) == (50, 500)
    assert job["lastCheckpointCompletedTimestamp"] == BEGAN_MS + 20
    _, store = made(view_at(10, checkpoints=statistics.with_triggered().with_completed(savepoint)))
    job = store.job(JOB_ID)
    assert (job["lastCompletedCheckpointId"], job["lastCheckpointExternalPath"]) == (4, "/savepoint")
    assert job["numberOfCompletedCheckpoints"] == job["totalNumberOfCheckpoints"] == 2


def test_tasks_that_are_being_deployed(made: Made) -> None:
    deploying = replace(
        subtask_view(0, 0, 0, state=ExecutionState.DEPLOYING), since_ms=((ExecutionState.DEPLOYING, BEGAN_MS + 7_000),)
    )
    _, store = made(view_at(10, subtasks={0: (deploying,)}))
    job = store.job(JOB_ID)
    assert (job["deployingState"], job["deployingTime"], job["allSubTasksRunningOrFinishedTime"]) == (1, 3_000, 0)
    _, store = made(view_at(10))
    assert store.job(JOB_ID)["allSubTasksRunningOrFinishedTime"] == 10_000


def test_rescales_count_though_a_view_has_only_the_last(made: Made) -> None:
    first = RescaleRecord(BEGAN_MS, 0, RescaleCause.INITIAL_SCHEDULE, {})
    later = [RescaleRecord(BEGAN_MS + i, i, RescaleCause.UPDATE_REQUIREMENT, {}) for i in range(1, 4)]
    watched, store = made(view_at(10, rescales=(later[0], first)))
    assert store.job(JOB_ID)["numRescales"] == 1
    watched.show(view_at(20, rescales=(later[2], later[1])))
    assert store.job(JOB_ID)["numRescales"] == 3


def test_a_worker_has_what_its_process_uses(made: Made) -> None:
    process = ProcessFigures(resident_bytes=300, memory_limit_bytes=1_000, collections_ms=10, threads=5)
    worker = WorkerView("worker-0", "host-0", 100, slow="it is stuck", process=process)
    watched, store = made(view_at(10, workers=(worker,)))
    listed = store.taskmanager("worker-0")
    assert (listed["Status.JVM.Memory.Heap.Used"], listed["Status.JVM.Memory.Heap.Max"]) == (300, 1_000)
    assert listed["Status.JVM.Threads.Count"] == 5
    assert listed["Status.Penstock.Slow"] == "true"
    assert listed["Status.JVM.GarbageCollector.All.TimeMsPerSecond"] == 0
    collected = ProcessFigures(resident_bytes=300, collections_ms=60)
    watched.show(view_at(15, workers=(replace(worker, process=collected),)))
    assert store.taskmanager("worker-0")["Status.JVM.GarbageCollector.All.TimeMsPerSecond"] == 10


def test_a_worker_that_has_not_spoken_has_no_figures_of_its_process(made: Made) -> None:
    _, store = made(view_at(10, workers=(WorkerView("worker-0", "host-0", 100),)))
    assert "Status.JVM.CPU.Load" not in store.taskmanager("worker-0")


def test_managed_memory_is_that_of_rocksdb(made: Made) -> None:
    options = {"taskmanager.memory.managed.size": "64 mb"}
    _, store = made(view_at(10, configuration=options))
    used = "Status.Flink.Memory.Managed.Used"
    assert store.taskmanager("worker-0")[used] == 0
    _, store = made(view_at(10, configuration={**options, "state.backend.type": "rocksdb"}))
    assert store.taskmanager("worker-0")[used] == 64 << 20


def test_what_waits_between_tasks_counts_as_network_memory(made: Made) -> None:
    waiting = figures(10, buffers_queued_in=3)  # a hundred records of a hundred bytes each
    _, store = made(view_at(10, subtasks={1: (subtask_view(1, 0, 10, measured=waiting),)}))
    assert store.taskmanager("worker-0")["Status.Shuffle.Netty.UsedMemory"] == 3 * 10_000
    assert store.taskmanager("worker-1")["Status.Shuffle.Netty.UsedMemory"] == 0


def test_the_driver_counts_jobs_workers_and_slots(made: Made) -> None:
    lone = {vertex: (subtask_view(vertex, 0, 10),) for vertex in (0, 1)}
    _, store = made(view_at(10, subtasks=lone, workers_awaited=2))
    listed = store.jobmanager()
    names = ("numRunningJobs", "numRegisteredTaskManagers", "taskSlotsTotal", "taskSlotsAvailable")
    assert [listed[name] for name in names] == [1, 2, 2, 1]
    assert listed["numPendingTaskManagers"] == 2
    memory = listed["Status.JVM.Memory.Heap.Used"]
    assert isinstance(memory, int)
    assert memory > 10 << 20
    threads = listed["Status.JVM.Threads.Count"]
    assert isinstance(threads, int)
    assert threads >= 1


def test_garbage_collections_of_the_driver_have_a_rate() -> None:
    now, figures = Clock(), ProcessFigures(collections_ms=10)
    process = ThisProcess(lambda: figures, now)
    assert process.figures() == (figures, 0)
    now.seconds = 2
    assert process.figures() == (figures, 0)
    now.seconds, figures = 4, ProcessFigures(collections_ms=50)
    assert process.figures() == (figures, 10)
    now.seconds = 4.5  # nothing was measured since
    assert process.figures() == (figures, 10)


def test_a_job_that_has_ended_is_reported_once_more(made: Made) -> None:
    watched, store = made(view_at(10))
    assert Scope.JOB in {scoped.scope for scoped in store.scoped(watched.clock())}
    before = watched.clock()
    watched.show(view_at(11, status=JobStatus.FINISHED, workers=()))
    assert Scope.JOB in {scoped.scope for scoped in store.scoped(before)}
    watched.clock.seconds += 10
    assert {scoped.scope for scoped in store.scoped(watched.clock())} == {Scope.JOB_MANAGER}
    assert store.job(JOB_ID)["uptime"] == -1
    assert store.jobmanager()["numRunningJobs"] == 0


def test_one_view_is_worked_out_once(made: Made) -> None:
    _, store = made(view_at(10))
    listed = store.vertex(JOB_ID, SOURCE.operator_id)
    assert store.vertex(JOB_ID, SOURCE.operator_id) is listed


def test_charts_have_a_point_every_ten_seconds_for_an_hour(made: Made) -> None:
    watched, store = made(view_at(0.5))
    for quarter in range(1, 1_600):
        watched.show(view_at(2.5 * quarter))
        store.look()
    charts = store.charts(JOB_ID)
    assert charts is not None
    points = charts.points(SOURCE.operator_id, "numRecordsInPerSecond")
    times = [at for at, _ in points]
    assert len(points) == 360
    assert min(later - at for at, later in itertools.pairwise(times)) == 10_000
    assert {value for _, value in points} == {200.0}
    assert (None, "numRestarts") in charts.names()
    assert charts.points(None, "noSuchMetric") == []


def test_a_chart_that_begins_later_has_its_own_times(made: Made) -> None:
    none = CheckpointStatistics()
    record = CheckpointRecord(1, CheckpointStatus.COMPLETED, BEGAN_MS, duration_ms=20)
    watched, store = made(view_at(10))
    store.look()
    watched.show(view_at(30, checkpoints=none.with_completed(record)))
    charts = store.charts(JOB_ID)
    assert charts is not None
    assert charts.points(None, "lastCheckpointDuration") == [(BEGAN_MS + 30_000, 20.0)]
    assert len(charts.points(None, "numRestarts")) == 2
