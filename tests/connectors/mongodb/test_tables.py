"""The connector `mongodb` of tables: what it writes, looks up and reads; and the program of its page."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from bson import Binary, Code, Decimal128, Int64, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from tests.connectors.postgres.test_tables import collected
from tests.connectors.redis.test_tables import FULL, PARTIAL, add_orders, environment
from tests.examples.pages import PAGES, run_page
from tests.servers.mongodb import MongoServer
from tests.table.connectors.tables import build_reader

from penstock.base.errors import JobExecutionError, UnsupportedError
from penstock.sql.connectors.mongodb import to_filter
from penstock.sql.connectors.mongodb_values import DocumentsToColumns, Misfit, to_bson
from penstock.sql.data import types
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType, RowField
from penstock.sql.typed import Constant, Field, FunctionCall
from penstock.testing.connectors import SOURCE_CASES, SourceUnderTest, check_source

KEY = ", PRIMARY KEY (_id) NOT ENFORCED"


def ddl(server: MongoServer, columns: str, name: str = "t", more: str = "") -> str:
    options = f"'connector' = 'mongodb', 'uri' = '{server.uri}', 'database' = 'shop', 'collection' = '{name}'"
    return f"CREATE TABLE {name} ({columns}) WITH ({options}{more})"


# --- values ---------------------------------------------------------------------------------------------------------

INT, BIGINT, DOUBLE, FLOAT = types.IntType(), types.BigIntType(), types.DoubleType(), types.FloatType()
TINYINT, SMALLINT, BOOLEAN = types.TinyIntType(), types.SmallIntType(), types.BooleanType()
TEXT, BYTES, TIME = types.VarCharType(100), types.VarBinaryType(100), types.LocalZonedTimestampType(3)
MICROS = types.LocalZonedTimestampType(6)
PRICE = types.DecimalType(5, 2)
CUP = types.RowType([RowField("kind", TEXT), RowField("sizes", types.ArrayType(INT))])
OID = ObjectId("63932a00da01604af329e33c")

READ: list[tuple[DataType, Any, Any]] = [
    (BOOLEAN, True, True),
    (TINYINT, -128, -128),
    (SMALLINT, Int64(32767), 32767),
    (INT, 5.0, 5),
    (INT, Decimal128("-7.00"), -7),
    (BIGINT, Int64(-(2**63)), -(2**63)),
    (BIGINT, 2.0**62, 2**62),
    (DOUBLE, 3, 3.0),
    (DOUBLE, Decimal128("1.5"), 1.5),
    (DOUBLE, Decimal128("-Infinity"), float("-inf")),
    (FLOAT, 0.5, 0.5),
    (FLOAT, float("inf"), float("inf")),
    (PRICE, Decimal128("1.10"), Decimal("1.10")),
    (PRICE, Decimal128("1.1000"), Decimal("1.10")),
    (PRICE, 0.1, Decimal("0.10")),
    (PRICE, 999, Decimal("999.00")),
    (PRICE, Decimal128("1E+2"), Decimal("100.00")),
    (TEXT, "ü", "ü"),
    (TEXT, OID, "63932a00da01604af329e33c"),
    (TEXT, Regex("^9$", "i"), '{"_value": {"$regularExpression": {"pattern": "^9$", "options": "i"}}}'),
    (TEXT, Code("f()"), '{"_value": {"$code": "f()"}}'),
    (TEXT, {"a": [1]}, '{"a": [1]}'),
    (TEXT, 5, '{"_value": 5}'),
    (BYTES, b"\x00\xff", b"\x00\xff"),
    (BYTES, Binary(b"a", 5), b"a"),
    (TIME, DatetimeMS(-1), -1_000_000),
    (TIME, DatetimeMS(10**15), 10**21),
    (TIME, Timestamp(7, 3), 7_000_000_000),
    (MICROS, DatetimeMS(5), 5_000_000),
    (CUP, {"kind": "tea", "sizes": [1, None], "more": 1}, ("tea", [1, None])),
    (CUP, {}, (None, None)),
    (types.ArrayType(CUP), [{"kind": "a"}, None], [("a", None), None]),
    (types.MapType(TEXT, BIGINT), {"a": 1, "b": None}, [("a", 1), ("b", None)]),
]


@pytest.mark.parametrize(("kind", "value", "expected"), READ, ids=lambda value: repr(value)[:30])
def test_values_that_are_read(kind: DataType, value: Any, expected: Any) -> None:
    columns = DocumentsToColumns("t", ("v",), (kind,)).build(
        [{"_id": 1, "v": value}, {"_id": 2, "v": None}, {"_id": 3}]
    )
    if kind == TIME and abs(expected) > 1 << 63:
        assert columns.column(0).view("int64").to_pylist() == [expected // 1_000_000, None, None]
    else:
        assert to_values(columns.column(0), kind) == [expected, None, None]


UNFIT: list[tuple[DataType, Any, str]] = [
    (BOOLEAN, 1, "v of"),
    (TINYINT, 128, "128 (int) does not fit TINYINT"),
    (SMALLINT, Int64(-32769), "-32769 (Int64) does not fit SMALLINT"),
    (INT, 2**31, "2147483648 (int) does not fit INT"),
    (INT, 1.5, "1.5 (float) does not fit INT"),
    (INT, True, "True (bool) does not fit INT"),
    (INT, float("nan"), "nan (float) does not fit INT"),
    (INT, Decimal128("NaN"), "does not fit INT"),
    (BIGINT, 2.0**63, "does not fit BIGINT"),
    (BIGINT, "5", "'5' (str) does not fit BIGINT"),
    (FLOAT, 1e39, "1e+39 (float) does not fit FLOAT"),
    (DOUBLE, Decimal128("1E+400"), "does not fit DOUBLE"),
    (DOUBLE, "1", "does not fit DOUBLE"),
    (PRICE, Decimal128("1.001"), "does not fit DECIMAL(5, 2)"),
    (PRICE, Decimal128("1000"), "does not fit DECIMAL(5, 2)"),
    (PRICE, Decimal128("Infinity"), "does not fit DECIMAL(5, 2)"),
    (PRICE, 0.125, "0.125 (float) does not fit"),
    (BYTES, "a", "'a' (str) does not fit VARBINARY"),
    (TIME, 5, "5 (int) does not fit TIMESTAMP_LTZ(3)"),
    (MICROS, DatetimeMS(10**17), "does not fit TIMESTAMP_LTZ(6)"),
    (CUP, 5, "5 (int) does not fit ROW"),
    (CUP, {"sizes": [1, "x"]}, "v.sizes[1] of the document with _id 7 is no value of the declared type: 'x' (str)"),
    (types.ArrayType(CUP), [None, {"kind": "a", "sizes": 3}], "v[1].sizes of the document"),
    (types.MapType(TEXT, INT), {"a.b": 2**40}, "v.a.b of the document"),
]


@pytest.mark.parametrize(("kind", "value", "message"), UNFIT, ids=lambda value: repr(value)[:30])
def test_values_that_do_not_fit(kind: DataType, value: Any, message: str) -> None:
    """The error names the table, the path and the document; no value is cut, wrapped or rounded to fit."""
    with pytest.raises(TableRuntimeError) as raised:
        DocumentsToColumns("t", ("v",), (kind,)).build([{"_id": 3, "v": None}, {"_id": 7, "v": value}])
    assert "table t: v" in str(raised.value)
    assert "document with _id 7" in str(raised.value)
    assert message in str(raised.value)


WRITTEN: list[tuple[DataType, Any, Any]] = [
    (BOOLEAN, False, False),
    (TINYINT, -128, -128),
    (INT, 2**31 - 1, 2**31 - 1),
    (BIGINT, 5, Int64(5)),
    (FLOAT, 0.5, 0.5),
    (DOUBLE, float("inf"), float("inf")),
    (types.DecimalType(34, 2), Decimal("1.10"), Decimal128("1.10")),
    (TEXT, "\0", "\0"),
    (BYTES, b"\xff", b"\xff"),
    (TIME, -1_000_000, DatetimeMS(-1)),
    (CUP, ("tea", [1, None]), {"kind": "tea", "sizes": [1, None]}),
    (types.MapType(TEXT, BIGINT), [("a", 1)], {"a": Int64(1)}),
    (types.ArrayType(types.ArrayType(BIGINT)), [[1], None], [[Int64(1)], None]),
]


@pytest.mark.parametrize(("kind", "value", "expected"), WRITTEN, ids=lambda value: repr(value)[:30])
def test_values_that_are_written(kind: DataType, value: Any, expected: Any) -> None:
    written = to_bson(to_column([value, None], kind), kind, "v")
    assert written == [expected, None]
    assert type(written[0]) is type(expected)


def test_values_that_cannot_be_written() -> None:
    with pytest.raises(Misfit, match="more than the 34 digits of Decimal128"):
        to_bson(to_column([Decimal("9" * 35)], types.DecimalType(38, 0)), types.DecimalType(38, 0), "v")
    counts = types.ArrayType(types.MapType(TEXT, INT))
    with pytest.raises(Misfit, match="a key of a MAP is NULL") as raised:
        to_bson(to_column([[[(None, 1)]]], counts), counts, "v")
    assert raised.value.path == "v[0]"


# --- conditions -----------------------------------------------------------------------------------------------------


def call(name: str, *operands: Any) -> FunctionCall:
    return FunctionCall(BOOLEAN, name, operands)


N, S, B, D = Field(BIGINT, 0), Field(TEXT, 1), Field(BOOLEAN, 2), Field(DOUBLE, 3)
L, A = Field(TIME, 4), Field(types.ArrayType(INT), 5)
FIVE, TEA, PADDED = Constant(INT, 5), Constant(types.CharType(3), "tea"), Constant(types.CharType(3), "te ")


@pytest.mark.parametrize(
    ("condition", "query"),
    [
        (call("=", N, FIVE), {"n": {"$in": [5]}}),
        (call("<", FIVE, N), {"n": {"$gt": 5}}),
        (call(">=", N, FIVE), {"n": {"$gte": 5}}),
        (call("<>", N, FIVE), {"n": {"$nin": [5, None]}}),
        (call("IN", N, FIVE, Constant(INT, 6)), {"n": {"$in": [5, 6]}}),
        (call("=", S, TEA), {"s": {"$in": ["tea"]}}),
        (call("=", S, Constant(types.CharType(24), str(OID))), {"s": {"$in": [str(OID), OID]}}),
        (B, {"b": True}),
        (call("IS NULL", D), {"d": None}),
        (call("IS NOT NULL", D), {"d": {"$ne": None}}),
        (call(">", L, Constant(TIME, 5_000_000)), {"l": {"$gt": DatetimeMS(5)}}),
        (call("AND", call("=", N, FIVE), call("=", D, FIVE)), {"$and": [{"n": {"$in": [5]}}]}),
        (call("OR", call("=", N, FIVE), B), {"$or": [{"n": {"$in": [5]}}, {"b": True}]}),
        (call("OR", call("=", N, FIVE), call("=", D, FIVE)), None),
        (call("=", D, FIVE), None),
        (call("=", N, Constant(DOUBLE, 5.0)), None),
        (call("=", N, Constant(INT, None)), None),
        (call("=", S, PADDED), None),
        (call("=", S, Constant(TEXT, '{"_value": 5}')), None),
        (call(">", S, TEA), None),
        (call("IS NOT NULL", A), None),
        (call("IN", N, *[Constant(INT, n) for n in range(1_001)]), None),
        (call("NOT", B), None),
        (call("=", N, Field(INT, 0)), None),
    ],
)
def test_conditions_for_the_server(condition: Any, query: dict[str, Any] | None) -> None:
    """It gets those that no row which satisfies them fails there."""
    assert to_filter(condition, ["n", "s", "b", "d", "l", "a"]) == query


# --- tables ---------------------------------------------------------------------------------------------------------

TYPES = (
    "_id BIGINT, b BOOLEAN, ti TINYINT, f FLOAT, d DOUBLE, s STRING, y BYTES, lt TIMESTAMP_LTZ(3), "
    "r ROW<x INT, y ARRAY<STRING>>, m MAP<STRING, BIGINT>, a ARRAY<ROW<z INT>>"
)
KINDS = ("BOOLEAN", "TINYINT", "FLOAT", "DOUBLE", "STRING", "BYTES", "TIMESTAMP_LTZ(3)",
         "ROW<x INT, y ARRAY<STRING>>", "MAP<STRING, BIGINT>", "ARRAY<ROW<z INT>>")  # fmt: skip
VALUES = (
    "(-9223372036854775807, TRUE, CAST(-128 AS TINYINT), CAST(1.5 AS FLOAT), CAST(1e300 AS DOUBLE), 'a\"ü', x'00ff', "
    "TO_TIMESTAMP_LTZ(1, 3), ROW(1, ARRAY['a', CAST(NULL AS STRING)]), MAP['k', CAST(5 AS BIGINT)], ARRAY[ROW(1)])"
)
NULLS = f"(7, {', '.join(f'CAST(NULL AS {kind})' for kind in KINDS)})"


def test_all_types_come_back(server: MongoServer, database: Any) -> None:
    tables = environment()
    more = ", de DECIMAL(20, 5)" if server.is_complete else ""
    tables.execute_sql(ddl(server, TYPES + more + KEY))
    added = ", CAST(1.25 AS DECIMAL(20, 5)))" if more else ")"
    rows = f"VALUES {VALUES[:-1]}{added}, {NULLS[:-1]}{', CAST(NULL AS DECIMAL(20, 5)))' if more else ')'}"
    tables.execute_sql(f"INSERT INTO t {rows}").wait()
    assert set(database["t"].find_one({"_id": 7}).values()) == {7, None}
    assert collected(tables, "SELECT * FROM t") == collected(tables, f"SELECT * FROM ({rows})")


def test_upserts_and_deletions_by_key(server: MongoServer, database: Any) -> None:
    """A row sets its columns, and keeps other fields; a group that falls below a limit is deleted."""
    tables = environment()
    tables.execute_sql(ddl(server, "k INT, j STRING, n BIGINT, PRIMARY KEY (k, j) NOT ENFORCED"))
    database["t"].insert_one({"_id": {"k": 1, "j": "a"}, "more": 5})
    groups = (
        "SELECT k, j, COUNT(*) AS n FROM (VALUES (1, 'a'), (2, 'b'), (1, 'a'), (2, 'b'), (2, 'b')) AS s (k, j) "
        "GROUP BY k, j"
    )
    tables.execute_sql(f"INSERT INTO t {groups}").wait()
    assert collected(tables, "SELECT * FROM t") == [(1, "a", 2), (2, "b", 3)]
    assert database["t"].find_one({"more": 5}) == {"_id": {"k": 1, "j": "a"}, "more": 5, "k": 1, "j": "a", "n": 2}
    tables.execute_sql(f"INSERT INTO t SELECT * FROM ({groups}) WHERE n < 3").wait()
    assert collected(tables, "SELECT * FROM t") == [(1, "a", 2)]
    tables.execute_sql("INSERT INTO t VALUES (1, 'a', CAST(NULL AS BIGINT))").wait()
    assert collected(tables, "SELECT * FROM t") == [(1, "a", None)]


def test_texts_that_are_object_ids(server: MongoServer, database: Any) -> None:
    """An `_id` of a document that others have inserted is read as a text, found by it, and written back."""
    database["t"].insert_many([{"_id": OID, "n": 1}, {"_id": "tea", "n": 2}])
    tables = environment()
    tables.execute_sql(ddl(server, "_id STRING, n INT" + KEY))
    assert collected(tables, f"SELECT n FROM t WHERE _id = '{OID}'") == [(1,)]
    tables.execute_sql("INSERT INTO t VALUES ('63932a00da01604af329e33c', 5), ('tea', 6), ('rum', 7)").wait()
    assert {cup["_id"]: cup["n"] for cup in database["t"].find({})} == {OID: 5, "tea": 6, "rum": 7}
    tables.execute_sql(
        "CREATE TABLE orders (k STRING, pt AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '1', "
        "'fields.k.length' = '1')"
    )
    join = f"JOIN t FOR SYSTEM_TIME AS OF o.pt AS t ON t._id = '{OID}' AND t.n = CHAR_LENGTH(o.k) + 4"
    assert collected(tables, f"SELECT t.n FROM orders o {join}") == [(5,)]


def test_appended_documents(server: MongoServer, database: Any) -> None:
    tables = environment()
    tables.execute_sql(ddl(server, "id INT, v STRING"))
    tables.execute_sql("INSERT INTO t VALUES (1, 'a'), (1, 'a'), (2, CAST(NULL AS STRING))").wait()
    documents = list(database["t"].find({}, sort=[("id", 1)]))
    assert [(cup["id"], cup["v"]) for cup in documents] == [(1, "a"), (1, "a"), (2, None)]
    assert all(isinstance(cup["_id"], ObjectId) for cup in documents)


def test_shard_keys_are_part_of_what_is_found(server: MongoServer, database: Any) -> None:
    tables = environment()
    statement = ddl(server, "_id INT, region STRING, v INT" + KEY).replace(") WITH", ") PARTITIONED BY (region) WITH")
    tables.execute_sql(statement)
    tables.execute_sql("INSERT INTO t VALUES (1, 'north', 5), (2, 'south', 6)").wait()
    tables.execute_sql("INSERT INTO t VALUES (1, 'north', 7)").wait()
    assert [cup["v"] for cup in database["t"].find({}, sort=[("_id", 1)])] == [7, 6]
    if not server.is_complete:
        return  # pymongo cannot read FerretDB's answer
    with pytest.raises(JobExecutionError, match="duplicate key"):
        tables.execute_sql("INSERT INTO t /*+ OPTIONS('sink.max-retries' = '0') */ VALUES (1, 'south', 8)").wait()


@pytest.mark.parametrize("mode", ["STREAMING", pytest.param("BATCH", marks=[pytest.mark.spark, pytest.mark.slow])])
def test_only_what_a_query_needs_is_read(server: MongoServer, database: Any, mode: str) -> None:
    database["t"].insert_many([{"_id": n, "k": n % 3, "s": f"n{n}", "wrong": {}} for n in range(100)])
    tables = environment()
    tables.get_config().set("execution.runtime-mode", mode)
    more = ", 'scan.partition.strategy' = 'pagination', 'scan.partition.size' = '4 kb', 'scan.fetch-size' = '10'"
    tables.execute_sql(ddl(server, "_id INT, k INT, s STRING, wrong INT" + KEY, more=more))
    query = "SELECT s FROM t WHERE _id > 10 AND (k = 1 OR s IS NULL) AND s IN ('n12', 'n13', 'n14')"
    is_streaming = mode == "STREAMING"  # Spark's plan shows its own filter, and not what a source was given
    assert ("filter=[" in tables.explain_sql(query)) == is_streaming
    assert collected(tables, query) == [("n13",)]
    assert max(collected(tables, "SELECT COUNT(*), SUM(_id) FROM t")) == (100, 4950)
    assert len(collected(tables, "SELECT _id FROM t LIMIT 7")) == 7
    never = query.replace("FROM t", "FROM t /*+ OPTIONS('filter.handling.policy' = 'never') */")
    assert "filter=[" not in tables.explain_sql(never)
    assert collected(tables, never) == [("n13",)]
    error = JobExecutionError if is_streaming else TableRuntimeError
    with pytest.raises(error, match="wrong of the document with _id 0 is no value of the declared type"):
        collected(tables, "SELECT * FROM t")


@pytest.mark.parametrize("cache", ["", PARTIAL, FULL])
def test_look_up_join(server: MongoServer, database: Any, cache: str) -> None:
    database["people"].insert_many([{"_id": n, "name": f"p{n}"} for n in range(10)])
    tables = environment()
    tables.execute_sql(ddl(server, "_id INT, name STRING" + KEY, "people", cache))
    add_orders(tables)
    join = "JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON p._id = o.who"
    found = collected(tables, f"SELECT o.n, p.name FROM orders o LEFT {join}")
    assert found == sorted([(n, f"p{n // 3}" if n < 30 else None) for n in range(41)], key=repr)


def test_look_ups_by_other_columns(server: MongoServer, database: Any) -> None:
    """Several documents may have a key."""
    database["t"].insert_many([{"_id": n, "a": "x", "b": n // 2} for n in range(6)])
    tables = environment()
    tables.execute_sql(ddl(server, "_id INT, a STRING, b INT, d DOUBLE"))
    add_orders(tables)
    join = "JOIN t FOR SYSTEM_TIME AS OF o.pt AS t ON t.b = o.who AND t.a = 'x' || SUBSTRING('', 1)"
    assert collected(tables, f"SELECT o.n, t._id FROM orders o {join} WHERE o.n < 4") == [
        (0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 2), (3, 3)]  # fmt: skip
    with pytest.raises(
        UnsupportedError, match=r"column 'd' of table .* is DOUBLE, by which MongoDB finds no documents"
    ):
        tables.execute_sql("SELECT * FROM orders o JOIN t FOR SYSTEM_TIME AS OF o.pt AS t ON t.d = o.who")


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCE_CASES)
def test_the_scan_keeps_the_rules(server: MongoServer, database: Any, case: str) -> None:
    database["t"].insert_many([{"_id": n, "v": n} for n in range(14)])
    more = ", 'scan.partition.strategy' = 'pagination', 'scan.partition.size' = '200 b'"
    statement = ddl(server, "_id INT, v INT" + KEY, more=more)

    def prepare() -> SourceUnderTest:
        expected = [(n, n) for n in range(14)]
        return SourceUnderTest(build_reader(statement).source, expected, result=lambda rows: list(map(tuple, rows)))

    check_source(prepare, case, parallelisms=[1, 2], batch_sizes=[3], places=4)


REFUSED: list[tuple[str, str, str, type[Exception], str]] = [
    ("id INT, d DATE", "", "SELECT * FROM t", UnsupportedError, "'d' of table .* is DATE"),
    (
        "r ROW<a ARRAY<TIMESTAMP(3)>>",
        "",
        "SELECT * FROM t",
        UnsupportedError,
        r"'r.a\[\]' .* declare it as TIMESTAMP_LTZ",
    ),
    ("m MAP<INT, INT>", "", "SELECT * FROM t", UnsupportedError, "the keys of a MAP are STRING"),
    ("`a.b` INT", "", "SELECT * FROM t", UnsupportedError, "'a.b' of table .* cannot be the name of a field"),
    ("`$a` INT", "", "INSERT INTO t VALUES (1)", UnsupportedError, "names begin with no"),
    ("lt TIMESTAMP_LTZ(6)", "", "INSERT INTO t VALUES (CURRENT_TIMESTAMP)", UnsupportedError, "have milliseconds"),
    ("_id INT, v INT", "", "INSERT INTO t VALUES (1, 2)", ValidationError, "Ambiguous keys being used"),
    (
        "a ARRAY<INT>, PRIMARY KEY (a) NOT ENFORCED",
        "",
        "INSERT INTO t VALUES (ARRAY[1])",
        ValidationError,
        "no _id can",
    ),
    ("id INT", ", 'scan.partition.strategy' = 'best'", "SELECT * FROM t", ValidationError, "single"),
    (
        "id INT",
        ", 'sink.delivery-guarantee' = 'exactly-once'",
        "INSERT INTO t VALUES (1)",
        ValidationError,
        "least-once",
    ),
    ("id INT", ", 'sink.max-retries' = '-1'", "INSERT INTO t VALUES (1)", ValidationError, "number of retries is -1"),
    ("id INT", ", 'scan.partition.size' = '0 b'", "SELECT * FROM t", ValidationError, "partition_bytes is 0"),
]


@pytest.mark.parametrize(
    ("columns", "more", "statement", "error", "message"), REFUSED, ids=lambda value: str(value)[:30]
)
def test_tables_that_are_refused(
    server: MongoServer, columns: str, more: str, statement: str, error: type[Exception], message: str
) -> None:
    tables = environment()
    tables.execute_sql(ddl(server, columns, more=more))
    with pytest.raises(error, match=message):
        tables.execute_sql(statement)


def test_change_streams_are_refused() -> None:
    tables = environment()
    tables.execute_sql("CREATE TABLE c (_id STRING) WITH ('connector' = 'mongodb-cdc', 'hosts' = 'db')")
    with pytest.raises(
        UnsupportedError, match=r"does not read the change streams of MongoDB\. Let Debezium's connector"
    ):
        tables.execute_sql("SELECT * FROM c")


def test_a_null_key_is_an_error(server: MongoServer, database: Any) -> None:
    tables = environment()
    tables.execute_sql(ddl(server, "_id STRING, v INT" + KEY))
    tables.get_config().set("table.exec.sink.not-null-enforcer", "ERROR")
    with pytest.raises(JobExecutionError):
        tables.execute_sql("INSERT INTO t SELECT NULLIF('a', 'a'), 1").wait()
    assert database["t"].count_documents({}) == 0


def test_passwords_are_hidden() -> None:
    tables = environment()
    tables.execute_sql(
        "CREATE TABLE t (id INT) WITH ('connector' = 'mongodb', 'database' = 'shop', 'collection' = 't', 'uri' = "
        "'mongodb://reader:letmein12@127.0.0.1:1/?serverSelectionTimeoutMS=50')"
    )
    with pytest.raises(JobExecutionError) as raised:
        collected(tables, "SELECT * FROM t")
    assert "letmein12" not in str(raised.value)
    assert "letmein12" not in str(tables.execute_sql("SHOW CREATE TABLE t").collect())


def test_the_program_of_the_page_runs(server: MongoServer, database: Any, tmp_path: Path) -> None:
    page = "docs/mongodb.md"
    PAGES[page].check(run_page(page, "local", tmp_path, variables={"MONGODB_URI": server.uri}))
    assert database["visits"].find_one({"_id": "ann"}, {"seconds": 1}) == {"_id": "ann", "seconds": 8}
