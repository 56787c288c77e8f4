"""The chain: operators that run as one task and pass batches by plain calls (B4).

`VertexProgram` is the program of a task: the operators of one job vertex, as sent to workers.

`metrics_of_task` combines the metrics of a task's operators. `side_output_counter` names the counter of a side output.

`operator_context` creates the runtime context that a task passes to each of its operators.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.errors import PenstockError
from penstock.runtime.checkpoint.statistics import INPUT_PLACE
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.operators.function_context import TIMERS_AFTER_END_MAX, OperatorContext
from penstock.runtime.ports import Clock, Coroutines, KeyedBackends
from penstock.runtime.protocol import (
    ClientOutput,
    DeployTask,
    OperatorFigures,
    ReportWatermark,
    RequestSplit,
    SourceEvent,
)
from penstock.runtime.records import MIN_TIMESTAMP, Batch, Watermark, WatermarkStatus
from penstock.runtime.task.channels.result_partition import Partitioner, ResultPartition
from penstock.state.operator_state import OperatorStateBackend
from penstock.state.snapshot import StateCapture
from penstock.state.states import StateLatency


@dataclass(frozen=True)
class ChainedOperator:
    """One operator of a chain. `parent` is the index of the operator that feeds it, -1 at the head.

    `side_tag` is the side output of the parent that it reads, or None for the main output.
    """

    operator_id: str
    name: str
    factory: Callable[[], StreamOperator]
    parent: int = -1
    side_tag: str | None = None
    uid: str | None = None

    @property
    def title(self) -> str:
        """A human-readable name of the operator, with its uid if it has one."""
        return self.name if self.uid is None else f"{self.name} (uid {self.uid!r})"


@dataclass(frozen=True)
class OutEdge:
    """One outgoing network edge of a chain: the job graph's edge id, the operator that feeds it, and its consumer."""

    edge: int
    operator: int
    partitioner: Partitioner
    side_tag: str | None = None
    consumer_name: str = ""


@dataclass(frozen=True)
class VertexProgram:
    """The operators of a vertex, head first, and its edges. `migrations`: see `penstock.state.migrations`.

    `buffer_timeout_ms` applies to the buffers of its edges; None means the job's value. `job_parameters` are the user's
    own settings, for functions to read. `timers_after_end_max`: see `runtime.operators.timers`.
    """

    operators: tuple[ChainedOperator, ...]
    out_edges: tuple[OutEdge, ...]
    migrations: dict[str, Callable[..., Any]] = field(default_factory=dict)
    buffer_timeout_ms: int | None = None
    job_parameters: dict[str, str] = field(default_factory=dict)
    timers_after_end_max: int = TIMERS_AFTER_END_MAX


class ProgramError(PenstockError, RuntimeError):
    """Raised when a worker cannot load a program; another attempt would fail the same way."""

    suppresses_restart = True


def load_program(program: bytes, task_name: str) -> VertexProgram:
    """Unpickle the program of a task in the worker.

    Raises:
        ProgramError: if loading fails, with the reason: a missing module, for instance.
    """
    try:
        loaded: VertexProgram = pickle.loads(program)
    except Exception as error:  # unpickling imports the user's modules, which may raise anything
        raise ProgramError(
            f"the functions of task {task_name} cannot be loaded in the worker: {type(error).__name__}: {error}; "
            "install the modules that they import where workers run, or ship them with the job (add_python_file, "
            "python.files)"
        ) from error
    return loaded


Summary = tuple[int, float, float, float]
#: Counters, gauges and distributions, by name.
Metrics = tuple[dict[str, int], dict[str, float], dict[str, Summary]]


def side_output_counter(tag_id: str) -> str:
    """Return the name of the counter for records sent to a side output."""
    return f"side_output.{tag_id}.records"


def metrics_of_operator(context: OperatorContext) -> Metrics:
    """Return the metrics of an operator and its user function; reads each of the user's gauges."""
    counters = dict(context.counters)
    for name, value in context.metrics.counters().items():
        counters[name] = counters.get(name, 0) + value
    return counters, context.metrics.gauges(), context.metrics.distributions()


def metrics_of_task(operators: Iterable[OperatorFigures]) -> Metrics:
    """Combine the metrics of a task's operators: sum counters by name; if gauges share a name, the last one wins."""
    counters: dict[str, int] = {}
    gauges: dict[str, float] = {}
    distributions: dict[str, Summary] = {}
    for operator in operators:
        for name, value in operator.counters.items():
            counters[name] = counters.get(name, 0) + value
        gauges.update(operator.gauges)
        distributions.update(operator.distributions)
    return counters, gauges, distributions


_NO_COMPLETIONS: Final = StreamOperator.process_completions
_NO_TIMER: Final = StreamOperator.next_timer_ms


def _count_nowhere(name: str, increment: int) -> None:
    """Discard a count while the output has no context."""


def _hand_to_all(consumers: list[Callable[[Batch], None]], batch: Batch) -> None:
    """Pass the batch to every consumer. Each may modify its records without affecting the others."""
    *others, last = consumers
    for consume in others:
        consume(batch.separated())
    last(batch)


class ChainOutput:
    """The output of one operator of a chain: feeds downstream operators and result partitions."""

    def __init__(self) -> None:
        self._batches: list[Callable[[Batch], None]] = []
        self._sides: dict[str, list[Callable[[Batch], None]]] = {}
        self._operators: list[StreamOperator] = []
        self._partitions: list[ResultPartition] = []
        self._count: Callable[[str, int], None] = _count_nowhere
        #: records sent to the main output
        self.records = 0
        #: records sent to each side output that has a consumer
        self.side_records: dict[str, int] = {}
        #: the last watermark (ms)
        self.watermark = MIN_TIMESTAMP

    def count_side_outputs(self, context: OperatorContext) -> None:
        """Count the records of each consumed side output in a counter of its own."""
        self._count = context.count

    def add_operator(self, operator: StreamOperator, side_tag: str | None) -> None:
        """Feed an operator from the main output, or from a side output."""
        self._consumers(side_tag).append(operator.process_batch)
        self._operators.append(operator)

    def add_partition(self, partition: ResultPartition, side_tag: str | None) -> None:
        """Feed a result partition from the main output, or from a side output."""
        self._consumers(side_tag).append(partition.collect)
        self._partitions.append(partition)

    def release(self) -> None:
        """Drop all consumers, and the context that holds the counters."""
        self._batches.clear()
        self._sides.clear()
        self._operators.clear()
        self._partitions.clear()
        self._count = _count_nowhere

    def feeds_only(self, operator: StreamOperator) -> bool:
        """Return whether all records of the main output go to that operator, and nowhere else."""
        return self._batches == [operator.process_batch]

    def _consumers(self, side_tag: str | None) -> list[Callable[[Batch], None]]:
        return self._batches if side_tag is None else self._sides.setdefault(side_tag, [])

    def collect(self, batch: Batch) -> None:
        """Emit records to the main output."""
        self.records += len(batch)
        if len(self._batches) > 1:
            _hand_to_all(self._batches, batch)
            return
        for consume in self._batches:
            consume(batch)

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        """Emit records to a side output; without a consumer, this does nothing."""
        consumers = self._sides.get(tag_id)
        if consumers is not None:
            self._count(side_output_counter(tag_id), len(batch))
            self.side_records[tag_id] = self.side_records.get(tag_id, 0) + len(batch)
            _hand_to_all(consumers, batch)

    def emit_watermark(self, timestamp: int) -> None:
        """Pass a watermark to everything downstream, unless event time has already reached it."""
        if timestamp <= self.watermark:
            return  # generators start over after a restart
        self.watermark = timestamp
        for operator in self._operators:
            operator.process_watermark(timestamp)
        for partition in self._partitions:
            partition.broadcast(Watermark(timestamp))

    def resume(self, watermark: int) -> None:
        """Resume event time at a watermark: announce it to the downstream tasks, which may also have other inputs."""
        self.watermark = watermark
        for partition in self._partitions:
            partition.broadcast(Watermark(watermark))

    def emit_status(self, idle: bool) -> None:
        """Pass idleness to everything downstream."""
        for operator in self._operators:
            operator.process_status(idle)
        for partition in self._partitions:
            partition.broadcast(WatermarkStatus(idle))


class OperatorChain:
    """The operators of a task, head first, with their contexts. Lifecycle calls go through here, in order (F1, F3)."""

    def __init__(self, program: VertexProgram, partitions: dict[int, ResultPartition]) -> None:
        self.program = program
        self.operators = [chained.factory() for chained in program.operators]
        self.contexts: list[OperatorContext] = []
        self._outputs = [ChainOutput() for _ in self.operators]
        self._partitioners = [(edge.operator, partitions[edge.edge].partitioner) for edge in program.out_edges]
        for index, chained in enumerate(program.operators):
            if chained.parent >= 0:
                self._outputs[chained.parent].add_operator(self.operators[index], chained.side_tag)
        for edge in program.out_edges:
            self._outputs[edge.operator].add_partition(partitions[edge.edge], edge.side_tag)
        #: watermark (ms) at the input of the head; a source has one only at its end
        self.watermark = MIN_TIMESTAMP
        self._finished = 0
        #: operators that may wait for asynchronous calls; the others are never polled
        self.waiting = [o for o in self.operators if type(o).process_completions is not _NO_COMPLETIONS]
        #: operators with processing-time timers; the second list leaves out the head
        self._timed = [o for o in self.operators if type(o).next_timer_ms is not _NO_TIMER]
        self._timed_behind_head = [o for o in self._timed if o is not self.head]

    def figures(self, records_in: int, watermark_ms: int) -> tuple[OperatorFigures, ...]:
        """Return each operator's figures, empty before `setup`; both arguments describe the input of the head."""
        if not self.contexts:
            return ()
        figures = []
        for index, (context, output) in enumerate(zip(self.contexts, self._outputs, strict=True)):
            chained = self.program.operators[index]
            received, reached = records_in, watermark_ms
            if chained.parent >= 0:
                ahead = self._outputs[chained.parent]
                reached = ahead.watermark
                if chained.side_tag is None:
                    received = ahead.records + self.contexts[chained.parent].fused_records
                else:
                    received = ahead.side_records.get(chained.side_tag, 0)
            figures.append(
                OperatorFigures(
                    context.operator_id,
                    received,
                    output.records + context.fused_records,
                    reached,
                    output.watermark,
                    *metrics_of_operator(context),
                    {**self.operators[index].measured(), **context.keyed.measured()},
                    {} if context.state_latency is None else context.state_latency.figures(),
                    {name: histogram.figures() for name, histogram in context.latency.items()},
                )
            )
        return tuple(figures)

    @property
    def head(self) -> StreamOperator:
        return self.operators[0]

    def setup(self, new_contexts: Iterable[OperatorContext]) -> None:
        """Open the partitioners, then give each operator its context and output, tail to head.

        `new_contexts`: the contexts, created one by one. If creating one fails, the state of the others is closed.
        """
        contexts: list[OperatorContext] = []
        try:
            for context in new_contexts:
                contexts.append(context)
            self._setup(contexts)
        except BaseException:
            for context in contexts:
                context.keyed.close()
            raise

    def _setup(self, contexts: list[OperatorContext]) -> None:
        self.contexts = contexts
        for operator_index, partitioner in self._partitioners:
            partitioner.open(contexts[operator_index])
        for operator, context, output in reversed(list(zip(self.operators, contexts, self._outputs, strict=True))):
            output.count_side_outputs(context)
            for tag_id in operator.late_outputs():
                context.count(side_output_counter(tag_id), 0)
            operator.setup(context, output)
        for index, chained in enumerate(self.program.operators):
            if chained.parent < 0 or not self._outputs[chained.parent].feeds_only(self.operators[index]):
                continue
            ahead = self.operators[chained.parent]
            if ahead.output is self._outputs[chained.parent]:  # nothing modifies records in between
                ahead.fuse(self.operators[index])

    def initialize_and_open(self) -> None:
        """Initialise the state of all operators, then open them, both in tail-to-head order."""
        for operator in reversed(self.operators):
            operator.initialize_state()
        for context in self.contexts:
            context.columns.check_taken()
        for operator in reversed(self.operators):
            operator.open()

    def resume_event_time(self, watermarks: Mapping[int, int]) -> None:
        """Resume from a checkpoint's event time (`runtime.checkpoint.settings`); call after `initialize_and_open`."""
        for index, output in enumerate(self._outputs):
            if (reached := watermarks.get(index, MIN_TIMESTAMP)) > MIN_TIMESTAMP:
                output.resume(reached)
        if not isinstance(self.head, SourceOperator):
            self.watermark = watermarks.get(INPUT_PLACE, MIN_TIMESTAMP)
        for index, chained in reversed(list(enumerate(self.program.operators))):
            operator = self.operators[index]
            reached = self.watermark if chained.parent < 0 else self._outputs[chained.parent].watermark
            if isinstance(operator, SourceOperator):
                reached = self._outputs[index].watermark
            if reached > MIN_TIMESTAMP:
                operator.resume_event_time(reached)

    def watermarks(self) -> dict[str, tuple[int, int]]:
        """Return the watermarks (ms) at the input and output of each operator, where event time has begun."""
        by_operator = {}
        for index, (chained, output) in enumerate(zip(self.program.operators, self._outputs, strict=True)):
            is_within = index > 0 or isinstance(self.operators[0], SourceOperator)
            before = output.watermark if is_within else self.watermark
            if max(before, output.watermark) > MIN_TIMESTAMP:
                by_operator[chained.operator_id] = before, output.watermark
        return by_operator

    def is_available(self) -> bool:
        """Return whether every operator may start another asynchronous call."""
        return not self.waiting or all(operator.is_available() for operator in self.waiting)

    def process_completions(self) -> bool:
        """Let operators handle calls that have completed; return whether there were any."""
        worked = False
        for operator in self.waiting:
            worked = operator.process_completions() or worked
        return worked

    def end_input(self, input_index: int) -> None:
        """Notify the head that one of its inputs has ended for good."""
        for head in self.operators[:1]:
            head.end_input(input_index)

    def finish(self, is_input_ended: bool) -> bool:
        """Drain each operator, end its input, quiesce its timers and finish it, head to tail.

        Each operator thus still processes the last output of its predecessor. Return whether all have finished. If an
        operator still waits for calls, stop there; the next call continues from it. `is_input_ended`: the head has
        already been notified that its inputs have ended.
        """
        while self._finished < len(self.operators):
            operator = self.operators[self._finished]
            if not operator.drain():
                return False
            if self._finished > 0 or not is_input_ended:
                operator.end_input()
            operator.quiesce_timers()
            operator.finish()
            self._finished += 1
        return True

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Let all operators that have not finished emit the records that must precede the barrier."""
        for operator in self.operators[self._finished :]:
            operator.prepare_snapshot(checkpoint_id)

    def snapshot_state(self, checkpoint_id: int, is_savepoint: bool) -> dict[str, list[StateCapture]]:
        """Capture all current state, by operator id; no later snapshot builds on the capture of a savepoint."""
        captures = {
            context.operator_id: operator.snapshot_state(checkpoint_id)
            for operator, context in zip(self.operators, self.contexts, strict=True)
        }
        if is_savepoint:
            for operator, context in zip(self.operators, self.contexts, strict=True):
                operator.on_savepoint(checkpoint_id)
                context.keyed.take_back(checkpoint_id)
                context.columns.take_back(checkpoint_id)
        return captures

    def close(self) -> list[BaseException]:
        """Close operators, partitioners, and then the state, even if some of them fail; return the exceptions."""
        errors: list[BaseException] = []
        closers = [operator.close for operator in self.operators]
        closers += [partitioner.close for _, partitioner in self._partitioners]
        for close in closers + [context.keyed.close for context in self.contexts]:
            try:
                close()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the others must be closed all the same
                errors.append(error)
        return errors

    def release(self) -> None:
        """Drop operators, outputs, contexts and state. Call after `close`; see `StreamOperator.release`."""
        for operator in self.operators:
            operator.release()
        for output in self._outputs:
            output.release()
        for context in self.contexts:
            context.metrics.metrics.clear()  # a gauge references the function, which may reference its context
        self.operators, self.contexts, self._outputs, self._partitioners = [], [], [], []
        self.waiting, self._timed, self._timed_behind_head = [], [], []

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Close and release the chain of a task that runs to its end in one go.

        After an error, the caller releases it, because the error message names operators.
        """
        try:
            yield
        except GeneratorExit:
            self.close()
            self.release()
            raise
        except BaseException:
            self.close()
            raise
        for error in self.close():
            raise error
        self.release()

    def settle(self) -> None:
        """Mark a settling point for all keyed state, see `state.backend`."""
        for context in self.contexts:
            context.keyed.settle()

    def next_timer_ms(self, is_head_asked: bool = True) -> int | None:
        """Return the earliest processing-time timer (ms), or None; skip the head unless `is_head_asked`."""
        earliest: int | None = None
        for operator in self._timed if is_head_asked else self._timed_behind_head:
            due = operator.next_timer_ms()
            if due is not None and (earliest is None or due < earliest):
                earliest = due
        return earliest

    def on_processing_time(self, now_ms: int) -> None:
        """Let every operator fire its due timers."""
        for operator in self._timed:
            due = operator.next_timer_ms()
            if due is not None and due <= now_ms:
                operator.on_processing_time(now_ms)


def operator_context(
    deployment: DeployTask,
    program: VertexProgram,
    chained: ChainedOperator,
    clock: Clock,
    backends: KeyedBackends,
    key_groups: tuple[int, int],
    tell: Callable[[Any], None],
    coroutines: Coroutines | None,
) -> OperatorContext:
    """Create the context of one operator, with empty state of its own; `tell` sends to the job master."""
    execution, settings = deployment.execution, deployment.settings
    operator_id = chained.operator_id  # the closures must not reference `chained`, which holds the user function
    return OperatorContext(
        job_id=deployment.job_id,
        operator_id=operator_id,
        operator_name=chained.name,
        task_name=deployment.task_name,
        subtask_index=execution.subtask,
        parallelism=deployment.parallelism,
        max_parallelism=deployment.max_parallelism,
        attempt=execution.attempt,
        clock=clock,
        checkpointing=settings.checkpointing,
        keyed=backends.make(execution, operator_id, chained.title, deployment.max_parallelism, key_groups),
        operator_state=OperatorStateBackend(chained.name),
        emit_to_client=lambda payload: tell(ClientOutput(execution, operator_id, payload)),
        request_split=lambda: tell(RequestSplit(execution, operator_id)),
        migrations=program.migrations,
        job_parameters=program.job_parameters,
        timers_after_end_max=program.timers_after_end_max,
        auto_watermark_interval_ms=settings.auto_watermark_interval_ms,
        report_watermark=lambda ms: tell(ReportWatermark(execution, operator_id, ms)),
        send_source_event=lambda data: tell(SourceEvent(execution, operator_id, data)),
        coroutines=coroutines,
        state_latency=StateLatency(*settings.state_latency, clock.steady_ns) if settings.state_latency else None,
    )
