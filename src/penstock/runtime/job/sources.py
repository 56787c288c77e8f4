"""The sources of a job, as its job master hosts them: enumerators (A1), watermark alignment (C2), and watermark holds.

`SourceCoordinator` is the job master's half of a source: it hosts its split enumerator and carries splits to the
readers. Each source has one. A snapshot of the enumerator fits the readers' snapshots (G1, G8). The job master captures
the enumerator in the same turn as it requests the barriers, and a worker handles messages in order. So a split assigned
before the capture reaches its reader ahead of the barrier and is in the reader's snapshot. A split assigned afterwards
is still in the enumerator's snapshot.

`AlignmentGroups` are the job master's half of watermark alignment: they limit how far each source may read by the
reports of its group. A subtask reports its watermark at its own pace and is answered at once, so the master needs no
clock for this. A subtask may be ahead of the slowest one of its group by the drift that its own strategy allows. A
subtask that has not reported counts as being at the very beginning, so no subtask runs ahead while others start. An
idle or finished subtask reports the end of time.

`WatermarkHolds` logs the input that holds an operator's watermark back, with the source that the input comes from. A
task reports its hold: its inputs that stand still while others are ahead (`runtime.task.channels.input_gate`). Most
holds are short. The log names a hold once the inputs ahead have moved for 60 s while the watermark stood still. So a
job whose inputs all pause, at night for example, logs nothing, and neither does a job that waits for a source without
watermarks.

A hold spreads downstream: the consumers of a held operator wait as well. So only the operator where the hold begins
gets a log line, and an operator with several inputs names the source that its slow input comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from penstock.base.watermark_strategy import WatermarkAlignment
from penstock.codecs.pickling import dumps_named, loads_named
from penstock.runtime import protocol
from penstock.runtime.checkpoint.coordinator import enumerator_state
from penstock.runtime.connector import Source, SplitEnumerator, late_split
from penstock.runtime.effects import Effects
from penstock.runtime.failure import with_prospects
from penstock.runtime.graph import ExecutionGraph, JobEdge, JobGraph, JobVertex, Subtask
from penstock.runtime.job.recovery import AttemptFailed
from penstock.runtime.ports import Clock
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.storage.metadata import CheckpointMetadata

T = TypeVar("T")


class SourceCoordinator:
    """One source's enumerator, created again, from a snapshot or from the beginning, at every (re)start of the job."""

    receives_source_events = True

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

    def handle_event(self, subtask: int, data: bytes) -> None:
        """Handle an event of a reader."""
        event = loads_named(data, f"an event of a reader of {self._what}")
        self._guard(lambda enumerator: enumerator.handle_source_event(subtask, event))

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
                self._tell(AttemptFailed(protocol.Failure(reason)))
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

    def on_request(self, message: protocol.RequestSplit) -> None:
        """Handle a reader's request for a split."""
        if self._graph.find(message.execution) is not None and message.operator_id in self.coordinators:
            self.coordinators[message.operator_id].handle_request(message.execution.subtask)

    def on_event(self, message: protocol.SourceEvent) -> None:
        """Handle an event that a reader has sent."""
        if self._graph.find(message.execution) is not None and message.operator_id in self.coordinators:
            self.coordinators[message.operator_id].handle_event(message.execution.subtask, message.data)

    def close(self) -> None:
        """Close all enumerators."""
        for source in self.coordinators.values():
            source.close()

    def _on_error(self, error: BaseException) -> None:
        failure = protocol.Failure(f"a source's split enumerator: {type(error).__name__}: {error}")
        self._tell(AttemptFailed(with_prospects(failure, error)))

    def _assign_splits(
        self, vertex: int, subtask: int, operator_id: str, splits: tuple[bytes, ...], no_more: bool
    ) -> None:
        execution = self._graph.vertices[vertex].subtasks[subtask].current
        if not execution.state.is_terminal:
            self._effects.send(execution.worker_id, protocol.AssignSplits(execution.id, operator_id, splits, no_more))


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


#: How long (ms) a watermark must stand still while other inputs move before the log names it.
NAMED_MS: Final = 60_000
#: The log names a vertex again after this time (ms) at the earliest.
AGAIN_MS: Final = 600_000
REMEDY: Final = (
    "if it may be silent, let it become idle: with_idleness(...) of its watermark strategy, or "
    "table.exec.source.idle-timeout in SQL"
)

#: Returns the latest figures of a subtask, by vertex and subtask index.
FiguresOf = Callable[[int, int], protocol.TaskFigures | None]


@dataclass(frozen=True)
class Origin:
    """The origin of a watermark that stands still.

    Attributes:
        vertex: the index of the vertex.
        subtasks: its subtasks that stand still, as far as known.
        splits: the splits of a source that stand still; empty unless the source has several.
        has_watermarks: whether there will ever be watermarks; False for a source without a strategy.
    """

    vertex: int
    subtasks: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    has_watermarks: bool = True


def holding(hold: protocol.WatermarkHold) -> protocol.InputWatermark:
    """Return the first input that holds a watermark back."""
    return next(watermark for watermark in hold.inputs if watermark.holds)


def find_producer(edges: Sequence[JobEdge], slow: protocol.InputWatermark) -> int | None:
    """Return the index of the vertex that an input comes from; None for the splits of a source."""
    return next((edge.source for edge in edges if edge.index == slow.edge), None)


def trace_origin(edges: Sequence[JobEdge], get_figures: FiguresOf, vertex: int, subtask: int) -> Origin | None:
    """Follow a hold upstream from a subtask to the place where watermarks are made, such as a source.

    The search ends earlier at an operator with several inputs that are all equally far.

    Args:
        edges: the edges of the job.
        get_figures: returns the latest report of a subtask.
        vertex: the index of the vertex.
        subtask: the index of the subtask.
    """
    origin: Origin | None = None
    for _ in range(len(edges) + 1):  # bounded, because a job with loops has back edges
        figures = get_figures(vertex, subtask)
        hold = None if figures is None else figures.hold
        if hold is not None and (blocker := holding(hold)).edge is None:
            return Origin(vertex, (str(subtask),), blocker.parts)
        if origin is not None and figures is not None and figures.makes_watermarks is not None:
            return replace(origin, has_watermarks=figures.makes_watermarks)
        if hold is not None:
            producer = find_producer(edges, blocker)
            assert producer is not None, "a split is the origin"
            vertex, subtasks = producer, blocker.parts
        else:
            inputs = [edge for edge in edges if edge.target == vertex]
            if origin is None or len(inputs) != 1:
                return origin
            vertex, subtasks = inputs[0].source, ()
        origin = Origin(vertex, subtasks)
        subtask = int(subtasks[0]) if subtasks else 0
    return origin


class WatermarkHolds:
    """Writes the log lines; see the module docstring."""

    def __init__(self, graph: ExecutionGraph, clock: Clock, effects: Effects, get_figures: FiguresOf) -> None:
        self._graph = graph
        self._clock = clock
        self._effects = effects
        self._get_figures = get_figures
        #: when (steady ms) the log last named each vertex
        self._said_ms: dict[int, int] = {}
        #: by vertex, the subtask that the log named, while its watermark stands still
        self._open: dict[int, int] = {}

    def on_metrics(self, message: protocol.TaskMetrics) -> None:
        """Handle a task's report."""
        vertex, subtask = message.execution.vertex, message.execution.subtask
        hold = None if message.figures is None else message.figures.hold
        if hold is None:
            if self._open and self._open.get(vertex) == subtask:
                del self._open[vertex]
                self._effects.log(f"the watermark of {self._name(vertex)} goes on")
            return
        if hold.moved_ms - hold.since_ms < NAMED_MS or self._is_held_upstream(hold):
            return
        origin = trace_origin(self._job_graph.edges, self._get_figures, vertex, subtask)
        if origin is not None and not origin.has_watermarks:
            return
        now_ms = self._clock.steady_ms()
        said_ms = self._said_ms.get(vertex)
        if said_ms is not None and now_ms < said_ms + AGAIN_MS:
            return
        self._said_ms[vertex], self._open[vertex] = now_ms, subtask
        self._effects.log(self._in_words(vertex, subtask, hold, origin))

    @property
    def _job_graph(self) -> JobGraph:
        return self._graph.job_graph

    def _name(self, vertex: int) -> str:
        return f"'{self._job_graph.vertices[vertex].operators[0].name}'"

    def _is_held_upstream(self, hold: protocol.WatermarkHold) -> bool:
        """Return whether the producer of the slow input is held back itself; it then has its own log line."""
        blocker = holding(hold)
        producer = find_producer(self._job_graph.edges, blocker)
        if producer is None:
            return False
        reported = [self._get_figures(producer, int(part)) for part in blocker.parts]
        return any(figures is not None and figures.hold is not None for figures in reported)

    def _in_words(self, vertex: int, subtask: int, hold: protocol.WatermarkHold, origin: Origin | None) -> str:
        blocker = holding(hold)
        for_s = (self._clock.now_ms() - hold.since_ms) // 1000
        ahead_ms = max(watermark.highest_ms for watermark in hold.inputs)
        where = self._input_in_words(blocker, origin)
        if blocker.lowest_ms == MIN_TIMESTAMP:
            how = "has no watermark yet"
        else:
            how = f"is {(ahead_ms - blocker.lowest_ms) / 1000:,.0f} s behind the one that is furthest ahead"
        producers = [find_producer(self._job_graph.edges, watermark) for watermark in hold.inputs if watermark.is_idle]
        idle = [f"input {self._name(producer)}" for producer in producers if producer is not None]
        idle_note = f"; {', '.join(idle)} {'is' if len(idle) == 1 else 'are'} idle" if idle else ""
        who = f"{self._name(vertex)} (subtask {subtask + 1}/{self._job_graph.vertices[vertex].parallelism})"
        return (
            f"the watermark of {who} has stood still for {for_s} s "
            f"while other inputs go on: it waits for {where}, which is not idle and {how}{idle_note}; {REMEDY}"
        )

    def _input_in_words(self, blocker: protocol.InputWatermark, origin: Origin | None) -> str:
        more = blocker.count - len(blocker.parts)
        rest = f" and {more} more" if more else ""
        producer = find_producer(self._job_graph.edges, blocker)
        if producer is None:
            return f"{'split' if blocker.count == 1 else 'splits'} {', '.join(blocker.parts)}{rest}"
        numbers = ", ".join(str(int(part) + 1) for part in blocker.parts)
        where = f"input {self._name(producer)} ({'subtask' if blocker.count == 1 else 'subtasks'} {numbers}{rest})"
        return where if origin is None or origin.vertex == producer else f"{where}, from {self._name(origin.vertex)}"
