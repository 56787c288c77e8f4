"""A simulated worker: a task executor and the ends of its channels, with its state backends and its local disk.

`SimulatedBackends` keep the worker's keyed state: on the heap, or in RocksDB, whose files are removed when the worker
ends. RocksDB is the real one, without background work: it does not compact on its own, so the number of files depends
only on the captures.

`LossyDisk` is the worker's disk for local copies of state files. It loses or damages some, and is sometimes full.

`Worker` can be killed at any of its calls to the world.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from rocksdict import Options

from penstock.drivers.event_loop import VirtualCoroutines
from penstock.drivers.simulation.checkpoint_store import MemoryStore
from penstock.drivers.simulation.faults import WorkerKilled
from penstock.drivers.simulation.network import Connections, PeerFailures
from penstock.drivers.simulation.scenario import HEARTBEAT_INTERVAL_MS
from penstock.drivers.simulation.scheduler import SLOW_SPEED, Action, Channel, Engine, SimulatedBackground
from penstock.runtime.ports import StateStorage
from penstock.runtime.protocol import ChannelId, ExecutionId, Heartbeat, ToMaster
from penstock.runtime.records import Buffer
from penstock.runtime.task.executor import METRICS_INTERVAL_MS, TaskExecutor
from penstock.state.backend import HeapKeyedStateBackend, KeyedStateBackend
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.storage.file_store import LocalCopies

#: RocksDB waits for its disk; a memory file system avoids that where there is one.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
FILES_MAX = 1_000_000


class QuietSettings(RocksDBSettings):
    """Small, and without background compaction."""

    def options(self) -> Options:
        options = super().options()
        options.set_disable_auto_compactions(True)
        options.set_level_zero_slowdown_writes_trigger(FILES_MAX)
        options.set_level_zero_stop_writes_trigger(FILES_MAX)
        return options


#: A cache of one byte: every settling point evicts something.
SETTINGS = QuietSettings(cache_bytes=1, write_buffer_bytes=64 << 10, block_cache_bytes=64 << 10, file_bytes=64 << 10)


class StateFolder:
    """A directory for the RocksDB stores of a history, created on demand."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._made = 0

    def next(self) -> Path:
        """Return a directory that no backend has used before."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="penstock-sim-", dir=MEMORY)
        self._made += 1
        return Path(self._folder) / f"{self._made}"

    def left(self) -> list[str]:
        """Return the directories that were not removed."""
        return [] if self._folder is None else sorted(os.listdir(self._folder))

    def __enter__(self) -> StateFolder:
        return self

    def __exit__(self, *error: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Owned(RocksDBKeyedStateBackend):
    def close(self) -> None:
        super().close()
        shutil.rmtree(self.directory, ignore_errors=True)


class SimulatedBackends:
    """Implements the port `KeyedBackends` for one worker."""

    def __init__(self, name: str, folder: StateFolder) -> None:
        self._name = name
        self._folder = folder
        self._made: list[_Owned] = []

    def make(
        self, execution: ExecutionId, operator_id: str, owner: str, max_parallelism: int, key_groups: tuple[int, int]
    ) -> KeyedStateBackend:
        if self._name == "hashmap":
            return HeapKeyedStateBackend(max_parallelism, owner)
        backend = _Owned(max_parallelism, self._folder.next(), owner, key_groups, SETTINGS)
        self._made.append(backend)
        return backend

    def close(self) -> None:
        """Remove the directories of a worker that has ended."""
        for backend in self._made:
            backend.close()
        self._made.clear()


def build_storage(worker_id: str, store: MemoryStore, seen: Counter[str]) -> StateStorage:
    """Return a worker's state storage; every other job has copies. Its own random numbers keep other draws stable."""
    if random.Random(f"copies of {store.job_id}").random() < 0.5:
        return store
    disk = LossyDisk(random.Random(f"copies of {store.job_id} in {worker_id}"), seen)
    return LocalCopies(store, disk, warn=lambda line: None)


class LossyDisk(dict[str, bytes]):
    """Bytes by path. Its faults must never have a visible effect."""

    def __init__(self, chance: random.Random, seen: Counter[str]) -> None:
        super().__init__()
        self._chance = chance
        self._seen = seen

    def __setitem__(self, path: str, data: bytes) -> None:
        fate = self._chance.random()
        if fate < 0.05:
            self._seen["copy-refused"] += 1
            raise OSError("planned: the disk is full")
        super().__setitem__(path, data[: len(data) // 2] if fate < 0.1 else data)

    def __getitem__(self, path: str) -> bytes:
        data, fate = super().__getitem__(path), self._chance.random()
        if fate < 0.05:
            self._seen["copy-unreadable"] += 1
            raise OSError("planned: the disk cannot be read")
        if fate < 0.15:
            self._seen["copy-damaged"] += 1
            return data[:-1] + bytes([data[-1] ^ 1])
        self._seen["copy-used"] += 1
        return data


class Cluster(Protocol):
    """The cluster around a worker, as the worker sees it."""

    @property
    def engine(self) -> Engine: ...

    @property
    def is_deposed(self) -> bool: ...

    @property
    def store(self) -> MemoryStore: ...

    @property
    def connections(self) -> Connections: ...

    @property
    def make_backends(self) -> Callable[[], SimulatedBackends]: ...

    @property
    def after_turn(self) -> Callable[[Worker], None]: ...

    def is_alive(self, worker: Worker) -> bool: ...

    def kill(self, worker: Worker) -> None: ...

    def forget(self, worker: Worker) -> None: ...

    def to_master(self, worker_id: str, message: ToMaster) -> None: ...

    def data_channel(self, kind: str, sender: str, receiver: str, channel_id: ChannelId) -> Channel: ...


class Worker(Action):
    """A worker. Its action is one step of its executor. Implements the ports Network and MasterGateway for it."""

    passes_references = True

    __slots__ = (
        "_failures",
        "_held",
        "_still_since_ms",
        "backends",
        "background",
        "cluster",
        "coroutines",
        "executor",
        "has_stood_still",
        "heartbeat_ms",
        "is_registered",
        "timer_ms",
        "wake_ms",
        "worker_id",
    )

    def __init__(self, worker_id: str, cluster: Cluster, reports_metrics: bool) -> None:
        faults = cluster.engine.faults
        super().__init__(SLOW_SPEED if faults.is_slow("slow-executor", faults.rates.slow_executor) else 1.0)
        self.worker_id = worker_id
        self.cluster = cluster
        #: when, in steady time, a processing-time timer is due
        self.timer_ms: int | None = None
        #: when a coroutine is due
        self.wake_ms: int | None = None
        self.heartbeat_ms = cluster.engine.steady_ms() + HEARTBEAT_INTERVAL_MS
        self._failures = PeerFailures()
        #: since when (ms) it has stood still, and the calls to make once it resumes
        self._still_since_ms: int | None = None
        self.has_stood_still = False
        self._held: list[Callable[[], None]] = []
        self.background = SimulatedBackground(worker_id, cluster.engine, self.turn)
        self.backends = cluster.make_backends()
        self.coroutines = VirtualCoroutines(cluster.engine)
        self.executor = TaskExecutor(
            worker_id,
            clock=cluster.engine,
            network=self,
            master=self,
            background=self.background,
            coroutines=self.coroutines,
            storage=build_storage(worker_id, cluster.store, faults.seen),
            backends=self.backends,
            metrics_interval_ms=METRICS_INTERVAL_MS if reports_metrics else None,
        )

    # --- the world's side ------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.cluster.engine.ready.remove(self)
        self.cluster.engine.log.write(f"{self.worker_id}: step")
        self.turn(self._step)

    def _step(self) -> None:
        delivered = self.coroutines.deliver()
        if self.executor.step() or delivered:
            self.cluster.engine.ready.add(self)

    def stand_still(self, for_ms: int) -> bool:
        """Only send heartbeats for a while, as within a call that does not return; return False if it already does."""
        engine = self.cluster.engine
        if self._still_since_ms is not None:
            return False
        engine.log.write(f"{self.worker_id} stands still for {for_ms} ms")
        self._still_since_ms = engine.steady_ms()
        self.has_stood_still = True
        self.timer_ms = self.wake_ms = None
        engine.ready.remove(self)
        engine.call_later(for_ms, self._go_on)
        return True

    def _go_on(self) -> None:
        if not self.cluster.is_alive(self):
            return
        self.cluster.engine.log.write(f"{self.worker_id} goes on")
        self._still_since_ms = None
        calls, self._held = self._held, []
        for call in calls:
            if self.cluster.is_alive(self):
                self.turn(call)
        if self.cluster.is_alive(self):
            self.cluster.engine.ready.add(self)

    def turn(self, call: Callable[[], None]) -> None:
        """Let the executor do something, and update when it must step again; the worker may die in the process."""
        if self._still_since_ms is not None:
            self._held.append(call)
            return
        faults = self.cluster.engine.faults
        faults.in_worker, faults.in_deposed = True, self.cluster.is_deposed
        faults.worker_id = self.worker_id
        try:
            call()
        except WorkerKilled:
            faults.in_worker = faults.in_deposed = False
            self.cluster.kill(self)
            return
        finally:
            faults.in_worker = faults.in_deposed = False
        if self.executor.shut_down:
            self.cluster.forget(self)
            return
        self.cluster.after_turn(self)
        if call != self._step:
            self.cluster.engine.ready.add(self)
        # While its step is enabled, the worker needs no wake-up.
        is_idle = self.position < 0
        due_ms = self.executor.next_deadline() if is_idle else None
        self.timer_ms = None if due_ms is None else self.cluster.engine.to_steady_time(due_ms)
        self.wake_ms = self.coroutines.next_due_ms() if is_idle else None

    def on_time(self, now_ms: int) -> None:
        """Let the executor step if a deadline has passed, and send a heartbeat if due."""
        if any(time is not None and time <= now_ms for time in (self.timer_ms, self.wake_ms)):
            self.cluster.engine.ready.add(self)
        if self.heartbeat_ms <= now_ms:
            self.heartbeat_ms = now_ms + HEARTBEAT_INTERVAL_MS
            still_ms = 0 if self._still_since_ms is None else now_ms - self._still_since_ms
            self.cluster.to_master(self.worker_id, Heartbeat(self.worker_id, still_ms=still_ms))

    def on_peer_lost(self, peer: str, attempt: int) -> None:
        """Fail the affected tasks because the connection to a peer has broken, for attempts up to this one."""
        if self.cluster.is_alive(self):
            self.turn(lambda: self._failures.fail_tasks(self.executor, peer, attempt))

    def end(self) -> None:
        """End the process; some of its background work may have completed nevertheless."""
        self.background.abandon()
        self.backends.close()

    # --- the executor's side: ports Network and MasterGateway -------------------------------------------------------

    def connect(self, attempt: int, peers: Mapping[str, str]) -> None:
        """Do nothing: channels come into being when used."""

    def keep_attempts(self, attempts: Collection[int]) -> None:
        """Do nothing: a channel delivers nothing after its task has ended."""

    def send_buffer(self, worker_id: str, channel: ChannelId, buffer: Buffer) -> None:
        self._send("data", worker_id, channel, buffer)

    def send_credit(self, worker_id: str, channel: ChannelId, credit: int) -> None:
        self._send("credit", worker_id, channel, credit)

    def _send(self, kind: str, worker_id: str, channel: ChannelId, item: Any) -> None:
        faults = self.cluster.engine.faults
        faults.maybe_die()
        if self.cluster.connections.carries(self.worker_id, worker_id, channel):
            self.cluster.data_channel(kind, self.worker_id, worker_id, channel).push((channel, item))
        faults.maybe_die()

    def send(self, message: ToMaster) -> None:
        faults = self.cluster.engine.faults
        faults.maybe_die()
        self.cluster.to_master(self.worker_id, self._failures.as_told(message))
        faults.maybe_die()
