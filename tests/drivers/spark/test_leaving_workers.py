"""What is found out about workers whose executors Spark decommissions (E2)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from penstock.drivers.spark.cluster import LeavingWorkers
from penstock.drivers.spark.handle import ExecutorName

PATIENCE_S = 10


class FakeExecutors:
    """Where tasks are, and which executors are leaving; each round of questions is counted."""

    def __init__(self) -> None:
        self.places: dict[str, ExecutorName] = {}
        self.leaving: set[str] = set()
        self.is_broken = False
        self.asked_of: list[str] = []
        self.rounds = threading.Semaphore(0)

    def of(self, tag: str) -> ExecutorName | None:
        self.asked_of.append(tag)
        if self.is_broken:
            self.rounds.release()
            raise RuntimeError("Spark is gone")
        place = self.places.get(tag)
        if place is None:
            self.rounds.release()
        return place

    def is_leaving(self, executor_id: str) -> bool:
        self.rounds.release()
        return executor_id in self.leaving

    def await_rounds(self, count: int = 3) -> None:
        """Wait for so many answers from now on."""
        while self.rounds.acquire(blocking=False):
            pass
        for _ in range(count):
            assert self.rounds.acquire(timeout=PATIENCE_S)


Made = tuple[FakeExecutors, LeavingWorkers, threading.Semaphore]


@pytest.fixture
def made() -> Iterator[Made]:
    executors, woken = FakeExecutors(), threading.Semaphore(0)
    leaving = LeavingWorkers(executors, woken.release, interval_seconds=0.001)
    yield executors, leaving, woken
    leaving.close()


def on(executor_id: str) -> ExecutorName:
    return ExecutorName(executor_id, "host-a")


def test_all_workers_of_an_executor_leave_with_it_and_no_others(made: Made) -> None:
    executors, leaving, woken = made
    executors.places = {"tag-1": on("7"), "tag-2": on("8"), "tag-3": on("7")}
    for number in (1, 2, 3):
        leaving.follow(f"w{number}", f"tag-{number}")
    executors.await_rounds()
    assert leaving.take() == []
    executors.leaving = {"7"}
    assert woken.acquire(timeout=PATIENCE_S)
    assert woken.acquire(timeout=PATIENCE_S)
    reason = "Spark decommissions its executor 7 on host-a"
    assert sorted(leaving.take()) == [("w1", reason), ("w3", reason)]


def test_each_is_named_once(made: Made) -> None:
    executors, leaving, woken = made
    executors.places, executors.leaving = {"tag-1": on("7"), "tag-2": on("8")}, {"7"}
    leaving.follow("w1", "tag-1")
    leaving.follow("w2", "tag-2")
    assert woken.acquire(timeout=PATIENCE_S)
    executors.await_rounds()
    assert len(leaving.take()) == 1


def test_a_worker_is_looked_for_until_spark_knows_where_it_is_and_not_after_that(made: Made) -> None:
    executors, leaving, woken = made
    leaving.follow("w1", "tag-1")
    executors.await_rounds()
    executors.places = {"tag-1": on("7")}
    executors.await_rounds()
    asked = len(executors.asked_of)
    executors.leaving = {"7"}
    assert woken.acquire(timeout=PATIENCE_S)
    assert len(executors.asked_of) == asked


def test_one_that_is_forgotten_is_not_named(made: Made) -> None:
    executors, leaving, woken = made
    executors.places = {"tag-1": on("7"), "tag-2": on("7")}
    leaving.follow("w1", "tag-1")
    leaving.follow("w2", "tag-2")
    executors.await_rounds()
    leaving.forget("w1")
    executors.leaving = {"7"}
    assert woken.acquire(timeout=PATIENCE_S)
    executors.await_rounds(0)
    assert [worker_id for worker_id, _ in leaving.take()] == ["w2"]


def test_when_spark_does_not_answer_it_is_asked_again(made: Made) -> None:
    executors, leaving, woken = made
    executors.is_broken = True
    executors.places, executors.leaving = {"tag-1": on("7")}, {"7"}
    leaving.follow("w1", "tag-1")
    executors.await_rounds()
    assert leaving.take() == []
    executors.is_broken = False
    assert woken.acquire(timeout=PATIENCE_S)


def test_without_executors_there_is_no_thread() -> None:
    """On a local master: all of Spark is one process."""
    before = threading.active_count()
    leaving = LeavingWorkers(None, lambda: None)
    leaving.follow("w1", "tag-1")
    assert threading.active_count() == before
    assert leaving.take() == []
    leaving.close()


def test_closed_it_leaves_no_thread(made: Made) -> None:
    executors, leaving, _ = made
    leaving.follow("w1", "tag-1")
    executors.await_rounds()
    leaving.close()
    assert "penstock-leaving-workers" not in {thread.name for thread in threading.enumerate()}
