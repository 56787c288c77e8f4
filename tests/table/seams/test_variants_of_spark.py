"""A3: VARIANT in data frames of Spark, in and out, also inside arrays, maps and rows."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pandas
import pytest
from tests.table.seams.streams import environments, list_columns, read_changes

from penstock.common import Row, Types
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.drivers.spark.session import hand_back, obtain_spark
from penstock.sql.data.errors import ValidationError
from penstock.table import DataTypes, EnvironmentSettings, TableEnvironment
from penstock.table.types import Variant

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not hasattr(importlib.import_module("pyspark.sql.types"), "VariantType"), reason="Spark 3 has no VARIANT"
    ),
]

#: NULL, JSON's null, a value of JSON, and a type that JSON does not have
COLUMNS = """
    id,
    CASE id WHEN 0 THEN parse_json('{"b":[1,2.50,null],"a":"x"}') WHEN 1 THEN parse_json('null')
            WHEN 2 THEN CAST(TIMESTAMP_NTZ'2026-01-02 03:04:05' AS VARIANT) END AS `v 1`,
    IF(id = 0, array(parse_json('7'), NULL), NULL) AS l,
    named_struct('n', IF(id = 1, NULL, parse_json('true')), 'm', id) AS r,
    map('k', IF(id = 1, NULL, parse_json('{"z":"é"}'))) AS m
"""
#: as Spark writes them; Flink and Penstock write a time with T
TEXTS = ['{"a":"x","b":[1,2.5,null]}', "null", '"2026-01-02 03:04:05"', None]


@pytest.fixture(name="spark", scope="module")
def obtain_session() -> Iterator[Any]:
    handle = obtain_spark({}, 1)
    yield handle.session
    hand_back(handle, 1)


def _frame(spark: Any) -> Any:
    return spark.sql(f"SELECT {COLUMNS} FROM range(0, 4, 1, 2)")


def _texts(frame: Any, name: str = "`v 1`") -> list[Any]:
    return [row[0] for row in frame.selectExpr(f"to_json({name})", "id").orderBy("id").collect()]


def _json(value: Any) -> Any:
    """A value with variants as their JSON."""
    if isinstance(value, Variant):
        return value.to_json()
    if isinstance(value, Row):
        return tuple(map(_json, value))
    if isinstance(value, list):
        return list(map(_json, value))
    return {key: _json(item) for key, item in value.items()} if isinstance(value, dict) else value


RECORDS = [
    (0, '{"a":"x","b":[1,2.5,null]}', ["7", None], ("true", 0), {"k": '{"z":"é"}'}),
    (1, "null", None, (None, 1), {"k": None}),
    (2, '"2026-01-02T03:04:05"', None, ("true", 2), {"k": '{"z":"é"}'}),
    (3, None, None, ("true", 3), {"k": '{"z":"é"}'}),
]


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING])
def test_records_of_a_frame_have_variants(spark: Any, mode: RuntimeExecutionMode) -> None:
    """Read in place by tasks of Spark, and from the copy, which Spark shreds."""
    streams = StreamExecutionEnvironment.get_execution_environment()
    streams.set_parallelism(2).set_runtime_mode(mode)
    found = list(streams.from_dataframe(_frame(spark)).map(lambda row: row).execute_and_collect())
    assert sorted(map(_json, found)) == RECORDS
    assert all(isinstance(row["v 1"], Variant | None) for row in found)


def test_a_table_of_a_frame_has_variants(spark: Any) -> None:
    _, tables = environments()
    table = tables.from_dataframe(_frame(spark))
    assert list_columns(table) == [
        "`id` BIGINT",
        "`v 1` VARIANT",
        "`l` ARRAY<VARIANT>",
        "`r` ROW<`n` VARIANT, `m` BIGINT>",
        "`m` MAP<STRING, VARIANT>",
    ]
    tables.create_temporary_view("t", table)
    parts = ("`v 1`['b'][1]", "l[1]", "r.n", "m['k']")
    query = f"SELECT {', '.join(f'JSON_STRING({part})' for part in parts)} FROM t WHERE id = 0"
    assert read_changes(tables.sql_query(query)) == ['+I[1, 7, true, {"z":"é"}]']


def test_a_stream_becomes_a_frame_with_variants(spark: Any) -> None:
    """From a `Variant`, and from what one can be made of."""
    streams = StreamExecutionEnvironment.get_execution_environment()
    streams.set_runtime_mode(RuntimeExecutionMode.BATCH)
    rows = [(0, Variant.of({"a": [1]}), [Variant.of("x"), None]), (1, [1, "y"], None), (2, None, [])]
    frame = streams.from_collection(rows).to_dataframe("id INT, v VARIANT, l ARRAY<VARIANT>")
    assert _texts(frame, "v") == ['{"a":[1]}', '[1,"y"]', None]
    assert _texts(frame, "l") == ['["x",null]', None, "[]"]
    again = streams.from_dataframe(frame).map(lambda row: row.v, Types.PICKLED_BYTE_ARRAY())
    assert sorted(map(str, again.execute_and_collect())) == ["None", '[1,"y"]', '{"a":[1]}']


@pytest.fixture(name="batch")
def create_batch(spark: Any) -> TableEnvironment:
    _frame(spark).createOrReplaceTempView("variants_of_spark")
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    tables.execute_sql(
        "CREATE TABLE t (id BIGINT, `v 1` VARIANT, l ARRAY<VARIANT>, m MAP<STRING, VARIANT>) WITH "
        "('connector' = 'spark', 'table' = 'variants_of_some')"
    )
    _frame(spark).drop("r").createOrReplaceTempView("variants_of_some")
    return tables


def test_a_batch_reads_tables_of_spark_and_gives_frames(batch: TableEnvironment) -> None:
    """Flat and nested; a column that is not of the declared type is refused."""
    with batch.execute_sql(
        "SELECT JSON_STRING(`v 1`) AS j, id FROM t WHERE JSON_STRING(m['k']) IS NOT NULL"
    ).collect() as rows:
        assert sorted((row[1], row[0]) for row in rows) == [(number, RECORDS[number][1]) for number in (0, 2, 3)]
    frame = batch.sql_query("SELECT id, `v 1` AS `a v` FROM t").to_dataframe()
    assert frame.schema["a v"].dataType.simpleString() == "variant"
    assert _texts(frame, "`a v`") == TEXTS
    nested = batch.sql_query("SELECT id, l, ROW(`v 1`, id) AS `r s`, m FROM t ORDER BY id").to_dataframe()
    kinds = [field.dataType.simpleString() for field in nested.schema.fields]
    assert kinds[1] == "array<variant>"
    assert kinds[2].endswith(":variant,EXPR$1:bigint>")
    assert kinds[3] == "map<string,variant>"
    assert _texts(nested, "l") == ["[7,null]", None, None, None]
    assert _texts(nested, "m") == ['{"k":{"z":"é"}}', '{"k":null}', '{"k":{"z":"é"}}', '{"k":{"z":"é"}}']
    batch.execute_sql(
        "CREATE TABLE w (id BIGINT, `v 1` STRING, l ARRAY<VARIANT>, m MAP<STRING, VARIANT>) WITH "
        "('connector' = 'spark', 'table' = 'variants_of_some')"
    )
    with pytest.raises(ValidationError, match="declared as STRING, and Spark has VARIANT"):
        batch.execute_sql("SELECT * FROM w")


def test_spark_evaluates_what_a_batch_made(spark: Any) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    texts = '(1, \'{"b":[1,2.50],"a":"x"}\'), (2, \'null\'), (3, CAST(NULL AS STRING))'
    table = tables.sql_query(f"SELECT id, PARSE_JSON(s) AS `a v` FROM (VALUES {texts}) AS q(id, s)")
    frame = table.to_dataframe()
    rows = frame.selectExpr("id", "to_json(`a v`) AS t", "variant_get(`a v`, '$.b[1]', 'double') AS d").collect()
    assert sorted(map(tuple, rows)) == [(1, '{"a":"x","b":[1,2.5]}', 2.5), (2, "null", None), (3, None, None)]


def test_an_arrow_table_of_spark_has_variants(spark: Any) -> None:
    """Spark itself fails to make one of a NULL."""
    _, tables = environments()
    data = _frame(spark).where("id = 0").select("id", "v 1", "m").toArrow()
    assert list_columns(tables.from_arrow(data)) == ["`id` BIGINT", "`v 1` VARIANT", "`m` MAP<STRING, VARIANT>"]
    assert read_changes(tables.from_arrow(data)) == ['+I[0, {"a":"x","b":[1,2.5,null]}, {k={"z":"é"}}]']


def test_frames_of_pandas_and_arrow_hold_packed_variants() -> None:
    """`Variant` objects in a frame of pandas; packed bytes in Arrow, and on the way in."""
    _, tables = environments()
    table = tables.sql_query("SELECT PARSE_JSON('{\"a\":1}') AS v")
    assert table.to_pandas()["v"].tolist() == [Variant.of({"a": 1})]
    data = table.to_arrow()
    assert [Variant.unpack(value) for value in data["v"].to_pylist()] == [Variant.of({"a": 1})]
    declared = DataTypes.ROW([DataTypes.FIELD("v", DataTypes.VARIANT())])
    assert read_changes(tables.from_arrow(data, declared)) == ['+I[{"a":1}]']
    frame = pandas.DataFrame({"v": [Variant.of([1]).pack()]})
    assert read_changes(tables.from_pandas(frame, declared)) == ["+I[[1]]"]
