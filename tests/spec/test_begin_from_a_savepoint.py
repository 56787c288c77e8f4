"""A job that begins from a savepoint: all its tasks are open before a single record is read (H4). Time is virtual."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.spec.virtual_job import LEDGER, LedgerSink, Timed, VirtualJob, clear_ledger, environment, records

from penstock.base.job import JobStatus
from penstock.base.typeinfo import TypeInformation
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Types
from penstock.datastream.functions import KeyedProcessFunction, MapFunction
from penstock.datastream.state import ValueStateDescriptor

pytestmark = pytest.mark.usefixtures("checkpoints_in_store")

RECORDS = 50
READ: list[Any] = []
OPENED: list[tuple[int, int]] = []


@pytest.fixture(autouse=True)
def nothing_so_far() -> None:
    clear_ledger()
    READ.clear()
    OPENED.clear()


class Read(MapFunction):
    """Writes down how many functions were open when a record came."""

    def map(self, value: Any) -> Any:
        READ.append(len(OPENED))
        return value


class Count(KeyedProcessFunction):
    """Numbers the records of each key; can open from an attempt on."""

    def __init__(self, declared: TypeInformation, opens_at: int = 0) -> None:
        self.declared = declared
        self.opens_at = opens_at

    def open(self, runtime_context: Any) -> None:
        OPENED.append((runtime_context.get_attempt_number(), runtime_context.get_index_of_this_subtask()))
        if runtime_context.get_attempt_number() < self.opens_at:
            raise OSError("the disk is not there yet")
        self.state = runtime_context.get_state(ValueStateDescriptor("count", self.declared))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.state.update((self.state.value() or 0) + 1)
        yield (*value, self.state.value())


def job(function: Count, begin_from: str | None = None) -> VirtualJob:
    env = environment(2, **{"execution.state-recovery.path": begin_from})
    # The second job's records are all there at once, so nothing but what is tested here could hold them back.
    period_ms = 100 if begin_from is None else 0
    source = env.from_source(Timed(period_ms, (RECORDS, RECORDS)), WatermarkStrategy.no_watermarks(), "timed").uid(
        "timed"
    )
    counted = source.map(Read()).key_by(lambda value: value[0]).process(function).uid("counter")
    counted.sink_to(LedgerSink("out")).uid("sink")
    return VirtualJob(env)


@pytest.fixture
def savepoint(store_directory: Path) -> str:
    first = job(Count(Types.INT()))
    first.at(2_050, lambda: first.stop_with_savepoint(False, str(store_directory / "savepoints")))
    assert first.run() is JobStatus.FINISHED
    (path,) = (store_directory / "savepoints").iterdir()
    READ.clear()
    OPENED.clear()
    return str(path)


def test_all_tasks_open_and_the_counts_go_on(savepoint: str) -> None:
    """H4: the first record finds the functions of both subtasks open."""
    second = job(Count(Types.LONG()), savepoint)
    assert second.run() is JobStatus.FINISHED
    assert READ
    assert set(READ) == {2}
    assert sorted(LEDGER["out"]) == [(*record, record[1] + 1) for record in records(RECORDS, RECORDS)]


def test_a_state_that_does_not_fit_fails_the_job_before_a_record_is_read(savepoint: str) -> None:
    """H4: no restart is tried, no record is read, and the error says whose state and both types."""
    written = list(LEDGER["out"])
    second = job(Count(Types.STRING()), savepoint)
    assert second.run() is JobStatus.FAILED
    assert "(uid 'counter'): state 'count' was written as ValueState<INT>" in second.failure()
    assert READ == []
    assert LEDGER["out"] == written
    assert {attempt for attempt, _ in OPENED} == {0}


def test_another_attempt_from_the_savepoint_waits_as_well(savepoint: str) -> None:
    """H4, G8: a function that cannot open at first; the second attempt begins from the savepoint, all open again."""
    second = job(Count(Types.INT(), opens_at=1), savepoint)
    assert second.run() is JobStatus.FINISHED
    assert min(READ) >= 3  # at least one opening of the first attempt, and both of the second
    assert sorted(LEDGER["out"]) == [(*record, record[1] + 1) for record in records(RECORDS, RECORDS)]
