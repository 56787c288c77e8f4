"""K2: the fields of ROW(…) are EXPR$0, EXPR$1 in SQL and f0, f1 in the Table API: every answer is Flink's."""

from __future__ import annotations

from typing import Any

import pytest
from tests.table.api.recording import Recorder, environment
from tests.table.running import Rows, run

from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import FloatType, IntType, RowType, VarCharType
from penstock.table import DataTypes
from penstock.table.expressions import col, lit, row

STRING = VarCharType(2**31 - 1)
NUMBERS = Rows({"id": IntType(), "tx": STRING, "f": FloatType()}, [(1, "a", 1.5)])
PAIR = "ROW<`EXPR$0` INT, `EXPR$1` STRING> NOT NULL"
EXPRESSIONS = {
    "TYPEOF(ROW(id, tx))": PAIR,
    "TYPEOF((id, 7))": "ROW<`EXPR$0` INT, `EXPR$1` INT NOT NULL> NOT NULL",
    "TYPEOF(ROW(ROW(id), f))": "ROW<`EXPR$0` ROW<`EXPR$0` INT> NOT NULL, `EXPR$1` FLOAT> NOT NULL",
    "TYPEOF(ARRAY[ROW(id)])": "ARRAY<ROW<`EXPR$0` INT> NOT NULL> NOT NULL",
    "TYPEOF(CAST(ROW(id, tx) AS ROW<a INT, b STRING>))": "ROW<`a` INT, `b` STRING> NOT NULL",
    "TYPEOF(CASE WHEN id = 1 THEN ROW(id, tx) ELSE ROW(id, tx) END)": PAIR,
    "JSON_STRING(ROW(id, tx))": '{"EXPR$0":1,"EXPR$1":"a"}',
    "JSON_STRING((id, ROW(f)))": '{"EXPR$0":1,"EXPR$1":{"EXPR$0":1.5}}',
    "JSON_STRING(CAST(ROW(id, tx) AS ROW<a INT, b STRING>))": '{"a":1,"b":"a"}',
    "JSON_OBJECT('a' VALUE ROW(id, tx))": '{"a":{"EXPR$0":1,"EXPR$1":"a"}}',
    "CAST(ROW(id, tx) AS STRING)": "(1, a)",
    "ROW(id, tx).EXPR$0": 1,
    "(ROW(id, tx)).`EXPR$1`": "a",
    "(ARRAY[ROW(id, tx)])[1].EXPR$1": "a",
}
#: queries with their columns and row
QUERIES: dict[str, tuple[list[str], tuple[Any, ...]]] = {
    "SELECT r.EXPR$0, r.`EXPR$1` FROM (SELECT ROW(id, tx) AS r FROM t)": (["EXPR$0", "EXPR$1"], (1, "a")),
    "SELECT r.EXPR$0.EXPR$0 FROM (SELECT ROW(ROW(id), tx) AS r FROM t)": (["EXPR$0"], (1,)),
    "SELECT rr.EXPR$0.EXPR$1 FROM (SELECT (r, id) AS rr FROM (SELECT ROW(id, tx) AS r, id FROM t))": (
        ["EXPR$1"],
        ("a",),
    ),
    "SELECT r.a FROM (SELECT CAST(ROW(id, tx) AS ROW<a INT, b STRING>) AS r FROM t)": (["a"], (1,)),
    "SELECT r.* FROM (SELECT ROW(id, tx) AS r FROM t)": (["EXPR$0", "EXPR$1"], (1, "a")),
    "SELECT * FROM (SELECT id FROM t), UNNEST(ARRAY[ROW(1, 'b')])": (["id", "EXPR$0", "EXPR$1"], (1, 1, "b")),
    "SELECT TYPEOF(x) AS x FROM (VALUES (1, ROW(1, 'a'))) AS v (y, x)": (
        ["x"],
        ("ROW<`EXPR$0` INT NOT NULL, `EXPR$1` CHAR(1) NOT NULL> NOT NULL",),
    ),
}


@pytest.mark.parametrize("sql", EXPRESSIONS)
def test_fields_of_rows_in_sql_are_numbered(sql: str) -> None:
    assert run(f"SELECT {sql} FROM t", t=NUMBERS).rows() == [(EXPRESSIONS[sql],)]


@pytest.mark.parametrize("sql", QUERIES)
def test_fields_of_rows_are_read_by_their_numbers(sql: str) -> None:
    answer = run(sql, t=NUMBERS)
    assert (answer.names, answer.rows()) == (QUERIES[sql][0], [QUERIES[sql][1]])


def test_fields_do_not_have_the_names_of_columns() -> None:
    with pytest.raises(ValidationError, match=r"has no field 'id', but EXPR\$0, EXPR\$1"):
        run("SELECT r.id FROM (SELECT ROW(id, tx) AS r FROM t)", t=NUMBERS)


def test_views_keep_the_names_of_fields() -> None:
    made = environment(Recorder(), "CREATE TABLE t (id INT, tx STRING)")
    made.execute_sql("CREATE VIEW v AS SELECT ROW(id, tx) AS r, id FROM t")
    made.execute_sql("CREATE VIEW w AS SELECT r, (r, id) AS rr FROM v")
    kinds = [str(one) for one in made.from_path("w").get_resolved_schema().get_column_data_types()]
    assert kinds == [PAIR, f"ROW<`EXPR$0` {PAIR}, `EXPR$1` INT> NOT NULL"]


@pytest.mark.parametrize("made", [row(col("id"), col("tx")), row(1, "a"), lit((1, "a"))])
def test_fields_of_rows_in_the_table_api_are_f0_and_f1(made: Any) -> None:
    tables = environment(Recorder(), "CREATE TABLE t (id INT, tx STRING)")
    table = tables.from_path("t").select(made.alias("r"))
    (kind,) = table.get_resolved_schema().get_column_data_types()
    assert isinstance(kind, RowType)
    assert kind.field_names() == ["f0", "f1"]
    assert table.select(col("r").get("f0")).get_resolved_schema().get_column_data_types()[0] == (
        DataTypes.INT() if "id" in str(made) else DataTypes.INT().not_null()
    )
    with pytest.raises(ValidationError, match="has no field 'id', but f0, f1"):
        table.select(col("r").get("id"))
