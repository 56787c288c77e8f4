"""A task of a job that begins from a savepoint: open, it waits until all others are (H4)."""

from __future__ import annotations

import pickle
from functools import partial

import pytest
from tests.runtime.task.fakes import Rig

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import CollectionSource, CollectionSplit
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.operators.record.stateless import MapOperator
from penstock.runtime.protocol import AssignSplits, CancelTask, DeclineCheckpoint, StartTask, TriggerCheckpoint
from penstock.runtime.records import Batch, CheckpointBarrier
from penstock.runtime.task.channels.result_partition import ForwardPartitioner


def values(rig: Rig) -> list:
    return [value for e in rig.outbox.elements() if isinstance(e, Batch) for value in e.values]


def source(awaits_start: bool) -> Rig:
    numbers = partial(SourceOperator, CollectionSource(range(4)), WatermarkStrategy.no_watermarks())
    rig = Rig([numbers], 0, partitioner=ForwardPartitioner(), awaits_start=awaits_start)
    rig.message(AssignSplits(rig.execution, "op0", (pickle.dumps(CollectionSplit()),), False))
    return rig


@pytest.mark.parametrize("awaits_start", [False, True])
def test_an_open_source_reads_nothing_before_it_is_started(awaits_start: bool) -> None:
    """H4: its splits are there; it says RUNNING, asks for no step, and reads when it is told to."""
    rig = source(awaits_start)
    assert rig.states == ["INITIALIZING", "RUNNING"]
    assert values(rig) == ([] if awaits_start else [0, 1, 2, 3])
    rig.advance(60_000)
    rig.message(StartTask(rig.execution))
    assert values(rig) == [0, 1, 2, 3]


def test_what_arrives_at_an_open_task_waits() -> None:
    """H4: a task that has been started sooner may send already, an overtaking barrier too; nothing is lost."""
    rig = Rig([partial(MapOperator, lambda value: -value)], partitioner=ForwardPartitioner(), awaits_start=True)
    barrier = CheckpointBarrier(1, 0)
    rig.feed(0, Batch([1, 2]), barrier)
    assert rig.outbox.elements() == []
    rig.message(StartTask(rig.execution))
    assert rig.outbox.elements() == [Batch([-1, -2]), barrier]


def test_an_open_task_injects_no_barrier() -> None:
    """H4, G8: asked for a checkpoint before it was started, a source declines."""
    rig = source(awaits_start=True)
    rig.message(TriggerCheckpoint(rig.execution, 1, 0))
    assert [d.checkpoint_id for d in rig.outbox.of(DeclineCheckpoint)] == [1]


def test_an_open_task_can_be_cancelled() -> None:
    """E6, H4: another task did not open; this one closes without having processed anything."""
    rig = source(awaits_start=True)
    rig.message(CancelTask(rig.execution))
    assert rig.states[-1] == "CANCELED"
    assert values(rig) == []
