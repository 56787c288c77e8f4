"""A program's server answers whoever has begun an operation, before it ends with the program."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from penstock.cli.program import reports
from penstock.server.rest.calls.context import Operations


def test_operations_know_whether_their_outcome_was_told() -> None:
    operations, outcome = Operations(), Future[str]()
    trigger = operations.begin("savepoints", "job", lambda: outcome)
    assert not operations.all_told()
    operations.find("savepoints", "job", trigger)
    assert not operations.all_told(), "it was still under way"
    outcome.set_result("path")
    operations.find("savepoints", "job", trigger)
    assert operations.all_told()


@pytest.mark.parametrize("asks", [True, False])
def test_the_end_waits_for_who_asks_but_not_for_ever(asks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    operations, outcome = Operations(), Future[str]()
    trigger = operations.begin("savepoints", "job", lambda: outcome)
    outcome.set_result("path")
    server = SimpleNamespace(context=SimpleNamespace(operations=operations))
    monkeypatch.setitem(sys.modules, "penstock.server.rest.server", SimpleNamespace(servers=[server]))
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds
        if asks and len(slept) == 3:
            operations.find("savepoints", "job", trigger)

    monkeypatch.setattr(reports, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    reports.answer_to_the_end(patience_seconds=2.0)
    assert (now[0] < 1.0) is asks
    assert now[0] < 2.5
