"""All workers of a job in one thread: executors are called in turn, and buffers are passed by reference."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from penstock.core.ports import Clock, Coroutines, KeyedBackends, StateStorage
from penstock.core.protocol import ChannelId, RegisterWorker, ToMaster, ToWorker
from penstock.core.records import Buffer
from penstock.core.task.executor import TaskExecutor
from penstock.drivers.cycle_collector import EndedTasks

T = TypeVar("T")


class InlineBackground:
    """Runs work at once; its result is delivered in the owner's next turn, as if it had taken time."""

    def __init__(self) -> None:
        self._done: deque[Callable[[], None]] = deque()

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run the work."""
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except (Exception, SystemExit) as caught:  # noqa: BLE001 - handed to `done`, whatever it is
            error = caught
        self._done.append(partial(done, result, error))
        del error  # its traceback refers to this frame: a reference cycle

    def deliver(self) -> bool:
        """Call the callbacks of all results; return whether there were any."""
        delivered = False
        while self._done:
            delivered = True
            self._done.popleft()()
        return delivered


class LocalCluster:
    """Implements the ports Cluster, Network and MasterGateway for executors in this thread."""

    passes_references = True

    def __init__(
        self,
        clock: Clock,
        make_storage: Callable[[], StateStorage],
        process_id: int,
        backends: KeyedBackends,
        coroutines: Coroutines,
    ) -> None:
        self.inbox: deque[ToMaster] = deque()
        self.background = InlineBackground()
        self._clock = clock
        self._make_storage = make_storage
        self._process_id = process_id
        self._backends = backends
        self._coroutines = coroutines
        self._cycles = EndedTasks()
        self._executors: dict[str, TaskExecutor] = {}
        self._made = 0

    # --- Cluster ---------------------------------------------------------------------------------------------------

    def request_workers(self, count: int) -> None:
        """Create executors; they register at once."""
        for _ in range(count):
            self._made += 1
            worker_id = f"worker-{self._made}"
            self._executors[worker_id] = TaskExecutor(
                worker_id,
                clock=self._clock,
                network=self,
                master=_Gateway(self.inbox),
                background=self.background,
                storage=self._make_storage(),
                backends=self._backends,
                coroutines=self._coroutines,
                cycles=self._cycles,
            )
            self.inbox.append(RegisterWorker(worker_id, "local", "localhost", self._process_id))

    def withdraw_workers(self, count: int) -> None:
        """Do nothing: all requested workers exist, and the master releases unneeded ones."""

    def send(self, worker_id: str, message: ToWorker) -> None:
        """Pass a message to an executor."""
        executor = self._executors.get(worker_id)
        if executor is not None:
            executor.on_message(message)

    def release(self, worker_id: str) -> None:
        """Close an executor."""
        executor = self._executors.pop(worker_id, None)
        if executor is not None:
            executor.close()

    # --- Network ---------------------------------------------------------------------------------------------------

    def connect(self, attempt: int, peers: Mapping[str, str]) -> None:
        """Do nothing: all executors are in this thread."""

    def keep_attempts(self, attempts: Collection[int]) -> None:
        """Do nothing: a channel whose task has ended receives nothing."""

    def send_buffer(self, worker_id: str, channel: ChannelId, buffer: Buffer) -> None:
        """Pass a buffer by reference."""
        executor = self._executors.get(worker_id)
        if executor is not None:
            executor.on_buffer(channel, buffer)

    def send_credit(self, worker_id: str, channel: ChannelId, credit: int) -> None:
        """Pass credit on."""
        executor = self._executors.get(worker_id)
        if executor is not None:
            executor.on_credit(channel, credit)

    # --- the driver's loop -----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Run one step of every executor; return whether any did something."""
        worked = False
        for executor in list(self._executors.values()):
            worked = executor.step() or worked
        return worked

    def next_deadline(self) -> int | None:
        """Return the time (ms) when the first executor needs a step."""
        return min((t for e in self._executors.values() if (t := e.next_deadline()) is not None), default=None)

    def close(self) -> None:
        """Close all executors."""
        for worker_id in list(self._executors):
            self.release(worker_id)


class _Gateway:
    def __init__(self, inbox: deque[ToMaster]) -> None:
        self._inbox = inbox

    def send(self, message: ToMaster) -> None:
        self._inbox.append(message)
