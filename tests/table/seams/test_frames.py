"""A3: data frames and Arrow tables in and out."""

from __future__ import annotations

import datetime
import importlib.util
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pytest
from tests.table.seams.streams import environments, list_columns, read_changes

from penstock.base.errors import UnsupportedError
from penstock.drivers.spark.session import hand_back, obtain_spark
from penstock.sql.data.errors import ValidationError
from penstock.sql.functions.variants import parse
from penstock.table import DataTypes, EnvironmentSettings, Schema, TableEnvironment

HAS_POLARS = importlib.util.find_spec("polars") is not None
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)
DATA = pa.table(
    {
        "name": pa.array(["Anna", None]),
        "age": pa.array([4, 5], pa.int32()),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(6, 2)),
        "at_": pa.array([MOMENT, MOMENT], pa.timestamp("us", "UTC")),
        "tags": pa.array([["a"], []], pa.list_(pa.string())),
        "place": pa.array([{"city": "Rome"}, None], pa.struct([("city", pa.string())])),
        "counts": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)


def test_arrow_comes_in_and_goes_out() -> None:
    """With its types, NULL and what is nested."""
    _, tables = environments()
    table = tables.from_arrow(DATA)
    assert list_columns(table) == [
        "`name` STRING",
        "`age` INT",
        "`price` DECIMAL(6, 2)",
        "`at_` TIMESTAMP_LTZ(6)",
        "`tags` ARRAY<STRING>",
        "`place` ROW<`city` STRING>",
        "`counts` MAP<STRING, BIGINT>",
    ]
    assert table.to_arrow().equals(DATA)
    assert tables.from_arrow(DATA.to_batches()[0]).to_arrow().equals(DATA)


def test_a_schema_of_arrow_gives_names_or_types() -> None:
    """As for data frames of pandas."""
    _, tables = environments()
    data = DATA.select(["name", "age"])
    assert list_columns(tables.from_arrow(data, ["n", "a"])) == ["`n` STRING", "`a` INT"]
    assert list_columns(tables.from_arrow(data, [DataTypes.STRING(), DataTypes.BIGINT()]))[1] == "`age` BIGINT"
    with pytest.raises(ValueError, match="the Arrow table has 2 columns, and the schema 1"):
        tables.from_arrow(data, ["n"])
    with pytest.raises(TypeError, match=r"takes a pyarrow\.Table or a RecordBatch"):
        tables.from_arrow([1])


@pytest.mark.parametrize("maker", ["to_pandas", "to_arrow"])
def test_a_result_that_changes_is_the_table_at_the_end(maker: str) -> None:
    """Rows that are taken back are not in it, whatever is in them."""
    _, tables = environments()
    tables.create_temporary_view("words", tables.from_elements([("a", 1), ("b", 2), ("a", 3)], ["word", "n"]))
    result = tables.sql_query(
        "SELECT word, SUM(n) AS total, ARRAY[SUM(n)] AS both_, MAP[word, 1] AS m FROM words GROUP BY word"
    )
    found: Any = getattr(result, maker)()
    columns = {name: list(found[name]) for name in ("word", "total")}
    if maker == "to_arrow":
        columns = {name: found[name].to_pylist() for name in ("word", "total")}
    assert sorted(zip(columns["word"], columns["total"], strict=True)) == [("a", 4), ("b", 2)]


def test_rows_that_are_the_same_are_taken_back_one_by_one() -> None:
    """As many as come."""
    _, tables = environments()
    tables.create_temporary_view("many", tables.sql_query("SELECT * FROM (VALUES (1), (1), (1)) AS t (a)"))
    assert tables.sql_query("SELECT a, COUNT(*) FROM many GROUP BY a").to_pandas().values.tolist() == [[1, 3]]
    assert tables.from_path("many").to_pandas()["a"].tolist() == [1, 1, 1]


def test_a_frame_of_pandas_is_read_whatever_its_columns_are_called() -> None:
    """By the text of the names; moments with their zone."""
    _, tables = environments()
    frame = pandas.DataFrame({0: [1, 2], "t": pandas.to_datetime(["2026-01-02", "2026-01-03"]).tz_localize("UTC")})
    table = tables.from_pandas(frame, splits_num=4)
    assert list_columns(table) == ["`0` BIGINT", "`t` TIMESTAMP_LTZ(9)"]
    assert table.to_pandas()["0"].tolist() == [1, 2]
    with pytest.raises(TypeError, match=r"expected pandas\.DataFrame"):
        tables.from_pandas(DATA)


class _Frame:
    """As much of a data frame of Polars as is asked for."""

    def to_arrow(self) -> pa.Table:
        return pa.table({"name": pa.array(["Anna"], pa.large_string()), "age": pa.array([4], pa.uint8())})


class _LazyFrame:
    def collect(self) -> _Frame:
        return _Frame()


@pytest.mark.parametrize("frame", [_Frame(), _LazyFrame()])
def test_polars_comes_in_through_arrow(frame: object) -> None:
    """Its long texts and numbers without sign become Flink's; a lazy frame is collected."""
    _, tables = environments()
    table = tables.from_polars(frame)
    assert list_columns(table) == ["`name` STRING", "`age` SMALLINT"]
    assert read_changes(table) == ["+I[Anna, 4]"]
    with pytest.raises(TypeError, match=r"takes a polars\.DataFrame"):
        tables.from_polars(object())


@pytest.mark.skipif(HAS_POLARS, reason="Polars is here")
def test_without_polars_the_error_says_what_to_install() -> None:
    """It is no dependency."""
    _, tables = environments()
    with pytest.raises(UnsupportedError, match="pip install polars"):
        tables.from_arrow(DATA).to_polars()


@pytest.mark.skipif(not HAS_POLARS, reason="needs Polars")
def test_a_table_is_a_frame_of_polars() -> None:
    """With the types that Polars has for Arrow's."""
    _, tables = environments()
    frame = tables.from_arrow(DATA.select(["name", "age"])).to_polars()
    assert frame.rows() == [("Anna", 4), (None, 5)]


@pytest.fixture
def spark() -> Iterator[Any]:
    """A session of Spark's, as jobs have it."""
    handle = obtain_spark({}, 1)
    yield handle.session
    hand_back(handle, 1)


@pytest.mark.spark
def test_a_frame_of_spark_is_a_table(spark: Any) -> None:
    """With Spark's types; a schema may add columns, and give others types."""
    ddl = "name STRING, age INT, t TIMESTAMP, tags ARRAY<STRING>, d DECIMAL(6, 2)"
    frame = spark.createDataFrame([("Anna", 4, MOMENT, ["a"], Decimal("1.50"))], ddl)
    _, tables = environments()
    table = tables.from_dataframe(frame)
    assert list_columns(table) == [
        "`name` STRING",
        "`age` INT",
        "`t` TIMESTAMP_LTZ(6)",
        "`tags` ARRAY<STRING>",
        "`d` DECIMAL(6, 2)",
    ]
    assert read_changes(table) == ["+I[Anna, 4, 2026-01-02 03:04:05.000006+00:00, [a], 1.50]"]
    schema = Schema.new_builder().column("age", "BIGINT").column_by_expression("up", "UPPER(name)").build()
    assert read_changes(tables.from_dataframe(frame, schema)) == ["+I[4, ANNA]"]
    with pytest.raises(ValidationError, match="named 'weight'"):
        tables.from_dataframe(frame, Schema.new_builder().column("weight", "INT").build())


def test_what_is_no_frame_of_spark() -> None:
    """Says so."""
    _, tables = environments()
    with pytest.raises(TypeError, match="takes a data frame of Spark"):
        tables.from_dataframe(DATA)


INT_ROW = DataTypes.ROW([DataTypes.FIELD("n", DataTypes.INT())])


@pytest.mark.parametrize("verifies", [True, False])
@pytest.mark.parametrize("value", [7.9, 2**31, "7"])
def test_elements_that_are_not_of_their_type_fail_with_column_and_value(value: object, verifies: bool) -> None:
    """K4: with and without a check of the schema."""
    _, tables = environments()
    with pytest.raises((TypeError, ValueError), match=rf"(?s)\bn\b.*INT.*{value}"):
        tables.from_elements([(1,), (value,)], INT_ROW, verify_schema=verifies)


def test_columns_of_frames_that_are_not_of_their_type_fail_with_column_and_value() -> None:
    """K4: of pandas and of Arrow."""
    _, tables = environments()
    with pytest.raises(TypeError, match=r"column 'n' .* INT: .*7\.9"):
        tables.from_pandas(pandas.DataFrame({"n": [1.0, 7.9]}), INT_ROW)
    with pytest.raises(TypeError, match=r"column 'n' .* INT: .*7\.9"):
        tables.from_arrow(pa.table({"n": [1.0, 7.9]}), INT_ROW)
    assert tables.from_pandas(pandas.DataFrame({"n": [1.0, None]}), INT_ROW).to_arrow()["n"].to_pylist() == [1, None]


EXACT = 2**53 + 1
MANY_TYPES = """
SELECT CASE WHEN id = 1 THEN CAST(9007199254740993 AS BIGINT) END AS b,
  CASE WHEN id = 1 THEN CAST(7 AS SMALLINT) END AS s, CASE WHEN id = 1 THEN 7 END AS i,
  CASE WHEN id = 1 THEN TRUE END AS t, CASE WHEN id = 1 THEN ARRAY[9007199254740993, NULL] END AS a,
  CASE WHEN id = 1 THEN CAST(0.1 AS FLOAT) END AS f, CASE WHEN id = 1 THEN CAST(1.50 AS DECIMAL(30, 2)) END AS d,
  CASE WHEN id = 1 THEN DATE '2020-01-31' END AS day_, id AS whole,
  CASE WHEN id = 1 THEN TIMESTAMP '2020-01-01 00:00:00.123456789' END AS ts,
  CASE WHEN id = 1 THEN TO_TIMESTAMP_LTZ(1577836800123, 3) END AS l
FROM (VALUES (1), (2)) AS v (id)
"""


def exact_types(tables: Any) -> pandas.DataFrame:
    tables.get_config().set_local_timezone("America/New_York")
    frame: pandas.DataFrame = tables.sql_query(MANY_TYPES).to_pandas()
    return frame.sort_values("whole").reset_index(drop=True)


def check_exact(frame: pandas.DataFrame) -> None:
    dtypes = {name: str(kind) for name, kind in frame.dtypes.items()}
    assert (dtypes["b"], dtypes["s"], dtypes["i"], dtypes["whole"]) == ("Int64", "Int16", "Int32", "int32")
    assert (dtypes["f"], dtypes["ts"], dtypes["l"]) == ("float32", "datetime64[ns]", "datetime64[ms, America/New_York]")
    assert (frame["b"][0], frame["s"][0], frame["i"][0]) == (EXACT, 7, 7)
    assert all(frame[name][1] is pandas.NA for name in "bsi")
    assert frame["ts"][0] == pandas.Timestamp("2020-01-01 00:00:00.123456789")
    assert frame["l"][0] == pandas.Timestamp("2019-12-31 19:00:00.123", tz="America/New_York")
    assert (frame["t"].tolist(), frame["d"][0], frame["day_"][0]) == (
        [True, None],
        Decimal("1.50"),
        datetime.date(2020, 1, 31),
    )
    assert list(frame["a"][0]) == [EXACT, None]


def test_frame_of_pandas_keeps_values() -> None:
    """K4: nanoseconds, the session's time zone, and whole numbers beside NULL."""
    _, tables = environments()
    check_exact(exact_types(tables))


@pytest.mark.spark
def test_frame_of_pandas_keeps_values_in_batch() -> None:
    """K4: as in a stream."""
    check_exact(exact_types(TableEnvironment.create(EnvironmentSettings.in_batch_mode())))


@pytest.mark.parametrize(("zone", "name"), [("Asia/Tokyo", "Asia/Tokyo"), ("GMT-03:30", "-03:30"), ("UTC", "UTC")])
def test_arrow_keeps_nanoseconds_and_has_the_zone_of_the_session(zone: str, name: str) -> None:
    """K4: nested too."""
    _, tables = environments()
    tables.get_config().set_local_timezone(zone)
    moments = pa.array([1_577_836_800_123_456_789, None], pa.timestamp("ns", "UTC"))
    lists = pa.ListArray.from_arrays([0, 1, 2], moments)
    rows = pa.StructArray.from_arrays([moments], ["at_"])
    found = tables.from_arrow(pa.table({"l": moments, "ls": lists, "r": rows})).to_arrow()
    kind = pa.timestamp("ns", name)
    assert found.schema.types == [kind, pa.list_(kind), pa.struct([("at_", kind)])]
    assert found["l"].combine_chunks().view(pa.int64()).to_pylist() == [1_577_836_800_123_456_789, None]
    assert pa.compute.list_flatten(found["ls"]).combine_chunks().view(pa.int64()).to_pylist()[0] % 10**9 == 123_456_789


def test_rows_that_are_equal_are_retracted_from_frames_in_any_form() -> None:
    """K1: a map with its entries in another order, and NaN."""
    _, tables = environments()
    query = "SELECT k, MAP['a', 1, 'b', k] AS m, CAST('NaN' AS DOUBLE) AS n, SUM(v) AS s FROM t GROUP BY k"
    tables.create_temporary_view("t", tables.from_elements([(1, 2), (1, 3), (2, 4)], ["k", "v"]))
    assert sorted(tables.sql_query(query).to_pandas()["s"].tolist()) == [4, 5]


@pytest.mark.spark
def test_spark_writes_shredded_variants_that_are_read_and_reads_those_written(spark: Any, tmp_path: Path) -> None:
    if not hasattr(importlib.import_module("pyspark.sql.types"), "VariantType"):
        pytest.skip("Spark 3 has no VARIANT")
    texts = [f'{{"n":{n},"o":{{"p":"{n}"}},"l":[{n},null,1.5]}}' for n in range(20)] + ["null", "[]"]
    frame = spark.createDataFrame([(text,) for text in texts], "t STRING").selectExpr("parse_json(t) AS v")
    frame.coalesce(1).write.parquet(f"{tmp_path}/in")
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name in ("in", "out"):
        environment.execute_sql(
            f"CREATE TABLE {name}_t (v VARIANT) WITH "
            f"('connector' = 'filesystem', 'path' = '{tmp_path}/{name}', 'format' = 'parquet')"
        )
    with environment.sql_query("SELECT v FROM in_t").execute().collect() as rows:
        assert Counter(row[0] for row in rows) == Counter(map(parse, texts))
    environment.execute_sql("INSERT INTO out_t SELECT v FROM in_t").wait()
    written = spark.read.schema("v VARIANT").parquet(f"{tmp_path}/out").selectExpr("to_json(v)").collect()
    assert sorted(row[0] for row in written) == sorted(row[0] for row in frame.selectExpr("to_json(v)").collect())
