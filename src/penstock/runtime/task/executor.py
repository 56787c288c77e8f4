"""A worker without its process: hosts the tasks of one slot and connects their channels (E2).

A task that found nothing to do rests until its next deadline, or until mail or a buffer arrives: it is not stepped.
Everything that can give it work comes through here. Operators that wait for calls never rest.

Buffers between tasks of the same executor are passed by reference; all others go to the network port. Credits and
buffers are addressed by channel id, which includes the attempt, so late messages of an earlier attempt are dropped.
"""

from __future__ import annotations

from typing import Final

from penstock.base.metrics import SlidingHistogram
from penstock.runtime import ports, protocol
from penstock.runtime.graph import ExecutionState
from penstock.runtime.records import MAX_TIMESTAMP, Buffer
from penstock.runtime.task.channels.input_gate import InputChannel, InputGate
from penstock.runtime.task.channels.result_partition import ResultPartition, Subpartition
from penstock.runtime.task.operator_chain import VertexProgram
from penstock.runtime.task.processing import Phase, Step
from penstock.runtime.task.stream_task import StreamTask
from penstock.state.backend import HeapBackends

METRICS_INTERVAL_MS: Final = 500
#: Number of recent reports whose delays make up the mailbox latency.
MAILS_MEASURED: Final = 128


class TaskExecutor:
    """Runs tasks. Feed it messages, buffers and credits; call `step` while it returns True, or at `next_deadline`."""

    def __init__(
        self,
        worker_id: str,
        *,
        clock: ports.Clock,
        network: ports.Network,
        master: ports.MasterGateway,
        background: ports.Background,
        storage: ports.StateStorage,
        backends: ports.KeyedBackends | None = None,
        coroutines: ports.Coroutines | None = None,
        cycles: ports.CycleCollector | None = None,
        metrics_interval_ms: int | None = METRICS_INTERVAL_MS,
    ) -> None:
        self.worker_id = worker_id
        self.shut_down = False
        self._clock = clock
        self._network = network
        self._master = master
        self._background = background
        self._storage = storage
        self._backends = backends or HeapBackends()
        self._coroutines = coroutines
        self._cycles = cycles
        self._tasks: list[StreamTask] = []
        self._consumers: dict[protocol.ChannelId, StreamTask] = {}
        self._producers: dict[protocol.ChannelId, Subpartition] = {}
        self._early_credit: dict[protocol.ChannelId, int] = {}
        self._metrics_interval_ms = metrics_interval_ms
        self._metrics_due_ms = 0  # immediately
        self._mailbox_latency = SlidingHistogram(MAILS_MEASURED)

    # --- events in -------------------------------------------------------------------------------------------------

    def on_message(self, message: protocol.ToWorker) -> None:
        """Handle a message from the job master."""
        if isinstance(message, protocol.DeployTask):
            self._deploy(message)
        elif isinstance(message, protocol.ShutDownWorker):
            self.close()
        else:
            task = next((t for t in self._tasks if t.execution == message.execution), None)
            if task is not None:
                task.mail.append(message)
                task.rests_until_ms = 0
            elif isinstance(message, protocol.CancelTask):
                self._master.send(protocol.TaskStateChanged(message.execution, ExecutionState.CANCELED.value))
            elif isinstance(message, protocol.TriggerCheckpoint):
                reason = "this worker does not have the task"
                self._master.send(
                    protocol.DeclineCheckpoint(message.execution, message.checkpoint_id, reason, is_unready=True)
                )

    def on_buffer(self, channel: protocol.ChannelId, buffer: Buffer) -> None:
        """Pass a buffer to its task; drop it if the task no longer exists."""
        task = self._consumers.get(channel)
        if task is not None:
            task.gate.on_buffer(channel, buffer)
            task.rests_until_ms = 0

    def on_credit(self, channel: protocol.ChannelId, credit: int) -> None:
        """Pass credit to its task, which sends what waits for it; keep it for a task that is not deployed yet."""
        subpartition = self._producers.get(channel)
        if subpartition is not None:
            subpartition.grant(credit)
        else:
            self._early_credit[channel] = self._early_credit.get(channel, 0) + credit

    def step(self) -> bool:
        """Run one step of every task that has something to do. Return True if any of them did work: call again."""
        worked = ended = False
        now_ms = self._clock.now_ms() if self._tasks else 0
        begun_ms = self._clock.steady_ms() if self._tasks else 0
        for task in self._tasks:
            if now_ms < task.rests_until_ms:
                continue
            task.rests_until_ms = 0
            result = task.step()
            ended_ms = self._clock.steady_ms()
            task.times.stepped(begun_ms, ended_ms, task.is_back_pressured(result))
            begun_ms = ended_ms
            if result is Step.WORKED:
                worked = True
            elif result is Step.IDLE:
                task.rest(now_ms)
            if task.life.is_over:
                ended = True
        if ended:
            self._forget_ended()
        if self._metrics_interval_ms is not None and now_ms >= self._metrics_due_ms and self._tasks:
            self._report_metrics(now_ms, self._metrics_interval_ms)
        return worked

    def next_deadline(self) -> int | None:
        """Return when (ms) to step again if nothing arrives earlier."""
        times = [t for task in self._tasks if (t := task.rests_until_ms or task.next_deadline()) is not None]
        times = [t for t in times if t < MAX_TIMESTAMP]
        if self._tasks and self._metrics_interval_ms is not None:
            times.append(self._metrics_due_ms)
        return min(times) if times else None

    def close(self) -> None:
        """Close all tasks without notifying the job master."""
        for task in self._tasks:
            task.discard()
        self._forget_ended()
        self._storage.close()
        self.shut_down = True

    @property
    def tasks(self) -> list[StreamTask]:
        """The tasks that the executor hosts now."""
        return list(self._tasks)

    def validate(self) -> None:
        """Assert the invariants that hold between turns, except those within a task (`StreamTask.validate`).

        The simulator calls this; a running job never does.
        """
        assert not any(task.life.is_over for task in self._tasks), "a task that is over is forgotten in the same turn"
        assert len({task.execution for task in self._tasks}) == len(self._tasks), "an execution is deployed once"
        inputs = {c.channel: task for task in self._tasks for c in task.gate.channels}
        assert self._consumers == inputs, "buffers reach the tasks that are here, and no others"
        outputs = {s.channel: s for t in self._tasks for p in t.partitions.values() for s in p.subpartitions}
        assert self._producers == outputs, "credit reaches the tasks that are here, and no others"
        assert self._early_credit.keys().isdisjoint(outputs), "credit is kept for channels that are yet to come"

    # --- deployment ------------------------------------------------------------------------------------------------

    def _deploy(self, deployment: protocol.DeployTask) -> None:
        if self._cycles is not None:
            self._cycles.collect()
        attempt = deployment.execution.attempt
        # All tasks of an attempt are deployed before any task of the next attempt.
        self._early_credit = {c: n for c, n in self._early_credit.items() if c.attempt >= attempt}
        self._network.keep_attempts({attempt, *deployment.attempts})
        self._network.connect(attempt, {w: a for w, a in deployment.peers.items() if w != self.worker_id})
        task = StreamTask(
            deployment,
            self._make_gate(deployment),
            lambda program: self._make_partitions(deployment, program),
            self._clock,
            self._master,
            self._background,
            self._storage,
            self._backends,
            self._coroutines,
        )
        self._tasks.append(task)
        credit = deployment.settings.buffers_per_channel
        for channel in task.gate.channels:
            self._consumers[channel.channel] = task
            self._grant(channel.worker_id, channel.channel, credit)

    def _make_gate(self, deployment: protocol.DeployTask) -> InputGate:
        execution = deployment.execution
        channels: list[InputChannel] = []
        for edge in deployment.inputs:
            for producer, worker_id in edge.producers:
                channel_id = protocol.ChannelId(edge.edge, producer, execution.subtask, execution.attempt)
                is_remote = worker_id != self.worker_id
                channels.append(InputChannel(len(channels), edge.input_index, channel_id, worker_id, is_remote))
        awaited = {edge.edge for edge in deployment.inputs if edge.awaits_channel_state}
        return InputGate(channels, lambda channel: self._grant(channel.worker_id, channel.channel, 1), awaited)

    def _make_partitions(self, deployment: protocol.DeployTask, program: VertexProgram) -> dict[int, ResultPartition]:
        execution = deployment.execution
        buffer_records = deployment.settings.buffer_records
        out_edges = {edge.edge: edge for edge in program.out_edges}
        partitions = {}
        for edge in deployment.outputs:
            subpartitions = []
            for consumer, worker_id in edge.consumers:
                channel = protocol.ChannelId(edge.edge, execution.subtask, consumer, execution.attempt)
                subpartition = Subpartition(channel, worker_id, self._send, buffer_records)
                subpartition.credit = self._early_credit.pop(channel, 0)
                self._producers[channel] = subpartition
                subpartitions.append(subpartition)
            out_edge = out_edges[edge.edge]
            partitioner = out_edge.partitioner
            partitioner.set_up(
                execution.subtask, len(subpartitions), edge.consumer_max_parallelism, out_edge.consumer_name
            )
            partitions[edge.edge] = ResultPartition(
                partitioner, subpartitions, edge.supports_unaligned, self._network.passes_references
            )
        return partitions

    def _send(self, worker_id: str, channel: protocol.ChannelId, buffer: Buffer) -> None:
        if worker_id == self.worker_id:
            self.on_buffer(channel, buffer)
        else:
            self._network.send_buffer(worker_id, channel, buffer)

    def _grant(self, worker_id: str, channel: protocol.ChannelId, credit: int) -> None:
        if worker_id == self.worker_id:
            self.on_credit(channel, credit)
        else:
            self._network.send_credit(worker_id, channel, credit)

    def _forget_ended(self) -> None:
        ended = [t for t in self._tasks if t.life.is_over]
        self._tasks = [t for t in self._tasks if not t.life.is_over]
        for task in ended:
            for channel in task.gate.channels:
                self._consumers.pop(channel.channel, None)
            for partition in task.partitions.values():
                for subpartition in partition.subpartitions:
                    self._producers.pop(subpartition.channel, None)
            task.release()
        if not self._tasks:
            self._metrics_due_ms = 0
        if ended and self._cycles is not None:
            self._cycles.note()

    def _report_metrics(self, now_ms: int, interval_ms: int) -> None:
        if self._metrics_due_ms:
            # The worker wakes up for reports as it does for mail, so the delay of a report equals that of mail.
            self._mailbox_latency.update(now_ms - self._metrics_due_ms)
        self._metrics_due_ms = now_ms + interval_ms
        latency = self._mailbox_latency.figures()
        for task in self._tasks:
            task.times.mailbox_latency = latency
            if task.phase is not Phase.CREATED:
                self._master.send(task.metrics())
