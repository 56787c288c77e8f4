"""Small stand-ins for what surrounds a task."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from penstock.drivers.event_loop import VirtualCoroutines
from penstock.drivers.logs import LoggedStates
from penstock.runtime.protocol import (
    ChannelId,
    DeployTask,
    ExecutionId,
    InputChannels,
    OutputChannels,
    TaskSettings,
)
from penstock.runtime.task.executor import TaskExecutor
from penstock.runtime.task.operator_chain import ChainedOperator, OutEdge, VertexProgram
from penstock.storage.file_store import FileCheckpointStore
from penstock.testing import VirtualClock

SETTINGS = TaskSettings(
    checkpointing=True,
    exactly_once=True,
    unaligned=False,
    alignment_timeout_ms=0,
    held_back_bytes_max=None,
    buffer_timeout_ms=100,
    buffers_per_channel=2,
    buffer_records=4,
    source_batch_records=2,
)


class LaterBackground:
    """Work that is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: deque = deque()
        self.hold = False

    def submit(self, work: Any, done: Any) -> None:
        self.waiting.append((work, done))
        if not self.hold:
            self.run()

    def run(self) -> None:
        while self.waiting:
            work, done = self.waiting.popleft()
            result = error = None
            try:
                result = work()
            except Exception as caught:  # noqa: BLE001 - handed on
                error = caught
            done(result, error)


class Outbox:
    """Writes down what was sent, to peers and to the master."""

    passes_references = False

    def __init__(self) -> None:
        self.messages: list = []
        self.buffers: list[tuple[str, ChannelId, list]] = []
        self.credits: list[tuple[str, ChannelId, int]] = []

    def send(self, message: Any) -> None:
        self.messages.append(message)

    def connect(self, attempt: int, peers: Any) -> None: ...

    def keep_attempts(self, attempts: Any) -> None: ...

    def send_buffer(self, worker_id: str, channel: ChannelId, buffer: list) -> None:
        self.buffers.append((worker_id, channel, buffer))

    def send_credit(self, worker_id: str, channel: ChannelId, credit: int) -> None:
        self.credits.append((worker_id, channel, credit))

    def of(self, kind: type) -> list:
        return [m for m in self.messages if isinstance(m, kind)]

    def elements(self, channel: ChannelId | None = None) -> list:
        return [e for _, c, buffer in self.buffers for e in buffer if channel is None or c == channel]


class Rig:
    """One executor with one task: `inputs` producers on another worker, one consumer for each output edge.

    With `broadcast_inputs` the task aligns in every mode: so many producers broadcast to its second input. With
    `to_aligned` it has a second output edge, partitioned like that, to tasks which do.
    """

    def __init__(
        self,
        factories: list,
        inputs: int = 1,
        *,
        partitioner: Any = None,
        consumers: int = 1,
        broadcast_inputs: int = 0,
        to_aligned: Any = None,
        credit: int = 1000,
        settings: dict[str, Any] | None = None,
        restored: Any = None,
        metrics_interval_ms: int | None = None,
        logs_states: bool = False,
        **deployment: Any,
    ) -> None:
        import cloudpickle

        self.clock = VirtualClock()
        self.outbox = Outbox()
        self.background = LaterBackground()
        self.coroutines = VirtualCoroutines(self.clock)
        logged = LoggedStates(self.outbox)
        self.executor = TaskExecutor(
            "here",
            clock=self.clock,
            network=self.outbox,
            master=logged if logs_states else self.outbox,
            background=self.background,
            storage=FileCheckpointStore(None, "job", 0),
            metrics_interval_ms=metrics_interval_ms,
            coroutines=self.coroutines,
        )
        logged.tasks = lambda: self.executor.tasks
        operators = tuple(ChainedOperator(f"op{i}", f"Op {i}", factory, i - 1) for i, factory in enumerate(factories))
        partitioners = {edge: p for edge, p in ((9, partitioner), (10, to_aligned)) if p is not None}
        edges = tuple(OutEdge(edge, len(operators) - 1, p) for edge, p in partitioners.items())
        producers = [count for count in (inputs, broadcast_inputs) if count]
        self.execution = ExecutionId(1, 0, 0)
        self.inputs = [ChannelId(edge, p, 0, 0) for edge, count in enumerate(producers) for p in range(count)]
        self.outputs = [ChannelId(9, 0, consumer, 0) for consumer in range(consumers)]
        self.outputs_to_aligned = [ChannelId(10, 0, consumer, 0) for consumer in range(consumers)]
        self.executor.on_message(
            DeployTask(
                execution=self.execution,
                job_id="job",
                task_name="task",
                parallelism=1,
                max_parallelism=8,
                program=cloudpickle.dumps(VertexProgram(operators, edges)),
                inputs=tuple(
                    InputChannels(edge, edge, tuple((p, "there") for p in range(count)), not broadcast_inputs)
                    for edge, count in enumerate(producers)
                ),
                outputs=tuple(
                    OutputChannels(edge, tuple((c, "there") for c in range(consumers)), 8, edge != 10)
                    for edge in partitioners
                ),
                peers={"there": "address"},
                settings=msgspec.structs.replace(SETTINGS, **(settings or {})),
                restored_checkpoint_id=None if restored is None else 1,
                restored=restored or {},
                **deployment,
            )
        )
        (self.task,) = self.executor.tasks
        if edges:
            for channel in self.outputs + (self.outputs_to_aligned if to_aligned is not None else []):
                self.executor.on_credit(channel, credit)
        self.run()

    def run(self) -> None:
        """Step until nothing happens."""
        for _ in range(10_000):
            delivered = self.coroutines.deliver()
            if not self.executor.step() and not delivered:
                return
        raise AssertionError("the task never comes to rest")

    def message(self, message: Any) -> None:
        self.executor.on_message(message)
        self.run()

    def feed(self, channel: int, *elements: Any) -> None:
        """One buffer."""
        self.executor.on_buffer(self.inputs[channel], list(elements))
        self.run()

    def advance(self, by_ms: int) -> None:
        """Let the clock go on from deadline to deadline."""
        target = self.clock.now_ms() + by_ms
        while (due := self.next_due_ms()) is not None and due <= target:
            self.clock.advance_to(max(due, self.clock.now_ms()))
            before = self.next_due_ms()
            self.run()
            if self.next_due_ms() == before:
                break
        self.clock.advance_to(target)
        self.run()

    def next_due_ms(self) -> int | None:
        """When the task wants a step, or a coroutine goes on."""
        times = (self.executor.next_deadline(), self.coroutines.next_due_ms())
        return min((time for time in times if time is not None), default=None)

    @property
    def states(self) -> list[str]:
        from penstock.runtime.protocol import TaskStateChanged

        return [m.state for m in self.outbox.of(TaskStateChanged)]
