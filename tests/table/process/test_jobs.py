"""Process table functions in whole jobs: savepoints, other parallelism, other backends, and reading their state."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.table.process import functions

from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.state_processor import SavepointReader
from penstock.table import EnvironmentSettings, StreamTableEnvironment, TableEnvironment

PATIENCE_S = 60.0
#: the state of these functions, and of the timers, outlives a change of the query around them
QUERY = "SELECT k, `EXPR$0` AS text FROM f(r => TABLE {table} PARTITION BY k, on_time => DESCRIPTOR(ts), uid => 'own')"


def started(folder: Path, query: str, parallelism: int, backend: str, savepoint: str | None) -> Any:
    """A job that reads the CSV files of a folder as they come, and writes into another folder."""
    settings = EnvironmentSettings.in_streaming_mode()
    made = TableEnvironment.create(settings)
    config = made.get_config()
    config.set("execution.target", "local").set("parallelism.default", str(parallelism))
    config.set("state.backend.type", backend).set_local_timezone("UTC")
    config.set("execution.checkpointing.interval", "50ms").set("table.exec.source.idle-timeout", "100 ms")
    config.set("execution.checkpointing.dir", str(folder / "checkpoints"))
    if savepoint is not None:
        config.set("execution.state-recovery.path", savepoint)
    made.execute_sql(
        "CREATE TABLE w (k STRING, orders STRING, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts) WITH ('connector' = "
        f"'filesystem', 'format' = 'csv', 'path' = '{folder / 'in'}', 'source.monitor-interval' = '20ms')"
    )
    made.execute_sql(
        "CREATE TABLE sink (k STRING, text STRING) WITH ('connector' = 'filesystem', 'format' = 'csv', "
        f"'path' = '{folder / 'out'}', 'sink.rolling-policy.rollover-interval' = '20ms')"
    )
    made.create_temporary_system_function("f", functions.Timing)
    return made.execute_sql(f"INSERT INTO sink {query}").get_job_client()


def give(folder: Path, name: str, *rows: tuple[str, str, int]) -> None:
    """A file with rows of `w`, which comes into being at once."""
    (folder / "in").mkdir(exist_ok=True)
    lines = [f"{key},{orders},1970-01-01 00:00:0{time_ms / 1000:.3f}Z" for key, orders, time_ms in rows]
    (folder / name).write_text("\n".join(lines) + "\n")
    (folder / name).rename(folder / "in" / name)


def taken(folder: Path) -> Counter[str]:
    """The rows in the files that are complete."""
    files = [path for path in (folder / "out").rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return Counter(line for path in files for line in path.read_text().splitlines())


def awaited(folder: Path, count: int) -> Counter[str]:
    """As many rows as are expected, `PATIENCE_S` at most."""
    deadline = time.monotonic() + PATIENCE_S
    while (rows := taken(folder)).total() < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return rows


@pytest.mark.parametrize(("first", "second"), [("hashmap", "rocksdb"), ("rocksdb", "hashmap")])
def test_state_and_timers_outlive_the_job(tmp_path: Path, first: str, second: str) -> None:
    """H4: a savepoint of one backend and parallelism is restored with others, below another query, by the uid."""
    job = started(tmp_path, QUERY.format(table="w"), 2, first, None)
    give(tmp_path, "1.csv", ("a", "set:x@500 show", 1), ("b", "set:@700", 2), ("c", "show", 3), ("a", "show", 4))
    before = awaited(tmp_path, 3)
    assert before.total() == 3
    path = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(PATIENCE_S)
    reader = SavepointReader.read(str(path))
    seen = reader.read_value_state("own", "seen")
    assert sorted((key, row.rows) for key, row in seen) == [("a", 2), ("b", 1), ("c", 1)]
    assert seen.to_arrow().column("value").to_pylist()[0].keys() == {"rows"}
    assert [time_ms for _, time_ms, _ in reader.read_timers("own")] == [700]
    query = f"SELECT k, UPPER(text) FROM ({QUERY.format(table='(SELECT * FROM w WHERE orders IS NOT NULL)')})"
    job = started(tmp_path, query, 3, second, str(path))
    give(tmp_path, "2.csv", ("c", "show", 1000), ("c", "show", 1001), ("c", "show", 1002))
    rows = awaited(tmp_path, 8) - before
    job.cancel().result(PATIENCE_S)
    texts = [row for row in rows.elements() if "TIMER" in row]
    assert sorted(text.partition(" WATERMARK")[0] for text in texts) == ["a,TIMER X AT 500", "b,TIMER NONE AT 700"]
    assert all(text.endswith("ROWS 2") == text.startswith("a") for text in texts)


def test_tables_become_streams_and_back() -> None:
    """A process table function stands between streams."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    made = StreamTableEnvironment.create(env)
    made.get_config().set("execution.target", "local")
    rows = env.from_collection([("a", 1), ("a", 2)], Types.ROW([Types.STRING(), Types.INT()]))
    counted = made.from_data_stream(rows).alias("k", "n").partition_by("k").process(functions.Counting)
    assert [tuple(row) for row in made.to_data_stream(counted).collect()] == [("a", 1), ("a", 2)]


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_timers_fire_in_every_streaming_mode(tmp_path: Path, mode: str) -> None:
    """In epochs, one row each, state and timers are kept from one to the next."""
    give(tmp_path, "1.csv", ("a", "set:x@9000", 1), ("b", "set:@9001", 2), ("a", "set:x@9002", 3), ("b", "", 4))
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    made.get_config().set("execution.runtime-mode", mode).set("parallelism.default", "1").set_local_timezone("UTC")
    made.get_config().set("execution.target", "local").set("execution.micro-batch.max-records", "1")
    made.execute_sql(
        "CREATE TABLE w (k STRING, orders STRING, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts) WITH ('connector' = "
        f"'filesystem', 'format' = 'csv', 'path' = '{tmp_path / 'in'}')"
    )
    made.create_temporary_system_function("f", functions.Timing)
    with made.execute_sql(QUERY.format(table="w")).collect() as rows:
        fired = sorted(f"{key} {text.partition(' watermark')[0]} {text[-6:]}" for key, text in rows)
    assert fired == ["a timer x at 9002 rows 2", "b timer None at 9001 rows 2"]
