"""The sources of a job, as its job master hosts them: one split enumerator each (A1).

The job master's half of a source: hosts its split enumerator and carries splits to the readers.

A snapshot of the enumerator fits the readers' snapshots (G1, G8). The job master captures the enumerator in the same
turn as it requests the barriers, and a worker handles messages in order. So a split assigned before the capture reaches
its reader ahead of the barrier and is in the reader's snapshot. A split assigned afterwards is still in the
enumerator's snapshot.

The job master's half of watermark alignment: limits how far each source may read by the reports of its group (C2).

A subtask reports its watermark at its own pace and is answered at once, so the master needs no clock for this. A
subtask may be ahead of the slowest one of its group by the drift that its own strategy allows. A subtask that has not
reported counts as being at the very beginning, so no subtask runs ahead while others start. An idle or finished subtask
reports the end of time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, TypeVar

from penstock.base.watermark_strategy import WatermarkAlignment
from penstock.codecs.pickling import dumps_named, loads_named
from penstock.runtime.checkpoint.coordinator import enumerator_state
from penstock.runtime.connector import Source, SplitEnumerator, late_split
from penstock.runtime.effects import Effects
from penstock.runtime.failure import with_prospects
from penstock.runtime.graph.execution_graph import ExecutionGraph, Subtask
from penstock.runtime.graph.job_graph import JobVertex
from penstock.runtime.job.events import AttemptFailed
from penstock.runtime.protocol import AssignSplits, Failure, RequestSplit
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.storage.metadata import CheckpointMetadata

T = TypeVar("T")


class SourceCoordinator:
    """One source's enumerator, created again, from a snapshot or from the beginning, at every (re)start of the job."""

    def __init__(
        self,
        operator_id: str,
        source: Source[Any, Any],
        parallelism: int,
        effects: Effects,
        assign: Callable[[int, str, tuple[bytes, ...], bool], None],
        call_later: Callable[[int, Callable[[], None]], None],
        on_error: Callable[[BaseException], None],
        remembers: bool = True,
    ) -> None:
        self.operator_id = operator_id
        self.parallelism = parallelism
        self._source = source
        self._what = type(source).__name__
        self._effects = effects
        self._assign = assign
        self._call_later = call_later
        self._on_error = on_error
        self._enumerator: SplitEnumerator[Any] | None = None
        self._generation = 0
        #: readers that were signalled that no more splits follow
        self._told: set[int] = set()
        #: the last snapshot that was taken, or that the enumerator was restored from
        self._snapshot_id = 0
        #: whether to remember assigned splits, because a reader may restart alone
        self._remembers = remembers
        #: splits assigned since the last completed checkpoint: the snapshot before, the reader, the split
        self._assigned: list[tuple[int, int, bytes]] = []

    def reset(self, restored: bytes | None, checkpoint_id: int = 0) -> None:
        """Restart the enumerator, from a snapshot if given; `checkpoint_id`: the job's own checkpoint that holds it."""
        self.close()
        self._generation += 1
        self._told.clear()
        self._assigned.clear()
        self._snapshot_id = checkpoint_id
        state = None
        if restored is not None:
            state = loads_named(restored, f"the state of the split enumerator of {self._what}")
        self._enumerator = self._source.create_enumerator(self, state)
        self._enumerator.start()

    def rescale(self, parallelism: int, remembers: bool) -> None:
        """Change the number of readers, from the next `reset` on."""
        self.parallelism, self._remembers = parallelism, remembers

    def handle_request(self, subtask: int) -> None:
        """Handle a reader's request for a split."""
        if self._enumerator is not None:
            self._guard(lambda enumerator: enumerator.handle_split_request(subtask))

    def reset_reader(self, subtask: int, checkpoint_id: int) -> None:
        """Restart a reader alone, from a checkpoint: the enumerator takes back the splits assigned to it since then.

        The reader's snapshot holds the splits assigned before, see the module's docstring.
        """
        lost = [split for since, reader, split in self._assigned if reader == subtask and since >= checkpoint_id]
        self._assigned = [entry for entry in self._assigned if entry[1] != subtask]
        self._told.discard(subtask)
        splits = [loads_named(split, f"a split of {self._what}") for split in lost]
        self._guard(lambda enumerator: enumerator.add_splits_back(splits, subtask))

    def snapshot(self, checkpoint_id: int, completed_id: int) -> bytes:
        """Return the enumerator's state. `completed_id`: no reader restarts from a checkpoint before that one."""
        assert self._enumerator is not None
        self._snapshot_id = checkpoint_id
        self._assigned = [entry for entry in self._assigned if entry[0] >= completed_id]
        return dumps_named(
            self._enumerator.snapshot_state(checkpoint_id), f"the state of the split enumerator of {self._what}"
        )

    def close(self) -> None:
        """Close the enumerator; the job master ignores it from now on."""
        self._generation += 1
        enumerator, self._enumerator = self._enumerator, None
        if enumerator is not None:
            enumerator.close()

    def _guard(self, call: Callable[[SplitEnumerator[Any]], None]) -> None:
        try:
            if self._enumerator is not None:
                call(self._enumerator)
        except Exception as error:  # noqa: BLE001 - a connector's error fails the job, not the job master
            self._on_error(error)

    # --- the enumerator's context ----------------------------------------------------------------------------------

    def assign_split(self, split: Any, subtask_index: int) -> None:
        """Assign a split to a reader, unless it was signalled that no more splits follow."""
        if subtask_index in self._told:
            raise late_split(self._what, subtask_index)
        pickled = dumps_named(split, f"a split of {self._what}")
        if self._remembers:
            self._assigned.append((self._snapshot_id, subtask_index, pickled))
        self._assign(subtask_index, self.operator_id, (pickled,), False)

    def signal_no_more_splits(self, subtask_index: int) -> None:
        """Signal to a reader that no more splits follow."""
        self._told.add(subtask_index)
        self._assign(subtask_index, self.operator_id, (), True)

    def call_async(
        self, work: Callable[[], T], handler: Callable[[T | None, BaseException | None], None], delay_ms: int = 0
    ) -> None:
        """Run `work` in the background, then `handler` in the job master's turn, unless the source restarted."""
        generation = self._generation

        def done(result: T | None, error: BaseException | None) -> None:
            if generation == self._generation:
                self._guard(lambda _: handler(result, error))

        def begin() -> None:
            if generation == self._generation:
                self._effects.run(work, done)

        if delay_ms > 0:
            self._call_later(delay_ms, begin)
        else:
            begin()


class JobSources:
    """The source coordinators of a job, by operator id."""

    def __init__(
        self,
        graph: ExecutionGraph,
        job_id: str,
        effects: Effects,
        call_later: Callable[[int, Callable[[], None]], None],
        tell: Callable[[AttemptFailed], None],
    ) -> None:
        self._graph = graph
        self._job_id = job_id
        self._effects = effects
        self._tell = tell
        self.coordinators = {
            operator_id: SourceCoordinator(
                operator_id,
                source,
                vertex.parallelism,
                effects,
                partial(self._assign_splits, vertex.index),
                call_later,
                self._on_error,
                remembers=len(graph.regions) > 1,
            )
            for vertex in graph.job_graph.vertices
            for operator_id, source in vertex.sources.items()
        }

    def start(self, restored: CheckpointMetadata | None) -> None:
        """Begin to assign splits; the readers' tasks are already on their way, so messages reach them after that."""
        for operator_id, source in self.coordinators.items():
            try:
                file = None if restored is None else enumerator_state(restored, operator_id)
                source.reset(None if file is None else file.data, self._own_id(restored))
            except Exception as error:  # noqa: BLE001 - a connector's error fails the job, not the job master
                reason = f"a source's split enumerator could not start: {type(error).__name__}: {error}"
                self._tell(AttemptFailed(Failure(reason)))
                return

    def rescale(self) -> None:
        """Change the number of readers; the new readers begin with `start`."""
        for vertex in self._graph.job_graph.vertices:
            for operator_id in vertex.sources:
                self.coordinators[operator_id].rescale(vertex.parallelism, remembers=len(self._graph.regions) > 1)

    def restart(self, part: Collection[Subtask], restored: CheckpointMetadata | None) -> None:
        """Restart readers in a part of the job from a checkpoint; messages reach them after their deployment."""
        for vertex, subtask in sorted(part):
            for operator_id in self._graph.job_graph.vertices[vertex].sources:
                self.coordinators[operator_id].reset_reader(subtask, self._own_id(restored))

    def _own_id(self, restored: CheckpointMetadata | None) -> int:
        """Return the id of the checkpoint if it belongs to this job, whose ids only grow, else 0."""
        return 0 if restored is None or restored.job_id != self._job_id else restored.checkpoint_id

    def on_request(self, message: RequestSplit) -> None:
        """Handle a reader's request for a split."""
        if self._graph.find(message.execution) is not None and message.operator_id in self.coordinators:
            self.coordinators[message.operator_id].handle_request(message.execution.subtask)

    def close(self) -> None:
        """Close all enumerators."""
        for source in self.coordinators.values():
            source.close()

    def _on_error(self, error: BaseException) -> None:
        failure = Failure(f"a source's split enumerator: {type(error).__name__}: {error}")
        self._tell(AttemptFailed(with_prospects(failure, error)))

    def _assign_splits(
        self, vertex: int, subtask: int, operator_id: str, splits: tuple[bytes, ...], no_more: bool
    ) -> None:
        execution = self._graph.vertices[vertex].subtasks[subtask].current
        if not execution.state.is_terminal:
            self._effects.send(execution.worker_id, AssignSplits(execution.id, operator_id, splits, no_more))


class AlignmentGroups:
    """All alignment groups of a job; a subtask starts over with every attempt."""

    def __init__(self, vertices: Iterable[JobVertex]) -> None:
        self._vertices: dict[str, int] = {}
        self._parallelism: dict[str, int] = {}
        self._alignments: dict[str, WatermarkAlignment] = {}
        for vertex in vertices:
            for operator_id, alignment in vertex.alignments.items():
                self._vertices[operator_id] = vertex.index
                self._parallelism[operator_id] = vertex.parallelism
                self._alignments[operator_id] = alignment
        self._reported: dict[str, dict[tuple[str, int], int]] = {a.group: {} for a in self._alignments.values()}
        self.reset()

    def reset(self, part: Collection[Subtask] | None = None) -> None:
        """Forget the reports of all subtasks, or only those in `part`, because they start again."""
        for operator_id, alignment in self._alignments.items():
            for subtask in range(self._parallelism[operator_id]):
                if part is None or (self._vertices[operator_id], subtask) in part:
                    self._reported[alignment.group][operator_id, subtask] = MIN_TIMESTAMP

    def on_report(self, operator_id: str, subtask: int, watermark_ms: int) -> int | None:
        """Record a subtask's watermark; returns the watermark (ms) up to which it may read, None if it has no group."""
        alignment = self._alignments.get(operator_id)
        if alignment is None or not 0 <= subtask < self._parallelism[operator_id]:
            return None
        reported = self._reported[alignment.group]
        reported[operator_id, subtask] = watermark_ms
        slowest = min(reported.values())
        return slowest if slowest == MIN_TIMESTAMP else min(slowest + alignment.max_drift_ms, MAX_WATERMARK)
