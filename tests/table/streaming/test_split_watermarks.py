"""Watermarks that are made where a table is read: each split that is open at the same time as others has its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.table.planned import manager_of, plan_query

from penstock.base.watermark_strategy import WatermarkAlignment, WatermarkStrategy
from penstock.common import Configuration
from penstock.connectors.split_reader import SplitQueue
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.data_stream import DataStream
from penstock.plan.transformation import Transformation, get_factory
from penstock.runtime.columns import ColumnBatch, SplitColumnBatch
from penstock.runtime.connector import (
    Boundedness,
    InputStatus,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.sql.logical.nodes import ALL, INSERTS, SHORT
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.planning.options import DEFAULTS, PlanOptions
from penstock.sql.stream.rows.rows import ToRowsOperator
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.tables import NO_PUSH_DOWN, NO_WATERMARKS, PushDown, TableReader, TableScan, WatermarkPushDown
from penstock.testing import OneInputOperatorHarness

DDL = "CREATE TABLE t (split STRING, s INT, {}) WITH ({})"
TIME = "ts AS TO_TIMESTAMP_LTZ(s, 0), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
WINDOWS = (
    "SELECT split, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
    "GROUP BY split, window_start, window_end"
)
#: the seconds of each split's rows
SPLITS = {"ahead": [1, 11, 25, 41], "behind": [2, 3, 12, 24]}


class TwoAtOnce(Source[Any, str]):
    """Reads splits in turns, all rows of the first one ahead of those of the next; `parts` rows at once."""

    def __init__(self, splits: dict[str, list[int]], kinds: bytes | None = None) -> None:
        self.splits = splits
        self.kinds = kinds

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def max_parallelism(self) -> int | None:
        return 1

    def create_enumerator(self, context: SplitEnumeratorContext[str], restored: Any | None) -> SplitEnumerator[str]:
        return SplitQueue(context, ["all"], restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, str]:
        return _Reader(context, self)


class _Reader(SourceReader[Any, str]):
    def __init__(self, context: SourceReaderContext, source: TwoAtOnce) -> None:
        self._context = context
        self._source = source
        self._left: list[str] = []
        self.paused: set[str] = set()

    def start(self) -> None:
        self._context.request_split()

    def add_splits(self, splits: Sequence[str]) -> None:
        self._left = list(self._source.splits)
        for name in self._left:
            self._context.open_split(name)

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        if not self._left:
            return InputStatus.NOTHING_AVAILABLE
        name = self._left.pop(0)
        seconds = self._source.splits[name]
        columns = pa.record_batch([pa.array([name] * len(seconds)), pa.array(seconds, pa.int32())], ["c0", "c1"])
        return SplitColumnBatch(ColumnBatch(columns, None, self._source.kinds), name)

    def no_more_splits(self) -> None:
        raise NotImplementedError

    def snapshot_state(self, checkpoint_id: int) -> list[str]:
        return ["all"] if self._left else []


class _ToTheEnd(TwoAtOnce):
    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, str]:
        return _EndingReader(context, self)


class _EndingReader(_Reader):
    def poll_next(self, max_records: int) -> Batch | InputStatus:
        found = super().poll_next(max_records)
        return InputStatus.END_OF_INPUT if found is InputStatus.NOTHING_AVAILABLE and self._begun else found

    def add_splits(self, splits: Sequence[str]) -> None:
        super().add_splits(splits)
        self._begun = True

    _begun = False


@dataclass(frozen=True)
class Able(TableScan, WatermarkPushDown):
    source: TwoAtOnce
    strategy: WatermarkStrategy = NO_WATERMARKS

    def reader(self) -> TableReader:
        changes = INSERTS if self.source.kinds is None else ALL
        return TableReader(self.source, changes, changes != INSERTS, strategy=self.strategy)

    def with_watermarks(self, strategy: WatermarkStrategy) -> Able:
        return replace(self, strategy=strategy)


def planner_of(ddl: str, add: Any, scan: Able, is_able: bool, options: PlanOptions = DEFAULTS) -> StreamPlanner:
    tables = PushDown(lambda _: scan) if is_able else NO_PUSH_DOWN
    calls = manager_of(ddl).calls()
    return StreamPlanner(add, lambda _: scan.reader(), StreamSession(), calls, options=options, tables=tables)


def answer(query: str, is_able: bool = True, columns: str = TIME) -> list[tuple[str, Any]]:
    """What a query over two splits gives."""
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    environment.set_parallelism(1)
    ddl = DDL.format(columns, "'connector' = 'x'")
    planner = planner_of(ddl, environment.add, Able(_ToTheEnd(SPLITS)), is_able)
    stream = planner.query(plan_query(query, manager_of(ddl)), True)
    (upstream,) = planner.step("To Rows", partial(ToRowsOperator, stream.schema.types), stream.upstreams)
    found = DataStream(environment, (upstream,), None).execute_and_collect()
    return sorted((SHORT[kind], values) for kind, values in found)


def plan_source(
    columns: str = TIME, options: str = "", scan: Able | None = None, plan: PlanOptions = DEFAULTS
) -> tuple[list[Transformation], SourceOperator]:
    """The steps of a query, and the operator that reads its table."""
    steps: list[Transformation] = []
    ddl = DDL.format(columns, "'connector' = 'x'" + options)
    planner_of(ddl, steps.append, scan or Able(TwoAtOnce(SPLITS)), True, plan).stream(
        plan_query("SELECT split FROM t", manager_of(ddl)), True
    )
    operator = get_factory(steps[0].node)()
    assert isinstance(operator, SourceOperator)
    return steps, operator


def polled(operator: SourceOperator) -> OneInputOperatorHarness:
    """The operator when it has read both splits."""
    harness = OneInputOperatorHarness(lambda: operator)
    harness.open()
    operator.reader.add_splits(["all"])
    for _ in SPLITS:
        operator.emit_next(100)
    return harness


def test_a_split_that_is_behind_is_not_late() -> None:
    wanted = [("ahead", 1)] * 4 + [("behind", 1)] * 2 + [("behind", 2)]
    assert answer(WINDOWS) == [("+I", row) for row in wanted]
    assert answer(WINDOWS, is_able=False) == [("+I", ("ahead", 1))] * 4


def test_a_time_that_is_a_column_needs_no_step() -> None:
    columns = "ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
    scan = Able(TwoAtOnce(SPLITS))
    steps, _ = plan_source(columns, scan=scan)
    assert [step.kind for step in steps][0:2] == ["Source", "Calc"]
    assert "Watermark Assigner" not in [step.kind for step in steps]


def test_the_watermark_is_that_of_the_split_that_is_behind() -> None:
    assert polled(plan_source()[1]).watermarks == [23_000]


def test_rows_keep_their_kinds_and_have_their_times() -> None:
    _, operator = plan_source(scan=Able(TwoAtOnce(SPLITS, bytes([0, 3, 0, 0]))))
    harness = polled(operator)
    first, second = harness.output[:2]
    assert [one.value.get_row_kind().short_string for one in (first, second)] == ["+I", "-D"]
    assert [first.timestamp, second.timestamp] == [1_000, 11_000]


def test_watermarks_may_come_after_so_many_rows_of_a_split() -> None:
    every_other = ", 'scan.watermark.emit.strategy' = 'on-event', 'scan.watermark.emit.on-event.gap' = '3'"
    assert polled(plan_source(options=every_other)[1]).watermarks == [11_000]


def test_options_of_the_table_are_those_of_its_splits() -> None:
    aligned = ", 'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '1 s'"
    strategy = plan_source(options=f"{aligned}, 'scan.watermark.idle-timeout' = '2 s'")[1].strategy
    assert strategy.idleness_ms == 2_000
    assert strategy.alignment == WatermarkAlignment("g", 1_000, 1_000)
    assert plan_source(options=aligned)[0][0].alignment == strategy.alignment
    assert plan_source(plan=PlanOptions(idle_ms=3_000))[1].strategy.idleness_ms == 3_000
    assert plan_source()[1].strategy.idleness_ms is None


def test_a_split_that_is_idle_holds_nothing_back() -> None:
    splits = {"ahead": [1, 11], "silent": [2]}
    _, operator = plan_source(options=", 'scan.watermark.idle-timeout' = '1 s'", scan=Able(TwoAtOnce(splits)))
    harness = OneInputOperatorHarness(lambda: operator)
    harness.open()
    operator.reader.add_splits(["all"])
    operator.emit_next(100)
    assert operator.watermarks.settle()[0] is None
    operator.reader._left.clear()  # type: ignore[attr-defined]
    harness.advance_processing_time(900)
    operator.watermarks.of_split("ahead").saw_records(900)
    harness.advance_processing_time(200)
    operator.emit_next(100)
    assert harness.watermarks == [10_000]


def test_a_watermark_that_asks_for_the_time_is_made_in_a_step_of_its_own() -> None:
    now = "ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS LEAST(ts, CURRENT_TIMESTAMP)"
    steps, operator = plan_source(now)
    assert operator.strategy == NO_WATERMARKS
    assert "Watermark Assigner" in [step.kind for step in steps]


def test_a_row_without_a_time_fails_the_job_and_names_its_split() -> None:
    splits = {"ahead": [1, None], "behind": []}
    _, operator = plan_source(scan=Able(TwoAtOnce(splits)))  # type: ignore[arg-type]
    with pytest.raises(UserCodeError, match=r"'split': 'ahead', 's': None") as failed:
        polled(operator)
    error = str(failed.value.__cause__)
    assert "column 'ts' of table default_catalog.default_database.t is NULL in a row of split ahead." in error
    assert operator.emitted_watermark in (None, MIN_TIMESTAMP)
