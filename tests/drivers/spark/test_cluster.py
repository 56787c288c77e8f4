import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.drivers.spark import cluster as cluster_module
from penstock.drivers.spark.cluster import (
    CUT_OFF,
    CUT_OFF_GRACE_MS,
    RELEASE_GRACE_MS,
    START_ATTEMPTS_MAX,
    LeavingWorkers,
    SparkCluster,
)
from penstock.drivers.spark.handle import PROCESS_DIED
from penstock.runtime.protocol import (
    RegisterWorker,
    ShutDownWorker,
    ToMaster,
    WorkerLeaving,
    WorkerLost,
    WorkerRequestFailed,
)


class FakeClock:
    now = 1_000

    def now_ms(self) -> int:
        return self.now

    steady_ms = now_ms

    def steady_ns(self) -> int:
        return 1_000_000 * self.now


class FakeSpark:
    """Runs each task until a test, or an interrupt, ends it."""

    def __init__(self) -> None:
        self.interrupted: list[str] = []
        self.started = threading.Semaphore(0)
        self._ends: dict[str, Callable[[], list[tuple[str, str]]]] = {}
        self._ended: dict[str, threading.Event] = defaultdict(threading.Event)

    def ship_package(self) -> None:
        pass

    def run_task(self, entry: Any, tag: str, description: str) -> list[tuple[str, str]]:
        self.started.release()
        assert self._ended[tag].wait(60)
        return self._ends[tag]()

    def interrupt(self, tag: str) -> None:
        self.interrupted.append(tag)
        self.fail(tag, "Job 1 cancelled")

    def fail(self, tag: str, text: str) -> None:
        def raising() -> list[tuple[str, str]]:
            raise RuntimeError(text)

        self.end(tag, raising)

    def end(self, tag: str, how: Callable[[], list[tuple[str, str]]]) -> None:
        self._ends[tag] = how
        self._ended[tag].set()


class FakeLeavingWorkers(LeavingWorkers):
    """The test says who is leaving."""

    def __init__(self) -> None:
        super().__init__(None, lambda: None)
        self.followed: dict[str, str] = {}
        self.found: list[tuple[str, str]] = []

    def follow(self, worker_id: str, tag: str) -> None:
        self.followed[worker_id] = tag

    def forget(self, worker_id: str) -> None:
        self.followed.pop(worker_id, None)

    def take(self) -> list[tuple[str, str]]:
        taken, self.found = self.found, []
        return taken


class World:
    def __init__(self, redundant: int = 0) -> None:
        self.spark = FakeSpark()
        self.clock = FakeClock()
        self.sent: list[tuple[str, Any]] = []
        self.ids: list[str] = []
        self.woken = threading.Semaphore(0)
        self.leaving = FakeLeavingWorkers()
        self.cluster = SparkCluster(
            self.spark,
            "job",
            str,
            self._settings,
            lambda worker_id, message: self.sent.append((worker_id, message)),
            self.woken.release,
            self.clock,
            redundant,
            leaving=self.leaving,
        )

    def _settings(self, worker_id: str) -> Any:
        return SimpleNamespace(worker_id=worker_id)

    def start(self, count: int = 1, redundant: int = 0) -> list[str]:
        self.cluster.request_workers(count)
        for _ in range(count + redundant):
            assert self.spark.started.acquire(timeout=60)
        return sorted(self.cluster._workers)

    def collect(self) -> list[ToMaster]:
        assert self.woken.acquire(timeout=60)
        return self.cluster.collect()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[World]:
    monkeypatch.setattr(cluster_module, "make_entry", lambda settings: None)
    world = World(getattr(request, "param", 0))
    yield world
    world.cluster.release_all()
    while world.cluster.worker_count:
        world.clock.now += RELEASE_GRACE_MS
        world.cluster.on_time()
        world.collect()


def registered(worker_id: str) -> RegisterWorker:
    return RegisterWorker(worker_id, "tcp://host:1", "host", 1)


def tag(worker_id: str) -> str:
    return f"penstock-job-{worker_id}"


def test_ids_are_never_used_again(world: World) -> None:
    ids = world.start(3)
    assert len(set(ids)) == 3
    assert all(world.cluster.is_live(worker_id) for worker_id in ids)


def test_a_registered_worker_that_ends_is_lost_for_a_short_reason(world: World) -> None:
    (worker_id,) = world.start()
    world.cluster.on_registered(registered(worker_id))
    world.spark.fail(tag(worker_id), "Python worker exited unexpectedly (crashed)\n\tat java")
    assert world.collect() == [WorkerLost(worker_id, PROCESS_DIED)]
    assert not world.cluster.is_live(worker_id)
    assert world.cluster.worker_count == 0


def test_a_worker_that_ends_by_itself_says_why(world: World) -> None:
    one, two = world.start(2)
    for worker_id in (one, two):
        world.cluster.on_registered(registered(worker_id))
    world.spark.end(tag(one), lambda: [("orphaned", "no message from the job master for 9 ms")])
    assert world.collect() == [WorkerLost(one, "no message from the job master for 9 ms")]
    world.spark.end(tag(two), list)
    assert world.collect() == [WorkerLost(two, "it ended on its own (failed)")]


def test_a_process_that_dies_before_it_registers_is_started_again_a_few_times(world: World) -> None:
    world.cluster.request_workers(1)
    for attempt in range(1, START_ATTEMPTS_MAX + 1):
        assert world.spark.started.acquire(timeout=60)
        (worker_id,) = world.cluster._workers
        world.spark.fail(tag(worker_id), "Python worker exited unexpectedly (crashed)")
        expected = [] if attempt < START_ATTEMPTS_MAX else [WorkerRequestFailed(PROCESS_DIED)]
        assert world.collect() == expected


def test_a_worker_that_cannot_start_is_not_tried_again(world: World) -> None:
    (worker_id,) = world.start()
    world.spark.end(tag(worker_id), lambda: [("failed", "the workers' Python lacks a module: zmq")])
    assert world.collect() == [WorkerRequestFailed("the workers' Python lacks a module: zmq")]


def test_release_asks_first_and_interrupts_later_and_nothing_is_said_of_it(world: World) -> None:
    (worker_id,) = world.start()
    world.cluster.on_registered(registered(worker_id))
    world.cluster.release(worker_id)
    assert world.sent == [(worker_id, ShutDownWorker("released"))]
    assert not world.cluster.is_live(worker_id)
    assert world.cluster.next_deadline() == world.clock.now + RELEASE_GRACE_MS
    world.cluster.on_time()
    assert world.spark.interrupted == []
    world.clock.now += RELEASE_GRACE_MS
    world.cluster.on_time()
    assert world.spark.interrupted == [tag(worker_id)]
    assert world.collect() == []
    assert world.cluster.next_deadline() is None


def test_release_of_a_worker_that_is_not_up_interrupts_at_once(world: World) -> None:
    (worker_id,) = world.start()
    world.cluster.release(worker_id)
    assert world.spark.interrupted == [tag(worker_id)]
    assert world.collect() == []


def test_a_worker_whose_connection_ends_is_lost_after_a_moment_whatever_spark_says(world: World) -> None:
    """E2, G8: on a cluster Spark runs the task once more before it says anything."""
    (worker_id,) = world.start()
    world.cluster.on_registered(registered(worker_id))
    world.cluster.on_cut_off(worker_id)
    assert world.cluster.collect() == []
    assert world.cluster.next_deadline() == world.clock.now + CUT_OFF_GRACE_MS
    world.clock.now += CUT_OFF_GRACE_MS
    assert world.cluster.collect() == [WorkerLost(worker_id, CUT_OFF)]
    assert not world.cluster.is_live(worker_id)
    world.cluster.on_time()
    assert world.spark.interrupted == [tag(worker_id)]
    assert world.collect() == []


def test_spark_may_say_first_why_a_worker_is_lost(world: World) -> None:
    (worker_id,) = world.start()
    world.cluster.on_registered(registered(worker_id))
    world.cluster.on_cut_off(worker_id)
    world.spark.fail(tag(worker_id), "Python worker exited unexpectedly (crashed)")
    assert world.collect() == [WorkerLost(worker_id, PROCESS_DIED)]
    world.clock.now += CUT_OFF_GRACE_MS
    assert world.cluster.collect() == []


def test_a_released_worker_may_end_its_connection(world: World) -> None:
    before, after = world.start(2)
    for worker_id in (before, after):
        world.cluster.on_registered(registered(worker_id))
    world.cluster.on_cut_off(before)
    for worker_id in (before, after):
        world.cluster.release(worker_id)
    world.cluster.on_cut_off(after)
    world.clock.now += CUT_OFF_GRACE_MS
    assert world.cluster.collect() == []


def test_nothing_is_sent_to_workers_that_are_gone(world: World) -> None:
    (worker_id,) = world.start()
    world.cluster.release(worker_id)
    world.cluster.send(worker_id, ShutDownWorker("x"))
    world.cluster.send("never heard of", ShutDownWorker("x"))
    assert world.sent == []


one_redundant = pytest.mark.parametrize("world", [1], indirect=True)


@one_redundant
def test_a_redundant_worker_takes_the_place_of_one_that_is_lost(world: World) -> None:
    """E2, G8: the job master hears of it when it asks for a worker, and another one is started."""
    first, last = world.start(1, redundant=1)
    assert world.cluster.on_registered(registered(last))
    assert not world.cluster.on_registered(registered(first))
    assert (world.cluster.serves(last), world.cluster.serves(first)) == (True, False)
    world.spark.fail(tag(last), "Python worker exited unexpectedly (crashed)")
    assert world.collect() == [WorkerLost(last, PROCESS_DIED)]
    (another,) = {*world.start(1)} - {first}
    assert world.cluster.collect() == [registered(first)]
    assert world.cluster.serves(first)
    assert not world.cluster.on_registered(registered(another))


@one_redundant
def test_a_redundant_worker_that_is_lost_is_replaced_and_nothing_is_said_of_it(world: World) -> None:
    """E2: whether Spark says that it ended, or its connection does."""
    first, last = world.start(1, redundant=1)
    world.cluster.on_registered(registered(first))
    world.cluster.on_registered(registered(last))
    world.spark.fail(tag(last), "Python worker exited unexpectedly (crashed)")
    assert world.collect() == []
    assert world.spark.started.acquire(timeout=60)
    (another,) = {*world.cluster._workers} - {first}
    world.cluster.on_registered(registered(another))
    world.cluster.on_cut_off(another)
    world.clock.now += CUT_OFF_GRACE_MS
    assert world.cluster.collect() == []
    assert world.spark.started.acquire(timeout=60)
    world.cluster.request_workers(1)
    assert world.cluster.collect() == [], "one that is cut off is no worker to hand over"


@one_redundant
def test_a_job_runs_without_redundant_workers_where_none_can_be(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """E2: the log says why; a worker that the job needs is another matter."""
    first, last = world.start(1, redundant=1)
    world.spark.end(tag(last), lambda: [("failed", "no room")])
    assert world.collect() == []
    assert "a redundant worker could not be started: no room" in caplog.text
    world.spark.end(tag(first), lambda: [("failed", "no room")])
    assert world.collect() == [WorkerRequestFailed("no room")]


# --- workers that are leaving ----------------------------------------------------------------------------------------


def test_the_job_master_hears_of_a_worker_that_is_leaving(world: World) -> None:
    """E2: it has it still, until it lets go of it."""
    (worker_id,) = world.start()
    assert world.leaving.followed == {}, "it may wait for a slot for long"
    world.cluster.on_registered(registered(worker_id))
    assert world.leaving.followed == {worker_id: tag(worker_id)}
    world.leaving.found = [(worker_id, "decommissioned"), ("unknown", "decommissioned")]
    assert world.cluster.collect() == [WorkerLeaving(worker_id, "decommissioned")]
    assert world.cluster.serves(worker_id)
    world.cluster.release(worker_id)
    assert world.leaving.followed == {}
    world.leaving.found = [(worker_id, "decommissioned")]
    assert world.cluster.collect() == []


@one_redundant
def test_a_redundant_worker_that_is_leaving_is_replaced_and_nothing_is_said_of_it(world: World) -> None:
    """E2: it would be lost as soon as it is needed."""
    first, last = world.start(1, redundant=1)
    for worker_id in (first, last):
        world.cluster.on_registered(registered(worker_id))
    world.leaving.found = [(last, "decommissioned")]
    assert world.cluster.collect() == []
    assert world.spark.started.acquire(timeout=60)
    assert not world.cluster.is_live(last)
    assert set(world.leaving.followed) == {first}
    (new,) = set(world.cluster._workers) - {first, last}
    world.cluster.on_registered(registered(new))
    world.cluster.request_workers(1)
    assert world.cluster.collect() == [registered(new)]
