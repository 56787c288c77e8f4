"""All workers and channels of a simulated cluster; implements the job master's port `Cluster`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.protocol import (
    AcknowledgeCheckpoint,
    CancelTask,
    ChannelId,
    DeclineCheckpoint,
    EndOfDataReached,
    Heartbeat,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    RegisterWorker,
    ShutDownWorker,
    TaskMetrics,
    TaskStateChanged,
    ToMaster,
    ToWorker,
    TriggerCheckpoint,
    WorkerLost,
)
from penstock.drivers.simulation.backends import SimulatedBackends, StateFolder
from penstock.drivers.simulation.connections import Connections
from penstock.drivers.simulation.describe import describe_buffer, describe_message
from penstock.drivers.simulation.engine import Engine
from penstock.drivers.simulation.ready import Channel
from penstock.drivers.simulation.store import MemoryStore
from penstock.drivers.simulation.worker import Worker

MASTER = "master"
#: The longest delay before a reported death reaches the job master.
NOTICE_MS_MAX = 30
START_MS_MAX = 50
ZOMBIE_MS_MAX = 300
#: More than any job needs.
MANY_SLOTS = 1_000
#: Messages that advance a checkpoint or the job's end: good moments for faults.
PROTOCOL = (AcknowledgeCheckpoint, EndOfDataReached, NotifyCheckpointComplete, TaskStateChanged, TriggerCheckpoint)
#: Messages that may safely be delivered again, now or later.
REPEATABLE = (
    AcknowledgeCheckpoint,
    CancelTask,
    DeclineCheckpoint,
    EndOfDataReached,
    Heartbeat,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TaskMetrics,
    WorkerLost,
)
REPEAT_MS_MAX = 100


class SimulatedCluster:
    """Workers by id, channels by sender, receiver and name."""

    def __init__(
        self, engine: Engine, store: MemoryStore, reports_metrics: bool, on_master: Callable[[ToMaster], None]
    ) -> None:
        self.engine = engine
        #: whether its job master is believed dead but still runs
        self.is_deposed = False
        #: the current job's store
        self.store = store
        self.workers: dict[str, Worker] = {}
        self.data: dict[tuple[str, str, str, ChannelId], Channel] = {}
        self.control: dict[tuple[str, str], Channel] = {}
        #: whether the last delivered message was one of PROTOCOL
        self.was_protocol = False
        #: creates the state backends of a worker of the current job
        self.make_backends: Callable[[], SimulatedBackends] = lambda: SimulatedBackends("hashmap", StateFolder())
        #: called with each message that the job master sends
        self.on_send: Callable[[ToWorker], None] = lambda message: None
        #: called with each message that reaches a worker
        self.on_deliver: Callable[[ToWorker], None] = lambda message: None
        #: called with each worker that the job master releases
        self.on_release: Callable[[Worker], None] = lambda worker: None
        #: called after each turn of a worker
        self.after_turn: Callable[[Worker], None] = lambda worker: None
        self.connections = Connections(engine, self.workers, self.data)
        self._generation = 0
        self._reports_metrics = reports_metrics
        self.on_master = on_master
        self.made = 0
        self._released: set[str] = set()
        self._registered: set[str] = set()
        #: the number of slots, of workers waiting for one, and of workers starting
        self.slots = MANY_SLOTS
        self._queued = 0
        self._starting = 0

    # --- the port Cluster ------------------------------------------------------------------------------------------

    def request_workers(self, count: int) -> None:
        self.engine.faults.maybe_kill_master()
        self._queued += count
        self._start_queued()

    def withdraw_workers(self, count: int) -> None:
        self.engine.faults.maybe_kill_master()
        self._queued = max(0, self._queued - count)

    def _start_queued(self) -> None:
        """Start as many queued workers as there are free slots."""
        while self._queued and len(self.workers) + self._starting < self.slots:
            self._queued -= 1
            self._starting += 1
            self.made += 1
            worker_id = f"worker-{self.made}"
            self._later(START_MS_MAX, lambda w=worker_id: self._start(w))  # type: ignore[misc]

    def set_slots(self, slots: int) -> None:
        """Set the number of slots; kill the workers beyond it."""
        self.engine.log.write(f"there are {slots} slots")
        self.slots = slots
        for worker in list(self.workers.values())[slots:]:
            self.kill(worker)
        self._start_queued()

    def send(self, worker_id: str, message: ToWorker) -> None:
        self.engine.log.write(f"master -> {worker_id}: {describe_message(message)}" if self.engine.log.is_on else "")
        self.engine.faults.maybe_kill_master()
        self.on_send(message)
        self._push_message(worker_id, message)
        if isinstance(message, REPEATABLE) and self.engine.faults.is_doubled():
            self._later(REPEAT_MS_MAX, lambda: self._push_message(worker_id, message))
        self.engine.faults.maybe_kill_master()

    def _push_message(self, worker_id: str, message: ToWorker) -> None:
        if worker_id in self.workers and worker_id not in self._released:
            self._control(MASTER, worker_id).push(message)

    def _later(self, delay_ms_max: int, call: Callable[[], None]) -> None:
        """Call a function after a random delay, unless the job master is replaced in the meantime."""
        generation = self._generation

        def unless_succeeded() -> None:
            if generation == self._generation:
                call()

        self.engine.call_later(self.engine.between(0, delay_ms_max), unless_succeeded)

    def release(self, worker_id: str) -> None:
        engine = self.engine
        engine.faults.maybe_kill_master()
        engine.log.write(f"master releases {worker_id}")
        self._released.add(worker_id)
        worker = self.workers.get(worker_id)
        if worker is None:
            return
        self.on_release(worker)
        if engine.faults.is_zombie():
            engine.call_later(engine.between(1, ZOMBIE_MS_MAX), lambda: self.kill(worker, is_noticed=False))
        elif engine.chance.random() < 0.5:
            self._control(MASTER, worker_id).push(ShutDownWorker("released"))
            engine.call_later(ZOMBIE_MS_MAX, lambda: self.kill(worker, is_noticed=False))
        else:
            self.kill(worker, is_noticed=False)

    # --- workers ---------------------------------------------------------------------------------------------------

    def _start(self, worker_id: str) -> None:
        self.engine.log.write(f"{worker_id} starts")
        self._starting -= 1
        worker = self.workers[worker_id] = Worker(worker_id, self, self._reports_metrics)
        worker.send(RegisterWorker(worker_id, f"sim:{worker_id}", "sim", self.made))

    def is_released(self, worker: Worker) -> bool:
        """Return whether the job master has released a worker."""
        return worker.worker_id in self._released

    def is_alive(self, worker: Worker) -> bool:
        """Return whether a worker is still alive."""
        return self.workers.get(worker.worker_id) is worker

    def kill(self, worker: Worker, is_noticed: bool = True) -> None:
        """End a worker's process silently. Its messages in transit may arrive, except a random number of the last."""
        engine = self.engine
        if not self.is_alive(worker):
            return
        engine.log.write(f"{worker.worker_id} dies")
        self._remove(worker)
        worker.end()
        for channel in [*self.control.values(), *self.data.values()]:
            if channel.sender == worker.worker_id:
                channel.cut(engine.between(0, len(channel.items)))
        # Spark's driver always reports the death of a worker that has not registered yet: it has no heartbeats to miss.
        if is_noticed and not (engine.faults.is_silent() and worker.worker_id in self._registered):
            self._notice(worker.worker_id)

    def vanish(self) -> None:
        """End all workers because the job master has died; messages to and from it are lost."""
        self._generation += 1
        self._queued = self._starting = 0
        for worker in list(self.workers.values()):
            self.kill(worker, is_noticed=False)
        for channel in self.control.values():
            channel.cut(0)

    def close(self) -> None:
        """End the workers that were requested but never registered, because the job is over and its driver ends."""
        self._generation += 1
        self._queued = self._starting = 0
        for worker in list(self.workers.values()):
            if worker.worker_id not in self._registered:
                self.kill(worker, is_noticed=False)

    def forget(self, worker: Worker) -> None:
        """Remove a worker whose process has ended normally."""
        if self.is_alive(worker):
            self.engine.log.write(f"{worker.worker_id} ends")
            self._remove(worker)
            worker.end()

    def _remove(self, worker: Worker) -> None:
        del self.workers[worker.worker_id]
        self._start_queued()
        self.engine.ready.remove(worker)
        for channel in [*self.control.values(), *self.data.values()]:
            if channel.receiver == worker.worker_id:
                channel.cut(0)

    def _notice(self, worker_id: str) -> None:
        if worker_id not in self._released:
            lost = WorkerLost(worker_id, "it was killed")
            for _ in range(2 if self.engine.faults.is_doubled() else 1):
                self._later(NOTICE_MS_MAX, lambda: self.on_master(lost))

    def on_time(self, now_ms: int) -> None:
        """Pass the current time to all workers."""
        for worker in self.workers.values():
            worker.on_time(now_ms)

    def on_clocks_set(self, by_ms: int) -> None:
        """Move processing time, and with it the timers, forwards."""
        for worker in self.workers.values():
            if worker.timer_ms is not None:
                worker.timer_ms -= by_ms

    def next_due_ms(self) -> int | None:
        """Return when the next worker has something to do."""
        times = [w.heartbeat_ms for w in self.workers.values()]
        times += [t for w in self.workers.values() for t in (w.timer_ms, w.wake_ms) if t is not None]
        return min(times) if times else None

    # --- channels --------------------------------------------------------------------------------------------------

    def to_master(self, worker_id: str, message: ToMaster) -> None:
        """Send a message to the job master."""
        self._control(worker_id, MASTER).push(message)
        if isinstance(message, REPEATABLE) and self.engine.faults.is_doubled():
            self._later(REPEAT_MS_MAX, lambda: self._control(worker_id, MASTER).push(message))

    def _control(self, sender: str, receiver: str) -> Channel:
        channel = self.control.get((sender, receiver))
        if channel is None:
            deliver = self._deliver_to_master if receiver == MASTER else self._deliver_to_worker
            name = f"{sender}->{receiver}"
            channel = Channel(name, sender, receiver, self.engine.ready, deliver, self.engine.channel_speed())
            self.control[(sender, receiver)] = channel
        return channel

    def data_channel(self, kind: str, sender: str, receiver: str, channel_id: ChannelId) -> Channel:
        """Return the channel of that name, creating it if necessary."""
        key = (kind, sender, receiver, channel_id)
        channel = self.data.get(key)
        if channel is None:
            name = f"{sender}->{receiver} {kind} {channel_id.edge}:{channel_id.producer}>{channel_id.consumer}"
            deliver = self._deliver_data if kind == "data" else self._deliver_credit
            channel = Channel(name, sender, receiver, self.engine.ready, deliver, self.engine.channel_speed())
            self.data[key] = channel
        return channel

    def _deliver_to_master(self, channel: Channel, message: ToMaster) -> None:
        if self.engine.log.is_on:
            self.engine.log.write(f"{channel.name}: {describe_message(message)}")
        self.was_protocol = isinstance(message, PROTOCOL)
        if isinstance(message, RegisterWorker) and not self.engine.faults.is_job_done():
            self._registered.add(message.worker_id)
        elif isinstance(message, EndOfDataReached):
            self.engine.faults.has_ending = True
        self.on_master(message)

    def _deliver_to_worker(self, channel: Channel, message: ToWorker) -> None:
        if self.engine.log.is_on:
            self.engine.log.write(f"{channel.name}: {describe_message(message)}")
        self.was_protocol = isinstance(message, PROTOCOL)
        worker = self.workers.get(channel.receiver)
        if worker is not None:

            def take() -> None:
                self.on_deliver(message)
                worker.executor.on_message(message)

            worker.turn(take)

    def _deliver_data(self, channel: Channel, item: tuple[ChannelId, Any]) -> None:
        if self.engine.log.is_on:
            self.engine.log.write(f"{channel.name}#{item[0].attempt}: {describe_buffer(item[1])}")
        worker = self.workers.get(channel.receiver)
        if worker is not None:
            worker.turn(lambda: worker.executor.on_buffer(*item))

    def _deliver_credit(self, channel: Channel, item: tuple[ChannelId, Any]) -> None:
        if self.engine.log.is_on:
            self.engine.log.write(f"{channel.name}#{item[0].attempt}: +{item[1]}")
        worker = self.workers.get(channel.receiver)
        if worker is not None:
            worker.turn(lambda: worker.executor.on_credit(*item))
