"""K1: results that reach the client are in the order in which each subtask sends them, at every parallelism."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.table import EnvironmentSettings, ExplainDetail, StreamTableEnvironment, TableEnvironment

PARALLELISMS = [1, 2, 3, 4]
ROWS = 40
NUMBERS = f"""
CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'fields.id.kind' = 'sequence',
  'fields.id.start' = '1', 'fields.id.end' = '{ROWS}', 'rows-per-second' = '4000'{{}})
"""
#: queries over numbers that one subtask answers, each with the table that its changes stand for in the end
QUERIES: dict[str, tuple[str, list[list[Any]]]] = {
    "global aggregate": ("SELECT COUNT(*), SUM(id) FROM numbers", [[ROWS, ROWS * (ROWS + 1) // 2]]),
    "top rows": ("SELECT id FROM numbers ORDER BY id DESC LIMIT 2", [[ROWS - 1], [ROWS]]),
    "top group": (
        "SELECT k, n FROM (SELECT k, n, ROW_NUMBER() OVER (ORDER BY n DESC, k) AS place FROM "
        "(SELECT MOD(id, 4) AS k, COUNT(*) AS n FROM numbers GROUP BY MOD(id, 4))) WHERE place = 1",
        [[0, ROWS // 4]],
    ),
    "count of groups": (
        "SELECT COUNT(*) FROM (SELECT MOD(id, 3) AS k, COUNT(*) AS n FROM numbers GROUP BY MOD(id, 3))",
        [[3]],
    ),
    "not in": ("SELECT id FROM numbers WHERE id NOT IN (SELECT id FROM numbers WHERE id > 2)", [[1], [2]]),
    "join without equality": (
        "SELECT COUNT(*) FROM numbers AS a JOIN numbers AS b ON a.id < b.id",
        [[ROWS * (ROWS - 1) // 2]],
    ),
    "scalar subquery": ("SELECT id FROM numbers WHERE id = (SELECT MAX(id) FROM numbers)", [[ROWS]]),
}


def table_environment(parallelism: int) -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    tables.get_config().set("parallelism.default", str(parallelism))
    return tables


@pytest.mark.parametrize("parallelism", PARALLELISMS)
@pytest.mark.parametrize("query", list(QUERIES))
def test_table_that_changes_stand_for_is_the_same_at_every_parallelism(query: str, parallelism: int) -> None:
    tables = table_environment(parallelism)
    tables.execute_sql(NUMBERS.format(""))
    sql, wanted = QUERIES[query]
    assert sorted(tables.sql_query(sql).to_pandas().values.tolist()) == wanted
    kept: dict[tuple[Any, ...], int] = {}
    with tables.execute_sql(sql).collect() as rows:
        for row in rows:
            is_insert = row.get_row_kind().short_string in ("+I", "+U")
            kept[tuple(row)] = kept.get(tuple(row), 0) + (1 if is_insert else -1)
            assert kept[tuple(row)] >= 0, "a row is retracted before it is inserted"
    assert sorted(list(row) for row, times in kept.items() if times) == wanted


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_rows_in_order_of_time_are_collected_in_this_order(parallelism: int) -> None:
    tables = table_environment(parallelism)
    tables.execute_sql(
        "CREATE TABLE numbers (id BIGINT, ts AS TO_TIMESTAMP_LTZ(id, 3), WATERMARK FOR ts AS ts) WITH "
        "('connector' = 'datagen', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', "
        f"'fields.id.end' = '{ROWS}', 'rows-per-second' = '4000')"
    )
    with tables.execute_sql("SELECT id FROM numbers ORDER BY ts").collect() as rows:
        assert [row[0] for row in rows] == list(range(1, ROWS + 1))


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_rows_of_a_source_of_one_subtask_stay_in_order_beside_others(parallelism: int) -> None:
    """A union of a source with one subtask and one with as many as the job."""
    tables = table_environment(parallelism)
    tables.execute_sql(NUMBERS.format(", 'scan.parallelism' = '1'"))
    tables.execute_sql(NUMBERS.replace("numbers", "others").format(""))
    with tables.execute_sql("SELECT id FROM numbers UNION ALL SELECT -id FROM others").collect() as rows:
        assert [row[0] for row in rows if row[0] > 0] == list(range(1, ROWS + 1))


@pytest.mark.parametrize("parallelism", PARALLELISMS)
@pytest.mark.parametrize("limit", [None, ROWS])
def test_records_of_a_stream_of_one_subtask_are_collected_in_order(parallelism: int, limit: int | None) -> None:
    options = {"execution.target": "local", "penstock.source.batch-records": "3"}
    streams = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    streams.set_parallelism(parallelism)
    numbers = streams.from_collection(list(range(ROWS))).map(lambda number: number).set_parallelism(1)
    assert list(numbers.execute_and_collect(limit=limit)) == list(range(ROWS))
    again = streams.from_collection(list(range(ROWS))).map(lambda number: number).set_parallelism(1)
    assert again.collect() == list(range(ROWS))


@pytest.mark.parametrize("way", ["forward", "rebalance", "broadcast", "key_by"])
def test_stream_is_collected_however_it_is_partitioned(way: str) -> None:
    streams = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    streams.set_parallelism(3)
    numbers = streams.from_collection(list(range(1, ROWS + 1))).map(lambda number: number)
    arguments = [lambda number: number % 5] if way == "key_by" else []
    assert sorted(getattr(numbers, way)(*arguments).collect()) == list(range(1, ROWS + 1))


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_plan_shows_the_parallelism_that_collects(parallelism: int) -> None:
    options = Configuration.from_dict({"execution.target": "local", "parallelism.default": str(parallelism)})
    tables = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment(options))
    tables.execute_sql(NUMBERS.format(""))
    text = tables.explain_sql("SELECT id FROM numbers", ExplainDetail.JSON_EXECUTION_PLAN)
    nodes = json.loads(text.partition("== Physical Execution Plan ==")[2])["nodes"]
    assert [node["parallelism"] for node in nodes if "Collect" in node["type"]] == [1]
