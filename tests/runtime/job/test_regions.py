"""A failure restarts the region that failed, and nothing else (E6, G8)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runtime.job.master_rig import FakeEnumerator, MasterRig, Numbers, two_vertices

from penstock.connectors.hybrid import HybridSource
from penstock.runtime.checkpoint.savepoints import TakeSavepoint
from penstock.runtime.connector import Source
from penstock.runtime.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Regions
from penstock.runtime.protocol import (
    AssignSplits,
    CancelTask,
    DeployTask,
    ExecutionId,
    NotifyCheckpointAborted,
    RequestSplit,
    StopMode,
    TaskMetrics,
)


class Given(FakeEnumerator):
    """Remembers what comes back."""

    def __init__(self, context: Any, restored: Any) -> None:
        super().__init__(context, restored)
        self.back: list[tuple[int, list[Any]]] = []
        self.count = 0

    def handle_split_request(self, subtask: int) -> None:
        self.count += 1
        self.context.assign_split(f"split {self.count}", subtask)

    def add_splits_back(self, splits: Any, subtask: int) -> None:
        if self.breaks:
            raise RuntimeError("no room")
        self.back.append((subtask, list(splits)))


class Splits(Numbers):
    def create_enumerator(self, context: Any, restored: Any) -> Any:
        return Given(context, restored)


def vertex(index: int, parallelism: int, source: Source[Any, Any] | None = None) -> JobVertex:
    name = f"v{index}"
    info = OperatorInfo(f"id-{name}", name, None, True)
    return JobVertex(
        index, name, parallelism, 128, (info,), b"program", sources={} if source is None else {info.operator_id: source}
    )


def job(*parallelisms: int, edges: tuple[tuple[int, int, bool], ...], source: Any = None) -> JobGraph:
    """Edges are (from, to, whether only neighbours are connected); vertices that none reaches have a source."""
    reached = {target for _, target, _ in edges}
    vertices = tuple(
        vertex(i, parallelism, None if i in reached else source or Splits())
        for i, parallelism in enumerate(parallelisms)
    )
    return JobGraph("job", vertices, tuple(JobEdge(i, *edge[:2], 0, "", edge[2]) for i, edge in enumerate(edges)))


FORWARD = ((0, 1, True),)


@pytest.mark.parametrize(
    ("graph", "count"),
    [
        (job(3, 3, edges=FORWARD), 3),
        (job(2, 4, edges=FORWARD), 2),
        (job(3, 2, edges=((0, 1, False),)), 1),
        (job(2, 2, 3, 3, edges=((0, 1, False), (2, 3, False))), 2),
        (job(2, 2, 2, edges=((0, 1, True), (0, 2, False))), 1),
        (job(3, edges=()), 3),
        (job(3, 3, edges=FORWARD, source=HybridSource([Numbers(), Numbers()])), 1),
    ],
    ids=["forward", "rescale", "hash", "two pipelines", "joined by one edge", "one vertex", "a source of one mind"],
)
def test_regions_are_what_channels_connect(graph: JobGraph, count: int) -> None:
    """E6: and readers that cannot restart alone."""
    assert len(Regions(graph)) == count


def test_a_region_is_whole() -> None:
    """E6: with its producers, its consumers, and theirs."""
    regions = Regions(job(2, 4, 4, edges=((0, 1, True), (1, 2, True))))
    assert regions.of([(1, 3)]) == {(0, 1), (1, 2), (1, 3), (2, 2), (2, 3)}
    assert regions.of([(1, 3), (0, 0)]) == regions.of([(0, 1)]) | regions.of([(2, 0)])
    assert regions.of([]) == frozenset()


def forward(**options: Any) -> MasterRig:
    """Two regions, 0 and 1, each a source and a sink."""
    rig = MasterRig(job(2, 2, edges=FORWARD), **options)
    rig.run_all()
    assert rig.status == "RUNNING"
    return rig


def task(vertex: int, subtask: int, attempt: int = 0) -> ExecutionId:
    return ExecutionId(vertex, subtask, attempt)


def restart(rig: MasterRig) -> None:
    """What is cancelled ends, the delay passes, and what is deployed runs."""
    rig.end_cancelled()
    rig.advance(100)
    rig.run_all()


def test_a_failure_restarts_its_region_alone() -> None:
    """E6, G8: the others are neither cancelled nor deployed again."""
    rig = forward()
    rig.fail(task(1, 0))
    assert rig.status == "RESTARTING"
    assert [m.execution for m in rig.of(CancelTask)] == [task(0, 0)]
    restart(rig)
    assert rig.statuses == ["CREATED", "RUNNING", "RESTARTING", "RUNNING"]
    assert [m.execution for m in rig.deployed] == [task(0, 0, 1), task(1, 0, 1)]
    assert rig.deployed[0].attempts == (0, 1)
    assert rig.master.history.restarts == 1
    assert "2 of 4 tasks restart in 100 ms, from the beginning; the others go on" in rig.logs


def test_a_checkpoint_spans_regions_in_different_attempts() -> None:
    """G6, G8: one in the making is given up, and the next one has the parts of both; the region restarts from it."""
    rig = forward()
    rig.advance(1_000)
    rig.acknowledge(1, task(0, 1), task(1, 1))
    rig.fail(task(1, 0))
    assert {m.execution for m in rig.of(NotifyCheckpointAborted)} >= {task(0, 1), task(1, 1)}
    restart(rig)
    rig.advance(2_000)
    now = [task(0, 0, 1), task(1, 0, 1), task(0, 1), task(1, 1)]
    rig.acknowledge(2, *now)
    assert rig.store.stored == [2]
    rig.fail(task(0, 0, 1))
    restart(rig)
    assert [m.restored_checkpoint_id for m in rig.deployed] == [2, 2]
    assert [m.execution.attempt for m in rig.deployed] == [2, 2]


def test_splits_assigned_since_the_last_checkpoint_come_back() -> None:
    """A1, G8: those that the reader's part of it does not hold, and only of readers that restart."""
    rig = forward()
    ask(rig, task(0, 0))
    rig.advance(1_000)
    ask(rig, task(0, 0))
    rig.acknowledge(1)
    ask(rig, task(0, 1))
    ask(rig, task(0, 0))
    rig.fail(task(1, 0))
    restart(rig)
    assert given(rig).back == [(0, ["split 2", "split 4"])]
    rig.fail(task(0, 0, 1))
    restart(rig)
    assert given(rig).back[1:] == [(0, [])]


def test_after_a_restart_of_all_splits_count_from_there() -> None:
    """A1, G8: what the checkpoint holds is not handed out twice."""
    rig = forward()
    ask(rig, task(0, 0))
    rig.advance(1_000)
    rig.acknowledge(1)
    rig.lose("w1")
    rig.lose("w2")
    rig.end_cancelled()
    rig.advance(100)
    rig.register(2)
    rig.run_all()
    ask(rig, task(0, 0, 1))
    rig.fail(task(1, 0, 1))
    restart(rig)
    assert given(rig).back == [(0, ["split 1"])]


def test_what_a_reader_is_told_while_it_is_away_is_not_lost() -> None:
    """A1: a split that is assigned to it comes back when it is deployed."""
    rig = forward()
    rig.fail(task(1, 0))
    rig.end_cancelled()
    enumerator = given(rig)
    enumerator.context.assign_split("found meanwhile", 0)
    enumerator.context.signal_no_more_splits(0)
    rig.advance(100)
    assert enumerator.back == [(0, ["found meanwhile"])]
    assert rig.of(AssignSplits) == []
    ask(rig, task(0, 0, 1))
    assert [m.execution for m in rig.of(AssignSplits)] == [task(0, 0, 1)]


def ask(rig: MasterRig, execution: ExecutionId) -> None:
    rig.master.on_message(RequestSplit(execution, "id-v0"))


def given(rig: MasterRig) -> Given:
    enumerator = rig.master._sources.coordinators["id-v0"]._enumerator
    assert isinstance(enumerator, Given)
    return enumerator


@pytest.mark.parametrize("moment", ["cancelling", "waiting", "placing"])
def test_a_region_that_fails_meanwhile_joins(moment: str) -> None:
    """E6, G8: whatever the first one was at, both begin again in one attempt."""
    graph = job(3, 3, edges=FORWARD)
    rig = MasterRig(graph)
    rig.run_all()
    if moment == "placing":
        rig.lose("w1")
        rig.advance(100)
    else:
        rig.fail(task(1, 0))
    if moment == "waiting":
        rig.end_cancelled()
    rig.fail(task(1, 1))
    assert rig.status == "RESTARTING"
    rig.end_cancelled()
    rig.advance(100)
    if moment == "placing":
        rig.register(1)
    rig.run_all()
    assert rig.statuses == ["CREATED", "RUNNING", "RESTARTING", "RUNNING"]
    newest = {m.execution for m in rig.deployed}
    attempt = 2 if moment == "placing" else 1
    assert newest == {task(v, s, attempt) for v in (0, 1) for s in (0, 1)}
    assert not any(m.execution.subtask == 2 for m in rig.of(CancelTask))


def test_the_workers_of_others_are_kept() -> None:
    """E2, E3: a lost worker is replaced; the other slots stay where they are."""
    rig = forward()
    rig.lose("w1")
    assert rig.of(CancelTask) == []  # its tasks ended with it
    rig.advance(100)
    assert rig.requested == [2, 1]
    assert rig.status == "RESTARTING"
    rig.register(1)
    rig.run_all()
    assert rig.status == "RUNNING"
    assert {worker for worker, m in rig.sent if isinstance(m, DeployTask) and m.execution.attempt == 1} == {"w3"}


def test_figures_of_others_are_kept() -> None:
    """E6: those of tasks that restart begin again."""
    rig = forward()
    for subtask in (0, 1):
        rig.master.on_message(TaskMetrics(task(0, subtask), 5, 0, 0))
    rig.fail(task(0, 0))
    restart(rig)
    assert set(rig.master._tasks.metrics) == {(0, 1)}


def test_a_part_waits_until_a_checkpoint_is_complete_or_not() -> None:
    """G8: it begins from the newest, which tasks that go on may commit at this moment."""
    rig = forward()
    rig.background.hold = True
    rig.advance(1_000)
    rig.acknowledge(1)
    rig.fail(task(1, 0))
    rig.end_cancelled()
    rig.advance(100)
    assert rig.status == "RESTARTING"
    rig.background.run()
    assert [m.restored_checkpoint_id for m in rig.deployed] == [1, 1]


# --- when the whole job restarts, or ends -----------------------------------------------------------------------------


def test_the_whole_job_restarts_if_the_options_say_so() -> None:
    """E6: `jobmanager.execution.failover-strategy: full`."""
    rig = forward(conf={"jobmanager.execution.failover-strategy": "full"})
    rig.fail(task(1, 0))
    assert rig.status == "FAILING"


def test_the_whole_job_restarts_if_it_is_one_region() -> None:
    """E6: the usual case of a job with a keyed stream."""
    rig = MasterRig(two_vertices())
    rig.run_all()
    rig.fail()
    assert rig.status == "FAILING"


def test_the_whole_job_restarts_when_it_was_being_stopped() -> None:
    """H1: sources have come to their end for the savepoint, also in regions that did not fail."""
    rig = forward()
    answers: list[Any] = []
    rig.master.take_savepoint(TakeSavepoint("/savepoints", StopMode.SUSPEND), lambda *answer: answers.append(answer))
    rig.fail(task(1, 0))
    assert rig.statuses == ["CREATED", "RUNNING", "FAILING"]
    assert answers[0][0] is None


def test_the_whole_job_restarts_when_the_checkpoint_is_damaged() -> None:
    """G11: a region cannot go back further than the others."""
    rig = forward(conf={"execution.checkpointing.num-retained": "2"})
    for checkpoint_id in (1, 2):
        rig.advance(1_000)
        rig.acknowledge(checkpoint_id)
    rig.store.damaged = {2}
    rig.fail(task(1, 0))
    rig.end_cancelled()
    rig.advance(100)
    assert rig.status == "FAILING"
    rig.end_cancelled()
    rig.advance(100)
    assert [m.restored_checkpoint_id for m in rig.deployed] == [1, 1, 1, 1]


def test_the_job_fails_when_no_restart_is_left() -> None:
    """G8: the restart strategy counts the failures of all regions; what still runs is cancelled."""
    rig = forward(conf={"restart-strategy.fixed-delay.attempts": "1"})
    rig.fail(task(1, 0))
    restart(rig)
    rig.fail(task(1, 1))
    rig.say("CANCELED", task(0, 1))
    assert rig.status == "FAILING"
    rig.end_cancelled()
    assert rig.status == "FAILED"
    assert rig.released == ["w1", "w2"]


def test_the_job_fails_when_a_part_gets_no_worker() -> None:
    """E3: the other tasks are cancelled first."""
    rig = forward(conf={"slot.request.timeout": "5000 ms"})
    rig.lose("w1")
    rig.advance(100)
    rig.advance(5_000)
    assert rig.status == "FAILING"
    rig.end_cancelled()
    assert rig.status == "FAILED"
    assert "no more within 5000 ms" in str(rig.master.failure)


def test_a_job_is_cancelled_while_a_part_restarts() -> None:
    """E5: all of it."""
    rig = forward()
    rig.fail(task(1, 0))
    rig.end_cancelled()
    rig.master.cancel()
    rig.end_cancelled()
    assert rig.status == "CANCELED"
    rig.advance(1_000)
    assert len(rig.of(DeployTask)) == 4


def test_a_failed_enumerator_restarts_the_whole_job() -> None:
    """A1: all readers depend on it."""
    rig = forward()
    given(rig).breaks = True
    rig.fail(task(1, 0))
    rig.end_cancelled()
    rig.advance(100)
    assert rig.status == "FAILING"
    assert "RuntimeError: no room" in str(rig.master.failure)
