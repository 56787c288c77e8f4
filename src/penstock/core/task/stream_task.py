"""One subtask: a chain of operators with its input gate and result partitions, driven by `step`.

Rules. Everything that touches operators happens in `step`, on one thread. A step does one bounded piece of work: mail,
due timers, or a batch, and says whether there is more. Nothing waits in here: a task that cannot go on says so.

The end (F3). When its input is exhausted, a task sends MAX_WATERMARK through the chain, ends and finishes all operators
head to tail, and sends EndOfData. It then only waits: for the end of its inputs, and, when checkpoints are on, for the
completion of one that it took after finishing, which commits its last output. Then it closes the operators, sends
EndOfPartition and is FINISHED. A cancelled or failed task goes to `close` at once.

Stop-with-savepoint. A source comes to its end when it is asked for the savepoint, and sends the barrier after its
EndOfData. With drain that end is the one above. Without drain, operators are neither ended nor finished, EndOfData says
so, and the savepoint holds what the operators hold. Either way the task waits for the savepoint's completion.

Calls out of the task. An operator may wait for calls that it has made (`AsyncWaitOperator`). While one has as many out
as it may, the task takes no input, as if output were blocked. Results, timers, mail and checkpoints go on. At the end
of its input a task *drains*: its operators finish one after the other, each when no call of it is out. Only then does
the task's data end. Barriers that came after the end of the input wait for the end of the data. When their checkpoint
is complete, the producers may be gone, and could not send the task the barrier of another one. A source, which has no
producers, takes part meanwhile; but the barrier of a savepoint that ends the job belongs after its end.

The start. When a job begins from another job's state, every task opens first. That is when operators declare their
state, and when state that does not fit is found. No task processes anything before all are open.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.core.accumulators import pickled
from penstock.core.operators.source.source import Emitted, SourceOperator
from penstock.core.ports import Background, Clock, Coroutines, KeyedBackends, MasterGateway, StateStorage
from penstock.core.protocol import (
    AnnounceWatermark,
    AssignSplits,
    CancelTask,
    ChannelId,
    DeclineCheckpoint,
    DeployTask,
    EndOfDataReached,
    Failure,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    StartTask,
    StopMode,
    TaskMetrics,
    TaskStateChanged,
    ToWorker,
    TriggerCheckpoint,
)
from penstock.core.records import (
    MAX_WATERMARK,
    MIN_TIMESTAMP,
    Batch,
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    Element,
    EndOfData,
    EndOfPartition,
    Watermark,
    WatermarkStatus,
)
from penstock.core.task.barriers import BarrierHandler, InFlight, barrier_handler_for
from penstock.core.task.channels.in_flight import capture_channel, partition_anew, recover_channel
from penstock.core.task.channels.input_gate import InputChannel, InputGate
from penstock.core.task.channels.result_partition import ResultPartition
from penstock.core.task.contexts import operator_context
from penstock.core.task.failures import failure_of
from penstock.core.task.metrics import metrics_of
from penstock.core.task.operator_chain import OperatorChain
from penstock.core.task.program import VertexProgram, load_program
from penstock.core.task.settings import barrier_of
from penstock.core.task.snapshots import Part, TaskSnapshots
from penstock.core.task.state_transfer import restore_operator
from penstock.core.task.watermark_valve import WatermarkValve
from penstock.state.snapshot import read_operator

#: Control elements that one step may take before it returns.
EVENTS_PER_STEP_MAX: Final = 64


class Step(enum.Enum):
    """What a step found."""

    WORKED = "WORKED"
    IDLE = "IDLE"
    BLOCKED = "BLOCKED"
    TERMINAL = "TERMINAL"


class Phase(enum.Enum):
    """Where a task is in its life; see the module's text."""

    CREATED = "CREATED"
    OPEN = "OPEN"
    PROCESSING = "PROCESSING"
    DATA_FINISHED = "DATA_FINISHED"
    CLOSING = "CLOSING"
    TERMINAL = "TERMINAL"


class StreamTask:
    """See the module's text. `execution`, `phase` and `step` are what the executor uses."""

    def __init__(
        self,
        deployment: DeployTask,
        gate: InputGate,
        partitions_factory: Callable[[VertexProgram], dict[int, ResultPartition]],
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
        self.phase = Phase.CREATED
        self.mail: deque[ToWorker] = deque()
        self.gate = gate
        self.partitions: dict[int, ResultPartition] = {}
        self._partitions_factory = partitions_factory
        self._clock = clock
        self._master = master
        self._storage = storage
        self._backends = backends
        self._coroutines = coroutines
        self._chain: OperatorChain | None = None
        self._source: SourceOperator | None = None
        self._barriers: BarrierHandler | None = None
        self._valve = WatermarkValve(len(self.gate.channels))
        self._flush_at_ms: int | None = None
        self._buffer_timeout_ms = self.settings.buffer_timeout_ms
        #: Whether the operators have finished: no data will ever come (F4).
        self._has_finished = False
        #: The first checkpoint taken after the end of the data, or the savepoint that ends the job.
        self._final_checkpoint_id: int | None = None
        self._final_checkpoint_completed = False
        self._snapshots = TaskSnapshots(
            deployment, storage, background, clock, self._tell, lambda: self.phase is Phase.TERMINAL
        )
        #: Whether the input has ended and calls out of the task are waited for.
        self._is_draining = False
        #: The barrier of the savepoint that ends the job, when it came before the task had drained, and its alignment.
        self._waits_for_end: tuple[CheckpointBarrier, int, int] | None = None
        self._records_in = 0
        self._watermark = MIN_TIMESTAMP

    # --- what the executor calls -----------------------------------------------------------------------------------

    def step(self) -> Step:
        """Do one bounded piece of work. Whatever is raised fails the task, `sys.exit` in a function included."""
        try:
            return self._step()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is fails the task, not the worker
            self._fail(error)
            return Step.WORKED

    def next_deadline(self) -> int | None:
        """When (ms) a step is needed even if nothing arrives."""
        earliest = self._flush_at_ms
        if self._chain is not None and self._processes and self._is_available():
            due = self._next_timer_ms()
            if due is not None and (earliest is None or due < earliest):
                earliest = due
        if self._barriers is not None and self.phase is not Phase.TERMINAL and not self._holds_barriers:
            due = self._barriers.next_deadline()
            if due is not None and (earliest is None or due < earliest):
                earliest = due
        return earliest

    def metrics(self) -> TaskMetrics:
        """Progress so far."""
        chain = self._chain
        contexts = chain.contexts if chain else []
        accumulators = [(name, pickled(a)) for context in contexts for name, a in context.accumulators.items()]
        records_in = self._source.records_out if self._source else self._records_in
        out = sum(p.records_out for p in self.partitions.values())
        return TaskMetrics(
            self.execution,
            records_in,
            out,
            self._current_watermark(),
            *metrics_of(contexts),
            tuple(accumulators),
        )

    def _current_watermark(self) -> int:
        if self._source is not None and self._watermark == MIN_TIMESTAMP:
            return self._source.emitted_watermark or MIN_TIMESTAMP
        return self._watermark

    # --- one step --------------------------------------------------------------------------------------------------

    def _step(self) -> Step:
        if self.phase is Phase.TERMINAL:
            return Step.TERMINAL
        if self.mail:
            self._on_mail(self.mail.popleft())
            if self.phase is Phase.CLOSING:
                self._try_finish()  # or mail that never ends, such as checkpoints it declines, would hold up its end
            return Step.WORKED
        if self.phase is Phase.CREATED:
            self._initialize()
            return Step.WORKED
        if self.phase is Phase.OPEN:
            return Step.IDLE
        if self.gate.overtaking and not self._holds_barriers:
            self._on_overtaking_barrier()
            return Step.WORKED
        now = self._clock.now_ms()
        if self._flush_at_ms is not None and now >= self._flush_at_ms:
            self._flush()
        assert self._barriers is not None
        deadline = self._barriers.next_deadline()
        if deadline is not None and now >= deadline and not self._holds_barriers:
            self._barriers.on_time(now)
            return Step.WORKED
        if self.phase is Phase.CLOSING:
            return self._try_finish()
        if self._processes and not self._is_available():
            return Step.BLOCKED
        assert self._chain is not None
        went_on = self._processes and bool(self._chain.waiting) and self._go_on()
        takes_input = not self._processes or (self._chain.is_available() and not self._is_draining)
        worked = (self._processes and self._fire_timers(now)) or (takes_input and self._take_input()) or went_on
        self._chain.settle()
        if any(p.has_open_data for p in self.partitions.values()):
            timeout_ms = self._buffer_timeout_ms
            if not worked:
                # Nothing to do: what waits in open buffers gains nothing by waiting longer.
                self._flush()
            elif self._flush_at_ms is None and timeout_ms >= 0:
                self._flush_at_ms = now + timeout_ms
        if worked:
            return Step.WORKED
        return Step.IDLE if takes_input else Step.BLOCKED

    def _take_input(self) -> bool:
        return self._emit_from_source() if self._polls_source else self._process_input()

    @property
    def _polls_source(self) -> bool:
        return self._source is not None and self._processes and not self._is_draining

    def _go_on(self) -> bool:
        """Handle calls that have returned, and the end of the data when the task has drained."""
        assert self._chain is not None
        worked = self._chain.process_completions()
        if self._is_draining:
            self._finish_data(drain=True)
        return worked or not self._processes

    @property
    def _holds_barriers(self) -> bool:
        return self._is_draining and self._source is None

    @property
    def _processes(self) -> bool:
        return self.phase is Phase.PROCESSING

    def _is_available(self) -> bool:
        for partition in self.partitions.values():  # noqa: SIM110 - asked in every step
            if not partition.is_available:
                return False
        return True

    def _flush(self) -> None:
        self._flush_at_ms = None
        for partition in self.partitions.values():
            partition.flush()

    def _next_timer_ms(self) -> int | None:
        assert self._chain is not None
        # A source that is not polled now need not be woken for it.
        is_head_asked = self._source is None or (self._polls_source and self._chain.is_available())
        return self._chain.next_timer_ms(is_head_asked)

    def _fire_timers(self, now_ms: int) -> bool:
        assert self._chain is not None
        due = self._next_timer_ms()
        if due is None or due > now_ms:
            return False
        self._chain.on_processing_time(now_ms)
        # A source's retry time is not a timer: polling it below is what it asks for.
        return self._source is None

    def _emit_from_source(self) -> bool:
        assert self._source is not None
        emitted = self._source.emit_next(self.settings.source_batch_records)
        if emitted is Emitted.END:
            self._end_source()
            return True
        return emitted is Emitted.RECORDS

    def _end_source(self) -> None:
        assert self._source is not None
        if self._source.watermarks.idle:
            self._source.output.emit_status(False)
        self._source.output.emit_watermark(MAX_WATERMARK)
        self._watermark = MAX_WATERMARK
        self._finish_data(drain=True)

    def _process_input(self) -> bool:
        for taken in range(EVENTS_PER_STEP_MAX):
            polled = self.gate.poll()
            if polled is None:
                return taken > 0
            channel, element = polled
            if isinstance(element, Batch):
                self._records_in += len(element)
                assert self._chain is not None
                self._chain.head.process_batch(element, channel.input_index)
                return True
            self._on_event(channel, element)
            if self.phase not in (Phase.PROCESSING, Phase.DATA_FINISHED) or self._holds_barriers:
                return True
        return True

    def _on_event(self, channel: InputChannel, event: Element) -> None:
        assert self._chain is not None
        assert self._barriers is not None
        kind = type(event)
        if kind is Watermark:
            self._advance(self._valve.on_watermark(channel.index, event.timestamp))  # type: ignore[union-attr]
        elif kind is WatermarkStatus:
            watermark, idle = self._valve.on_status(channel.index, event.idle)  # type: ignore[union-attr]
            self._advance(watermark)
            if idle is not None:
                for head in self._chain.operators[:1]:
                    head.process_status(idle)
        elif isinstance(event, CheckpointBarrier):
            self._barriers.on_barrier(channel, event)
        elif isinstance(event, CancelCheckpointMarker):
            self._barriers.on_cancel_marker(channel, event)
        elif isinstance(event, EndOfData):
            self._on_end_of_data(channel, event)
        elif isinstance(event, EndOfPartition):
            channel.ended = True
            self._barriers.on_channel_ended(channel)
            self._close_when_done()

    def _on_end_of_data(self, channel: InputChannel, event: EndOfData) -> None:
        """End the input when all its channels have drained, and the data when all channels have come to their end."""
        assert self._chain is not None
        channel.end_of_data = event
        channels = self.gate.channels
        if all(c.has_drained for c in channels if c.input_index == channel.input_index):
            self._chain.end_input(channel.input_index)
        if all(c.end_of_data is not None for c in channels):
            self._finish_data(all(c.has_drained for c in channels))

    def _advance(self, watermark: int | None) -> None:
        if watermark is not None:
            assert self._chain is not None
            self._watermark = watermark
            for head in self._chain.operators[:1]:
                head.process_watermark(watermark)

    # --- life cycle ------------------------------------------------------------------------------------------------

    def _initialize(self) -> None:
        self._tell(TaskStateChanged(self.execution, "INITIALIZING"))
        program = load_program(self.deployment.program, self.deployment.task_name)
        self.partitions = self._partitions_factory(program)
        if program.buffer_timeout_ms is not None:
            self._buffer_timeout_ms = program.buffer_timeout_ms
        self._barriers = barrier_handler_for(self.settings, self.gate, self)
        self.gate.listener = self._barriers
        chain = self._chain = OperatorChain(program, self.partitions)
        key_groups = self._snapshots.key_groups
        chain.setup(
            [
                operator_context(
                    self.deployment, program, o, self._clock, self._backends, key_groups, self._tell, self._coroutines
                )
                for o in program.operators
            ]
        )
        if isinstance(chain.head, SourceOperator):
            self._source = chain.head
        for context in chain.contexts:
            restored = self.deployment.restored.get(context.operator_id)
            context.operator_state.restored_checkpoint_id = self.deployment.restored_checkpoint_id
            if restored is not None:
                restore_operator(
                    restored,
                    context,
                    self._storage,
                    self._snapshots.key_groups,
                    self._snapshots.histories if self.deployment.builds_on_restored else None,
                    self._recover_channel,
                )
        for edge, files in self.deployment.taken_over:
            for file in files:
                partition_anew(read_operator(self._storage.read(file)), self.partitions[edge])
        if self.deployment.finished_on_restore:
            self._skip_finished(chain)
            return
        chain.initialize_and_open()
        self.phase = Phase.OPEN if self.deployment.awaits_start else Phase.PROCESSING
        self._tell(TaskStateChanged(self.execution, "RUNNING"))

    def _recover_channel(self, name: str, items: list[Any]) -> None:
        recover_channel(name, items, self.gate, self.partitions)

    def _skip_finished(self, finished: OperatorChain) -> None:
        """All subtasks of these operators had finished by the checkpoint: commit what it holds, and say so (G10)."""
        for operator in finished.operators:
            operator.recover_finished()
        self._chain = OperatorChain(VertexProgram((), ()), {})
        for error in finished.close():
            raise error
        self._has_finished = True
        self.phase = Phase.PROCESSING
        self._source = None
        self._tell(TaskStateChanged(self.execution, "RUNNING"))
        for partition in self.partitions.values():
            partition.broadcast(Watermark(MAX_WATERMARK))
        if not self.gate.channels:
            self._finish_data(drain=True)

    def _finish_data(self, drain: bool) -> None:
        """No input will follow: finish the operators, unless the job is only suspended, and end the data after that."""
        assert self._chain is not None
        if self.phase is not Phase.PROCESSING:
            return
        self._is_draining = drain and not self._chain.finish(is_input_ended=bool(self.gate.channels))
        if self._is_draining:
            return
        self._has_finished = drain
        for partition in self.partitions.values():
            partition.broadcast(EndOfData(drain), flush=True)
        self.phase = Phase.DATA_FINISHED
        self._tell(EndOfDataReached(self.execution))
        waiting, self._waits_for_end = self._waits_for_end, None
        if waiting is not None:
            self.trigger_checkpoint(*waiting)
        self._close_when_done()

    def _close_when_done(self) -> None:
        if self.phase is not Phase.DATA_FINISHED or not self.gate.is_finished:
            return
        awaits = self.settings.checkpointing or self._final_checkpoint_id is not None
        if awaits and not self._final_checkpoint_completed:
            return
        assert self._chain is not None
        self.phase = Phase.CLOSING
        for error in self._chain.close():
            raise error
        for partition in self.partitions.values():
            partition.broadcast(EndOfPartition(), flush=True)

    def _try_finish(self) -> Step:
        if not all(p.is_empty for p in self.partitions.values()):
            return Step.BLOCKED
        self._end("FINISHED")
        return Step.WORKED

    def _end(self, state: str, failure: Failure | None = None) -> None:
        for message in self.mail:
            if isinstance(message, TriggerCheckpoint):  # or the coordinator would wait for barriers that never come
                self._tell(DeclineCheckpoint(self.execution, message.checkpoint_id, "the task has ended"))
        self.mail.clear()
        self._tell(self.metrics())
        self.phase = Phase.TERMINAL
        self._tell(TaskStateChanged(self.execution, state, failure))

    def _fail(self, error: BaseException) -> None:
        names = [o.name for o in self._chain.program.operators] if self._chain else []
        failure = failure_of(error, names[0] if len(names) == 1 else self.deployment.task_name)
        self.dispose()
        self._end("FAILED", failure)

    def dispose(self) -> None:
        """Close the operators on the way out of a task that did not finish."""
        if self._chain is not None and self.phase not in (Phase.CLOSING, Phase.TERMINAL):
            self._chain.close()

    def _tell(self, message: Any) -> None:
        self._master.send(message)

    # --- mail ------------------------------------------------------------------------------------------------------

    def _on_mail(self, message: ToWorker) -> None:
        if isinstance(message, CancelTask):
            self.dispose()
            self._end("CANCELED")
        elif self.phase is Phase.CREATED:
            # Nothing else can be done before the operators are there; cancelling can.
            self._initialize()
            self.mail.appendleft(message)
        elif isinstance(message, StartTask):
            if self.phase is Phase.OPEN:
                self.phase = Phase.PROCESSING
        elif isinstance(message, TriggerCheckpoint):
            self._on_trigger(message)
        elif isinstance(message, AssignSplits):
            if self._source is not None:
                self._source.add_splits(message.splits, message.no_more)
        elif isinstance(message, AnnounceWatermark):
            if self._source is not None:
                self._source.align(message.allowed_ms)
        elif isinstance(message, NotifyCheckpointComplete):
            self._on_complete(message.checkpoint_id)
        elif isinstance(message, NotifyCheckpointAborted):
            self._on_aborted(message.checkpoint_id)

    def _on_trigger(self, message: TriggerCheckpoint) -> None:
        can_inject = self.phase in (Phase.PROCESSING, Phase.DATA_FINISHED) and self.gate.is_finished
        if not can_inject or self._waits_for_end is not None:
            self._tell(DeclineCheckpoint(self.execution, message.checkpoint_id, "the task cannot inject a barrier now"))
            return
        if message.stop is not None and self._source is not None and self.phase is Phase.PROCESSING:
            self._final_checkpoint_id = message.checkpoint_id  # which the end waits for, with checkpointing off too
            if self._is_draining:
                pass  # its input was exhausted before, so its end is a true one, whatever the mode
            elif message.stop is StopMode.DRAIN:
                self._end_source()
            else:
                self._finish_data(drain=False)
        self.trigger_checkpoint(barrier_of(message, self.settings), 0, 0)

    def _on_complete(self, checkpoint_id: int) -> None:
        assert self._chain is not None
        self._confirm(checkpoint_id)
        for operator in self._chain.operators:
            operator.notify_checkpoint_complete(checkpoint_id)
        final = self._final_checkpoint_id
        if final is not None and checkpoint_id >= final:
            self._final_checkpoint_completed = True
            self._close_when_done()

    def _confirm(self, checkpoint_id: int) -> None:
        """A checkpoint completed: incremental state builds on it from now on."""
        assert self._chain is not None
        self._snapshots.histories.on_complete(checkpoint_id)
        self._storage.on_complete(checkpoint_id)
        for context in self._chain.contexts:
            context.keyed.confirm(checkpoint_id)

    # --- checkpoints (the barrier handler's target) ----------------------------------------------------------------

    def now_ms(self) -> int:
        """Processing time in ms."""
        return self._clock.now_ms()

    def trigger_checkpoint(
        self, barrier: CheckpointBarrier, alignment_ms: int, held_back_bytes: int, is_complete: bool = True
    ) -> None:
        """Pass the barrier on, capture all state; store it in the background once the part is complete (F2, G7)."""
        assert self._chain is not None
        if barrier.ends_job and self._is_draining:
            self._waits_for_end = (barrier, alignment_ms, held_back_bytes)
            return
        chain, checkpoint_id = self._chain, barrier.checkpoint_id
        begun_ms = self.now_ms()
        self._confirm(barrier.completed_id)  # its notification may still be on its way
        chain.prepare_snapshot(checkpoint_id)
        overtaken = self._forward(barrier)
        captures = chain.snapshot_state(checkpoint_id, barrier.savepoint_path is not None)
        for edge in chain.program.out_edges:
            owner = chain.program.operators[edge.operator].operator_id
            for channel, elements in overtaken.get(edge.edge, ()):
                capture = capture_channel("out", edge.edge, channel.consumer, elements)
                if capture is not None:
                    captures[owner].append(capture)
        # Without checkpointing, tasks hear of a savepoint's completion only if the savepoint ends the job.
        is_first = self.settings.checkpointing and self._final_checkpoint_id is None
        if self.phase is not Phase.PROCESSING and (is_first or barrier.ends_job):
            self._final_checkpoint_id = checkpoint_id
        now = self.now_ms()
        has_finished = self._has_finished and self.phase is not Phase.PROCESSING
        part = Part(barrier, captures, has_finished, alignment_ms, held_back_bytes, now - begun_ms, now)
        self._snapshots.add(part, is_complete)

    def _forward(self, barrier: CheckpointBarrier) -> dict[int, list[tuple[ChannelId, Buffer]]]:
        if barrier.is_unaligned:
            return {edge: partition.overtake(barrier) for edge, partition in self.partitions.items()}
        for partition in self.partitions.values():
            partition.broadcast(barrier, flush=True)
        return {}

    def complete_checkpoint(self, checkpoint_id: int, in_flight: InFlight) -> None:
        """All that was in flight ahead of the barrier is captured."""
        if not self._snapshots.is_waiting(checkpoint_id):
            return
        assert self._chain is not None
        captures = [capture_channel("in", edge, producer, elements) for (edge, producer), elements in in_flight.items()]
        # Without operators (they finished before the restored checkpoint) no record can have been in flight.
        operator_id = self._chain.contexts[0].operator_id if self._chain.contexts else ""
        self._snapshots.complete(checkpoint_id, operator_id, [c for c in captures if c is not None])

    def _on_overtaking_barrier(self) -> None:
        assert self._barriers is not None
        channel, barrier = self.gate.overtaking.popleft()
        if self.phase in (Phase.PROCESSING, Phase.DATA_FINISHED):
            self._barriers.on_overtaking_barrier(channel, barrier)

    def _on_aborted(self, checkpoint_id: int) -> None:
        assert self._chain is not None
        assert self._barriers is not None
        self._snapshots.forget(checkpoint_id)
        if self._waits_for_end is not None and self._waits_for_end[0].checkpoint_id == checkpoint_id:
            self._waits_for_end = None
        self._barriers.on_aborted(checkpoint_id)
        for operator in self._chain.operators:
            operator.notify_checkpoint_aborted(checkpoint_id)

    def abort_checkpoint(self, checkpoint_id: int, reason: str) -> None:
        """Decline a checkpoint and let the tasks downstream know."""
        self._snapshots.forget(checkpoint_id)
        for partition in self.partitions.values():
            partition.broadcast(CancelCheckpointMarker(checkpoint_id), flush=True)
        self._tell(DeclineCheckpoint(self.execution, checkpoint_id, reason))
