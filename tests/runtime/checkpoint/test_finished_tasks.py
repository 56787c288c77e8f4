"""Checkpoints of a job of which some tasks have finished: the frontier, the flags, what becomes of state (G10)."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable
from typing import Any
from unittest import mock

import pytest
from tests.runtime.job.master_rig import MasterRig, Numbers, running, state_path

from penstock.runtime.checkpoint.pending import PendingCheckpoint
from penstock.runtime.checkpoint.statistics import watermarks_of_subtask
from penstock.runtime.graph import JobEdge, JobGraph, JobVertex, OperatorInfo
from penstock.runtime.protocol import AcknowledgeCheckpoint, ExecutionId, NotifyCheckpointComplete, TriggerCheckpoint
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.state.snapshot import OperatorCapture, read_operator
from penstock.storage import metadata as stored
from penstock.storage.metadata import (
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateFile,
    checksum,
    state_of_subtask,
)

SUBTASKS = range(3)


def vertex(index: int, name: str, parallelism: int, *, source: bool = False) -> JobVertex:
    info = OperatorInfo(f"id-{name}", name, None, True)
    sources = {f"id-{name}": Numbers()} if source else {}
    return JobVertex(index, name, parallelism, 128, (info,), b"program", sources)


# --- the frontier ---------------------------------------------------------------------------------------------------


def diamond() -> JobGraph:
    """Two sources, each with a pointwise edge to a map of its own, joined over the network, then a sink."""
    names = ("left", "left-map", "right", "right-map", "join", "sink")
    vertices = [vertex(i, name, 2, source=name in ("left", "right")) for i, name in enumerate(names)]
    edges = (
        JobEdge(0, 0, 1, 0, "FORWARD", True),
        JobEdge(1, 2, 3, 0, "FORWARD", True),
        JobEdge(2, 1, 4, 0, "HASH", False),
        JobEdge(3, 3, 4, 1, "HASH", False),
        JobEdge(4, 4, 5, 0, "FORWARD", True),
    )
    return JobGraph("job", tuple(vertices), edges)


ALL = frozenset(f"{name} {i}" for name in ("left", "left-map", "right", "right-map", "join", "sink") for i in range(2))


def asked(finished: Iterable[str]) -> set[str]:
    """Which tasks are asked to inject the barrier when these have finished."""
    rig = running(graph=diamond())
    names = {e: f"{rig.graph.vertices[e.vertex].name} {e.subtask}" for e in rig.executions}
    rig.say("FINISHED", *(e for e in rig.executions if names[e] in finished))
    rig.advance(1000)
    return {names[m.execution] for m in rig.of(TriggerCheckpoint)}


@pytest.mark.parametrize(
    ("finished", "expected"),
    [
        ("", "left 0, left 1, right 0, right 1"),
        ("left 0", "left 1, left-map 0, right 0, right 1"),
        ("left 0, left-map 0", "left 1, right 0, right 1"),
        ("left 0, left 1", "left-map 0, left-map 1, right 0, right 1"),
        ("left 0, left 1, left-map 0, left-map 1", "right 0, right 1"),
        ("left 0, left 1, left-map 0, left-map 1, right 0", "right 1, right-map 0"),
        ("left 0, left 1, left-map 0, left-map 1, right 0, right 1, right-map 0", "right-map 1"),
        ("left 0, left 1, left-map 0, left-map 1, right 0, right 1, right-map 0, right-map 1", "join 0, join 1"),
        (", ".join(sorted(ALL - {"join 1", "sink 0", "sink 1"})), "join 1, sink 0"),
        (", ".join(sorted(ALL - {"sink 1"})), "sink 1"),
    ],
)
def test_barriers_begin_at_the_finished_frontier(finished: str, expected: str) -> None:
    """G10: asked are the tasks that run and of which every producer has finished; a pointwise edge counts its own
    subtask only, a network edge all of them."""
    assert asked(finished.split(", ")) == set(expected.split(", "))


def test_every_running_task_hears_of_every_checkpoint() -> None:
    """G10: whatever has finished, from the frontier each running task is reached over edges between running tasks."""
    order = ["left", "left-map", "right", "right-map", "join", "sink"]
    edges = [
        ("left", "left-map"),
        ("right", "right-map"),
        ("left-map", "join"),
        ("right-map", "join"),
        ("join", "sink"),
    ]
    pointwise = {("left", "left-map"), ("right", "right-map"), ("join", "sink")}
    for sizes in itertools.product(range(3), repeat=4):
        # So many subtasks of each chain have finished, from its head on: the first 0, then 0 and 1.
        finished = {f"{name} {i}" for name, size in zip(order, sizes, strict=False) for i in range(size)}
        finished -= {f"left-map {i}" for i in range(2) if f"left {i}" not in finished}
        finished -= {f"right-map {i}" for i in range(2) if f"right {i}" not in finished}
        reached = asked(finished)
        assert reached.isdisjoint(finished)
        for one, other in edges:
            for i, j in itertools.product(range(2), repeat=2):
                if ((one, other) not in pointwise or i == j) and f"{one} {i}" in reached:
                    reached.add(f"{other} {j}")
        assert reached == ALL - finished, finished


def test_a_checkpoint_waits_for_nobody_who_has_finished() -> None:
    """G10: finished tasks need not acknowledge, and are told nothing."""
    rig = running(graph=diamond())
    done = [e for e in rig.executions if e.vertex in (0, 1)]
    rig.say("FINISHED", *done)
    rig.advance(1000)
    rig.acknowledge(1, *(e for e in rig.executions if e not in done))
    assert rig.store.stored == [1]
    assert {m.execution for m in rig.of(NotifyCheckpointComplete)} == set(rig.executions) - set(done)


@pytest.mark.parametrize(
    ("silent", "expected"),
    [
        ("left 0", "left-map 0"),
        ("left 0, left 1", "left-map 0, left-map 1"),
        ("left 0, left-map 0", "left-map 0"),
        (
            "left 0, left 1, left-map 0, left-map 1, right 0, right 1, right-map 0",
            "left-map 0, left-map 1, right-map 0, right-map 1",
        ),
        (
            "left 0, left 1, left-map 0, left-map 1, right 0, right 1, right-map 0, right-map 1",
            "left-map 0, left-map 1, right-map 0, right-map 1, join 0, join 1",
        ),
    ],
)
def test_a_barrier_that_those_above_did_not_send(silent: str, expected: str) -> None:
    """G6, G10: tasks may finish before they are asked for their part, by the checkpoint before. Those below them that
    have yet to take their last part, as they took the one before ahead of the end of their data, are asked themselves,
    as soon as nobody is left above them who could send them the barrier."""
    rig = running(graph=diamond())
    names = {e: f"{rig.graph.vertices[e.vertex].name} {e.subtask}" for e in rig.executions}
    rig.advance(1000)
    at_first = rig.of(TriggerCheckpoint)
    rig.say("FINISHED", *(e for e in rig.executions if names[e] in silent.split(", ")))
    more = rig.of(TriggerCheckpoint)[len(at_first) :]
    assert {names[m.execution] for m in more} == set(expected.split(", "))
    (seen,) = {(m.checkpoint_id, m.timestamp_ms, m.completed_id) for m in at_first + more}
    assert seen[0] == 1
    rig.acknowledge(1, *(e for e in rig.executions if names[e] not in silent.split(", ")))
    assert rig.store.stored == [1]


def test_a_barrier_that_one_above_did_send() -> None:
    """G6, G10: a task gets the barrier once: from the only one above it that took its part before it finished."""
    rig = running(graph=diamond())
    rig.advance(1000)
    at_first = rig.of(TriggerCheckpoint)
    maps = [e for e in rig.executions if e.vertex in (1, 3)]
    rig.acknowledge(1, maps[0], finished=True)
    rig.say("FINISHED", *(e for e in rig.executions if e.vertex in (0, 2)), *maps)
    asked = [m.execution for m in rig.of(TriggerCheckpoint)[len(at_first) :]]
    assert [e for e in asked if e.vertex in (4, 5)] == []


def test_a_task_with_two_edges_from_one_that_finished_is_asked_once() -> None:
    """G6, G10: asked twice, it would write the files of its part twice."""
    vertices = (vertex(0, "source", 1, source=True), vertex(1, "sink", 2))
    edges = (JobEdge(0, 0, 1, 0, "REBALANCE", False), JobEdge(1, 0, 1, 0, "REBALANCE", False))
    rig = running(graph=JobGraph("job", vertices, edges))
    rig.advance(1000)
    at_first = rig.of(TriggerCheckpoint)
    rig.say("FINISHED", rig.executions[0])
    asked = [m.execution.subtask for m in rig.of(TriggerCheckpoint)[len(at_first) :]]
    assert asked == [0, 1]


def test_flags_of_finished_operators() -> None:
    """G10: the checkpoint says of every operator which subtasks had finished by it, those included whose part of this
    very checkpoint followed their end."""
    rig = running(graph=diamond())
    rig.say("FINISHED", rig.executions[0])
    rig.advance(1000)
    left_1, left_map_0 = rig.executions[1], rig.executions[2]
    rig.acknowledge(1, left_1, left_map_0, finished=True)
    rig.acknowledge(1, *rig.executions[3:])
    (metadata,) = rig.master.checkpoints.completed
    assert {o.name: (o.finished, o.fully_finished) for o in metadata.operators} == {
        "left": ((0, 1), True),
        "left-map": ((0,), False),
        "right": ((), False),
        "right-map": ((), False),
        "join": ((), False),
        "sink": ((), False),
    }


def test_a_task_ahead_of_its_producers_has_not_finished_for_good() -> None:
    """G10, G5: without alignment a task's part may follow its end though that of a producer does not: after a recovery
    that one sends again, so the task must run again, too."""
    rig = running(graph=diamond())
    rig.advance(1000)
    rig.acknowledge(1, *(e for e in rig.executions if e.vertex != 0), finished=True)
    rig.acknowledge(1, *rig.executions[:2])
    (metadata,) = rig.master.checkpoints.completed
    assert [o.name for o in metadata.operators if o.fully_finished] == ["right", "right-map"]


def test_event_time_of_finished_tasks_is_over() -> None:
    """C2, G10: a task that had ended before the checkpoint holds back no other, at whichever parallelism the job goes
    on; of one that ends with its part, the checkpoint holds what the part says."""
    rig = running(graph=diamond())
    rig.say("FINISHED", rig.executions[0])
    rig.advance(1000)
    rig.acknowledge(1, rig.executions[1], finished=True, watermarks={"id-left": (MIN_TIMESTAMP, 70)})
    rig.acknowledge(1, *rig.executions[2:])
    (metadata,) = rig.master.checkpoints.completed
    left, left_map, *_ = metadata.operators
    over = MAX_WATERMARK, MAX_WATERMARK
    assert left.watermarks == {0: over, 1: (MIN_TIMESTAMP, 70)}
    assert left_map.watermarks == {}, "there time has not begun"
    assert watermarks_of_subtask(left, 0, 1) == (MIN_TIMESTAMP, 70)


# --- operator state -------------------------------------------------------------------------------------------------


def forward_pair() -> JobGraph:
    """A source and an operator with a pointwise edge between, so that subtasks end one by one."""
    edges = (JobEdge(0, 0, 1, 0, "FORWARD", True),)
    return JobGraph("job", (vertex(0, "source", 3, source=True), vertex(1, "holder", 3)), edges)


def state(**lists: tuple[str, list[Any]]) -> OperatorSubtaskState:
    """`name=(mode, items)`, inline."""
    handles: dict[str, tuple[OperatorStateHandle, ...]] = {}
    for name, (mode, items) in lists.items():
        if items:
            data = OperatorCapture(name, mode, [pickle.dumps(item) for item in items]).to_bytes()
            file = StateFile(len(data), checksum(data), data=data)
            handles[name] = (OperatorStateHandle(mode, len(items), file),)
    return OperatorSubtaskState({}, handles)


def holder_state(subtask: int, checkpoint_id: int, chosen: int, rules: bool = True) -> OperatorSubtaskState:
    """A list of its own, a union list that one chosen subtask keeps for all, broadcast state, something to commit."""
    return state(
        own=("split", [f"own {subtask}"]),
        shared=("union", ["shared"] if subtask == chosen else []),
        rules=("broadcast", ["rule"] if rules else []),
        prepared=("committable", [f"prepared {subtask} for {checkpoint_id}"]),
    )


def checkpoint_after_the_end_of(
    ended: tuple[int, ...], chosen: int = 0, forgets: tuple[int, ...] = (), failover: str = "full"
) -> MasterRig:
    """The job after checkpoint 3: by checkpoint 1 the subtasks of `ended` had come to their end, and were FINISHED
    before checkpoint 2. Those of `forgets` end without any broadcast state."""
    rig = running(graph=forward_pair(), conf={"jobmanager.execution.failover-strategy": failover})

    def acknowledge(checkpoint_id: int, subtasks: Iterable[int], finished: bool) -> None:
        for subtask in subtasks:
            for execution in (ExecutionId(0, subtask, 0), ExecutionId(1, subtask, 0)):
                operators = {}
                if execution.vertex == 1:
                    operators["id-holder"] = holder_state(subtask, checkpoint_id, chosen, subtask not in forgets)
                rig.master.on_message(AcknowledgeCheckpoint(execution, checkpoint_id, operators, finished))

    others = [i for i in SUBTASKS if i not in ended]
    rig.advance(1000)
    acknowledge(1, ended, True)
    acknowledge(1, others, False)
    if others:
        rig.say("FINISHED", *(ExecutionId(v, i, 0) for v in range(2) for i in ended))
        for checkpoint_id in (2, 3):
            rig.advance(1000)
            acknowledge(checkpoint_id, others, False)
    assert rig.store.stored == ([1, 2, 3] if others else [1])
    return rig


def dealt_out(operator: OperatorState, parallelism: int) -> dict[str, list[list[Any]]]:
    """What each new subtask gets of each state."""
    result: dict[str, list[list[Any]]] = {name: [] for name in ("own", "shared", "rules", "prepared")}
    for subtask in range(parallelism):
        mine = state_of_subtask(operator, subtask, parallelism, 128)
        for name, found in result.items():
            handles = mine.operator.get(name, ())
            found.append([item for h in handles for item in read_operator(h.file.data or b"")])
    return result


def holder_of(rig: MasterRig) -> OperatorState:
    metadata = rig.master.checkpoints.latest
    assert metadata is not None
    return metadata.operators[1]


SUBSETS = [subset for size in range(4) for subset in itertools.combinations(SUBTASKS, size)]


@pytest.mark.parametrize("parallelism", [3, 1, 2, 4, 7])
@pytest.mark.parametrize("chosen", SUBTASKS)
@pytest.mark.parametrize("ended", SUBSETS, ids=str)
def test_operator_state_survives_the_end_of_any_subtasks(ended: tuple[int, ...], chosen: int, parallelism: int) -> None:
    """G10, D2: whichever subtasks have ended, and at whichever parallelism the operator is restored: every item of the
    list is there once, every subtask has the whole union list, and the broadcast state."""
    got = dealt_out(holder_of(checkpoint_after_the_end_of(ended, chosen)), parallelism)
    assert sorted(item for items in got["own"] for item in items) == [f"own {i}" for i in SUBTASKS]
    assert got["shared"] == [["shared"]] * parallelism
    assert got["rules"] == [["rule"]] * parallelism
    if parallelism == 3:
        assert got["own"] == [[f"own {i}"] for i in SUBTASKS], "each its own again"


@pytest.mark.parametrize("ended", SUBSETS[1:-1], ids=str)
def test_what_finished_subtasks_had_prepared_is_not_kept(ended: tuple[int, ...]) -> None:
    """G9, G10: a finished subtask has committed what it had prepared; the others' is there to be committed again."""
    rig = checkpoint_after_the_end_of(ended)
    prepared = sorted(item for items in dealt_out(holder_of(rig), 3)["prepared"] for item in items)
    assert prepared == [f"prepared {i} for 3" for i in SUBTASKS if i not in ended]


def test_what_was_prepared_for_the_last_checkpoint_is_there_until_committed() -> None:
    """G9, G10: in the checkpoint that follows its end a subtask's last output is still to be committed."""
    rig = checkpoint_after_the_end_of((0, 1, 2))
    assert holder_of(rig).fully_finished
    assert dealt_out(holder_of(rig), 3)["prepared"] == [[f"prepared {i} for 1"] for i in SUBTASKS]


@pytest.mark.parametrize("ended", [(0,), (1,), (0, 2)], ids=str)
def test_the_next_attempt_gets_it(ended: tuple[int, ...]) -> None:
    """G10, G8: what finished subtasks left goes through the failure, and through the checkpoints after it until they
    run and write their own: all subtasks of the operator run again."""
    rig = checkpoint_after_the_end_of(ended)
    rig.fail(ExecutionId(1, next(i for i in SUBTASKS if i not in ended), 0))
    rig.end_cancelled()
    rig.advance(100)
    assert not any(t.finished_on_restore for t in rig.deployed)
    states = [t.restored["id-holder"].operator for t in rig.deployed if t.execution.vertex == 1]
    assert [sorted(lists) for lists in states] == [
        ["own", "rules", "shared"] if i in ended else ["own", "prepared", "rules", "shared"] for i in SUBTASKS
    ]


@pytest.mark.parametrize("ended", [(0,), (1,), (0, 2)], ids=str)
def test_what_has_finished_stays_so_when_another_region_restarts(ended: tuple[int, ...]) -> None:
    """G10, E6: the subtask that failed gets its own state again, and what the others left is carried along."""
    rig = checkpoint_after_the_end_of(ended, failover="region")
    failed = next(i for i in SUBTASKS if i not in ended)
    rig.fail(ExecutionId(1, failed, 0))
    rig.end_cancelled()
    rig.advance(100)
    assert [t.execution for t in rig.deployed] == [ExecutionId(0, failed, 1), ExecutionId(1, failed, 1)]
    assert sorted(rig.deployed[1].restored["id-holder"].operator) == ["own", "prepared", "rules", "shared"]
    rig.run_all()
    rig.advance(1000)
    left = [i for i in SUBTASKS if i not in ended]
    for subtask in left:
        attempt = 1 if subtask == failed else 0
        for vertex in (0, 1):
            lists = {"id-holder": holder_state(subtask, 4, 0, True)} if vertex else {}
            rig.master.on_message(AcknowledgeCheckpoint(ExecutionId(vertex, subtask, attempt), 4, lists, False))
    assert rig.store.stored == [1, 2, 3, 4]
    got = dealt_out(holder_of(rig), 3)
    assert got["own"] == [[f"own {i}"] for i in SUBTASKS]
    assert sorted(item for items in got["prepared"] for item in items) == [f"prepared {i} for 4" for i in left]


def test_files_of_finished_subtasks_stay() -> None:
    """G10, G6: the file that holds the last state of a finished subtask stays as long as checkpoints carry it along,
    though the checkpoint that wrote it is long gone."""
    rig = running(graph=forward_pair())
    ended, others = [ExecutionId(0, 0, 0), ExecutionId(1, 0, 0)], [e for e in rig.executions if e.subtask > 0]
    rig.advance(1000)
    rig.acknowledge(1, *ended, finished=True)
    rig.acknowledge(1, *others)
    rig.say("FINISHED", *ended)
    for checkpoint_id in range(2, 7):
        rig.advance(1000)
        rig.acknowledge(checkpoint_id, *others)
    assert rig.store.list_checkpoint_files(1) == [state_path(1, execution) for execution in ended]
    assert len(rig.store.list_checkpoint_files(6)) == len(others) + 1
    rig.fail(others[0])
    rig.end_cancelled()
    rig.advance(100)
    holder = next(t for t in rig.deployed if t.execution.vertex == 1)
    kept = [handle.files[0].path for handle in holder.restored["id-holder"].keyed["count"]]
    assert kept == [state_path(1, ended[1]), *(state_path(6, ExecutionId(1, i, 0)) for i in (1, 2))]


@pytest.mark.parametrize("parallelism", [3, 2, 5])
@pytest.mark.parametrize("ended", SUBSETS[1:-1], ids=str)
def test_broadcast_state_that_ended_subtasks_do_not_have(ended: tuple[int, ...], parallelism: int) -> None:
    """G10: subtasks that end without broadcast state do not empty that of the others: they get it, too."""
    got = dealt_out(holder_of(checkpoint_after_the_end_of(ended, forgets=ended)), parallelism)
    assert got["rules"] == [["rule"]] * parallelism


# --- the two pitfalls, without their remedies -----------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [3, 2, 5])
@pytest.mark.parametrize("ended", SUBSETS[1:-1], ids=str)
def test_pitfall_union_state(ended: tuple[int, ...], parallelism: int) -> None:
    """G10: if finished subtasks left nothing, the union list would be lost with the chosen one, and lists in part."""
    with mock.patch.object(PendingCheckpoint, "_carried", return_value=None):
        got = dealt_out(holder_of(checkpoint_after_the_end_of(ended, chosen=ended[0])), parallelism)
    assert got["shared"] == [[]] * parallelism
    assert sorted(item for items in got["own"] for item in items) == [f"own {i}" for i in SUBTASKS if i not in ended]


@pytest.mark.parametrize("parallelism", [3, 2, 5])
@pytest.mark.parametrize("ended", [subset for subset in SUBSETS[1:-1] if 0 in subset], ids=str)
def test_pitfall_broadcast_state(ended: tuple[int, ...], parallelism: int) -> None:
    """G10: if the broadcast state of the first subtask went to all, its end would empty them all, whether finished
    subtasks leave no state, or had none to leave."""
    with mock.patch.object(stored, "_broadcaster", return_value=0):
        got = dealt_out(holder_of(checkpoint_after_the_end_of(ended, forgets=ended)), parallelism)
        assert got["rules"] == [[]] * parallelism
        with mock.patch.object(PendingCheckpoint, "_carried", return_value=None):
            got = dealt_out(holder_of(checkpoint_after_the_end_of(ended)), parallelism)
        assert got["rules"] == [[]] * parallelism
