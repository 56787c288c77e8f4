"""Jobs from and into Delta tables that fail on the way: each row is there once, in every execution mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.failing import FailsOnce
from tests.servers.waiting import await_true

from penstock.common import Configuration, Row, RowKind, Types, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.delta import DeltaSink, DeltaSource

NO_WATERMARKS = WatermarkStrategy.no_watermarks()
COLUMNS = Types.ROW_NAMED(["id", "k", "v"], [Types.LONG(), Types.LONG(), Types.LONG()])
RECORDS = 1_500


def environment(mode: str = "STREAMING") -> StreamExecutionEnvironment:
    told = {
        "execution.target": "local",
        "execution.runtime-mode": mode,
        "execution.micro-batch.max-records": "200",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "10 ms",
        **({} if mode == "BATCH" else {"execution.checkpointing.interval": "30 ms"}),
    }
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(told)).set_parallelism(2)


def read_ids(path: Path) -> list[int]:
    if not DeltaTable.is_deltatable(path):
        return []
    return sorted(DeltaTable(path).to_pyarrow_table().column("id").to_pylist())


def to_row(number: int) -> Row:
    return Row(id=number, k=number % 7, v=number)


def test_a_batch_adds_its_rows_in_one_version(tmp_path: Path) -> None:
    env = environment("BATCH")
    source = DataGeneratorSource(to_row, count=RECORDS)
    rows = env.from_source(source, NO_WATERMARKS, "rows").map(lambda row: row, COLUMNS)
    rows.sink_to(DeltaSink.for_row_data(tmp_path / "table").build())
    env.execute("adds")
    assert read_ids(tmp_path / "table") == list(range(RECORDS))
    assert DeltaTable(tmp_path / "table").version() == 1


@pytest.mark.parametrize(("mode", "fails_after"), [("STREAMING", 500), ("MICRO_BATCH", 50)])
def test_each_row_is_added_once_though_the_job_fails(tmp_path: Path, mode: str, fails_after: int) -> None:
    """G9: rows that were written and not committed are written again, and seen once."""
    env = environment(mode)
    rate = 4_000.0 if mode == "STREAMING" else None
    source = DataGeneratorSource(lambda index: index, count=RECORDS, rate_per_second=rate)
    numbers = env.from_source(source, NO_WATERMARKS, "numbers").map(FailsOnce(tmp_path / "failed", fails_after))
    sink = DeltaSink.for_row_data(tmp_path / "table").with_partition_columns("k").build()
    numbers.map(to_row, COLUMNS).sink_to(sink)
    env.execute("adds")
    assert (tmp_path / "failed").exists()
    assert read_ids(tmp_path / "table") == list(range(RECORDS))


def test_each_change_is_merged_once_though_the_job_fails(tmp_path: Path) -> None:
    """G9: of each key the last change is there, and keys that were deleted are not."""
    env = environment()

    def change(row: Row) -> Row:
        made = Row(id=row.k, k=row.k, v=row.v)
        made.set_row_kind(RowKind.DELETE if row.v >= RECORDS - 3 else RowKind.INSERT)
        return made

    source = DataGeneratorSource(to_row, count=RECORDS, rate_per_second=2_000.0)
    # In the order of the numbers: one subtask reads them.
    rows = env.from_source(source, NO_WATERMARKS, "numbers").set_parallelism(1)
    rows = (
        rows.map(FailsOnce(tmp_path / "failed", 500)).set_parallelism(1).key_by(lambda row: row.k).map(change, COLUMNS)
    )
    rows.sink_to(DeltaSink.for_row_data(tmp_path / "table").with_key_columns("id").build())
    env.execute("merges")
    last = {n % 7: n for n in range(RECORDS)}
    found = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pydict()
    assert dict(zip(found["id"], found["v"], strict=True)) == {k: v for k, v in last.items() if v < RECORDS - 3}


def append(path: Path, start: int) -> None:
    rows = [{"id": n, "k": n % 7, "v": n} for n in range(start, start + 100)]
    write_deltalake(path, pa.Table.from_pylist(rows), mode="append")


def test_a_job_that_runs_now_and_then_reads_what_is_new(tmp_path: Path) -> None:
    """G8, G9: each run goes on from the checkpoint of the one before, and ends when nothing is left to read."""
    counts: list[int] = []
    for is_growing in (True, True, False):
        if is_growing:
            append(tmp_path / "from", len(counts) * 100)
        env = environment("MICRO_BATCH")
        env.get_configuration().set_string("execution.checkpointing.dir", str(tmp_path / "checkpoints"))
        env.get_configuration().set_string("penstock.recovery.from-latest", "true")
        source = DeltaSource.for_continuous_row_data(tmp_path / "from").build()
        rows = env.from_source(source, NO_WATERMARKS, "rows").uid("rows").map(lambda row: row, COLUMNS).uid("same")
        rows.sink_to(DeltaSink.for_row_data(tmp_path / "to").build()).uid("delta")
        env.execute("now and then")
        counts.append(len(read_ids(tmp_path / "to")))
    assert counts == [100, 200, 200]
    assert read_ids(tmp_path / "to") == list(range(200))


def test_a_table_is_followed_into_another_though_the_job_fails(tmp_path: Path) -> None:
    """G8, G9: from one that grows into another, until a savepoint, from which a second job goes on."""

    def start(env: StreamExecutionEnvironment) -> Any:
        source = DeltaSource.for_continuous_row_data(tmp_path / "from").update_check_interval(10).build()
        rows = env.from_source(source, NO_WATERMARKS, "rows").uid("rows").rebalance()
        rows = rows.map(FailsOnce(tmp_path / "failed", 120), COLUMNS).uid("fails")
        rows.sink_to(DeltaSink.for_row_data(tmp_path / "to").build()).uid("delta")
        return env.execute_async("follows")

    for number in range(4):
        append(tmp_path / "from", number * 100)
    job = start(environment())
    for number in range(4, 8):
        append(tmp_path / "from", number * 100)
    await_true(lambda: len(read_ids(tmp_path / "to")) >= 400, "rows of the first job")
    savepoint = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    append(tmp_path / "from", 800)
    env = environment()
    env.get_configuration().set_string("execution.state-recovery.path", savepoint)
    job = start(env)
    await_true(lambda: len(read_ids(tmp_path / "to")) >= 900, "all rows")
    job.cancel().result()
    assert (tmp_path / "failed").exists()
    assert read_ids(tmp_path / "to") == list(range(900))
