"""One subtask: a chain of operators with its input gate and result partitions, driven by `step`, and its opening.

`Opening` creates contexts for the operators, and restores their initial state. State is restored before any operator
runs: keyed and operator state in the backends, records in flight in their original channels. Records in flight of
channels that no longer exist are partitioned again.

`task_settings` reads the settings of tasks from the configuration, and `build_barrier` builds the barriers that follow
from them.

**Rules** of `StreamTask`. All access to operators happens in `step`, on one thread. A step does one bounded piece of
work (mail, due timers, or a batch) and reports whether there is more. Nothing blocks in here: a task that cannot
continue says so. Each mail is handled completely before the next one; no handler calls another.

A table defines the lifecycle (`processing.TaskLife`). `Opening`, the processing loop (`processing`), and the parts of
checkpoints and the end (`checkpoints`) implement the phases.

`TaskTimes` breaks a task's time down into busy, back-pressured and idle, as in Flink. A task is busy during a step and
back-pressured while it waits for its consumers. It is idle while it waits for input, or for its worker's thread while
other tasks use it: a cheap function next to a slow one is not busy, and more subtasks of it would not help. On a
saturated worker, the busy times of all tasks add up to the worker's total time.

**The end (F3).** When its input is exhausted, a task sends MAX_WATERMARK through the chain, ends and finishes all
operators head to tail, and sends EndOfData. Then it only waits: for the end of its inputs and, with checkpoints on, for
the completion of a checkpoint that it took after finishing, which commits its last output. Then it closes the
operators, sends EndOfPartition and is FINISHED. A cancelled or failed task goes to `close` directly.

**Stop-with-savepoint.** A source ends when it is asked for the savepoint, and sends the barrier after its EndOfData.
With drain, that end is the one above. Without drain, operators are neither ended nor finished, EndOfData carries this
information, and the savepoint contains the state of the operators. Either way the task waits for the savepoint's
completion.

**Asynchronous calls.** An operator may wait for calls to outside the task (`AsyncWaitOperator`). While an operator has
reached its limit of pending calls, the task takes no input, as if its output were blocked. Results, timers, mail and
checkpoints continue. At the end of its input a task *drains*: its operators finish in order, each once none of its
calls is pending. Only then does the task's data end. Barriers that arrive after the end of the input wait for the end
of the data: once their checkpoint is complete, the producers may have ended, and could no longer send the task the
barrier of another one. A source, which has no producers, takes part in the meantime; but the barrier of a savepoint
that ends the job belongs after its end.

**The start.** When a job starts from another job's state, every task opens first. At that point operators declare their
state, and state that does not fit is detected. No task processes anything before all are open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.metrics import (
    LATENCY_GRANULARITY,
    LATENCY_HISTORY_SIZE,
    LATENCY_INTERVAL_MS,
    STATE_LATENCY_ENABLED,
    STATE_LATENCY_HISTORY_SIZE,
    STATE_LATENCY_SAMPLE_INTERVAL,
    HistogramFigures,
)
from penstock.runtime import protocol, records
from penstock.runtime.accumulators import pickled
from penstock.runtime.graph import ExecutionState
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.ports import Background, Clock, Coroutines, KeyedBackends, MasterGateway, StateStorage
from penstock.runtime.task import operator_chain
from penstock.runtime.task.barriers import build_barrier_handler
from penstock.runtime.task.channels.in_flight import partition_anew, recover_channel
from penstock.runtime.task.channels.input_gate import InputGate, LatencyMarkers
from penstock.runtime.task.channels.result_partition import QUEUED_BUFFERS_MAX, ResultPartition
from penstock.runtime.task.checkpoints import Ending, EndOfTask, TaskCheckpoints, TaskSnapshots, restore_operator
from penstock.runtime.task.failures import describe_failure, forget_traceback
from penstock.runtime.task.processing import Phase, ProcessingLoop, Step, TaskLife
from penstock.state.snapshot import read_operator
from penstock.storage.metadata import ChannelState


class Opening:
    """Restores a task from the state that its deployment names."""

    def __init__(
        self,
        deployment: protocol.DeployTask,
        storage: StateStorage,
        snapshots: TaskSnapshots,
        gate: InputGate,
        partitions: dict[int, ResultPartition],
    ) -> None:
        self._deployment = deployment
        self._storage = storage
        self._snapshots = snapshots
        self._gate = gate
        self._partitions = partitions

    def restore(self, chain: operator_chain.OperatorChain) -> None:
        """Load the state of all operators and the records in flight from the checkpoint that the task starts from."""
        deployment = self._deployment
        for context in chain.contexts:
            context.operator_state.restored_checkpoint_id = deployment.restored_checkpoint_id
            context.forerunners = deployment.forerunners
            self._restore_operator(context)
        for edge, files in deployment.taken_over:
            for file in files:
                partition_anew(read_operator(self._storage.read(file)), self._partitions[edge])
        for edge in deployment.sends_channel_state:
            self._partitions[edge].broadcast(records.EndOfOutputChannelState())

    def _restore_operator(self, context: OperatorContext) -> None:
        restored = self._deployment.restored.get(context.operator_id)
        if restored is not None:
            snapshots = self._snapshots
            histories = snapshots.histories if self._deployment.builds_on_restored else None
            restore_operator(restored, context, self._storage, snapshots.key_groups, histories, self._recover_channel)

    def _recover_channel(self, channel: ChannelState, items: list[Any]) -> None:
        recover_channel(channel, items, self._gate, self._partitions)


def task_settings(configuration: Configuration) -> protocol.TaskSettings:
    """Read the settings of tasks from the configuration."""
    read = configuration.read
    state_latency = read(STATE_LATENCY_SAMPLE_INTERVAL), read(STATE_LATENCY_HISTORY_SIZE)
    latency = protocol.LatencySettings(read(LATENCY_INTERVAL_MS), read(LATENCY_GRANULARITY), read(LATENCY_HISTORY_SIZE))
    return protocol.TaskSettings(
        checkpointing=read(options.CHECKPOINTING_INTERVAL_MS) is not None,
        exactly_once=read(options.CHECKPOINTING_MODE) == "EXACTLY_ONCE",
        unaligned=read(options.UNALIGNED_ENABLED),
        alignment_timeout_ms=read(options.ALIGNED_TIMEOUT_MS),
        held_back_bytes_max=read(options.ALIGNMENT_HELD_BACK_BYTES_MAX),
        buffer_timeout_ms=read(options.BUFFER_TIMEOUT_MS),
        buffers_per_channel=read(options.BUFFERS_PER_CHANNEL),
        buffer_records=read(options.NETWORK_BUFFER_RECORDS),
        source_batch_records=read(options.SOURCE_BATCH_RECORDS),
        auto_watermark_interval_ms=read(options.AUTO_WATERMARK_INTERVAL_MS),
        state_latency=state_latency if read(STATE_LATENCY_ENABLED) else None,
        latency=latency if latency.interval_ms > 0 else None,
    )


def build_barrier(trigger: protocol.TriggerCheckpoint, settings: protocol.TaskSettings) -> records.CheckpointBarrier:
    """Return the barrier that starts a checkpoint. Savepoints are always aligned, so they hold no records in flight."""
    timeout_ms = settings.alignment_timeout_ms
    unaligned = settings.exactly_once and settings.unaligned and trigger.savepoint_path is None
    return records.CheckpointBarrier(
        trigger.checkpoint_id,
        trigger.timestamp_ms,
        trigger.savepoint_path,
        is_unaligned=unaligned and timeout_ms == 0,
        alignment_timeout_ms=timeout_ms if unaligned and timeout_ms > 0 else None,
        completed_id=trigger.completed_id,
        ends_job=trigger.stop is not None,
        is_full=trigger.is_full,
    )


class TaskTimes:
    """Totals in ms, as of the last step or report. A step itself always counts as busy."""

    __slots__ = (
        "_longest_ms",
        "_since_ms",
        "_wait_ms",
        "back_pressured_ms",
        "busy_ms",
        "idle_ms",
        "is_back_pressured",
        "mailbox_latency",
    )

    def __init__(self, now_ms: int) -> None:
        self.busy_ms = 0
        self.back_pressured_ms = 0
        self.idle_ms = 0
        self._since_ms: int = now_ms
        #: whether it currently waits for its consumers
        self.is_back_pressured = False
        #: the delay until its worker handles mail; None before the second report
        self.mailbox_latency: HistogramFigures | None = None
        self._wait_ms = 0
        self._longest_ms = 0

    def stepped(self, begun_ms: int, ended_ms: int, is_back_pressured: bool) -> None:
        """Account for a step and the wait before it (steady-clock times), and note the reason of the next wait."""
        waited = begun_ms - self._since_ms
        if self.is_back_pressured:
            self.back_pressured_ms += waited
            self._wait_ms += waited
            self._longest_ms = max(self._longest_ms, self._wait_ms)
        else:
            self.idle_ms += waited
        self.busy_ms += ended_ms - begun_ms
        if not is_back_pressured:
            self._wait_ms = 0
        self._since_ms, self.is_back_pressured = ended_ms, is_back_pressured

    def waited(self, now_ms: int) -> None:
        """Account for the wait until now (steady-clock time), which goes on."""
        self.stepped(now_ms, now_ms, self.is_back_pressured)

    def take_longest_back_pressure(self) -> int:
        """Return and reset the longest wait for the consumers (ms), as of the last step."""
        longest_ms, self._longest_ms = self._longest_ms, 0
        return longest_ms


class StreamTask:
    """See the module docstring. The executor uses `execution`, `phase` and `step`."""

    def __init__(
        self,
        deployment: protocol.DeployTask,
        gate: InputGate,
        partitions_factory: Callable[[operator_chain.VertexProgram], dict[int, ResultPartition]],
        clock: Clock,
        master: MasterGateway,
        background: Background,
        storage: StateStorage,
        backends: KeyedBackends,
        coroutines: Coroutines | None = None,
    ) -> None:
        self.deployment = deployment
        self.execution = deployment.execution
        self.settings = deployment.settings
        self.life = TaskLife()
        self.ending = Ending(self.settings.checkpointing)
        self.mail: deque[protocol.ToWorker] = deque()
        #: before this time (ms) a step finds nothing to do, unless mail or a buffer has arrived since it was set
        self.rests_until_ms = 0
        self.times = TaskTimes(clock.steady_ms())
        self._mails = 0
        self._initialization_ms = 0
        self.gate = gate
        self.partitions: dict[int, ResultPartition] = {}
        #: None before the task opens, like the two below.
        self.chain: operator_chain.OperatorChain | None = None
        self._loop: ProcessingLoop | None = None
        self._checkpoints: TaskCheckpoints | None = None
        self._partitions_factory = partitions_factory
        self._clock = clock
        #: sends to the job master
        self._tell: Final[Callable[[Any], None]] = master.send
        self._storage = storage
        self._backends = backends
        self._coroutines = coroutines
        life = self.life
        self.snapshots = TaskSnapshots(deployment, storage, background, clock, master.send, lambda: life.is_over)
        self._handlers: Final[dict[type, Callable[[Any], None]]] = {
            protocol.StartTask: self._on_start,
            protocol.TriggerCheckpoint: self._on_trigger,
            protocol.AssignSplits: self._on_splits,
            protocol.AnnounceWatermark: self._on_watermark_announced,
            protocol.NotifyCheckpointComplete: self._on_complete,
            protocol.NotifyCheckpointAborted: self._on_aborted,
        }

    # --- what the executor calls -----------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """The current phase of the task."""
        return self.life.phase

    @property
    def source(self) -> SourceOperator | None:
        """The head of the chain, if it is a source."""
        return None if self._loop is None else self._loop.source

    def step(self) -> Step:
        """Do one bounded piece of work. Any exception fails the task, even `sys.exit` in a user function."""
        try:
            return self._step()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is fails the task, not the worker
            self._fail(error)
            return Step.WORKED

    def rest(self, now_ms: int) -> None:
        """Set `rests_until_ms` after a step that found nothing to do."""
        loop = self._loop
        is_open = loop is not None and not self.mail and self.life.phase is Phase.PROCESSING
        self.rests_until_ms = loop.rests_until(now_ms) if loop is not None and is_open else 0

    def next_deadline(self) -> int | None:
        """Return when (ms) a step is needed even if nothing arrives."""
        return None if self._loop is None else self._loop.next_deadline()

    def metrics(self) -> protocol.TaskMetrics:
        """Return the task's progress so far."""
        self.times.waited(self._clock.steady_ms())
        contexts = [] if self.chain is None else self.chain.contexts
        accumulators = [(name, pickled(a)) for context in contexts for name, a in context.accumulators.items()]
        source, loop = self.source, self._loop
        records_in, watermark = (0, records.MIN_TIMESTAMP) if loop is None else (loop.records_in, loop.watermark)
        operators = () if self.chain is None else self.chain.figures(records_in, watermark)
        return protocol.TaskMetrics(
            self.execution,
            source.records_out if source is not None else records_in,
            sum(p.records_out for p in self.partitions.values()),
            watermark,
            *operator_chain.metrics_of_task(operators),
            tuple(accumulators),
            self._figures(operators, sum(context.fired_timers for context in contexts)),
        )

    def _figures(self, operators: tuple[protocol.OperatorFigures, ...], fired_timers: int) -> protocol.TaskFigures:
        times, gate, loop, last_part = self.times, self.gate, self._loop, self.snapshots.last_part
        remote = [channel for channel in gate.channels if channel.is_remote]
        subpartitions = [subpartition for p in self.partitions.values() for subpartition in p.subpartitions]
        return protocol.TaskFigures(
            times.busy_ms,
            times.back_pressured_ms,
            times.idle_ms,
            times.is_back_pressured,
            self._initialization_ms,
            gate.bytes_in.bytes,
            sum(partition.bytes_out.bytes for partition in self.partitions.values()),
            sum(channel.buffers_arrived for channel in gate.channels),
            sum(subpartition.buffers_sent for subpartition in subpartitions),
            sum(len(channel.queue) for channel in gate.channels),
            sum(subpartition.queued for subpartition in subpartitions),
            self._mails,
            len(self.mail),
            0 if last_part is None else last_part.start_delay_ms,
            0 if last_part is None else last_part.alignment_ms,
            operators,
            fired_timers,
            gate.remote_bytes,
            sum(channel.buffers_arrived for channel in remote),
            len(gate.channels) * self.settings.buffers_per_channel,
            len(subpartitions) * QUEUED_BUFFERS_MAX,
            times.take_longest_back_pressure(),
            times.mailbox_latency,
            None if loop is None else loop.hold(),
            None if loop is None else loop.makes_watermarks(),
        )

    def is_back_pressured(self, result: Step) -> bool:
        """Return whether the task waits for its consumers after a step."""
        return result is Step.BLOCKED and self._loop is not None and self._loop.is_back_pressured

    def discard(self) -> None:
        """Close the task without notifying the job master."""
        self._close_operators()
        self.life.move(Phase.TERMINAL)

    def release(self) -> None:
        """Drop operators, state and channels after the task has ended. Only `life` can be used afterwards.

        The parts of a task reference each other in cycles, see `StreamOperator.release`.
        """
        assert self.life.is_over, f"task {self.execution} still runs"
        if self.chain is not None:
            self.chain.release()
        if self._loop is not None:
            self._loop.release()
        self.gate.release()
        self._handlers.clear()
        self.partitions = {}
        self.chain = self._loop = self._checkpoints = None

    def _step(self) -> Step:
        phase = self.life.phase
        if phase is Phase.TERMINAL:
            return Step.TERMINAL
        if phase is Phase.CREATED and not (self.mail and isinstance(self.mail[0], protocol.CancelTask)):
            # A task without operators can do nothing else, except be cancelled.
            begun_ms = self._clock.steady_ms()
            self._initialize()
            self._initialization_ms = self._clock.steady_ms() - begun_ms
            return Step.WORKED
        if self.mail:
            self._mails += 1
            self._on_mail(self.mail.popleft())
            if self.life.phase is Phase.CLOSING:
                self._try_finish()  # otherwise endless mail, such as checkpoints that it declines, would delay its end
            elif self._loop is not None and not self.life.is_over and self._loop.passes_input_over():
                self._go_on()
            return Step.WORKED
        return self._go_on()

    def _go_on(self) -> Step:
        """Run the step of a task without mail."""
        phase = self.life.phase
        if phase is Phase.OPEN:
            return Step.IDLE
        assert self._loop is not None, f"a task in {phase.value} has been opened"
        if phase is Phase.DATA_FINISHED and self.snapshots.has_answer:
            self.close_when_done()
        if self.life.phase is Phase.CLOSING:
            self._loop.flush_if_due(self._clock.now_ms())
            return self._try_finish()
        return self._loop.step()

    def validate(self) -> None:
        """Assert the invariants that hold between steps. The simulator calls this; a running job never does."""
        life, ending, gate, loop, phase = self.life, self.ending, self.gate, self._loop, self.life.phase
        life.validate()
        ending.validate()
        if phase is Phase.TERMINAL:
            assert not self.mail, "a task that is over has answered its mail"
            return
        gate.validate(self.settings.buffers_per_channel)
        for partition in self.partitions.values():
            partition.validate()
        assert (loop is None) is (phase is Phase.CREATED), f"a task in {phase.value} has operators once it is opened"
        if loop is None:
            return
        loop.validate()
        self.snapshots.validate(loop.barriers.capturing_id)
        has_ended = phase in (Phase.DATA_FINISHED, Phase.CLOSING)
        assert (ending.how is not None) is has_ended, f"a task in {phase.value} knows how its data ended once it has"
        assert ending.held is None or phase is Phase.DRAINING, "a barrier waits for the end of the data in DRAINING"
        if gate.channels and phase is not Phase.OPEN:
            is_input_over = all(channel.end_of_data is not None for channel in gate.channels)
            assert is_input_over is (phase is not Phase.PROCESSING), "the data of a task ends when its input does"
        has_news = not has_ended or self.snapshots.has_answer
        may_close = gate.is_finished and ending.may_close and not self.snapshots.is_storing
        assert has_news or may_close is (phase is Phase.CLOSING), "a task closes as soon as it may, and not before"

    def validate_state(self) -> None:
        """Like `validate`, for the keyed state of the operators, which is expensive to check and seldom wrong."""
        if self.chain is not None and self.life.may.close_operators:
            for context in self.chain.contexts:
                context.keyed.validate(self.snapshots.key_groups)

    # --- the beginning ---------------------------------------------------------------------------------------------

    def _initialize(self) -> None:
        self._tell_state(ExecutionState.INITIALIZING)
        deployment = self.deployment
        program = operator_chain.load_program(deployment.program, deployment.task_name)
        self.partitions = self._partitions_factory(program)
        chain = self.chain = operator_chain.OperatorChain(program, self.partitions)
        key_groups = self.snapshots.key_groups
        chain.setup(
            operator_chain.operator_context(
                deployment, program, o, self._clock, self._backends, key_groups, self._tell, self._coroutines
            )
            for o in program.operators
        )
        Opening(deployment, self._storage, self.snapshots, self.gate, self.partitions).restore(chain)
        if deployment.finished_on_restore:
            self._skip_finished(program, chain)
            return
        chain.initialize_and_open()
        chain.resume_event_time(deployment.watermarks)
        self._begin(program, chain, Phase.OPEN if deployment.awaits_start else Phase.PROCESSING)

    def _skip_finished(self, program: operator_chain.VertexProgram, finished: operator_chain.OperatorChain) -> None:
        """Commit the state of operators whose subtasks had all finished by the checkpoint, and report the end (G10)."""
        for operator in finished.operators:
            operator.recover_finished()
        nothing = self.chain = operator_chain.OperatorChain(operator_chain.VertexProgram((), ()), {})
        for error in finished.close():
            raise error
        self._begin(program, nothing, Phase.PROCESSING)
        for partition in self.partitions.values():
            partition.broadcast(records.Watermark(records.MAX_WATERMARK))
        if not self.gate.channels:
            self.finish_data(drain=True)

    def _begin(self, program: operator_chain.VertexProgram, chain: operator_chain.OperatorChain, phase: Phase) -> None:
        """Make the task ready to be driven: its operators are open, or all of them have finished."""
        settings, timeout_ms = self.settings, program.buffer_timeout_ms
        self.chain = chain
        checkpoints = self._checkpoints = TaskCheckpoints(
            self.execution,
            chain,
            self.partitions,
            self.snapshots,
            self.life,
            self.ending,
            self._storage,
            self._clock,
            self._tell,
        )
        supports_unaligned = all(edge.supports_unaligned for edge in self.deployment.inputs)
        barriers = build_barrier_handler(settings, self.gate, checkpoints, supports_unaligned)
        self.gate.listener = barriers
        source = chain.head if chain.operators and isinstance(chain.head, SourceOperator) else None
        self._loop = ProcessingLoop(
            self.life,
            self.gate,
            chain,
            source,
            self.partitions,
            barriers,
            self._clock,
            self,
            self._markers(chain, is_source=source is not None),
            source_batch_records=settings.source_batch_records,
            buffer_timeout_ms=settings.buffer_timeout_ms if timeout_ms is None else timeout_ms,
        )
        self.life.move(phase)
        self._tell_state(ExecutionState.RUNNING)

    def _markers(self, chain: operator_chain.OperatorChain, *, is_source: bool) -> LatencyMarkers | None:
        if self.settings.latency is None:
            return None
        partitions = self.partitions.values()
        return LatencyMarkers(self.settings.latency, self.execution.subtask, chain.contexts, partitions, is_source)

    # --- the end ---------------------------------------------------------------------------------------------------

    def finish_data(self, drain: bool) -> None:
        """Handle the end of the input: finish the operators, unless the job is only suspended, then end the data."""
        life, chain, checkpoints = self.life, self.chain, self._checkpoints
        assert chain is not None, "what has data has been opened"
        assert checkpoints is not None, "what has data has been opened"
        if not life.may.run_operators:
            return
        if drain and not chain.finish(is_input_ended=bool(self.gate.channels)):
            if life.phase is not Phase.DRAINING:
                life.move(Phase.DRAINING)
            return
        held_barrier = self.ending.on_end_of_data(EndOfTask.FINISHED if drain else EndOfTask.SUSPENDED)
        for partition in self.partitions.values():
            partition.broadcast(records.EndOfData(drain), flush=True)
        life.move(Phase.DATA_FINISHED)
        self._tell(protocol.EndOfDataReached(self.execution))
        if held_barrier is not None:
            checkpoints.trigger_checkpoint(*held_barrier)
        self.close_when_done()

    def on_channel_state_recovered(self) -> None:
        """Report that the restored records in flight have been processed, so the task may be in a new checkpoint."""
        self._tell(protocol.ChannelStateRecovered(self.execution))

    def close_when_done(self) -> None:
        """Close the operators once the data, the channels, the last checkpoint and its parts are done."""
        self.snapshots.has_answer = False
        is_ready = self.gate.is_finished and self.ending.may_close and not self.snapshots.is_storing
        if self.life.phase is not Phase.DATA_FINISHED or not is_ready:
            return
        assert self.chain is not None, "what has data has been opened"
        self.life.move(Phase.CLOSING)
        for error in self.chain.close():
            raise error
        for partition in self.partitions.values():
            partition.broadcast(records.EndOfPartition(), flush=True)

    def _try_finish(self) -> Step:
        if not all(p.is_empty for p in self.partitions.values()):
            return Step.BLOCKED
        self._end(ExecutionState.FINISHED)
        return Step.WORKED

    def _end(self, state: ExecutionState, failure: protocol.Failure | None = None) -> None:
        for message in self.mail:
            if not isinstance(message, protocol.TriggerCheckpoint):
                continue
            if state is not ExecutionState.FINISHED or message.stop is None:
                self._decline(message, "the task has ended")  # otherwise the coordinator would wait for barriers
        self.mail.clear()
        self._tell(self.metrics())
        self.life.move(Phase.TERMINAL)
        self._tell_state(state, failure)

    def _fail(self, error: BaseException) -> None:
        names = [o.name for o in self.chain.program.operators] if self.chain else []
        failure = describe_failure(error, names[0] if len(names) == 1 else self.deployment.task_name)
        forget_traceback(error)
        self._close_operators()
        self._end(ExecutionState.FAILED, failure)

    def _close_operators(self) -> None:
        """Close the operators of a task that did not finish."""
        if self.chain is not None and self.life.may.close_operators:
            for error in self.chain.close():
                forget_traceback(error)

    def _tell_state(self, state: ExecutionState, failure: protocol.Failure | None = None) -> None:
        self._tell(protocol.TaskStateChanged(self.execution, state.value, failure))

    # --- mail ------------------------------------------------------------------------------------------------------

    def _on_mail(self, message: protocol.ToWorker) -> None:
        if isinstance(message, protocol.CancelTask):
            self._close_operators()
            self._end(ExecutionState.CANCELED)
        else:
            self._handlers[type(message)](message)

    def _on_start(self, message: protocol.StartTask) -> None:
        if self.life.phase is Phase.OPEN:
            self.life.move(Phase.PROCESSING)

    def _on_splits(self, message: protocol.AssignSplits) -> None:
        if self.source is not None:
            self.source.add_splits(message.splits, message.no_more)

    def _on_watermark_announced(self, message: protocol.AnnounceWatermark) -> None:
        if self.source is not None:
            self.source.align(message.allowed_ms)

    def _on_trigger(self, message: protocol.TriggerCheckpoint) -> None:
        life = self.life
        is_leaving = self.ending.has_finished and (life.phase is Phase.CLOSING or self.ending.is_committed)
        if is_leaving and message.stop is not None:
            # The task reports its end shortly, and that counts as its part. If the savepoint were aborted and retried,
            # as others are, sources that have stopped for it could not continue.
            return
        is_ready = life.may.inject_barriers and self.gate.is_finished and not self.ending.is_committed
        if not is_ready or self.ending.held is not None:
            self._decline(message, "the task cannot inject a barrier now")
            return
        if message.stop is not None and self.source is not None and life.may.run_operators:
            self._stop_source(message.checkpoint_id, message.stop)
        assert self._checkpoints is not None, "what injects barriers has been opened"
        self._checkpoints.trigger_checkpoint(build_barrier(message, self.settings), 0, 0)

    def _stop_source(self, savepoint_id: int, stop: protocol.StopMode) -> None:
        assert self._loop is not None, "a source has been opened"
        self.ending.on_stop(savepoint_id)
        if self.life.phase is Phase.DRAINING:
            return  # its input was exhausted earlier, so the end is final in either mode
        if stop is protocol.StopMode.DRAIN:
            self._loop.end_source()
        else:
            self.finish_data(drain=False)

    def _decline(self, message: protocol.TriggerCheckpoint, reason: str) -> None:
        self._tell(protocol.DeclineCheckpoint(self.execution, message.checkpoint_id, reason, is_unready=True))

    def _on_complete(self, message: protocol.NotifyCheckpointComplete) -> None:
        assert self._checkpoints is not None, "mail is for tasks that have been opened"
        self._checkpoints.on_complete(message.checkpoint_id)
        if self.ending.is_committed:
            self.close_when_done()

    def _on_aborted(self, message: protocol.NotifyCheckpointAborted) -> None:
        assert self._checkpoints is not None, "mail is for tasks that have been opened"
        assert self._loop is not None, "mail is for tasks that have been opened"
        self._loop.barriers.on_aborted(message.checkpoint_id)
        self._checkpoints.on_aborted(message.checkpoint_id)
        self.close_when_done()  # it may have waited for its part of that checkpoint
