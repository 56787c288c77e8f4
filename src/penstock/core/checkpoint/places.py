"""Checks whether operators without a uid may take over the state at their places in the program (H3, H4). Pure.

An id derived from an operator's place identifies the place, not the operator. An operator inserted in front of another
takes over its place, and its state with it. So this module compares the checkpoint's description of the operator that
wrote the state with the current program. It refuses:

- another kind of operator, another name given by the program, or another declared type of keys;
- ambiguous cases: operators of the same kind were added, removed or moved, and neither a name nor the function's class
  distinguishes them.

A function may change, and a name may be given, if nothing was added or moved. The module does not check operators with
a uid, nor properties that are missing in checkpoints of earlier releases.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.errors import CheckpointError
from penstock.base.options import RECOVERY_MATCH_BY_PLACE
from penstock.core.graph.job_graph import JobGraph, OperatorInfo
from penstock.storage.metadata import OperatorState


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
        f"that the state belongs to, and give the others a uid; or set {RECOVERY_MATCH_BY_PLACE.key()}: true to assign "
        "state by place"
    )
