"""The simulated cluster, the job master's process, and a deposed job master's process.

`SimulatedCluster` holds all workers and channels; it implements the job master's port `Cluster`.

`MasterProcess` is the job master's process: its turns, its deadline, its death, and the start of its successor. On
Spark the job master runs in the driver program, and when that dies all workers end too. The same holds here: all
workers end with the job master, and a new job master for the same job continues from the store's contents.

`Deposed` is a job master believed dead that keeps running alongside its successor, with its own workers (E7).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.base.job import JobStatus
from penstock.drivers.simulation.checkpoint_store import MemoryStore
from penstock.drivers.simulation.faults import MasterKilled
from penstock.drivers.simulation.network import Connections, describe_buffer, describe_message
from penstock.drivers.simulation.scheduler import Action, Channel, Engine, SimulatedBackground
from penstock.drivers.simulation.worker import SimulatedBackends, StateFolder, Worker
from penstock.runtime import protocol
from penstock.runtime.effects import carry_out
from penstock.runtime.job.job_master import JobMaster
from penstock.runtime.ports import JobListener

MASTER = "master"
#: The longest delay before a reported death reaches the job master.
NOTICE_MS_MAX = 30
START_MS_MAX = 50
ZOMBIE_MS_MAX = 300
#: More than any job needs.
MANY_SLOTS = 1_000
#: Messages that advance a checkpoint or the job's end: good moments for faults.
PROTOCOL = (
    protocol.AcknowledgeCheckpoint,
    protocol.EndOfDataReached,
    protocol.NotifyCheckpointComplete,
    protocol.TaskStateChanged,
    protocol.TriggerCheckpoint,
)
#: Messages that may safely be delivered again, now or later.
REPEATABLE = (
    protocol.AcknowledgeCheckpoint,
    protocol.CancelTask,
    protocol.DeclineCheckpoint,
    protocol.EndOfDataReached,
    protocol.Heartbeat,
    protocol.NotifyCheckpointAborted,
    protocol.NotifyCheckpointComplete,
    protocol.TaskMetrics,
    protocol.WorkerLost,
)
REPEAT_MS_MAX = 100


class SimulatedCluster:
    """Workers by id, channels by sender, receiver and name."""

    def __init__(
        self, engine: Engine, store: MemoryStore, reports_metrics: bool, on_master: Callable[[protocol.ToMaster], None]
    ) -> None:
        self.engine = engine
        #: whether its job master is believed dead but still runs
        self.is_deposed = False
        #: the current job's store
        self.store = store
        self.workers: dict[str, Worker] = {}
        self.data: dict[tuple[str, str, str, protocol.ChannelId], Channel] = {}
        self.control: dict[tuple[str, str], Channel] = {}
        #: whether the last delivered message was one of PROTOCOL
        self.was_protocol = False
        #: creates the state backends of a worker of the current job
        self.make_backends: Callable[[], SimulatedBackends] = lambda: SimulatedBackends("hashmap", StateFolder())
        #: called with each message that the job master sends
        self.on_send: Callable[[protocol.ToWorker], None] = lambda message: None
        #: called with each message that reaches a worker
        self.on_deliver: Callable[[protocol.ToWorker], None] = lambda message: None
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

    def send(self, worker_id: str, message: protocol.ToWorker) -> None:
        self.engine.log.write(f"master -> {worker_id}: {describe_message(message)}" if self.engine.log.is_on else "")
        self.engine.faults.maybe_kill_master()
        self.on_send(message)
        self._push_message(worker_id, message)
        if isinstance(message, REPEATABLE) and self.engine.faults.is_doubled():
            self._later(REPEAT_MS_MAX, lambda: self._push_message(worker_id, message))
        self.engine.faults.maybe_kill_master()

    def _push_message(self, worker_id: str, message: protocol.ToWorker) -> None:
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
            self._control(MASTER, worker_id).push(protocol.ShutDownWorker("released"))
            engine.call_later(ZOMBIE_MS_MAX, lambda: self.kill(worker, is_noticed=False))
        else:
            self.kill(worker, is_noticed=False)

    # --- workers ---------------------------------------------------------------------------------------------------

    def _start(self, worker_id: str) -> None:
        self.engine.log.write(f"{worker_id} starts")
        self._starting -= 1
        worker = self.workers[worker_id] = Worker(worker_id, self, self._reports_metrics)
        worker.send(protocol.RegisterWorker(worker_id, f"sim:{worker_id}", "sim", self.made))

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
            lost = protocol.WorkerLost(worker_id, "it was killed")
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

    def to_master(self, worker_id: str, message: protocol.ToMaster) -> None:
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

    def data_channel(self, kind: str, sender: str, receiver: str, channel_id: protocol.ChannelId) -> Channel:
        """Return the channel of that name, creating it if necessary."""
        key = (kind, sender, receiver, channel_id)
        channel = self.data.get(key)
        if channel is None:
            name = f"{sender}->{receiver} {kind} {channel_id.edge}:{channel_id.producer}>{channel_id.consumer}"
            deliver = self._deliver_data if kind == "data" else self._deliver_credit
            channel = Channel(name, sender, receiver, self.engine.ready, deliver, self.engine.channel_speed())
            self.data[key] = channel
        return channel

    def _deliver_to_master(self, channel: Channel, message: protocol.ToMaster) -> None:
        if self.engine.log.is_on:
            self.engine.log.write(f"{channel.name}: {describe_message(message)}")
        self.was_protocol = isinstance(message, PROTOCOL)
        if isinstance(message, protocol.RegisterWorker) and not self.engine.faults.is_job_done():
            self._registered.add(message.worker_id)
        elif isinstance(message, protocol.EndOfDataReached):
            self.engine.faults.has_ending = True
        self.on_master(message)

    def _deliver_to_worker(self, channel: Channel, message: protocol.ToWorker) -> None:
        if self.engine.log.is_on:
            self.engine.log.write(f"{channel.name}: {describe_message(message)}")
        self.was_protocol = isinstance(message, PROTOCOL)
        worker = self.workers.get(channel.receiver)
        if worker is not None:

            def take() -> None:
                self.on_deliver(message)
                worker.executor.on_message(message)

            worker.turn(take)

    def _deliver_data(self, channel: Channel, item: tuple[protocol.ChannelId, Any]) -> None:
        if self.engine.log.is_on:
            self.engine.log.write(f"{channel.name}#{item[0].attempt}: {describe_buffer(item[1])}")
        worker = self.workers.get(channel.receiver)
        if worker is not None:
            worker.turn(lambda: worker.executor.on_buffer(*item))

    def _deliver_credit(self, channel: Channel, item: tuple[protocol.ChannelId, Any]) -> None:
        if self.engine.log.is_on:
            self.engine.log.write(f"{channel.name}#{item[0].attempt}: +{item[1]}")
        worker = self.workers.get(channel.receiver)
        if worker is not None:
            worker.turn(lambda: worker.executor.on_credit(*item))


MASTER_START_MS_MAX = 100
#: The failure of a job master whose successor should try again: the store was unavailable when it began.
OUT_OF_REACH = re.compile(r"cannot (be read|read what .* left): (OSError: )?planned")


@dataclass
class MasterTotals:
    """Totals over all job masters of a history."""

    masters: int = 0
    restarts: int = 0
    checkpoints: int = 0
    savepoints: int = 0


class MasterProcess(Action):
    """The job master's process. Running it as an action handles a deadline of the job master."""

    __slots__ = (
        "_cluster",
        "_deadline_ms",
        "_engine",
        "_make",
        "after_turn",
        "background",
        "has_successor",
        "is_down",
        "listener",
        "master",
        "on_death",
        "on_split",
        "totals",
    )

    def __init__(
        self, engine: Engine, cluster: SimulatedCluster, listener: JobListener, make: Callable[[bool], JobMaster]
    ) -> None:
        super().__init__()
        self._engine = engine
        self._cluster = cluster
        self.listener = listener
        self._make = make
        self._deadline_ms: int | None = None
        self.is_down = False
        #: whether another process has taken over the job
        self.has_successor = False
        self.totals = MasterTotals()
        #: called after each of its turns
        self.after_turn: Callable[[], None] = lambda: None
        #: called when it appears dead to all others but is not
        self.on_split: Callable[[], None] = lambda: None
        #: called when it dies
        self.on_death: Callable[[], None] = lambda: None
        self.background = SimulatedBackground("master", engine, self.turn)
        self.master = make(False)
        engine.faults.is_job_done = lambda: self.master.is_done

    @property
    def is_done(self) -> bool:
        """Whether the job has ended permanently."""
        return not self.is_down and self.master.is_done

    def start(self) -> None:
        """Start the job."""
        self.totals.masters += 1
        self.turn(self.master.start)

    def begin_next(self) -> None:
        """Start the next job, which continues from the savepoint of the one that ended."""
        self._count()
        self.background = SimulatedBackground("master", self._engine, self.turn)
        self.master = self._make(False)
        self.start()

    def run(self) -> None:
        self._engine.ready.remove(self)
        self._engine.log.write("master: on time")
        self.turn(self.master.on_time)

    def turn(self, call: Callable[[], None]) -> None:
        """Run a call in the job master and carry out its effects; it may die at any point."""
        faults = self._engine.faults
        faults.in_master = True
        try:
            call()
            carry_out(self.master.take_effects(), self._cluster, self.background, self.listener)
        except MasterKilled:
            faults.in_master = False
            self.kill(is_within_call=True)
            return
        finally:
            faults.in_master = False
        self.after_turn()
        if self.master.status is JobStatus.FAILED and OUT_OF_REACH.search(str(self.master.failure)):
            self.kill()
            return
        self._deadline_ms = None if self.master.is_done else self.master.next_deadline()
        self.look_at_deadline(self._engine.steady_ms())

    def kill(self, is_within_call: bool = False) -> None:
        """End the process silently, and all workers with it, or let it appear dead; start another one."""
        engine = self._engine
        if self.is_down:
            return
        # A kill within a call loses pending effects, so the process must really be dead. One that has not taken its
        # number yet could take it after its successor, and lead.
        can_go_on = not is_within_call and not self.master.is_done and self.master.status is not JobStatus.CREATED
        if can_go_on and engine.faults.is_split():
            self.on_split()
            return
        engine.log.write("the job master dies")
        self._count()
        self.is_down = True
        self._deadline_ms = None
        engine.ready.remove(self)
        self.background.abandon()
        self._cluster.vanish()
        self.on_death()
        if not self.has_successor:
            engine.call_later(engine.between(0, MASTER_START_MS_MAX), self._succeed)

    def log(self, line: str) -> None:
        """Write a line to the event log."""
        self._engine.log.write(line)

    def take_over(self, former: MasterProcess) -> None:
        """Begin as the successor of a process that is believed dead."""
        former._count()
        self.totals = former.totals
        former.totals = MasterTotals()
        self.is_down = True
        self._engine.call_later(self._engine.between(0, MASTER_START_MS_MAX), self._succeed)

    def _succeed(self) -> None:
        self._engine.log.write("a new job master starts")
        self.background = SimulatedBackground("master", self._engine, self.turn)
        self.master = self._make(True)
        self.is_down = False
        self.start()

    def _count(self) -> None:
        self.totals.restarts += self.master.history.restarts
        self.totals.checkpoints += self.master.checkpoints.statistics.completed
        self.totals.savepoints += self.master.checkpoints.statistics.savepoints

    def final_totals(self) -> MasterTotals:
        """Return the totals, including the last job master; call once, at the end."""
        if not self.is_down:
            self._count()
        return self.totals

    # --- time ------------------------------------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """Return when it next has something to do."""
        return self._deadline_ms

    def look_at_deadline(self, now_ms: int) -> None:
        """Enable its action if the deadline has passed."""
        if self._deadline_ms is not None and self._deadline_ms <= now_ms:
            self._engine.ready.add(self)


class Deposed:
    """Such a process and its cluster. Nothing listens to it. Implements `JobListener`."""

    def __init__(self, process: MasterProcess, cluster: SimulatedCluster) -> None:
        self.process = process
        self.cluster = cluster
        cluster.is_deposed = True
        process.listener = self
        process.has_successor = True
        process.after_turn = process.on_death = process.on_split = lambda: None
        cluster.on_master = self._on_message
        cluster.on_deliver = lambda message: None
        cluster.after_turn = cluster.on_release = lambda worker: None

    def _on_message(self, message: protocol.ToMaster) -> None:
        if not self.process.is_down:
            self.process.turn(partial(self.process.master.on_message, message))

    def next_due_ms(self) -> int | None:
        """Return when it next has something to do."""
        times = [self.process.next_due_ms(), None if self.process.is_done else self.cluster.next_due_ms()]
        return min((time for time in times if time is not None), default=None)

    def on_time(self, now_ms: int) -> None:
        """Pass the current time to the cluster and the process."""
        self.cluster.on_time(now_ms)
        self.process.look_at_deadline(now_ms)

    def end(self) -> str | None:
        """Clean up after the job's end, as its driver would; return a flaw, if any."""
        self.cluster.close()
        if self.process.is_down:
            return None
        self.process.master.sweep()
        status = self.process.master.status
        return None if status.is_terminal_state() else f"the deposed job master is still {status.name}"

    def on_job_status(self, status: str, reason: str | None) -> None:
        self.process.log(f"deposed job master: {status} {reason or ''}")

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None: ...

    def on_log(self, line: str) -> None: ...
