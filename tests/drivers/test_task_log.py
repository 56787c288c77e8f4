"""The log of a worker says what becomes of its tasks."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest
from tests.runtime.task.fakes import Outbox, Rig

from penstock.drivers.logs import LoggedStates
from penstock.runtime.operators.record.stateless import MapOperator
from penstock.runtime.protocol import CancelTask, ExecutionId, TaskStateChanged
from penstock.runtime.records import Batch
from penstock.runtime.task.channels.result_partition import ForwardPartitioner


def broken(value: int) -> int:
    raise ValueError(f"no such word: {value}")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    logger = logging.getLogger("penstock")
    propagates, logger.propagate = logger.propagate, True
    with caplog.at_level(logging.INFO, "penstock.tasks"):
        yield lambda: [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "penstock.tasks"]
    logger.propagate = propagates


def test_states_of_tasks_and_failures_are_lines(lines: Any) -> None:
    rig = Rig([partial(MapOperator, broken)], partitioner=ForwardPartitioner(), logs_states=True)
    rig.feed(0, Batch([7]))
    *states, (level, failure) = lines()
    assert states == [
        ("INFO", "task 'task (1/1)', attempt 0: INITIALIZING"),
        ("INFO", "task 'task (1/1)', attempt 0: RUNNING"),
    ]
    assert level == "WARNING"
    first, *_, last = failure.splitlines()
    assert first.startswith("task 'task (1/1)', attempt 0: FAILED: ValueError: no such word: 7")
    assert "record: 7" in first
    assert last == "ValueError: no such word: 7"
    assert rig.states == ["INITIALIZING", "RUNNING", "FAILED"], "the master hears of them as well"


def test_a_cancelled_task_is_a_line_and_one_that_is_not_here_has_its_numbers(lines: Any) -> None:
    rig = Rig([partial(MapOperator, broken)], partitioner=ForwardPartitioner(), logs_states=True)
    rig.message(CancelTask(rig.execution))
    assert lines()[-1] == ("INFO", "task 'task (1/1)', attempt 0: CANCELED")
    rig.message(CancelTask(ExecutionId(4, 2, 1)))
    assert lines()[-1] == ("INFO", "task of vertex 4 (3), attempt 1: CANCELED")


def test_other_messages_pass() -> None:
    outbox = Outbox()
    logged = LoggedStates(outbox)
    logged.send("anything")  # type: ignore[arg-type]
    logged.send(TaskStateChanged(ExecutionId(0, 0, 0), "RUNNING"))
    assert len(outbox.messages) == 2
