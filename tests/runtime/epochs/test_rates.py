"""How much an epoch reads of a source with a rate (I1)."""

from __future__ import annotations

import pickle

import cloudpickle
import pytest

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource, GeneratorSplit
from penstock.runtime.epochs.coordinator import EpochAnswer, EpochVertex, EpochWork
from penstock.runtime.epochs.task import ANSWER, EpochTask
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.task.operator_chain import ChainedOperator, VertexProgram
from penstock.state.backend import HeapBackends
from penstock.storage.file_store import FileCheckpointStore
from penstock.testing import VirtualClock

#: after which the epoch before has ended (ms)
BEGUN_MS = 10_000


def read(rate: float, restored_ms: int | None) -> EpochAnswer:
    """What an epoch of 20 records that go out at that rate answers."""
    source = DataGeneratorSource(int, 20, rate)
    operator = ChainedOperator("op", "Op", lambda: SourceOperator(source, WatermarkStrategy.no_watermarks()), -1)
    vertex = EpochVertex(0, "job", "vertex", 1, 8, cloudpickle.dumps(VertexProgram((operator,), ())), {}, {})
    splits = (pickle.dumps(GeneratorSplit(0, 1, 20)),)
    work = EpochWork(1, None, {}, False, splits=splits, no_more_splits=True, restored_ms=restored_ms)
    clock, store = VirtualClock(), FileCheckpointStore(None, "job", 1 << 20)
    clock.advance_to(BEGUN_MS)
    task = EpochTask(
        vertex, 0, work, clock, store, HeapBackends(), wait=lambda ms: clock.advance_to(clock.now_ms() + ms)
    )
    (answer,) = (
        pickle.loads(payload)
        for rows in task.run([])
        for edge, payload in zip(rows.edges, rows.payloads, strict=True)
        if edge == ANSWER
    )
    assert isinstance(answer, EpochAnswer)
    return answer


@pytest.mark.parametrize(("since", "records"), [(None, 1), (BEGUN_MS - 10, 1), (BEGUN_MS - 100, 5)])
def test_an_epoch_waits_for_the_first_record_and_for_no_more(since: int | None, records: int) -> None:
    """I1: what the rate has allowed since the epoch before is read at once."""
    answer = read(50, since)
    assert (answer.records_read, answer.has_ended) == (records, False)


def test_an_epoch_reads_to_the_end_what_its_rate_allows() -> None:
    answer = read(50, BEGUN_MS - 500)
    assert (answer.records_read, answer.has_ended) == (20, True)
