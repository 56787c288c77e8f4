"""Whether a job fits a savepoint or checkpoint: nothing that was in it, or is still to come, may be lost unseen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.base.errors import CheckpointError
from penstock.runtime.checkpoint.restore import check_restorable
from penstock.runtime.graph import BACK_FILL, BROADCAST, JobEdge, JobGraph, JobVertex, OperatorInfo
from penstock.storage.metadata import (
    CHANNEL_MODE,
    ChannelState,
    CheckpointMetadata,
    Direction,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateFile,
)

HEAP = "hashmap"


def build_graph(*chains: str) -> JobGraph:
    """A row of vertices, each a chain of operators such as "map+pass"."""
    vertices = tuple(
        JobVertex(
            index,
            chain,
            1,
            128,
            tuple(OperatorInfo(f"id-{name}", name, f"uid-{name}", True) for name in chain.split("+")),
            b"",
        )
        for index, chain in enumerate(chains)
    )
    edges = tuple(JobEdge(i, i, i + 1, 0, "HASH", False) for i in range(len(chains) - 1))
    return JobGraph("job", vertices, edges)


def checkpoint_of(graph: JobGraph, finished: tuple[str, ...] = (), behind: str = "") -> CheckpointMetadata:
    """Of that job: operators that had finished, and one behind which a barrier overtook a record on edge 0."""
    in_flight = ChannelState(Direction.OUT, 0, 0).stored_name
    handle = OperatorStateHandle(CHANNEL_MODE, 1, StateFile(1, 1, data=b""))
    operators = []
    for info in (o for vertex in graph.vertices for o in vertex.operators):
        state = OperatorSubtaskState({}, {in_flight: (handle,)} if info.name == behind else {})
        ended = (0,) if info.name in finished else ()
        operators.append(OperatorState(info.operator_id, info.uid, info.name, 1, 128, {0: state}, ended))
    return CheckpointMetadata(7, "job-1", "job", 0, False, tuple(operators), edges=graph.edge_names())


def test_records_in_flight_stay_behind_their_operator() -> None:
    """G5, H4: the end of a chain is taken away, and with it would go what a barrier had overtaken behind it."""
    metadata = checkpoint_of(build_graph("source+pass", "sink"), behind="pass")
    with pytest.raises(CheckpointError, match=r"after operator 'pass' \(uid 'uid-pass'\), which the job no longer has"):
        check_restorable(metadata, build_graph("source", "sink"), True, HEAP)
    assert check_restorable(metadata, build_graph("source+pass", "sink"), False, HEAP) == []


@pytest.mark.parametrize("mode", ["MICRO_BATCH", BACK_FILL])
def test_records_in_flight_go_on_in_streaming_alone(mode: str) -> None:
    """G5, H4: epochs have no channels to take them into, at this parallelism or another one."""
    graph = build_graph("source", "sink")
    metadata = checkpoint_of(graph, behind="source")
    with pytest.raises(CheckpointError, match="micro-batch execution cannot take over the records in flight"):
        check_restorable(metadata, replace(graph, mode=mode), True, HEAP)
    assert check_restorable(checkpoint_of(graph), replace(graph, mode=mode), True, HEAP) == []


@pytest.mark.parametrize("rescaled", [0, 1])
@pytest.mark.parametrize(("partitioning", "is_pointwise"), [(BROADCAST, False), ("FORWARD", True)])
def test_records_in_flight_that_cannot_be_parted(partitioning: str, is_pointwise: bool, rescaled: int) -> None:
    """G5, H4: barriers overtake none any more; a checkpoint of a version in which they did is restored at the same
    parallelism, and refused at another one, at either end of the edge."""
    graph = build_graph("source", "sink")
    graph = replace(graph, edges=(replace(graph.edges[0], partitioning=partitioning, is_pointwise=is_pointwise),))
    assert graph.vertices_forced_aligned() == {1}
    metadata = checkpoint_of(graph, behind="source")
    assert check_restorable(metadata, graph, False, HEAP) == []
    vertices = tuple(replace(v, parallelism=2 if v.index == rescaled else 1) for v in graph.vertices)
    with pytest.raises(CheckpointError, match=rf"on the {partitioning.lower()} edge to 'sink', whose parallelism"):
        check_restorable(metadata, replace(graph, vertices=vertices), False, HEAP)
    assert check_restorable(checkpoint_of(graph), replace(graph, vertices=vertices), False, HEAP) == []


def test_an_operator_that_is_new_at_the_end_of_a_chain() -> None:
    """G5, H4: what is in flight behind the operator ahead of it goes on from there."""
    metadata = checkpoint_of(build_graph("source", "sink"), behind="source")
    assert check_restorable(metadata, build_graph("source+pass", "sink"), False, HEAP) == []


def test_what_had_finished_reads_from_something_new() -> None:
    """G10, H4: an operator that had finished is skipped, so all that a new one ahead of it sends would be lost."""
    metadata = checkpoint_of(build_graph("source", "sink"), finished=("source", "sink"))
    with pytest.raises(
        CheckpointError, match=r"'sink' \(uid 'uid-sink'\) had finished, but reads from 'new', which had"
    ):
        check_restorable(metadata, build_graph("source", "new", "sink"), False, HEAP)


def test_something_new_reads_from_what_had_finished() -> None:
    """G10, H4: it is told that nothing comes any more."""
    metadata = checkpoint_of(build_graph("source", "sink"), finished=("source",))
    lines = check_restorable(metadata, build_graph("source", "new", "sink"), False, HEAP)
    assert lines == ["'source' had finished and is skipped"]
