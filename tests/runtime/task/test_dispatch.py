"""A task has a handler for all that it can be told, by the job master and by the tasks upstream."""

from __future__ import annotations

from functools import partial
from typing import get_args

from tests.runtime.task.fakes import Rig

from penstock.runtime.operators.record.stateless import MapOperator
from penstock.runtime.protocol import CancelTask, DeployTask, ShutDownWorker, ToWorker
from penstock.runtime.records import Batch, Element
from penstock.runtime.task.channels.result_partition import ForwardPartitioner

ECHO = [partial(MapOperator, lambda value: value)]
#: What the executor handles itself, and what a task does in every phase.
ELSEWHERE = {DeployTask, ShutDownWorker, CancelTask}


def test_every_message_of_the_job_master_has_a_handler() -> None:
    """E2: one that had none would fail the task that it is for."""
    task = Rig(ECHO, partitioner=ForwardPartitioner()).task
    assert task._handlers.keys() == set(get_args(ToWorker)) - ELSEWHERE


def test_every_control_element_has_a_handler() -> None:
    """G1: batches go to the operators."""
    loop = Rig(ECHO, partitioner=ForwardPartitioner()).task._loop
    assert loop is not None
    assert loop._handlers.keys() == set(get_args(Element)) - {Batch}
