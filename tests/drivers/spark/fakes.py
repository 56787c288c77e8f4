"""A tiny executor and job master of the real ones' shape, so that the driver is tested by itself."""

from collections.abc import Callable
from typing import Any

from penstock.common import Configuration
from penstock.drivers.spark.python_workers import WorkerServices
from penstock.runtime.effects import Effect, RequestWorkers, SendToWorker
from penstock.runtime.protocol import (
    DeployTask,
    ExecutionId,
    RegisterWorker,
    ShutDownWorker,
    TaskStateChanged,
    ToMaster,
    ToWorker,
    WorkerLost,
    WorkerRequestFailed,
)
from penstock.runtime.task.stream_task import task_settings


class EchoExecutor:
    """Answers each deployment with RUNNING, after a detour through a background thread."""

    def __init__(self, services: WorkerServices) -> None:
        self.shut_down = False
        self.tasks: list[Any] = []
        self._services = services

    def on_message(self, message: ToWorker) -> None:
        if isinstance(message, ShutDownWorker):
            self.shut_down = True
        elif isinstance(message, DeployTask):
            answer = TaskStateChanged(message.execution, "RUNNING")
            self._services.background.submit(lambda: answer, lambda result, error: self._answer(result))

    def _answer(self, answer: Any) -> None:
        self._services.master.send(answer)

    def on_buffer(self, channel: Any, buffer: Any) -> None:
        raise AssertionError("nobody sends buffers")

    def on_credit(self, channel: Any, credit: int) -> None:
        raise AssertionError("nobody sends credit")

    def step(self) -> bool:
        return False

    def next_deadline(self) -> int | None:
        return None

    def close(self) -> None:
        self.shut_down = True


class BrokenExecutor(EchoExecutor):
    """Fails in its first step."""

    def step(self) -> bool:
        raise RuntimeError("the engine fell off")


class DeafExecutor(EchoExecutor):
    """Does not hear that it shall shut down."""

    def on_message(self, message: ToWorker) -> None:
        pass


class FakeMaster:
    """Wants `wanted` workers, replaces those that are lost, pings each, and is done when cancelled."""

    def __init__(self, wanted: int, notice: Callable[[str, Any], None]) -> None:
        self.is_done = False
        self._effects: list[Effect] = []
        self._wanted = wanted
        self._notice = notice

    def start(self) -> None:
        self._effects.append(RequestWorkers(self._wanted))

    def on_message(self, message: ToMaster) -> None:
        if isinstance(message, RegisterWorker):
            self._effects.append(SendToWorker(message.worker_id, ping(message.worker_id)))
            self._notice("registered", message)
        elif isinstance(message, TaskStateChanged):
            self._notice("echo", message)
        elif isinstance(message, WorkerLost):
            self._notice("lost", message)
            self._effects.append(RequestWorkers(1))
        elif isinstance(message, WorkerRequestFailed):
            self._notice("failed", message)

    def on_time(self) -> None:
        pass

    def sweep(self) -> None:
        pass

    def take_effects(self) -> list[Effect]:
        taken, self._effects = self._effects, []
        return taken

    def next_deadline(self) -> int | None:
        return None

    def cancel(self) -> None:
        self.is_done = True


def ping(worker_id: str) -> DeployTask:
    return DeployTask(
        execution=ExecutionId(0, int(worker_id.split("-")[1]), 1),
        job_id="job",
        task_name="ping",
        parallelism=1,
        max_parallelism=1,
        program=b"",
        inputs=(),
        outputs=(),
        peers={},
        settings=task_settings(Configuration()),
        restored_checkpoint_id=None,
        restored={},
    )
