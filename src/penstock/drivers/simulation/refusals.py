"""Reasons why jobs must not begin from a savepoint or checkpoint, and the error messages of the refusals (H4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.graph.job_graph import JobGraph
from penstock.drivers.simulation.changes import records_in_flight
from penstock.storage.metadata import CheckpointMetadata

if TYPE_CHECKING:
    from penstock.drivers.simulation.jobs import Job

#: Reasons, and the words that the error must contain.
WORDS = {
    "unclaimed state": "no operator of the job claims the state of",
    "max parallelism": "its keyed state was written with max parallelism",
    "chained with what had finished": "had finished, but is chained with",
    "fed by what had not finished": "had finished, but reads from",
    "files of another backend": "the checkpoint holds its keyed state in files of the backend",
    "records in flight, other edges": "the job's edges have changed",
    "records in flight, operator gone": "which the job no longer has",
    "records in flight, not streaming": "micro-batch execution cannot take over the records in flight",
}


def judge(job: Job, error: str, has_looked: bool) -> tuple[str | None, str | None]:
    """Return the reason for a justified refusal, or None; and a description of a wrong beginning, or None.

    `error`: the job's failure, if any; `has_looked`: whether it has read the state to begin from.
    """
    expected, reason = expected_refusals(job), find_reason(error)
    if reason is not None:
        return (reason, None) if reason in expected else (None, f"refused: {error}; expected {sorted(expected)}")
    if expected and has_looked:
        return None, f"restored: a job that does not fit was not refused: {sorted(expected)}"
    return None, None


def expected_refusals(job: Job) -> set[str]:
    """Return every reason to refuse a job."""
    metadata, graph, program = job.begun_from, job.graph, job.program
    reasons = set[str]()
    if metadata is None:
        return reasons
    states = {operator.operator_id: operator for operator in metadata.operators}
    vertex_of = {operator.operator_id: vertex for vertex in graph.vertices for operator in vertex.operators}
    finished = {operator_id for operator_id, state in states.items() if len(state.finished) == state.parallelism}
    for operator_id, state in states.items():
        vertex = vertex_of.get(operator_id)
        if vertex is None:
            has_state = any(state.subtasks.values()) or state.coordinator is not None
            if has_state and not program.ignores_unclaimed:
                reasons.add("unclaimed state")
            continue
        backends = {native.backend for subtask in state.subtasks.values() for native in subtask.native}
        holds_keyed = backends or any(subtask.keyed for subtask in state.subtasks.values())
        if holds_keyed and vertex.max_parallelism != state.max_parallelism:
            reasons.add("max parallelism")
        if backends - {program.backend}:
            reasons.add("files of another backend")
    for vertex in graph.vertices:
        ended = [operator.operator_id in finished for operator in vertex.operators]
        if any(ended) and not all(ended):
            reasons.add("chained with what had finished")
        heads = [graph.vertices[edge.source].operators for edge in graph.get_inputs(vertex.index)]
        if any(ended) and not all(o.operator_id in finished for operators in heads for o in operators):
            reasons.add("fed by what had not finished")
    if graph.mode != "STREAMING" and records_in_flight(metadata):
        reasons.add("records in flight, not streaming")
    return reasons | _in_flight(metadata, graph)


def _in_flight(metadata: CheckpointMetadata, graph: JobGraph) -> set[str]:
    in_flight = records_in_flight(metadata)
    if not in_flight:
        return set()
    if metadata.edges != graph.edge_names():
        return {"records in flight, other edges"}
    if not {operator_id for operator_id, _ in in_flight} <= {
        o.operator_id for v in graph.vertices for o in v.operators
    }:
        return {"records in flight, operator gone"}
    return set()


def find_reason(error: str) -> str | None:
    """Return the key of WORDS that matches an error."""
    return next((reason for reason, words in WORDS.items() if words in error), None)
