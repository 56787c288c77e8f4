"""The sink of ClickHouse: what it checks, and that the server drops what it inserts again."""

from __future__ import annotations

import datetime
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.connectors.clickhouse.model import SERVERS, ModelSink, Server
from tests.connectors.mortal_job import MortalJob, chunks
from tests.simulation.fresh_seeds import commit_number

from penstock.base.errors import ConfigurationError, OperationError, WrongTypeError, WrongValueError
from penstock.common import Row
from penstock.connectors import clickhouse
from penstock.connectors.clickhouse import (
    ClickHouseCommitter,
    ClickHouseTable,
    InsertBatch,
    InsertSettings,
    Misfit,
    ServerError,
    ServerType,
    ToRows,
    fit_column,
    fit_rows,
    read_response,
)
from penstock.connectors.http_client import Response
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.testing.connectors import SINK_CASES, SinkHost, SinkUnderTest, check_sink

EXACTLY, AT_LEAST = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE
UTC = datetime.UTC

# --- values ---------------------------------------------------------------------------------------------------------

FITS: list[tuple[pa.Array, str]] = [
    (pa.array([-128, 127], pa.int64()), "Int8"),
    (pa.array([0, 2**64 - 1], pa.uint64()), "UInt64"),
    (pa.array([0, 2**63 - 1], pa.int64()), "UInt64"),
    (pa.array([None, 1], pa.int32()), "Nullable(Int32)"),
    (pa.array([None, 1], pa.int32()), "LowCardinality(Nullable(Int32))"),
    (pa.array([True]), "Bool"),
    (pa.array([True]), "UInt8"),
    (pa.array([0.1, float("nan")], pa.float32()), "Float64"),
    (pa.array([Decimal("1.10")]), "Decimal(10, 4)"),
    (pa.array([5], pa.int64()), "Decimal(38, 4)"),
    (pa.array([Decimal("1.10")]), "Decimal64(2)"),
    (pa.array(["ü", ""]), "LowCardinality(String)"),
    (pa.array([b"\xff"]), "String"),
    (pa.array(["ab"]), "FixedString(2)"),
    (pa.array(["tea", "it's"]), r"Enum8('tea' = 1, 'it\'s' = -2)"),
    (pa.array([datetime.date(1970, 1, 1), datetime.date(2149, 6, 6)]), "Date"),
    (pa.array([datetime.date(1900, 1, 1), datetime.date(2299, 12, 31)]), "Date32"),
    (pa.array([0, 2**32 - 1], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp("ms")), "DateTime"),
    (pa.array([datetime.datetime(2299, 12, 31, 23, 59, 59, 999000)], pa.timestamp("us")), "DateTime64(3, 'UTC')"),
    (pa.array([1], pa.int64()).cast(pa.timestamp("ns", "UTC")), "DateTime64(9)"),
    (pa.array([[1, None], []], pa.list_(pa.int32())), "Array(Nullable(Int8))"),
    (pa.array([[["a"]]]), "Array(Array(LowCardinality(String)))"),
]


@pytest.mark.parametrize(("column", "kind"), FITS, ids=lambda value: str(value)[:30])
def test_values_that_fit(column: pa.Array, kind: str) -> None:
    fitted = fit_column(column, ServerType.parse(kind), "v")
    assert len(fitted) == len(column)
    assert fitted.null_count == column.null_count
    if not pa.types.is_timestamp(column.type) and not pa.types.is_boolean(column.type):
        assert str(fitted.to_pylist()) == str(column.to_pylist()) or fitted.to_pylist() == column.to_pylist()


UNFIT: list[tuple[pa.Array, str, str]] = [
    (pa.array([128], pa.int64()), "Int8", "Integer value 128 not in range"),
    (pa.array([-1], pa.int64()), "UInt32", "-1 not in range"),
    (
        pa.array([1, None], pa.int64()),
        "Int64",
        "has NULL, and Int64 on the server has not: it would become its default",
    ),
    (pa.array([[1, None]], pa.list_(pa.int32())), "Array(Int32)", r"'v\[\]' has NULL"),
    (pa.array([0.5]), "Float32", "of double does not fit Float32"),
    (pa.array([0.5]), "Int64", "of double does not fit Int64"),
    (pa.array(["5"]), "Int64", "of string does not fit Int64"),
    (pa.array([5]), "String", "of int64 does not fit String"),
    (pa.array([Decimal("1.001")]), "Decimal(10, 2)", "data loss"),
    (pa.array([Decimal("123456789")]), "Decimal32(2)", "does not fit Decimal32"),
    (pa.array(["abc"]), "FixedString(2)", "has 'abc', which does not fit FixedString"),
    (pa.array(["rum"]), "Enum8('tea' = 1)", "has 'rum', which Enum8"),
    (pa.array([datetime.date(1969, 12, 31)]), "Date", "has '1969-12-31', which does not fit Date"),
    (pa.array([datetime.date(2149, 6, 7)]), "Date", "2149-06-07"),
    (pa.array([datetime.date(1899, 12, 31)]), "Date32", "1899-12-31"),
    (pa.array([-1], pa.int64()).cast(pa.timestamp("s")), "DateTime", "which does not fit DateTime"),
    (pa.array([2**32], pa.int64()).cast(pa.timestamp("s")), "DateTime", "which does not fit DateTime"),
    (pa.array([1], pa.int64()).cast(pa.timestamp("ms")), "DateTime", "would lose data"),
    (pa.array([1], pa.int64()).cast(pa.timestamp("us")), "DateTime64(3)", "would lose data"),
    (pa.array([1], pa.int64()).cast(pa.timestamp("ms")), "DateTime64(1)", "more digits of a second than DateTime64"),
    (pa.array([datetime.datetime(2300, 1, 1)], pa.timestamp("us")), "DateTime64(6)", "does not fit DateTime64"),
    (pa.array([{"a": 1}]), "Tuple(a Int64)", "does not fit Tuple"),
    (pa.array(["00000000-0000-0000-0000-000000000000"]), "UUID", "does not fit UUID"),
]


@pytest.mark.parametrize(("column", "kind", "message"), UNFIT, ids=lambda value: str(value)[:30])
def test_values_that_the_server_would_change(column: pa.Array, kind: str, message: str) -> None:
    """ClickHouse wraps integers, clips dates and turns NULL into 0: none of these is sent."""
    with pytest.raises(Misfit, match=message):
        fit_column(column, ServerType.parse(kind), "v")


def test_records_of_streams() -> None:
    kinds = {"n": ServerType.parse("Int8"), "s": ServerType.parse("Nullable(String)")}
    rows = ToRows()([{"n": 1, "s": "a"}, Row(n=2, s=None), {"n": 3}], kinds)
    assert fit_rows(rows, kinds, "t").to_pylist() == [{"n": 1, "s": "a"}, {"n": 2, "s": None}, {"n": 3, "s": None}]
    rows = ToRows()([{"n": 1}, {"s": "a"}], kinds)
    assert rows.to_pylist() == [{"n": 1, "s": None}, {"n": None, "s": "a"}]
    texts = defaultdict(str, s="a")
    assert ToRows()([{"n": 1}, texts], kinds).to_pylist() == rows.to_pylist()
    assert texts == {"s": "a"}
    for records in ([{"n": 1, "s": "a"}, {"n": None, "s": "b"}], [{"n": 1}, {"n": 2}], [{"s": "a"}, {"s": None}]):
        assert ToRows()(records, kinds).to_pylist() == records
    with pytest.raises(Misfit, match="has no column 'x' that can be written"):
        fit_rows(ToRows()([{"n": 1, "s": "a"}, {"n": 2, "x": 1}], kinds), kinds, "t")  # as many names, and another
    with pytest.raises(Misfit, match="'n' does not fit Int8"):
        ToRows()([{"n": 300}], kinds)
    with pytest.raises(Misfit, match="has no column 'x' that can be written"):
        fit_rows(ToRows()([{"x": 1}], kinds), kinds, "t")
    with pytest.raises(WrongTypeError, match="a dict or a Row with names, not a tuple"):
        ToRows()([(1, "a")], kinds)


# --- requests -------------------------------------------------------------------------------------------------------


def table() -> ClickHouseTable:
    return ClickHouseTable("http://db:8123", "shop", "it's", "me", "letmein12", (("max_threads", "2"),))


def test_requests_have_tokens_and_settings_and_show_no_password() -> None:
    batch = InsertBatch.build("run/1", pa.table({"a`b": [1, 2]}))
    target = batch.target(table())
    assert "insert_deduplication_token=run%2F1" in target
    assert "max_threads=2" in target
    assert "INSERT+INTO+%60shop%60.%60it%27s%60+%28%60a%5C%60b%60%29+FORMAT+ArrowStream" in target
    assert "letmein12" not in repr(table()) + target
    assert repr(batch) == "a batch of 2 rows with token 'run/1'"
    with pytest.raises(ConfigurationError, match="without user and password"):
        ClickHouseTable("http://me:letmein12@db:8123", "shop", "t")
    with pytest.raises(ConfigurationError, match="names of a database and of a table"):
        ClickHouseTable("http://db:8123", "shop", "")
    with pytest.raises(WrongValueError, match="batch_rows is 0"):
        InsertSettings(batch_rows=0)


@pytest.mark.parametrize(
    ("status", "headers", "body", "passes"),
    [
        (500, {"x-clickhouse-exception-code": "252"}, b"Code: 252. DB::Exception: Too many parts", True),
        (500, {}, b"Code: 159. DB::Exception: Timeout exceeded", True),
        (503, {}, b"no upstream", True),
        (404, {}, b"Code: 60. DB::Exception: Table does not exist", False),
        (403, {}, b"Code: 516. DB::Exception: Authentication failed for letmein12", False),
        (200, {"x-clickhouse-exception-code": "241"}, b"Code: 241", True),
    ],
)
def test_errors_of_the_server(status: int, headers: dict[str, str], body: bytes, passes: bool) -> None:
    with pytest.raises(ServerError, match=r"ClickHouse refuses a request for shop\.it's") as raised:
        read_response(table(), Response(status, headers, body))
    assert raised.value.is_passing is passes
    assert "letmein12" not in str(raised.value)


class Refusing(Server):
    """A server that refuses some inserts."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    def insert(self, batch: InsertBatch) -> None:
        if self.errors:
            raise self.errors.pop(0)
        super().insert(batch)


def test_a_commit_is_repeated_while_errors_pass() -> None:
    pauses: list[float] = []
    batch = InsertBatch.build("t", pa.table({"n": [1]}))
    SERVERS["refusing"] = server = Refusing(ConnectionError("away"), ServerError("Code: 252", True))
    ClickHouseCommitter(ModelSink("refusing", EXACTLY), pauses.append).commit([batch])
    assert (server.rows, pauses) == ([1], [0.001, 0.002])
    SERVERS["refusing"] = Refusing(ServerError("Code: 60", False))
    with pytest.raises(OperationError, match="a batch of 1 rows with token 't' is not inserted: Code: 60"):
        ClickHouseCommitter(ModelSink("refusing", EXACTLY), pauses.append).commit([batch])
    SERVERS["refusing"] = Refusing(*[ServerError("Code: 252", True)] * 9)
    with pytest.raises(OperationError, match="Code: 252"):
        ClickHouseCommitter(ModelSink("refusing", EXACTLY), pauses.append).commit([batch])


# --- exactly once ---------------------------------------------------------------------------------------------------


class ClickHouseJob(MortalJob):
    """A job whose records come in another order in each attempt, as those of several inputs do."""

    def __init__(self, sink: ModelSink, chance: random.Random, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sink, self.chance = sink, chance

    def attempt(self, attempt: int, parallelism: int) -> None:
        number, position, _, committables = self.checkpoint
        hosts = [SinkHost(index, parallelism, attempt=attempt) for index in range(parallelism)]
        committer = self.sink.create_committer(hosts[0])
        assert committer is not None
        committer.recommit([batch for batches in committables for batch in batches])
        writers = [self.sink.create_writer(host) for host in hosts]
        records = list(range(position, self.records))
        for some in chunks(records, 20):
            self.chance.shuffle(some)
            for index, writer in enumerate(writers):
                for part in chunks(some[index::parallelism], 4):
                    self.step()
                    writer.write_batch([{"n": n, "key": n % 7} for n in part], None)
            self.step()
            prepared = [writer.prepare_commit() for writer in writers]
            self.step()
            number, position = number + 1, position + len(some)
            self.checkpoint = number, position, [], prepared
            committer.commit([batch for batches in prepared for batch in batches])
            self.step()


def run_job(seed: int, sink: ModelSink, server: Server) -> list[int]:
    """The rows of a job that is killed at random steps, also amid its commits."""
    chance = random.Random(seed)
    deaths = set(chance.sample(range(1, 120), chance.randint(0, 12)))
    job = ClickHouseJob(sink, chance, 100, deaths, [chance.randint(1, 3) for _ in range(4)])
    SERVERS[sink.table.table] = server
    server.before = job.step
    job.run()
    return server.rows


@pytest.mark.parametrize("number", range(12))
def test_each_row_is_there_once_whenever_the_job_is_killed(number: int) -> None:
    seed = commit_number() * 1_000 + number
    print(f"seed {seed}")
    rows = run_job(seed, ModelSink("random", EXACTLY), Server())
    assert Counter(rows) == Counter(range(100)), f"seed {seed}"


def same_token(token: str, rows: pa.Table) -> InsertBatch:
    return _BUILD(token.rpartition("/")[0], rows)


def new_token(batch: InsertBatch, count: list[int] = [0]) -> InsertBatch:  # noqa: B006 - counts over all calls
    count[0] += 1
    return batch._replace(token=f"{batch.token}/{count[0]}")


def token_of_run(context: Any) -> str:
    return f"{context.job_id}/{context.subtask_index}"


_BUILD = InsertBatch.build


def plant_tokens_without_numbers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InsertBatch, "build", staticmethod(same_token))


def plant_tokens_of_all_runs(patch: pytest.MonkeyPatch) -> None:
    """Batches are cut again after a failure, and have the tokens of the earlier ones."""
    patch.setattr(clickhouse, "name_run", token_of_run)


def plant_new_tokens(patch: pytest.MonkeyPatch) -> None:
    insert = Server.insert
    patch.setattr(Server, "insert", lambda self, batch: insert(self, new_token(batch)))


def plant_a_small_window(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Server.__init__, "__defaults__", (1, lambda: None))


def plant_rows_that_are_not_held(patch: pytest.MonkeyPatch) -> None:
    take = clickhouse._HoldingWriter.prepare_commit

    def send(self: Any) -> list[Any]:
        for batch in take(self):
            SERVERS["random"].insert(batch)
        return []

    patch.setattr(clickhouse._HoldingWriter, "prepare_commit", send)


BUGS = [
    plant_tokens_without_numbers,
    plant_tokens_of_all_runs,
    plant_new_tokens,
    plant_a_small_window,
    plant_rows_that_are_not_held,
]


@pytest.mark.parametrize("plant", BUGS)
def test_planted_bugs_are_found(monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    plant(monkeypatch)
    for seed in range(200):
        if Counter(run_job(seed, ModelSink("random", EXACTLY), Server())) != Counter(range(100)):
            return
    pytest.fail("no seed finds it")


@pytest.mark.parametrize("case", SINK_CASES)
def test_the_sink_keeps_the_rules(case: str) -> None:
    records = [{"n": n, "key": n % 3} for n in range(14)]

    def prepare() -> SinkUnderTest:
        SERVERS["kit"] = server = Server()
        return SinkUnderTest(ModelSink("kit", EXACTLY), records, lambda: [{"n": n, "key": n % 3} for n in server.rows])

    check_sink(prepare, case, places=6)


def test_full_batches_have_the_same_size() -> None:
    SERVERS["sizes"] = Server()
    writer = ModelSink("sizes", EXACTLY, batch_rows=4).create_writer(SinkHost())
    writer.write_batch([{"n": n} for n in range(10)], None)
    batches = writer.prepare_commit()
    assert [batch.rows for batch in batches] == [4, 4, 2]
    assert len({batch.token for batch in batches}) == 3
    assert writer.prepare_commit() == []
