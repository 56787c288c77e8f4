"""Checks whether a job can start from a savepoint or another job's checkpoint (H4). Pure; runs before the job does."""

from __future__ import annotations

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError
from penstock.base.options import (
    RECOVERY_IGNORE_UNCLAIMED_STATE,
    RECOVERY_KEEP_EVENT_TIME,
    RECOVERY_MATCH_BY_PLACE,
    STATE_BACKEND,
)
from penstock.core.checkpoint.in_flight_rescaling import check_in_flight
from penstock.core.checkpoint.places import check_places
from penstock.core.graph.job_graph import JobGraph, JobVertex, OperatorInfo
from penstock.storage.metadata import CheckpointMetadata, OperatorState


def check_fit(metadata: CheckpointMetadata, job_graph: JobGraph, configuration: Configuration) -> list[str]:
    """Call `check_restorable` with the options of the configuration."""
    return check_restorable(
        metadata,
        job_graph,
        configuration.read(RECOVERY_IGNORE_UNCLAIMED_STATE),
        configuration.read(STATE_BACKEND),
        configuration.read(RECOVERY_MATCH_BY_PLACE),
    )


def to_initial_metadata(metadata: CheckpointMetadata, configuration: Configuration) -> CheckpointMetadata:
    """Return the metadata of another job's savepoint or checkpoint, without its event time if an option says so."""
    return metadata if configuration.read(RECOVERY_KEEP_EVENT_TIME) else metadata.without_event_time()


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
            f"the job uses {backend!r}: set {STATE_BACKEND.key()}: {other}, or start from a savepoint, which any "
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
        f"{RECOVERY_IGNORE_UNCLAIMED_STATE.key()}: true"
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
        f"{RECOVERY_IGNORE_UNCLAIMED_STATE.key()}: true"
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
