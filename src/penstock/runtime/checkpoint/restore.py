"""Restores of savepoints and checkpoints into a changed job: records in flight, operators' places, and other checks.

All functions are pure. The checks run before the job does.

**Records in flight (D4, G5).** An unaligned checkpoint may be restored at another parallelism. At the same parallelism,
records in flight return to their own channels. If an end of an edge has another number of subtasks, those channels no
longer exist. Then a producer takes over the channels of old producers (old subtask p goes to subtask p modulo the new
parallelism) and partitions their records again, before it emits anything else. From each old channel, it first takes
the records that had arrived and then the unsent ones, so records of one producer and one key keep their order. But if
the producers have changed, the new records of that key may come from another one. So each producer marks in its
channels where the records in flight end (`EndOfOutputChannelState`), and a consumer processes nothing after the mark
until all channels of the edge have reached it (`InputGate.end_channel_state`). No checkpoint begins before all
consumers have done so: one that held only some of these records could not identify the old ones. Watermarks in flight
are omitted: the following ones are not lower.

A broadcast edge cannot be handled like this, because each consumer lacked different records, nor can a pointwise edge,
because its records keep the order of a key that only a task further upstream knows. So no barrier overtakes records on
the way to a task with such an input (`penstock.runtime.task.barriers`). Only checkpoints of versions where
barriers did so have records in flight there: they are refused at another parallelism.

Records that a barrier overtook in an output are stored with the upstream operator. So that operator must exist, though
the edge may not.

**Places (H3, H4).** `check_places` checks whether operators without a uid may take over the state at their places in
the program. An id derived from an operator's place identifies the place, not the operator. An operator inserted in
front of another takes over its place, and its state with it. So this module compares the checkpoint's description of
the operator that wrote the state with the current program. It refuses:

- another kind of operator, another name given by the program, or another declared type of keys;
- ambiguous cases: operators of the same kind were added, removed or moved, and neither a name nor the function's class
  distinguishes them.

A function may change, and a name may be given, if nothing was added or moved. The module does not check operators with
a uid, nor properties that are missing in checkpoints of earlier releases.

`check_fit` and `check_restorable` check whether a job can start from a savepoint or another job's checkpoint (H4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError
from penstock.runtime.graph import BROADCAST, JobEdge, JobGraph, JobVertex, OperatorInfo
from penstock.storage.metadata import (
    CHANNEL_MODE,
    ChannelState,
    CheckpointMetadata,
    Direction,
    OperatorState,
    OperatorStateHandle,
    StateFile,
    parse_channel,
)

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


def check_places(states: Iterable[OperatorState], job_graph: JobGraph) -> None:
    """Raise `CheckpointError` for the first operator that would take over state which may belong to another one."""
    before = {state.operator_id: state for state in states if state.kind}
    operators = [operator for vertex in job_graph.vertices for operator in vertex.operators]
    for operator in operators:
        state = before.get(operator.operator_id)
        if state is None or not (operator.has_placed_id and state.has_placed_id and state.holds_state):
            continue
        if misfit := _misfit(state, operator):
            raise _refusal(state, operator, misfit)
        rivals = _rivals(state, operator, before, operators)
        if rivals and not _is_certain(state, operator, rivals):
            names = ", ".join(dict.fromkeys(f"{_said(rival)} was {change}" for rival, change in rivals))
            raise _refusal(state, operator, f"nothing distinguishes the two, and {names}")


def _misfit(state: OperatorState, operator: OperatorInfo) -> str | None:
    """Return a description of how the two differ; None if they match."""
    if state.kind != operator.kind:
        return "they are of different kinds"
    if _has_name(state) and _has_name(operator) and state.name != operator.name:
        return "their names differ"
    if state.key_type and operator.key_type and state.key_type != operator.key_type:
        return f"their keys are declared as {state.key_type} and {operator.key_type}"
    return None


Rivals = list[tuple[OperatorState | OperatorInfo, str]]


def _rivals(
    state: OperatorState, operator: OperatorInfo, before: dict[str, OperatorState], operators: list[OperatorInfo]
) -> Rivals:
    """Return others of the kind that may have written the state, or that may have been this operator before."""
    now = {o.operator_id: o for o in operators}
    rivals: Rivals = [(o, "added") for o in operators if o.kind == operator.kind and o.operator_id not in before]
    rivals += [
        (s, "removed")
        for s in before.values()
        if s.kind == state.kind and s.operator_id not in now and s.has_placed_id and s.holds_state
    ]
    for other in operators:
        past = before.get(other.operator_id)
        if past is None or other is operator or other.kind != operator.kind:
            continue
        has_moved_there = state.function and other.function == state.function != past.function
        if has_moved_there and operator.function != state.function:
            rivals.append((other, "moved"))
    return rivals


def _is_certain(state: OperatorState, operator: OperatorInfo, rivals: Rivals) -> bool:
    """Return whether a name or function class matches the operator before and now, but none of its rivals."""
    if _has_name(state) and _has_name(operator):
        return all(rival.name != operator.name for rival, _ in rivals)
    if state.function and state.function == operator.function:
        return all(rival.function != operator.function for rival, _ in rivals)
    return False


def _has_name(operator: OperatorState | OperatorInfo) -> bool:
    return operator.name != operator.kind


def _said(operator: OperatorState | OperatorInfo) -> str:
    return f"{operator.name!r} ({operator.function})" if operator.function else repr(operator.name)


def _refusal(state: OperatorState, operator: OperatorInfo, because: str) -> CheckpointError:
    return CheckpointError(
        f"operator {_said(operator)} has no uid and stands at the place of {_said(state)}, which had none either. It "
        f"would take that operator's state, but {because}. Call set_uid_hash({state.operator_id!r}) on the operator "
        f"that the state belongs to, and give the others a uid; or set {options.RECOVERY_MATCH_BY_PLACE.key()}: true "
        "to assign "
        "state by place"
    )


def check_fit(metadata: CheckpointMetadata, job_graph: JobGraph, configuration: Configuration) -> list[str]:
    """Call `check_restorable` with the options of the configuration."""
    return check_restorable(
        metadata,
        job_graph,
        configuration.read(options.RECOVERY_IGNORE_UNCLAIMED_STATE),
        configuration.read(options.STATE_BACKEND),
        configuration.read(options.RECOVERY_MATCH_BY_PLACE),
    )


def to_initial_metadata(metadata: CheckpointMetadata, configuration: Configuration) -> CheckpointMetadata:
    """Return the metadata of another job's savepoint or checkpoint, without its event time if an option says so."""
    return metadata if configuration.read(options.RECOVERY_KEEP_EVENT_TIME) else metadata.without_event_time()


def check_restorable(
    metadata: CheckpointMetadata,
    job_graph: JobGraph,
    ignores_unclaimed: bool,
    backend: str,
    matches_by_place: bool = False,
) -> list[str]:
    """Return messages for the user about the restore, in lines; raise `CheckpointError` if the job does not fit."""
    states = {o.operator_id: o for o in metadata.operators}
    if not matches_by_place:
        check_places(metadata.operators, job_graph)
    lines = _unclaimed(states, job_graph, ignores_unclaimed)
    lines += [f"begins without state: {_step(new)}" for new in _new_steps(states, job_graph)]
    check_in_flight(metadata, job_graph)
    for vertex in job_graph.vertices:
        known = [states[o.operator_id] for o in vertex.operators if o.operator_id in states]
        for state in known:
            _check_backend(state, backend)
            if state.max_parallelism != vertex.max_parallelism and _holds_keyed(state):
                raise CheckpointError(
                    f"operator {_named(state)}: its keyed state was written with max parallelism "
                    f"{state.max_parallelism}, the job has {vertex.max_parallelism}: set pipeline.max-parallelism to "
                    f"{state.max_parallelism}"
                )
        finished = [o for o in known if o.fully_finished]
        if finished and len(finished) < len(vertex.operators):
            ended = {state.operator_id for state in finished}
            running = ", ".join(o.name for o in vertex.operators if o.operator_id not in ended)
            raise CheckpointError(
                f"operator {_named(finished[0])} had finished, but is chained with {running}, which had not: start a "
                "new chain between them (start_new_chain), or give the finished operator a new uid to run it again"
            )
        if finished:
            _require_finished_producers(finished[0], vertex, job_graph, states)
            lines.append(f"{vertex.name!r} had finished and is skipped")
    return lines


def _check_backend(state: OperatorState, backend: str) -> None:
    """Raise if the keyed state is in another backend's own files, which only that backend can read."""
    for other in {native.backend for subtask in state.subtasks.values() for native in subtask.native} - {backend}:
        raise CheckpointError(
            f"operator {_named(state)}: the checkpoint holds its keyed state in files of the backend {other!r}, but "
            f"the job uses {backend!r}: set {options.STATE_BACKEND.key()}: {other}, or start from a savepoint, which "
            "any "
            "backend can read"
        )


def _require_finished_producers(
    finished: OperatorState, vertex: JobVertex, job_graph: JobGraph, states: dict[str, OperatorState]
) -> None:
    """Raise if a finished operator, which is skipped, has unfinished producers: their records would be lost."""
    for edge in job_graph.get_inputs(vertex.index):
        for producer in job_graph.vertices[edge.source].operators:
            state = states.get(producer.operator_id)
            if state is None or not state.fully_finished:
                raise CheckpointError(
                    f"operator {_named(finished)} had finished, but reads from {producer.name!r}, which had not: "
                    "remove what is new before it, or give it a new uid to run it again"
                )


def _unclaimed(states: dict[str, OperatorState], job_graph: JobGraph, ignores: bool) -> list[str]:
    claimed = {o.operator_id for vertex in job_graph.vertices for o in vertex.operators}
    left = [s for s in states.values() if s.operator_id not in claimed and (s.subtasks or s.coordinator is not None)]
    if not left:
        return []
    names = ", ".join(_named(state) for state in left)
    if ignores:
        return [f"dropped state that no operator claims: {names}"]
    if any(state.description for state in left):
        raise _changed_query(left, _new_steps(states, job_graph))
    raise CheckpointError(
        f"no operator of the job claims the state of {names}: give the operator its uid back, or drop the state with "
        f"{options.RECOVERY_IGNORE_UNCLAIMED_STATE.key()}: true"
    )


def _changed_query(left: list[OperatorState], new: list[OperatorInfo]) -> CheckpointError:
    """Return the error for state of query steps that no longer exist."""
    lines = [
        "no operator of the job claims the state of all steps of its queries. State is good for the query that made it"
    ]
    lines += [f"  left over: {_named(state)}" for state in left]
    lines += [f"  new, without state: {_step(operator)}" for operator in new]
    lines.append(
        "Run the queries as they were, or drop the state of what was changed, which then begins empty, with "
        f"{options.RECOVERY_IGNORE_UNCLAIMED_STATE.key()}: true"
    )
    return CheckpointError("\n".join(lines))


def _new_steps(states: dict[str, OperatorState], job_graph: JobGraph) -> list[OperatorInfo]:
    """Return the query steps that may have state but have none in the checkpoint."""
    operators = [operator for vertex in job_graph.vertices for operator in vertex.operators]
    return [
        operator
        for operator in operators
        if operator.is_stateful and operator.description and operator.operator_id not in states
    ]


def _step(operator: OperatorInfo) -> str:
    return f"{operator.name!r}, which is {operator.description}"


def _holds_keyed(state: OperatorState) -> bool:
    return any(subtask.keyed or subtask.native for subtask in state.subtasks.values())


def _named(state: OperatorState) -> str:
    if state.uid is not None:
        return f"{state.name!r} (uid {state.uid!r})"
    label = f"{state.name!r} (id {state.operator_id})"
    return f"{label}, which was {state.description}" if state.description else label
