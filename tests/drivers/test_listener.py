"""What the log says of a failing job: in one line what, where and on which record, and the traceback with a restart."""

from __future__ import annotations

import logging

import pytest

from penstock.base.errors import UserFunctionError
from penstock.drivers.logs import ClientListener, summarize_failure
from penstock.runtime.graph import JobGraph

TRACEBACK = """Traceback (most recent call last):
  File "/home/ada/job.py", line 12, in parse
    return int(text)
           ^^^^^^^^^
ValueError: invalid literal

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/ada/job.py", line 20, in map
    raise Broken(text)
Broken: cannot parse:
  'x'"""
ERROR = UserFunctionError("job", "my operator", 1, 4, "'x'", TRACEBACK, "map()")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="penstock")
    return caplog


def test_the_summary_of_an_error_has_operator_record_and_line() -> None:
    text, traceback = summarize_failure(str(ERROR))
    assert text == "Broken: cannot parse: (operator 'my operator', subtask 2/4, in map(), record: 'x', job.py:20)"
    assert traceback == TRACEBACK


def test_an_error_without_a_traceback_is_its_own_summary() -> None:
    assert summarize_failure("worker-1 was lost") == ("worker-1 was lost", "")


def test_the_traceback_comes_with_the_restart(log: pytest.LogCaptureFixture) -> None:
    listener = ClientListener(JobGraph("job", (), ()))
    for status, reason in (("RUNNING", None), ("FAILING", str(ERROR)), ("RESTARTING", "in 5 ms, from checkpoint 2")):
        listener.on_job_status(status, reason)
    running, failing, restarting = log.messages
    assert running == "job: running"
    assert failing == f"job: failing: {summarize_failure(str(ERROR))[0]}"
    assert restarting == f"job: restarting: in 5 ms, from checkpoint 2\n{TRACEBACK}"
    listener.on_job_status("RESTARTING", f"1 of 2 tasks: {ERROR}")
    assert log.messages[-1].endswith(TRACEBACK)
    assert "my operator" in log.messages[-1].splitlines()[0]


def test_a_failure_that_is_raised_is_not_logged_twice(log: pytest.LogCaptureFixture) -> None:
    listener = ClientListener(JobGraph("job", (), ()))
    listener.on_job_status("FAILING", str(ERROR))
    listener.on_job_status("FAILED", str(ERROR))
    assert "Traceback" not in "\n".join(log.messages)
    assert log.messages[-1] == "job: failed"
