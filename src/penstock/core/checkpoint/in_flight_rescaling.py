"""Restores the records in flight of an unaligned checkpoint at another parallelism (D4, G5). Pure.

At the same parallelism, records in flight return to their own channels. If an end of an edge has another number of
subtasks, those channels no longer exist. Then a producer takes over the channels of old producers (old subtask p goes
to subtask p modulo the new parallelism) and partitions their records again, before it emits anything else. From each
old channel, it first takes the records that had arrived and then the unsent ones, so records of one producer and one
key keep their order. But if the producers have changed, the new records of that key may come from another one. So each
producer marks in its channels where the records in flight end (`EndOfOutputChannelState`), and a consumer processes
nothing after the mark until all channels of the edge have reached it (`InputGate.end_channel_state`). No checkpoint
begins before all consumers have done so: one that held only some of these records could not identify the old ones.
Watermarks in flight are omitted: the following ones are not lower.

A broadcast edge cannot be handled like this, because each consumer lacked different records, nor can a pointwise edge,
because its records keep the order of a key that only a task further upstream knows. So no barrier overtakes records on
the way to a task with such an input (`penstock.core.task.barriers.forced_aligned`). Only checkpoints of versions where
barriers did so have records in flight there: they are refused at another parallelism.

Records that a barrier overtook in an output are stored with the upstream operator. So that operator must exist, though
the edge may not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.base.errors import CheckpointError
from penstock.core.checkpoint.channel_states import CHANNEL_MODE, ChannelState, Direction, parse_channel
from penstock.core.graph.job_graph import BROADCAST, JobEdge, JobGraph, JobVertex
from penstock.storage.metadata import CheckpointMetadata, OperatorState, OperatorStateHandle, StateFile

#: The error for jobs in micro-batch execution.
ONLY_STREAMING: Final = (
    "micro-batch execution cannot take over the records in flight of an unaligned checkpoint; start from a savepoint "
    "or from an aligned checkpoint"
)


def check_in_flight(metadata: CheckpointMetadata, job_graph: JobGraph) -> None:
    """Raise `CheckpointError` if records in flight cannot be restored in this job."""
    states = {o.operator_id: o for o in metadata.operators}
    edges = {channel.edge for state in metadata.operators for _, channel, _ in _channels(state)}
    if not edges:
        return
    if job_graph.mode != "STREAMING":
        raise CheckpointError(ONLY_STREAMING)
    way_out = "restore it into the unchanged job, and take a savepoint, which has no records in flight"
    if metadata.edges != job_graph.edge_names():
        raise CheckpointError(
            f"the checkpoint is unaligned and holds records in flight on {len(edges)} edges, but the job's edges have "
            f"changed: {way_out}"
        )
    ids = {o.operator_id for vertex in job_graph.vertices for o in vertex.operators}
    for state in metadata.operators:
        if state.operator_id not in ids and any(_channels(state)):
            raise CheckpointError(
                f"the checkpoint is unaligned and holds records in flight after operator {state.name!r} (uid "
                f"{state.uid!r}), which the job no longer has: {way_out}"
            )
    for edge in job_graph.edges:
        is_fixed = edge.is_pointwise or edge.partitioning == BROADCAST
        if edge.index in edges and is_fixed and is_rescaled(edge, job_graph, states):
            kind, name = edge.partitioning.lower(), job_graph.vertices[edge.target].name
            raise CheckpointError(
                f"the checkpoint is unaligned and holds records in flight on the {kind} edge to {name!r}, whose "
                f"parallelism has changed: {way_out}"
            )


def is_rescaled(edge: JobEdge, job_graph: JobGraph, states: Mapping[str, OperatorState]) -> bool:
    """Return whether an end of the edge had another parallelism in the checkpoint."""
    return any(_is_rescaled(job_graph.vertices[vertex], states) for vertex in (edge.source, edge.target))


def edges_with_new_producers(job_graph: JobGraph, states: Mapping[str, OperatorState]) -> frozenset[int]:
    """Return the edges with records in flight whose producers had another parallelism in the checkpoint."""
    in_flight = {channel.edge for state in states.values() for _, channel, _ in _channels(state)}
    return frozenset(
        edge.index
        for edge in job_graph.edges
        if edge.index in in_flight and _is_rescaled(job_graph.vertices[edge.source], states)
    )


def _is_rescaled(vertex: JobVertex, states: Mapping[str, OperatorState]) -> bool:
    return any(
        states[o.operator_id].parallelism != vertex.parallelism for o in vertex.operators if o.operator_id in states
    )


def taken_over(
    edge: JobEdge, subtask: int, job_graph: JobGraph, states: Mapping[str, OperatorState]
) -> tuple[StateFile, ...]:
    """Return the records in flight on an edge that a producing subtask partitions again, in this order."""
    producer, consumer = job_graph.vertices[edge.source], job_graph.vertices[edge.target]
    files: list[tuple[int, int, int, StateFile]] = []
    for vertex, direction in ((consumer, Direction.IN), (producer, Direction.OUT)):
        for operator in vertex.operators:
            if operator.operator_id not in states:
                continue
            for index, channel, handle in _channels(states[operator.operator_id]):
                if channel.direction is direction and channel.edge == edge.index:
                    is_out = direction is Direction.OUT
                    ends = (index, channel.peer) if is_out else (channel.peer, index)
                    files.append((*ends, int(is_out), handle.file))
    return tuple(
        file for old, _, _, file in sorted(files, key=lambda f: f[:3]) if old % producer.parallelism == subtask
    )


def _channels(state: OperatorState) -> Iterator[tuple[int, ChannelState, OperatorStateHandle]]:
    for index, subtask in sorted(state.subtasks.items()):
        for name, handles in subtask.operator.items():
            for handle in handles:
                if handle.mode == CHANNEL_MODE:
                    yield index, parse_channel(name), handle
