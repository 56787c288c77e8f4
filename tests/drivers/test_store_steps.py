"""A store that hangs, under a job of epochs (G8)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.drivers.stepwise.job import StoreSteps
from penstock.runtime.master import steps
from penstock.storage.leadership import DeposedError, LeftByJobs


class HangingStore:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.deleted: list[Any] = []

    def delete_jobs(self, job_ids: Any) -> None:
        self.answers.wait()
        self.deleted += job_ids

    def take_over(self, job_name: str) -> LeftByJobs:
        self.answers.wait()
        return LeftByJobs((), (), 7)

    def check_leads(self) -> None:
        raise DeposedError("words", "another driver leads")


@pytest.fixture
def store() -> Iterator[HangingStore]:
    store = HangingStore()
    yield store
    store.answers.set()


def test_a_call_that_may_come_late_is_given_up(store: HangingStore) -> None:
    said: list[str] = []
    store_steps = StoreSteps(store, 20, said.append)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError, match=r"DeleteJobs: the checkpoint store has not answered for 0 s \(execution\."):
        store_steps.carry_out(steps.DeleteJobs(("job-0",)))
    assert said == []


def test_a_call_that_must_not_come_late_is_waited_for(store: HangingStore) -> None:
    """E7: it deposes other drivers, so there has to be one that takes their place."""
    said: list[str] = []

    def log(line: str) -> None:
        said.append(line)
        store.answers.set()

    left = StoreSteps(store, 20, log).carry_out(steps.TakeOver("words"))  # type: ignore[arg-type]
    assert isinstance(left, LeftByJobs)
    assert left.number == 7
    assert said[0] == "the checkpoint store has not answered for 0 s; the job waits for TakeOver"


def test_what_the_store_raises_is_raised(store: HangingStore) -> None:
    with pytest.raises(DeposedError, match="another driver leads"):
        StoreSteps(store, 1_000, print).carry_out(steps.CheckLeads())  # type: ignore[arg-type]
