"""Tasks that have ended leave nothing in memory, however they ended (E6).

Python's cycle collector is disabled, so objects count that only a reference cycle keeps alive.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.census import live_parts, without_collector
from tests.datastream.environments import local_environment
from tests.datastream.pipelines import STEPS, Record, select_key

from penstock.cep import CEP, Pattern
from penstock.cep.conditions import SimpleCondition
from penstock.common import Duration, Types, WatermarkStrategy
from penstock.common.time import Time
from penstock.connectors.collection import CollectionSource
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import AsyncDataStream, DataStream, StreamExecutionEnvironment
from penstock.datastream.functions import AsyncFunction, MapFunction
from penstock.drivers.running_job import Moves
from penstock.table import StreamTableEnvironment

RECORDS = 60
FAILS_AT = 40
FAILURES = 3

#: what was counted as a function was opened
counted_at_open: list[Counter[str]] = []
failures: list[int] = []
began, goes_on = threading.Semaphore(0), threading.Semaphore(0)
#: functions that refer to themselves, of all attempts
cyclic: list[weakref.ref[Cyclic]] = []


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Forget what other tests have counted."""
    counted_at_open.clear()
    failures.clear()
    cyclic.clear()
    with without_collector():
        yield


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Counter[str]]]:
    """What was alive when a job came to each status."""
    found: list[tuple[str, Counter[str]]] = []
    tell = Moves.on_job_status

    def on_job_status(moves: Moves, status: str, reason: str | None) -> None:
        found.append((status, live_parts()))
        tell(moves, status, reason)

    monkeypatch.setattr(Moves, "on_job_status", on_job_status)
    return found


class Stumbles(MapFunction):
    """Fails in the middle, in the first `times` attempts."""

    def __init__(self, times: int = FAILURES) -> None:
        self.times = times

    def open(self, runtime_context: Any) -> None:
        self.context = runtime_context
        self.records = 0
        runtime_context.get_metrics_group().gauge("records", lambda: self.records)
        counted_at_open.append(live_parts())

    def map(self, value: Record) -> Record:
        self.records += 1
        if self.records == FAILS_AT and len(failures) < self.times:
            failures.append(self.records)
            raise ValueError(f"failure {len(failures)}")
        return value


class Cyclic(Stumbles):
    """Refers to itself, as a function does that has a table of its own methods."""

    def open(self, runtime_context: Any) -> None:
        self.by_name = {"map": self.map}
        cyclic.append(weakref.ref(self))
        super().open(runtime_context)


class Waits(MapFunction):
    """Says that it has begun, and goes on when it may."""

    def map(self, value: Record) -> Record:
        if value[1] == 0:
            began.release()
            goes_on.acquire()
        return value


class Answers(AsyncFunction):
    async def async_invoke(self, value: Record) -> list[Record]:
        return [value]


class Odd(SimpleCondition):
    def filter(self, value: Record, ctx: Any = None) -> bool:
        return value[1] % 2 == 1


def environment(mode: str = "STREAMING", **options: Any) -> StreamExecutionEnvironment:
    settings = {
        "execution__runtime_mode": mode,
        "penstock__source__batch_records": 8,
        "restart_strategy__type": "fixed-delay",
        "restart_strategy__fixed_delay__attempts": FAILURES,
        "restart_strategy__fixed_delay__delay": "1 ms",
        "penstock__restart__identical_failures_max": 0,
        **options,
    }
    return local_environment(2, **settings)


def numbered(env: StreamExecutionEnvironment, count: int = RECORDS) -> DataStream:
    records = [((number % 3, number), number * 100) for number in range(count)]
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(500)).with_timestamp_assigner(
        lambda record, timestamp: record[1] * 100
    )
    source = CollectionSource([record for record, _ in records])
    return env.from_source(source, strategy, "records").set_parallelism(1)


def all_steps(env: StreamExecutionEnvironment, function: MapFunction) -> None:
    """Every kind of step of the DataStream API, each on a branch of its own, after a function that fails."""
    records = numbered(env).map(function).set_parallelism(1)
    other = numbered(env)
    rules = env.from_collection([(0, 3), (1, 5)])
    for name, step in STEPS.items():
        step(records, other, rules).filter(lambda record: False).name(f"after {name}").print()
    records.key_by(select_key).map(lambda record: record).key_by(select_key).reduce(lambda one, _: one).filter(
        lambda record: False
    ).print()
    AsyncDataStream.unordered_wait(records, Answers(), Time.seconds(5), 10, Types.PICKLED_BYTE_ARRAY()).filter(
        lambda record: False
    ).print()
    pattern = Pattern.begin("odd").where(Odd()).followed_by("next").where(Odd()).within(Duration.of_seconds(3))
    CEP.pattern(records.key_by(select_key), pattern).select(lambda match: match["odd"][0]).filter(
        lambda record: False
    ).print()


def all_queries(env: StreamExecutionEnvironment, function: MapFunction) -> Any:
    """A query for each family of operators."""
    tables = StreamTableEnvironment.create(env)
    rows = numbered(env).map(function, Types.ROW_NAMED(["k", "v"], [Types.INT(), Types.INT()])).set_parallelism(1)
    tables.create_temporary_view("records", tables.from_data_stream(rows))
    tables.execute_sql(
        "CREATE TABLE times (k INT, v INT, ts AS TO_TIMESTAMP_LTZ(v * 100, 3), WATERMARK FOR ts AS ts) WITH "
        f"('connector' = 'datagen', 'number-of-rows' = '{RECORDS}', 'fields.k.kind' = 'random', 'fields.k.min' = '0', "
        f"'fields.k.max' = '2', 'fields.v.kind' = 'sequence', 'fields.v.start' = '1', 'fields.v.end' = '{RECORDS}')"
    )
    queries = [
        "SELECT k, SUM(v), COUNT(DISTINCT v), MAX(v) FROM records GROUP BY k",
        "SELECT a.k, b.v FROM records a JOIN records b ON a.k = b.k AND a.v < b.v",
        "SELECT a.k, b.v FROM records a LEFT JOIN (SELECT k, MAX(v) AS v FROM records GROUP BY k) b ON a.k = b.k",
        "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM records) WHERE n < 3",
        "SELECT DISTINCT k, 1 FROM records WHERE v IN (SELECT v FROM records WHERE k = 1)",
        "SELECT k, SUM(v) FROM TABLE(TUMBLE(TABLE times, DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
        "GROUP BY k, window_start, window_end",
        "SELECT k, SUM(v) FROM TABLE(SESSION(TABLE times PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
        "GROUP BY k, window_start, window_end",
        "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM times",
        "SELECT a.k, b.v FROM times a JOIN times b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '1' SECOND AND b.ts",
        "SELECT * FROM times MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.v AS a, B.v AS b "
        "PATTERN (A B) DEFINE B AS B.v > A.v) AS matched",
    ]
    statements = tables.create_statement_set()
    for number, query in enumerate(queries):
        # The planner names the columns, so the sink is made from the query.
        schema = tables.sql_query(query).get_schema()
        columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(map(str, schema.get_field_data_types())))
        tables.execute_sql(f"CREATE TABLE sink{number} ({columns}) WITH ('connector' = 'blackhole')")
        statements.add_insert_sql(f"INSERT INTO sink{number} {query}")
    return statements.execute()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


OVER = {"CREATED", "FINISHED", "CANCELED", "FAILED"}


def check_nothing_stays(counted: list[tuple[str, Counter[str]]], *statuses: str) -> None:
    """No parts of tasks were alive at each of these statuses."""
    ended = [(status, dict(found)) for status, found in counted if status in OVER]
    assert ended == [(status, {}) for status in statuses]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_failed_attempt_leaves_nothing(backend: str, counted: list[tuple[str, Counter[str]]]) -> None:
    """E6: whatever its operators are, and wherever their state is; so memory does not grow with the restarts."""
    env = environment(state__backend__type=backend)
    all_steps(env, Stumbles())
    env.execute()
    assert len(failures) == FAILURES
    check_nothing_stays(counted, *["CREATED"] * (1 + FAILURES), "FINISHED")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_failed_attempt_of_queries_leaves_nothing(backend: str, counted: list[tuple[str, Counter[str]]]) -> None:
    """E6: as the DataStream API."""
    options = {"state__backend__type": backend, "jobmanager__execution__failover_strategy": "full"}
    all_queries(environment(**options), Stumbles()).wait()
    assert len(failures) == FAILURES
    check_nothing_stays(counted, *["CREATED"] * (1 + FAILURES), "FINISHED")


def test_a_failed_region_leaves_nothing(counted: list[tuple[str, Counter[str]]]) -> None:
    """E6: when only a part of the job begins again, the parts of the others are all there is beside new tasks."""
    env = environment()
    numbered(env).map(Stumbles()).set_parallelism(1).key_by(select_key).reduce(lambda one, _: one).print()
    numbers = DataGeneratorSource(lambda number: (number % 3, number), None, 1_000)
    endless = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "endless").set_parallelism(1)
    endless.key_by(select_key).reduce(lambda one, _: one).filter(lambda record: False).print()
    job = env.execute_async()
    wait_until(lambda: len([status for status, _ in counted if status == "RUNNING"]) == 1 + FAILURES)
    job.cancel()
    assert job.get_job_execution_result().exception(30) is not None
    restarted = [found for status, found in counted if status == "RUNNING"][1:]
    assert [found["StreamTask"] for found in restarted] == [6] * FAILURES
    assert [found["OperatorChain"] for found in restarted] == [3] * FAILURES
    assert restarted == restarted[:1] * FAILURES
    check_nothing_stays(counted, "CREATED", "CANCELED")


def test_a_rescaled_job_leaves_nothing_at_the_former_parallelism(counted: list[tuple[str, Counter[str]]]) -> None:
    """E6: rescaling is a restart, too."""
    env = environment(execution__checkpointing__interval="10 ms")
    numbers = DataGeneratorSource(lambda number: (number % 3, number), None, 1_000)
    endless = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "endless").set_parallelism(1)
    endless.key_by(select_key).reduce(lambda one, _: one).name("reduce").filter(lambda record: False).print()
    job = env.execute_async()
    try:
        for attempts, parallelism in enumerate((3, 1), 1):
            # Before the first deployment a new parallelism restarts nothing.
            wait_until(lambda wanted=attempts: [status for status, _ in counted].count("RUNNING") == wanted)  # type: ignore[misc]
            assert parallelism in job.rescale({"reduce": parallelism}).result(30).values()
        wait_until(lambda: [status for status, _ in counted].count("RUNNING") == 3)
    finally:
        job.cancel()
        assert job.get_job_execution_result().exception(30) is not None
    check_nothing_stays(counted, "CREATED", "CREATED", "CREATED", "CANCELED")


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH", "BATCH"])
def test_jobs_that_have_ended_leave_nothing(mode: str) -> None:
    """E6, E5: finished, failed and cancelled ones, though the program and the dispatcher still have their handles."""
    handles = []
    for times in (0, FAILURES):
        env = environment(mode, restart_strategy__type="none")
        failures.clear()
        all_steps(env, Stumbles(times))
        handles.append(env.execute_async())
        assert (handles[-1].get_job_execution_result().exception(60) is not None) is (times > 0)
    env = environment(mode)
    records = numbered(env).map(Waits()).set_parallelism(1)
    records.key_by(select_key).reduce(lambda one, _: one).print()
    handles.append(env.execute_async())
    assert began.acquire(timeout=60)
    handles[-1].cancel()
    goes_on.release()
    assert handles[-1].get_job_execution_result().exception(60) is not None
    # The error of a function that failed in a batch shows the variables of the function, for a debugger.
    kept = {} if mode == "STREAMING" else {"OperatorContext": 1, "OperatorStateBackend": 1, "HeapKeyedStateBackend": 1}
    assert dict(live_parts()) == kept


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_failed_epoch_leaves_nothing(backend: str) -> None:
    """E6, I1: the next run of the epoch begins with as much in memory as the first one."""
    env = environment("MICRO_BATCH", state__backend__type=backend)
    all_steps(env, Stumbles())
    env.execute()
    assert len(failures) == FAILURES
    runs = counted_at_open[: 1 + FAILURES]  # a last epoch drains the job
    assert runs == runs[:1] * (1 + FAILURES)


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_a_function_that_refers_to_itself_goes_before_the_next_attempt_begins(mode: str) -> None:
    """E6: no release of ours can free it, so Python looks for cycles once for each attempt."""
    env = environment(mode)
    numbered(env).map(Cyclic()).set_parallelism(1).key_by(select_key).reduce(lambda one, _: one).print()
    env.execute()
    assert len(failures) == FAILURES
    assert [function() for function in cyclic[:FAILURES]] == [None] * FAILURES
