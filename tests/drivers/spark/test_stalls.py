"""The place that blocks a process, found in the output of `faulthandler`."""

from __future__ import annotations

import pytest

from penstock.drivers.spark.heartbeats import Stall, find_stall

IDLE = """Thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/queue.py", line 171 in get
  File "/app/penstock.zip/penstock/drivers/event_loop.py", line 80 in _do_next

"""
TASK = """Thread 0x00007f01 (most recent call first):
  File "/home/ann/lib/site-packages/fast/core.py", line 9 in compute
  File "/home/ann/job.py", line 12 in score
  File "/usr/lib/python3.11/functools.py", line 3 in wrapped
  File "/app/penstock.zip/penstock/runtime/operators/base.py", line 36 in call_all
  File "/app/penstock.zip/penstock/runtime/task/stream_task.py", line 142 in step
  File "/app/penstock.zip/penstock/drivers/spark/worker.py", line 177 in run
"""
WAITING_TASK = """Thread 0x00007f01 (most recent call first):
  File "/x/zmq/sugar/poll.py", line 106 in poll
  File "/app/penstock/runtime/task/stream_task.py", line 142 in step
"""
ASYNC = """Thread 0x00007f03 [penstock-async] (most recent call first):
  File "/home/ann/job.py", line 30 in ask
  File "/usr/lib/python3.11/asyncio/events.py", line 80 in _run
  File "/app/penstock/drivers/event_loop.py", line 107 in _run

"""
BEGIN = "Timeout (0:00:04)!\n"


@pytest.mark.parametrize("threads", [IDLE + TASK, ASYNC + IDLE + TASK])
def test_function_that_a_task_calls_is_named(threads: str) -> None:
    """E2: with the stack from there on. The task's thread comes first, because it holds the lock most of the time."""
    assert find_stall(BEGIN + threads) == Stall(
        "score (job.py:12)",
        """  File "/home/ann/job.py", line 12, in score
  File "/home/ann/lib/site-packages/fast/core.py", line 9, in compute
""",
    )


def test_another_thread_is_named_if_the_task_waits() -> None:
    found = find_stall(BEGIN + IDLE + ASYNC + WAITING_TASK)
    assert found is not None
    assert found.at == "ask (job.py:30)"


@pytest.mark.parametrize("threads", ["", IDLE, IDLE + WAITING_TASK, "no stack"])
def test_nothing_is_named_if_all_threads_wait(threads: str) -> None:
    assert find_stall(BEGIN + threads) is None


def test_incomplete_line_is_left_out() -> None:
    """The stacks come in parts, with the innermost function first."""
    parts = (find_stall(BEGIN + TASK[:length]) for length in range(len(TASK)))
    found = [part.at for part in parts if part is not None]
    assert sorted(set(found)) == ["compute (core.py:9)", "score (job.py:12)"]
