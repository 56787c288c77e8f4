"""The event loop of a worker: what is started in the owner's turn comes back into it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from penstock.drivers import event_loop
from penstock.drivers.event_loop import EventLoopThread, VirtualCoroutines, WaitingEventLoop
from penstock.testing import VirtualClock

PATIENCE_S = 20


class Owner:
    """Notes what it is handed, and in which thread."""

    def __init__(self) -> None:
        self.woken = threading.Semaphore(0)
        self.loop = EventLoopThread("test-loop", self.woken.release)
        self.results: list[Any] = []

    def start(self, make: Any) -> Any:
        return self.loop.start(make, lambda result, error: self.results.append((result, error)))

    def wait_for(self, count: int) -> list[Any]:
        """Sleeps until woken, as a worker does, so that a lost wake-up is found."""
        while len(self.results) < count:
            assert self.woken.acquire(timeout=PATIENCE_S), f"{len(self.results)} results, and no one is woken"
            self.loop.deliver()
        return self.results


@pytest.fixture
def owner() -> Iterator[Owner]:
    before = set(threading.enumerate())
    made = Owner()
    yield made
    made.loop.close()
    assert set(threading.enumerate()) <= before


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


def test_results_are_handed_over_in_the_owners_turn(owner: Owner) -> None:
    where: list[str] = []

    async def look() -> None:
        where.append(threading.current_thread().name)

    owner.loop.start(look, lambda result, error: where.append(threading.current_thread().name))
    assert owner.woken.acquire(timeout=PATIENCE_S)
    assert where == ["test-loop"], "nothing happens before the owner asks"
    assert owner.loop.deliver()
    assert where == ["test-loop", "MainThread"]
    assert not owner.loop.deliver()


def test_no_result_and_no_wake_up_is_lost(owner: Owner) -> None:
    for round_ in range(200):
        for value in range(20):
            owner.start(partial(double, value))
        if round_ % 3 == 0:
            owner.loop.deliver()
    results = owner.wait_for(4_000)
    assert sorted(result for result, _ in results) == sorted(2 * value for value in range(20) for _ in range(200))


def test_errors_are_results(owner: Owner) -> None:
    async def fail() -> None:
        raise ValueError("no")

    async def give_up() -> None:
        raise asyncio.CancelledError

    def no_coroutine() -> Any:
        return 7

    for make in (fail, give_up, no_coroutine):
        owner.start(make)
    errors = {type(error) for _, error in owner.wait_for(3)}
    assert errors == {ValueError, asyncio.CancelledError, TypeError}


def test_a_cancelled_call_is_not_heard_of(owner: Owner) -> None:
    cancelled = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            cancelled.set()

    cancel = owner.start(hang)
    owner.start(partial(double, 1))
    owner.wait_for(1)
    cancel()
    assert cancelled.wait(PATIENCE_S)
    owner.start(partial(double, 2))
    assert owner.wait_for(2) == [(2, None), (4, None)]
    owner.loop.close()
    cancel()


def test_close_cancels_what_runs_and_what_that_began(owner: Owner) -> None:
    ended: list[str] = []

    async def hang(name: str) -> None:
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            ended.append(name)

    async def begin() -> None:
        task = asyncio.create_task(hang("begun by a call"))
        await hang("call")
        await task

    owner.start(begin)
    owner.start(partial(double, 1))
    owner.wait_for(1)
    owner.loop.close()
    assert sorted(ended) == ["begun by a call", "call"]
    assert not owner.loop.deliver()


@pytest.mark.parametrize("repeats", range(20))
def test_resources_are_released_although_the_loop_closes_at_once(owner: Owner, repeats: int) -> None:
    ended: list[str] = []

    async def run(name: str, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            ended.append(name)

    owner.start(partial(run, "call", 60))
    owner.loop.release(partial(run, "release", 0.001 * repeats))
    owner.loop.close()
    assert sorted(ended) in (["call", "release"], ["release"])  # the call may not have begun
    assert owner.results == []


def test_a_release_that_hangs_is_cancelled_and_one_that_fails_is_logged(
    owner: Owner, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "CLOSE_TIMEOUT_SECONDS", 0.2)
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    async def fail() -> None:
        raise OSError("the link is down")

    owner.loop.release(hang)
    owner.loop.release(fail)
    owner.loop.close()
    assert ended == ["cancelled"]
    assert "resources were not released: the link is down" in caplog.text


def test_resources_are_released_in_virtual_time() -> None:
    coroutines = VirtualCoroutines(VirtualClock())
    ended: list[str] = []

    async def run(name: str) -> None:
        try:
            await asyncio.sleep(0)
            ended.append(name)
        except asyncio.CancelledError:
            ended.append(f"{name} cancelled")

    coroutines.start(partial(run, "call"), lambda result, error: None)
    coroutines.deliver()
    coroutines.start(partial(asyncio.sleep, 60), lambda result, error: None)
    coroutines.release(partial(run, "release"))
    coroutines.close()
    assert ended == ["call", "release"]


def test_no_thread_before_the_first_call() -> None:
    before = threading.active_count()
    loop = EventLoopThread("test-loop", lambda: None)
    assert threading.active_count() == before
    assert not loop.deliver()
    loop.close()


def test_who_has_nothing_else_to_wait_for_is_woken_by_results() -> None:
    loop = WaitingEventLoop("test-loop")
    results: list[Any] = []
    begun = time.monotonic()
    try:
        loop.wait(1)
        loop.coroutines.start(partial(double, 4), lambda result, error: results.append(result))
        loop.wait(PATIENCE_S * 1_000)
    finally:
        loop.coroutines.close()
    assert results == [8]
    assert time.monotonic() - begun < PATIENCE_S
