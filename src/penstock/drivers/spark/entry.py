"""What travels to Spark for each worker: its settings, and the function that Spark runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import cloudpickle

from penstock.drivers.spark.handle import PYTHON_REMEDY

if TYPE_CHECKING:
    import pyarrow

    from penstock.core.ports import Background, Clock, Coroutines, MasterGateway, Network
    from penstock.core.protocol import ChannelId, ExecutionId, ToWorker
    from penstock.core.records import Buffer
    from penstock.drivers.spark.handle import Entry
    from penstock.drivers.spark.keys import WorkerKeys

#: How a worker ended, as its Spark task returns it.
RELEASED = "released"
ORPHANED = "orphaned"
FAILED = "failed"
RETRIED = "retried"


class HostedTask(Protocol):
    """A task of an executor."""

    @property
    def execution(self) -> ExecutionId: ...


class Executor(Protocol):
    """What a worker runs: `core.task.executor.TaskExecutor`, as its loop sees it."""

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
    """The world, as a worker's executor gets it."""

    worker_id: str
    clock: Clock
    network: Network
    master: MasterGateway
    background: Background
    coroutines: Coroutines


@dataclass(frozen=True)
class WorkerSettings:
    """All that a worker needs to know to begin."""

    worker_id: str
    keys: WorkerKeys
    master_address: str
    is_local: bool
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    frame_bytes_max: int
    make_executor: Callable[[WorkerServices], Executor]
    script: bytes = b""


def make_entry(settings: WorkerSettings) -> Entry:
    """The function that Spark runs as a worker's one task.

    It is pickled by value and holds nothing of Penstock but bytes, so that it can first see to it that the worker's
    Python finds Penstock, and say in plain words when it does not.
    """
    payload = cloudpickle.dumps(settings)
    own = f"{sys.executable} ({sys.version.split()[0]})"
    remedy = f"{PYTHON_REMEDY}, to one with the packages of this program's, {own}"
    paths = tuple(path or os.getcwd() for path in sys.path) if settings.is_local else ()

    def worker(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import struct
        import sys as worker_sys

        import pyarrow as arrow

        def column(text: str) -> pyarrow.StringArray:
            # By hand: given a list, pyarrow looks whether it is from pandas, which takes a second to import.
            data = text.encode()
            ends = struct.pack("=ii", 0, len(data))
            return arrow.StringArray.from_buffers(1, arrow.py_buffer(ends), arrow.py_buffer(data))

        for _ in batches:
            pass  # Spark expects its input to be read
        worker_sys.path.extend(path for path in paths if path not in worker_sys.path)
        try:
            from penstock.drivers.spark.worker import run_worker
        except ImportError as error:
            version = worker_sys.version.split()[0]
            lacks = f"the workers' Python, {worker_sys.executable} ({version}), lacks a module: {error}"
            outcome, detail = "failed", f"{lacks}; {remedy}"
        else:
            outcome, detail = run_worker(payload)
        yield arrow.RecordBatch.from_arrays([column(outcome), column(detail)], ["outcome", "detail"])

    return worker
