"""Workers as real Spark tasks, with a job master that only counts them."""

import os
import queue
import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.drivers.spark.fakes import BrokenExecutor, DeafExecutor, EchoExecutor, FakeMaster
from tests.drivers.spark.programs import PATIENCE_S, wait_until

from penstock.base.configuration import Configuration
from penstock.drivers.logs import ClientListener
from penstock.drivers.spark.handle import PROCESS_DIED, SparkHandle
from penstock.drivers.spark.job_master import JobThread
from penstock.drivers.spark.python_workers import Executor, WorkerServices
from penstock.runtime.graph import JobGraph

pytestmark = pytest.mark.spark


class Cluster:
    """A job of a given number of workers."""

    def __init__(self, spark: SparkHandle, count: int, make_executor: Callable[[WorkerServices], Executor]) -> None:
        self._notices: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._kept: dict[str, deque[Any]] = defaultdict(deque)
        self.ended: list[Any] = []
        self.thread = JobThread(
            spark,
            "job",
            "workers",
            Configuration(),
            lambda clock: FakeMaster(count, lambda kind, message: self._notices.put((kind, message))),
            make_executor,
            self.ended.append,
            ClientListener(JobGraph("workers", (), ())),
        )
        self.thread.start()

    def next(self, wanted: str) -> Any:
        """The next notice of a kind; those of other kinds are kept."""
        while not self._kept[wanted]:
            kind, message = self._notices.get(timeout=PATIENCE_S)
            self._kept[kind].append(message)
        return self._kept[wanted].popleft()

    def end(self) -> None:
        self.thread.ask(lambda master: master.cancel())
        assert self.thread.join(PATIENCE_S)


@pytest.fixture
def start(spark: SparkHandle) -> Iterator[Callable[..., Cluster]]:
    clusters: list[Cluster] = []

    def start(count: int, make_executor: Callable[[WorkerServices], Executor] = EchoExecutor) -> Cluster:
        clusters.append(Cluster(spark, count, make_executor))
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster.end()
        assert cluster.ended == [None]
    assert [
        thread.name for thread in threading.enumerate() if thread.name.startswith(("penstock-w", "penstock-j"))
    ] == []


def cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_workers_come_work_idle_and_go(start: Callable[..., Cluster]) -> None:
    cluster = start(3)
    workers = {message.worker_id: message for message in (cluster.next("registered") for _ in range(3))}
    assert len(workers) == 3
    assert {message.host for message in workers.values()} == {"127.0.0.1"}
    for _ in range(3):
        cluster.next("echo")

    def idled() -> bool:
        before = {w.process_id: cpu_seconds(w.process_id) for w in workers.values()}
        time.sleep(2)  # real time, for it is real processes that shall do nothing in it
        return all(cpu_seconds(process_id) - used < 0.2 for process_id, used in before.items())

    wait_until(idled, "workers that do nothing")


def test_a_killed_worker_is_noticed_and_replaced(start: Callable[..., Cluster]) -> None:
    cluster = start(2)
    victim, survivor = cluster.next("registered"), cluster.next("registered")
    os.kill(victim.process_id, signal.SIGKILL)
    lost = cluster.next("lost")
    assert (lost.worker_id, lost.reason) == (victim.worker_id, PROCESS_DIED)
    replacement = cluster.next("registered")
    assert replacement.worker_id not in (victim.worker_id, survivor.worker_id)


def test_a_worker_that_does_not_go_is_ended_by_force(start: Callable[..., Cluster]) -> None:
    cluster = start(1, DeafExecutor)
    process_id = cluster.next("registered").process_id
    cluster.end()
    wait_until(lambda: not Path(f"/proc/{process_id}").exists(), "the end of the process")


def test_a_worker_that_breaks_says_why(start: Callable[..., Cluster]) -> None:
    lost = start(1, BrokenExecutor).next("lost")
    assert lost.reason.startswith("RuntimeError: the engine fell off (fakes.py:")


def test_a_worker_that_lacks_a_module_cannot_start(start: Callable[..., Cluster]) -> None:
    def make_executor(services: WorkerServices) -> Executor:
        import no_such_module  # type: ignore[import-not-found]

        return EchoExecutor(no_such_module)

    assert "No module named 'no_such_module'" in start(1, make_executor).next("failed").reason
