import threading
from typing import Any

import pytest
from tests.drivers.spark.programs import wait_until

from penstock.drivers.event_loop import ThreadBackground


def test_results_and_errors_come_back_in_the_owners_turn() -> None:
    woken = threading.Semaphore(0)
    background = ThreadBackground("test", 2, woken.release)
    seen: list[Any] = []

    def done(result: Any, error: BaseException | None) -> None:
        seen.append((result, type(error), threading.current_thread()))

    background.submit(lambda: 7, done)
    background.submit(lambda: 1 // 0, done)
    assert woken.acquire(timeout=60)
    assert woken.acquire(timeout=60)
    assert seen == []
    assert background.deliver()
    assert not background.deliver()
    me = threading.current_thread()
    assert sorted(seen, key=str) == sorted([(7, type(None), me), (None, ZeroDivisionError, me)], key=str)
    background.close()


def test_close_drops_what_has_not_begun_unless_told_to_finish() -> None:
    for finish in (False, True):
        began, go = threading.Event(), threading.Event()
        done: list[int] = []

        def first(began: threading.Event = began, go: threading.Event = go) -> None:
            began.set()
            go.wait(60)

        background = ThreadBackground("test", 1, lambda: None)
        background.submit(first, lambda result, error: None)
        background.submit(lambda done=done: done.append(1), lambda result, error: None)  # type: ignore[misc]
        assert began.wait(60)
        closing = threading.Thread(target=lambda: background.close(finish=finish))  # noqa: B023
        closing.start()
        wait_until(lambda: background._work.qsize() == 2, "the end in the queue, behind the work")  # noqa: B023
        go.set()
        closing.join()
        assert done == ([1] if finish else [])


def test_work_that_hangs_holds_up_no_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """G11: such as a call that a store never answers."""
    monkeypatch.setattr("penstock.drivers.event_loop.HANGS_SECONDS", 0.0)
    begun, answered, ready = threading.Event(), threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        begun.set()
        answered.wait(30)

    results: list[Any] = []
    background = ThreadBackground("test", 1, ready.release)
    try:
        background.submit(hang, lambda result, error: results.append("hung"))
        assert begun.wait(30)
        background.submit(lambda: "done", lambda result, error: results.append(result))
        assert ready.acquire(timeout=30)
        background.deliver()
        assert results == ["done"]
    finally:
        answered.set()
        background.close()
