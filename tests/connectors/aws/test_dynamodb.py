"""The sink, the scan and the tables of DynamoDB, on moto."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from tests.connectors.aws.test_kinesis import environment, failure_of
from tests.connectors.postgres.test_tables import collected
from tests.connectors.postgres.test_tables import environment as create_environment
from tests.servers.aws import AwsServer
from tests.table.connectors.tables import build_reader

from penstock.base.errors import ConfigurationError, JobExecutionError, WrongValueError
from penstock.common import WatermarkStrategy
from penstock.connectors.aws import dynamodb
from penstock.connectors.aws.dynamodb import build_attribute, measure, read_attribute
from penstock.connectors.aws.kinesis_sink import ClientBase
from penstock.datastream.connectors.dynamodb import DynamoDbScanSource, DynamoDbSink, DynamoDbWriteRequest
from penstock.sql.data.errors import ValidationError
from penstock.table import TableEnvironment
from penstock.testing.connectors import (
    SINK_CASES,
    SOURCE_CASES,
    SinkUnderTest,
    SourceUnderTest,
    check_sink,
    check_source,
    last_of_each,
)

_NUMBERS = itertools.count()


def create_table(moto: AwsServer, **keys: str) -> str:
    """A new table with these key attributes and their types."""
    name = f"table-{next(_NUMBERS)}"
    kinds = ["HASH", "RANGE"]
    moto.connect("dynamodb").create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind} for key, kind in keys.items()],
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, kinds, strict=False)],
    )
    return name


def put(moto: AwsServer, table: str, items: Sequence[dict[str, Any]]) -> None:
    service = moto.connect("dynamodb")
    for item in items:
        service.put_item(TableName=table, Item={name: build_attribute(value) for name, value in item.items()})


def read(moto: AwsServer, table: str) -> list[dict[str, Any]]:
    items = moto.connect("dynamodb").scan(TableName=table)["Items"]
    return [{name: read_attribute(value) for name, value in item.items()} for item in items]


def build_sink(moto: AwsServer, table: str, convert: Any, **limits: int) -> DynamoDbSink[Any]:
    builder = DynamoDbSink.builder().set_table_name(table).set_dynamodb_properties(moto.properties)
    builder = builder.set_element_converter(convert).set_max_time_in_buffer_ms(5)
    for name, value in limits.items():
        getattr(builder, f"set_{name}")(value)
    return builder.build()


def write(sink: DynamoDbSink[Any], records: list[Any]) -> None:
    env = environment()
    env.from_collection(records).sink_to(sink)
    env.execute()


VALUES: list[Any] = ["", "ü", True, 0, -(10**37), 1.5, Decimal("1E-130"), b"\x00\xff", [1, "a", None], {"a": {"b": []}},
                     {1, 2}, {"x"}, {b"y"}, None, Decimal("9.9E125")]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_values_come_back(value: Any) -> None:
    attribute = build_attribute(value)
    assert read_attribute(attribute) == value
    assert measure(attribute) >= 0


@pytest.mark.parametrize("value", [float("nan"), Decimal("Infinity"), 10**126, Decimal("1E-131"), 1, set(), object()])
def test_values_that_dynamodb_does_not_store(value: Any) -> None:
    if value == 1:
        value = int("1" * 39)
    with pytest.raises(WrongValueError, match="DynamoDB stores"):
        build_attribute({"a": [value]})


def test_items_are_put_and_removed(moto: AwsServer) -> None:
    table = create_table(moto, user="S", day="N")

    def convert(record: tuple[str, int, str | None]) -> DynamoDbWriteRequest:
        key = {"user": record[0], "day": record[1]}
        return (
            DynamoDbWriteRequest.delete(key) if record[2] is None else DynamoDbWriteRequest.put({**key, "v": record[2]})
        )

    records = [("ann", day % 40, str(day)) for day in range(100)] + [("ann", 3, None), ("bob", 1, None)]
    write(build_sink(moto, table, convert, max_batch_size=7, max_in_flight_requests=3), records)
    expected = {day: str(max(range(day, 100, 40))) for day in range(40) if day != 3}
    assert {item["day"]: item["v"] for item in read(moto, table)} == expected


def test_items_that_are_left_unprocessed_are_sent_again(moto: AwsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create_table(moto, id="N")
    left: list[Any] = []

    def limit(self: Any) -> None:
        opened(self)
        batch_write_item = self._client.batch_write_item

        def answer(RequestItems: Any) -> Any:
            requests = RequestItems[table]
            some = requests[: len(requests) // 2] if len(left) < 10 else requests
            left.extend(requests[len(some) :])
            if some:
                batch_write_item(RequestItems={table: some})
            unprocessed = list(reversed(requests[len(some) :]))
            return {"UnprocessedItems": {table: unprocessed} if unprocessed else {}}

        self._client.batch_write_item = answer

    opened = ClientBase.open
    monkeypatch.setattr(ClientBase, "open", limit)
    write(build_sink(moto, table, lambda n: DynamoDbWriteRequest.put({"id": n})), list(range(60)))
    assert len(left) >= 10
    assert sorted(item["id"] for item in read(moto, table)) == list(range(60))


def test_errors_of_a_sink(moto: AwsServer) -> None:
    table = create_table(moto, id="N")
    message = failure_of(lambda: write(build_sink(moto, "missing", DynamoDbWriteRequest.put), [{"id": 1}]))
    assert "table 'missing' cannot be described" in message
    message = failure_of(lambda: write(build_sink(moto, table, DynamoDbWriteRequest.put), [{"x": 1}]))
    assert "has no key id" in message
    message = failure_of(lambda: write(build_sink(moto, table, lambda record: record), [{"id": 1}]))
    assert "must return a DynamoDbWriteRequest" in message
    message = failure_of(lambda: write(build_sink(moto, table, DynamoDbWriteRequest.put), [{"id": "text"}]))
    assert "ValidationException" in message
    for builder, missing in (
        (DynamoDbSink.builder(), "set_table_name"),
        (DynamoDbSink.builder().set_table_name("t"), "set_element_converter"),
    ):
        with pytest.raises(ConfigurationError, match=missing):
            builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("case", SINK_CASES)
def test_the_sink_keeps_the_rules(moto: AwsServer, case: str) -> None:
    def prepare() -> SinkUnderTest:
        table = create_table(moto, id="N")
        sink = build_sink(moto, table, lambda record: DynamoDbWriteRequest.put({"id": record[0], "v": record[1]}))

        def pairs() -> list[tuple[int, int]]:
            return [(item["id"], item["v"]) for item in read(moto, table)]

        records = [(n % 4, n) for n in range(12)]
        return SinkUnderTest(sink, records, pairs, last_of_each(lambda record: record[0]), lambda record: record[0])

    check_sink(prepare, case, parallelisms=[1, 2], places=2)


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCE_CASES)
def test_the_scan_keeps_the_rules(moto: AwsServer, case: str) -> None:
    table = create_table(moto, id="N")
    put(moto, table, [{"id": number} for number in range(9)])

    def prepare() -> SourceUnderTest:
        source = DynamoDbScanSource(table, moto.properties, lambda item: item["id"], segments=3)
        return SourceUnderTest(source, list(range(9)))

    check_source(prepare, case, parallelisms=[2], batch_sizes=[2], places=2)


def test_a_table_is_scanned_in_a_job(moto: AwsServer) -> None:
    table = create_table(moto, id="N")
    put(moto, table, [{"id": number, "name": str(number), "more": 1} for number in range(30)])
    source = DynamoDbScanSource(table, moto.properties, attributes=["id", "name"], consistent=True)
    items = environment(2).from_source(source, WatermarkStrategy.no_watermarks(), "items").collect()
    assert sorted(items, key=lambda item: int(item["id"])) == [{"id": n, "name": str(n)} for n in range(30)]
    with pytest.raises(ConfigurationError, match="1 to 1,000,000 segments"):
        DynamoDbScanSource(table, {}, segments=0)
    source = DynamoDbScanSource("missing", moto.properties)
    stream = environment().from_source(source, WatermarkStrategy.no_watermarks(), "items")
    assert "cannot be scanned: ResourceNotFound" in failure_of(stream.collect)


# --- tables ----------------------------------------------------------------------------------------------------------


def create_tables() -> TableEnvironment:
    """One that writes rows as they come: those of a test have different keys, or are in order."""
    tables = create_environment()
    tables.get_config().set("table.exec.sink.upsert-materialize", "NONE")
    tables.get_config().set("table.local-time-zone", "UTC")
    return tables


def ddl(moto: AwsServer, table: str, columns: str, more: str = "", name: str = "t", partitioned: str = "") -> str:
    options = f"'connector' = 'dynamodb', 'table-name' = '{table}', {moto.sql}{more}"
    return f"CREATE TABLE {name} ({columns}) {partitioned} WITH ({options})"


KEY = ", PRIMARY KEY (id) NOT ENFORCED"
COLUMNS = (
    "id BIGINT, b BOOLEAN, ti TINYINT, f FLOAT, d DOUBLE, de DECIMAL(38, 5), s STRING, y BYTES, da DATE, tm TIME(0), "
    "ts TIMESTAMP(9), lt TIMESTAMP_LTZ(3), l ARRAY<INT>, m MAP<STRING, DOUBLE>, r ROW<x INT, y BYTES>"
)
FIRST = (
    "(-9223372036854775807, TRUE, CAST(-128 AS TINYINT), CAST(1.5 AS FLOAT), CAST(1.0E125 AS DOUBLE), "
    "CAST('123456789012345678901234567890123.12345' AS DECIMAL(38, 5)), 'a\"\\: ü', x'00ff3a', DATE '2020-02-29', "
    "TIME '12:30:01', TIMESTAMP '1960-01-01 00:00:00.000000001', TO_TIMESTAMP_LTZ(1, 3), ARRAY[1, CAST(NULL AS INT)], "
    "MAP['a', 0.1e0], ROW(1, x'01'))"
)
NULLS = (
    "(7, CAST(NULL AS BOOLEAN), CAST(NULL AS TINYINT), CAST(NULL AS FLOAT), CAST(NULL AS DOUBLE), "
    "CAST(NULL AS DECIMAL(38, 5)), CAST(NULL AS STRING), CAST(NULL AS BYTES), CAST(NULL AS DATE), "
    "CAST(NULL AS TIME(0)), CAST(NULL AS TIMESTAMP(9)), CAST(NULL AS TIMESTAMP_LTZ(3)), CAST(NULL AS ARRAY<INT>), "
    "CAST(NULL AS MAP<STRING, DOUBLE>), CAST(NULL AS ROW<x INT, y BYTES>))"
)


@pytest.mark.parametrize("ignores", [False, True])
def test_all_types_come_back(moto: AwsServer, ignores: bool) -> None:
    table, tables = create_table(moto, id="N"), create_tables()
    tables.execute_sql(ddl(moto, table, COLUMNS + KEY, f", 'sink.ignore-nulls' = '{ignores}'"))
    tables.execute_sql(f"INSERT INTO t VALUES {FIRST}, {NULLS}").wait()
    stored = {item["id"]: item for item in read(moto, table)}
    assert stored[-(2**63) + 1] == {
        "id": -(2**63) + 1, "b": True, "ti": -128, "f": Decimal("1.5"), "d": 10**125,
        "de": Decimal("123456789012345678901234567890123.12345"), "s": 'a"\\: ü', "y": b"\x00\xff\x3a",
        "da": "2020-02-29", "tm": "12:30:01", "ts": "1960-01-01T00:00:00.000000001", "lt": "1970-01-01T00:00:00.001Z",
        "l": [1, None], "m": {"a": Decimal("0.1")}, "r": {"x": 1, "y": b"\x01"},
    }  # fmt: skip
    assert stored[7].keys() == ({"id"} if ignores else stored[-(2**63) + 1].keys())
    assert set(stored[7].values()) == ({7} if ignores else {7, None})
    rows = sorted(map(str, collected(tables, "SELECT * FROM t")))
    assert rows == sorted(map(str, collected(tables, f"SELECT * FROM (VALUES {FIRST}, {NULLS})")))


def test_rows_are_replaced_and_deleted(moto: AwsServer) -> None:
    table, tables = create_table(moto, k="S", id="N"), create_tables()
    tables.execute_sql(ddl(moto, table, "v BIGINT, id INT, k STRING, PRIMARY KEY (k, id) NOT ENFORCED"))
    changes = "(VALUES ('a', 1, 5), ('a', 1, 2), ('b', 1, 1), ('b', 2, 9)) AS s (k, id, n)"
    tables.execute_sql(f"INSERT INTO t SELECT SUM(n), id, k FROM {changes} GROUP BY k, id").wait()
    expected = [("a", 1, 7), ("b", 1, 1), ("b", 2, 9)]
    assert sorted((item["k"], item["id"], item["v"]) for item in read(moto, table)) == expected
    sums = f"SELECT n, id, k FROM {changes} WHERE k = 'b'"
    tables.execute_sql(
        "INSERT INTO t SELECT n, id, k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY 1 ORDER BY n DESC) AS i "
        f"FROM ({sums})) WHERE i = 1"
    ).wait()
    assert sorted((item["k"], item["id"]) for item in read(moto, table)) == [("a", 1), ("b", 2)]


def test_a_table_without_a_primary_key_is_only_added_to(moto: AwsServer) -> None:
    table, tables = create_table(moto, id="N"), create_tables()
    tables.execute_sql(ddl(moto, table, "id INT, v INT", partitioned="PARTITIONED BY (id)"))
    tables.execute_sql(ddl(moto, table, "id INT, v INT", name="u"))
    for name in ("t", "u"):
        tables.execute_sql(f"INSERT INTO {name} VALUES (1, 1), (2, 2), (1, 3)").wait()
        assert sorted((item["id"], item["v"]) for item in read(moto, table)) == [(1, 3), (2, 2)]
    with pytest.raises(Exception, match=r"update|changes"):
        tables.execute_sql("INSERT INTO t SELECT id, SUM(v) FROM u GROUP BY id")


def test_look_up_join(moto: AwsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamodb, "READS_MAX", 3)
    table, tables = create_table(moto, k="S", id="N"), create_tables()
    put(moto, table, [{"k": "a", "id": number, "v": number * 10} for number in range(8)])
    tables.execute_sql(ddl(moto, table, "id INT, k STRING, v INT, PRIMARY KEY (k, id) NOT ENFORCED"))
    values = ", ".join(f"({number % 10}, 'a')" for number in range(14)) + ", (CAST(NULL AS INT), 'a'), (1, 'b')"
    tables.execute_sql(f"CREATE TEMPORARY VIEW v AS SELECT *, PROCTIME() AS p FROM (VALUES {values}) AS v (n, k)")
    rows = collected(
        tables,
        "SELECT v.n, t.v FROM v LEFT JOIN t FOR SYSTEM_TIME AS OF v.p ON t.id = v.n AND v.k = t.k",
    )
    found = [(number % 10, number % 10 * 10 if number % 10 < 8 else None) for number in range(14)]
    assert sorted(rows, key=str) == sorted([*found, (None, None), (1, None)], key=str)


def test_items_that_do_not_fit_are_errors(moto: AwsServer) -> None:
    table, tables = create_table(moto, id="N"), create_tables()
    put(moto, table, [{"id": 1, "v": "tea"}])
    tables.execute_sql(ddl(moto, table, "id INT, v INT" + KEY))
    with pytest.raises(JobExecutionError, match="'tea'"):
        collected(tables, "SELECT * FROM t")
    for value, message in (("'NaN'", "DynamoDB stores no NaN"), ("'1E200'", "DynamoDB stores numbers of 38 digits")):
        tables.execute_sql("DROP TABLE IF EXISTS d")
        tables.execute_sql(ddl(moto, table, "id INT, v DOUBLE" + KEY, name="d"))
        with pytest.raises(JobExecutionError, match=f"column 'v': {message}"):
            tables.execute_sql(f"INSERT INTO d VALUES (1, CAST({value} AS DOUBLE))").wait()


def test_options_that_are_refused(moto: AwsServer) -> None:
    tables = create_tables()
    tables.execute_sql(ddl(moto, "x", "id INT, v INT" + KEY, ", 'sink.batch.max-size' = '26'"))
    with pytest.raises(ValidationError, match="at most 25 rows"):
        tables.execute_sql("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(ValidationError, match=r"scan.segments.*1 to 1,000,000 segments"):
        build_reader(ddl(moto, "x", "id INT", ", 'scan.segments' = '0'"))
