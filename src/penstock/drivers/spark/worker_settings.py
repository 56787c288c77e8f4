"""A worker's settings, services and executor, and its possible outcomes.

Builds the task executor of a real job's worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.drivers.logs import LoggedStates
from penstock.drivers.process_resources import EndedTasks
from penstock.drivers.worker_storage import BackendSettings, StorageSettings
from penstock.runtime.task.executor import TaskExecutor

if TYPE_CHECKING:
    from penstock.drivers.logs import LogSettings
    from penstock.drivers.spark.sockets import WorkerKeys
    from penstock.runtime.ports import Background, Clock, Coroutines, MasterGateway, Network
    from penstock.runtime.protocol import ChannelId, ExecutionId, ToWorker
    from penstock.runtime.records import Buffer


#: The outcome of a worker, as its Spark task returns it.
RELEASED = "released"
ORPHANED = "orphaned"
FAILED = "failed"
RETRIED = "retried"


class HostedTask(Protocol):
    """A task of an executor."""

    @property
    def execution(self) -> ExecutionId: ...


class Executor(Protocol):
    """The executor that a worker runs (`runtime.task.executor.TaskExecutor`), as its loop sees it."""

    shut_down: bool

    @property
    def tasks(self) -> Sequence[HostedTask]: ...

    def on_message(self, message: ToWorker) -> None: ...

    def on_buffer(self, channel: ChannelId, buffer: Buffer) -> None: ...

    def on_credit(self, channel: ChannelId, credit: int) -> None: ...

    def step(self) -> bool: ...

    def next_deadline(self) -> int | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class WorkerServices:
    """The services that a worker passes to its executor."""

    worker_id: str
    clock: Clock
    network: Network
    master: MasterGateway
    background: Background
    coroutines: Coroutines


@dataclass(frozen=True)
class WorkerSettings:
    """All settings that a worker needs to start."""

    worker_id: str
    keys: WorkerKeys
    master_address: str
    is_local: bool
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    frame_bytes_max: int
    record_bytes_max: int
    make_executor: Callable[[WorkerServices], Executor]
    script: bytes = b""
    logs: LogSettings | None = None


@dataclass(frozen=True)
class TaskExecutorFactory:
    """Builds a worker's `TaskExecutor`; is pickled and sent to the worker."""

    storage: StorageSettings
    backends: BackendSettings

    def __call__(self, services: WorkerServices) -> TaskExecutor:
        master = LoggedStates(services.master)
        executor = TaskExecutor(
            services.worker_id,
            clock=services.clock,
            network=services.network,
            master=master,
            background=services.background,
            storage=self.storage.storage(),
            backends=self.backends.backends(),
            coroutines=services.coroutines,
            cycles=EndedTasks(),
        )
        master.tasks = lambda: executor.tasks
        return executor
