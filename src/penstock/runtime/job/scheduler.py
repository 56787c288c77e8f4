"""The placement of tasks and their deployment messages: slot sharing (E3). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from penstock.runtime.checkpoint.restore import edges_with_new_producers, is_rescaled, taken_over
from penstock.runtime.checkpoint.settings import restored_watermarks
from penstock.runtime.checkpoint.statistics import CHANNEL_MODE, parse_channel
from penstock.runtime.graph.execution_graph import ExecutionGraph, ExecutionVertex, Subtask
from penstock.runtime.graph.job_graph import Slot
from penstock.runtime.protocol import DeployTask, InputChannels, OutputChannels, TaskSettings
from penstock.state.keys import key_group_range
from penstock.state.operator_state import BROADCAST_MODE, SPLIT_MODE, UNION_MODE
from penstock.storage.metadata import (
    CheckpointMetadata,
    KeyedStateHandle,
    NativeStateHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
)


def assign_slots(
    slots: Sequence[Slot], worker_ids: Collection[str], former: Mapping[Slot, str] | None = None
) -> dict[Slot, str]:
    """Return the worker of each slot: its former worker, which may have copies of its state, or else a free one."""
    assigned = {slot: worker for slot, worker in (former or {}).items() if slot in slots and worker in worker_ids}
    occupied = set(assigned.values())
    free = iter([worker for worker in worker_ids if worker not in occupied])
    return {slot: assigned.get(slot) or next(free) for slot in slots}


def deployments(
    graph: ExecutionGraph,
    job_id: str,
    slots: Sequence[str],
    addresses: Mapping[str, str],
    settings: TaskSettings,
    restored: CheckpointMetadata | None,
    commits_only: bool = False,
    awaits_start: bool = False,
    forerunners: tuple[str, ...] = (),
    part: frozenset[Subtask] | None = None,
) -> list[tuple[str, DeployTask]]:
    """Return (worker id, message) for every subtask, or for every subtask of a part.

    Subtask i of every vertex is in slot i: forward edges stay in a worker. With `commits_only` each task commits what
    the checkpoint holds, and ends. With `awaits_start` no task begins before all are open.
    """
    states = {o.operator_id: o for o in restored.operators} if restored is not None else {}
    rescaled = {e.index for e in graph.job_graph.edges if is_rescaled(e, graph.job_graph, states)}
    awaited = edges_with_new_producers(graph.job_graph, states)
    forced_aligned = graph.job_graph.vertices_forced_aligned()
    first_slots = graph.job_graph.first_slots()
    attempts = graph.attempts
    watermarks = restored_watermarks(restored, graph.job_graph)
    if commits_only:
        settings = msgspec.structs.replace(settings, checkpointing=False)
    return [
        (
            slots[first_slots[v.vertex.slot_sharing_group] + v.subtask],
            msgspec.structs.replace(
                _deployment(
                    graph,
                    v,
                    job_id,
                    slots,
                    addresses,
                    settings,
                    restored,
                    states,
                    rescaled,
                    awaited,
                    forced_aligned,
                    commits_only,
                ),
                awaits_start=awaits_start,
                watermarks=dict(watermarks.get(v.id, {})),
                forerunners=forerunners,
                attempts=attempts,
            ),
        )
        for v in graph
        if part is None or v.id in part
    ]


def _deployment(
    graph: ExecutionGraph,
    subtask: ExecutionVertex,
    job_id: str,
    slots: Sequence[str],
    addresses: Mapping[str, str],
    settings: TaskSettings,
    restored: CheckpointMetadata | None,
    states: Mapping[str, OperatorState],
    rescaled: Collection[int],
    awaited: Collection[int],
    forced_aligned: Collection[int],
    commits_only: bool,
) -> DeployTask:
    vertex, job = subtask.vertex, graph.job_graph
    inputs, outputs = [], []
    index, first_slots = subtask.subtask, job.first_slots()
    for edge in job.get_inputs(vertex.index):
        source = job.vertices[edge.source]
        channels = tuple((p, slots[first_slots[source.slot_sharing_group] + p]) for p in job.producers(edge, index))
        supports_unaligned = vertex.index not in forced_aligned
        inputs.append(InputChannels(edge.index, edge.input_index, channels, supports_unaligned, edge.index in awaited))
    for edge in job.get_outputs(vertex.index):
        target = job.vertices[edge.target]
        channels = tuple((c, slots[first_slots[target.slot_sharing_group] + c]) for c in job.consumers(edge, index))
        supports_unaligned = target.index not in forced_aligned
        outputs.append(OutputChannels(edge.index, channels, target.max_parallelism, supports_unaligned))
    peers = {worker for group in (*inputs,) for _, worker in group.producers}
    peers |= {worker for out in outputs for _, worker in out.consumers}
    operators = [states[o.operator_id] for o in vertex.operators if o.operator_id in states]
    return DeployTask(
        execution=subtask.current.id,
        job_id=job_id,
        task_name=vertex.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        program=vertex.program,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        peers={worker: addresses[worker] for worker in sorted(peers)},
        settings=settings,
        restored_checkpoint_id=None if restored is None else restored.checkpoint_id,
        restored={
            o.operator_id: state_of_subtask(o, subtask.subtask, vertex.parallelism, vertex.max_parallelism, rescaled)
            for o in operators
        },
        finished_on_restore=commits_only or (bool(operators) and all(o.fully_finished for o in operators)),
        taken_over=tuple(
            (e.index, files)
            for e in job.get_outputs(vertex.index)
            if e.index in rescaled and (files := taken_over(e, subtask.subtask, job, states))
        ),
        sends_channel_state=tuple(e.index for e in job.get_outputs(vertex.index) if e.index in awaited),
        builds_on_restored=restored is not None and restored.job_id == job_id and not restored.is_savepoint,
    )


def state_of_subtask(
    operator: OperatorState,
    subtask: int,
    parallelism: int,
    max_parallelism: int,
    rescaled_edges: Collection[int] = (),
) -> OperatorSubtaskState:
    """Return one subtask's share of an operator's state (D4).

    Keyed state: every handle whose key groups overlap the subtask's. Lists: at the same parallelism, each subtask gets
    its own. At another parallelism the items of split lists are distributed one by one, and committables by the subtask
    that wrote them. Union lists: all handles. Broadcast maps: the map of one subtask. In-flight records go to the same
    subtask, except on rescaled edges, where they are partitioned again. Finished subtasks left their last state, which
    is distributed like any other (G10).
    """
    first, last = key_group_range(subtask, max_parallelism, parallelism)
    keyed: dict[str, tuple[KeyedStateHandle, ...]] = {}
    lists: dict[str, tuple[OperatorStateHandle, ...]] = {}
    native: tuple[NativeStateHandle, ...] = ()
    dealt: dict[str, int] = {}
    for old_subtask, state in sorted(operator.subtasks.items()):
        for name, keyed_handles in state.keyed.items():
            mine = tuple(h for h in keyed_handles if h.first_key_group <= last and h.last_key_group >= first)
            if mine:
                keyed[name] = keyed.get(name, ()) + mine
        native += tuple(h for h in state.native if h.first_key_group <= last and h.last_key_group >= first)
        for name, handles in state.operator.items():
            for handle in handles:
                share: OperatorStateHandle | None = handle
                if handle.mode == SPLIT_MODE and parallelism != operator.parallelism:
                    before = dealt.get(name, 0)
                    dealt[name] = before + handle.items
                    share = _share(handle, (subtask - before) % parallelism, parallelism)
                elif handle.mode == BROADCAST_MODE:
                    share = handle if old_subtask == _broadcaster(operator, name, subtask, parallelism) else None
                elif handle.mode == CHANNEL_MODE:
                    stays = old_subtask == subtask and parse_channel(name)[1] not in rescaled_edges
                    share = handle if stays else None
                elif handle.mode != UNION_MODE:
                    share = handle if old_subtask % parallelism == subtask else None
                if share is not None:
                    lists[name] = (*lists.get(name, ()), share)
    return OperatorSubtaskState(keyed, lists, native)


def _share(handle: OperatorStateHandle, first: int, step: int) -> OperatorStateHandle | None:
    """Return every `step`th item of a list, from `first` on; None if the list is too short."""
    return msgspec.structs.replace(handle, first=first, step=step) if first < handle.items else None


def _broadcaster(operator: OperatorState, name: str, subtask: int, parallelism: int) -> int:
    """Return the old subtask whose broadcast state a new one takes: its own, else an unfinished one's, else any.

    The states are equal, with two exceptions. A finished subtask may hold nothing at all. And if records were in flight
    to some subtasks, each of those needs its own state: this occurs in unaligned checkpoints of versions where barriers
    overtook broadcast records.
    """
    counts = {
        i: sum(handle.items for handle in state.operator[name])
        for i, state in sorted(operator.subtasks.items())
        if state.operator.get(name)
    }
    is_own = parallelism == operator.parallelism and subtask in counts
    if is_own and (counts[subtask] or subtask not in operator.finished):
        return subtask
    return min(counts, key=lambda i: (i in operator.finished, i))
