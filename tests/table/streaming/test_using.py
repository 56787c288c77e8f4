"""JOIN … USING and NATURAL: merged columns, what `*` shows, and chains of joins."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from tests.table.planned import manager_of, plan_query
from tests.table.running import Rows, run_over

from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DecimalType, DoubleType, FloatType
from penstock.sql.functions.definition import BIGINT, INT

ROWS: dict[str, Any] = {
    "a": (("x", "k"), [(10, 1), (20, 2), (5, None)]),
    "b": (("y", "k"), [(21, 2), (30, 3), (6, None)]),
    "c": (("z", "k"), [(33, 3), (41, 4), (11, 1)]),
    "two": (("k", "v", "x"), [(1, 10, 5)]),
    "two2": (("v", "k", "y"), [(10, 1, 6), (30, 3, 7)]),
    "d": (("k", "w"), [(2, 21)]),
}


def tables(is_null: bool = True) -> dict[str, Rows]:
    found = {}
    for name, (columns, rows) in ROWS.items():
        kinds = {column: (BIGINT if name == "d" and column == "k" else INT) for column in columns}
        if not is_null:
            kinds["k"] = kinds["k"].not_null()
            rows = [row for row in rows if None not in row]
        found[name] = Rows(kinds, rows)
    return found


def read_rows(sql: str, is_null: bool = True) -> list[Any]:
    return sorted(run_over(tables(is_null), sql).rows(), key=str)


QUERIES: dict[str, list[Any]] = {
    "SELECT * FROM a JOIN b USING (k)": [(2, 20, 21)],
    "SELECT * FROM a LEFT JOIN b USING (k)": [(1, 10, None), (2, 20, 21), (None, 5, None)],
    "SELECT * FROM a RIGHT JOIN b USING (k)": [(2, 20, 21), (3, None, 30), (None, None, 6)],
    "SELECT * FROM a FULL JOIN b USING (k)": [
        *((1, 10, None), (2, 20, 21), (3, None, 30)),
        *((None, 5, None), (None, None, 6)),
    ],
    "SELECT * FROM two FULL JOIN two2 USING (v, k)": [(10, 1, 5, 6), (30, 3, None, 7)],
    "SELECT * FROM two NATURAL FULL JOIN two2": [(1, 10, 5, 6), (3, 30, None, 7)],
    "SELECT a.*, b.* FROM a RIGHT JOIN b USING (k)": [(20, 2, 21, 2), (None, None, 30, 3), (None, None, 6, None)],
    "SELECT k, COUNT(*) FROM a FULL JOIN b USING (k) GROUP BY k": [(1, 1), (2, 1), (3, 1), (None, 2)],
    "SELECT k, COUNT(*) FROM (SELECT * FROM a FULL JOIN b USING (k)) AS s GROUP BY k": [
        *((1, 1), (2, 1), (3, 1), (None, 2)),
    ],
    "SELECT * FROM a FULL JOIN b USING (k) WHERE k > 2": [(3, None, 30)],
    "SELECT * FROM (SELECT * FROM a NATURAL FULL JOIN b) AS s WHERE k > 1 AND x IS NULL": [(3, None, 30)],
    "SELECT x FROM a WHERE k IN (SELECT k FROM b FULL JOIN c USING (k))": [(10,), (20,)],
    "SELECT k FROM a FULL JOIN b USING (k) WHERE EXISTS (SELECT 1 FROM (SELECT z FROM c) AS v WHERE z = k * 11)": [
        *((1,), (3,)),
    ],
    "SELECT * FROM a FULL JOIN d USING (k)": [(1, 10, None), (2, 20, 21), (None, 5, None)],
    "SELECT * FROM a JOIN b USING (k), c WHERE z = 33": [(2, 20, 21, 33, 3)],
    "SELECT * FROM a JOIN b USING (k, k)": [(2, 20, 21)],
    # three tables
    "SELECT * FROM a JOIN b USING (k) JOIN c USING (k)": [],
    "SELECT * FROM a LEFT JOIN b USING (k) JOIN c USING (k)": [(1, 10, None, 11)],
    "SELECT k, x, y, z FROM a LEFT JOIN b USING (k) LEFT JOIN c USING (k)": [
        *((1, 10, None, 11), (2, 20, 21, None), (None, 5, None, None)),
    ],
    "SELECT * FROM a FULL JOIN b USING (k) JOIN c USING (k)": [(1, 10, None, 11), (3, None, 30, 33)],
    "SELECT * FROM a RIGHT JOIN b USING (k) LEFT JOIN c USING (k)": [
        *((2, 20, 21, None), (3, None, 30, 33), (None, None, 6, None)),
    ],
    "SELECT * FROM a FULL JOIN b USING (k) FULL JOIN c USING (k)": [
        *((1, 10, None, 11), (2, 20, 21, None), (3, None, 30, 33), (4, None, None, 41)),
        *((None, 5, None, None), (None, None, 6, None)),
    ],
    "SELECT k, x, y, z FROM a NATURAL FULL JOIN b NATURAL FULL JOIN c WHERE k >= 3": [
        *((3, None, 30, 33), (4, None, None, 41)),
    ],
    "SELECT * FROM a FULL JOIN (b FULL JOIN c USING (k)) USING (k)": [
        *((1, 10, None, 11), (2, 20, 21, None), (3, None, 30, 33), (4, None, None, 41)),
        *((None, 5, None, None), (None, None, 6, None)),
    ],
    "SELECT * FROM two2 JOIN (a FULL JOIN c USING (k)) USING (k)": [(1, 10, 6, 10, 11), (3, 30, 7, None, 33)],
}


@pytest.mark.parametrize("sql", QUERIES)
def test_a_merged_column_has_the_value_of_either_side_and_comes_first(sql: str) -> None:
    """K2: as Flink and standard SQL show `*`; for chains of outer joins as standard SQL."""
    assert read_rows(sql) == QUERIES[sql]


@pytest.mark.parametrize("sql", QUERIES)
def test_the_same_with_keys_that_are_not_null(sql: str) -> None:
    """K1: neither the order of the columns nor a value depends on NOT NULL."""
    wanted = [row for row in QUERIES[sql] if row not in [(None, 5, None), (None, None, 6), (None, 2)]]
    wanted = [row for row in wanted if row[:1] != (None,) or "a.*" in sql]
    assert read_rows(sql, is_null=False) == [row for row in wanted if row != (None, None, 6, None)]


@pytest.mark.parametrize(
    ("relation", "columns"),
    [
        ("a JOIN b USING (k)", ["k INT", "x INT", "y INT"]),
        ("a JOIN n USING (k)", ["k INT NOT NULL", "x INT", "z INT"]),
        ("a LEFT JOIN n USING (k)", ["k INT", "x INT", "z INT"]),
        ("a RIGHT JOIN n USING (k)", ["k INT NOT NULL", "x INT", "z INT"]),
        ("n FULL JOIN n AS o USING (k)", ["k INT", "z INT", "z0 INT"]),
        ("n JOIN big USING (k)", ["k BIGINT NOT NULL", "z INT", "w INT"]),
        ("n RIGHT JOIN big USING (k)", ["k BIGINT", "z INT", "w INT"]),
        ("n JOIN big USING (k) LEFT JOIN a USING (k)", ["k BIGINT NOT NULL", "z INT", "w INT", "x INT"]),
    ],
)
def test_a_merged_column_has_the_type_of_both(relation: str, columns: list[str]) -> None:
    kinds = {"a": "x INT, k INT", "b": "y INT, k INT", "n": "z INT, k INT NOT NULL", "big": "k BIGINT, w INT"}
    tables = [f"CREATE TABLE {name} ({text}) WITH ('connector' = 'datagen')" for name, text in kinds.items()]
    plan = plan_query(f"SELECT * FROM {relation}", manager_of(*tables))
    assert [f"{name} {kind}" for name, kind in zip(plan.schema.names, plan.schema.types, strict=True)] == columns


#: a comma is a join like others, and joins go from left to right; of several columns USING takes the first one
COMMAS: dict[str, list[Any]] = {
    "SELECT * FROM a, b JOIN c USING (k)": [(1, 10, 21, 2, 11), (1, 10, 30, 3, 11), (1, 10, 6, None, 11)],
    "SELECT * FROM a, c NATURAL JOIN d": [(2, 20, 11, 1, 21), (2, 20, 33, 3, 21), (2, 20, 41, 4, 21)],
    "SELECT k FROM a JOIN c ON a.k < c.k JOIN d USING (k)": [(2,), (2,)],
    "SELECT x, b.k, z FROM a, b JOIN c ON a.k = c.k WHERE y = 21": [(10, 2, 11)],
    "SELECT x, b.k, z FROM a, b RIGHT JOIN c ON b.k = c.k AND a.k = 1": [
        *((10, 3, 33), (None, None, 11), (None, None, 41)),
    ],
    "SELECT x, u.n, w FROM a, UNNEST(ARRAY[a.k, 7]) AS u (n) LEFT JOIN d ON u.n = d.k WHERE x = 20": [
        *((20, 2, 21), (20, 7, None)),
    ],
    "SELECT * FROM a AS u NATURAL JOIN a AS v": [(10, 1), (20, 2)],
}


@pytest.mark.parametrize("sql", COMMAS)
def test_commas_and_joins_go_from_left_to_right(sql: str) -> None:
    """K2: in Flink; in standard SQL JOIN goes before the comma."""
    assert read_rows(sql) == COMMAS[sql]
    assert read_rows(sql.replace("FROM a, ", "FROM a CROSS JOIN ", 1)) == COMMAS[sql]


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT * FROM a JOIN b USING (nope)", "Column 'nope' of USING not found on the left side"),
        ("SELECT * FROM a JOIN b USING (x)", "Column 'x' of USING not found on the right side"),
        ("SELECT k FROM a JOIN b USING (k), c", "Column 'k' is ambiguous"),
        ("SELECT x FROM a WHERE EXISTS (SELECT 1 FROM b JOIN c USING (x))", "Column 'x' of USING not found"),
    ],
)
def test_columns_of_using_are_those_of_both_sides(sql: str, error: str) -> None:
    with pytest.raises(ValidationError, match=error):
        read_rows(sql)


#: 0.1 as a FLOAT
NARROW = 0.10000000149011612
FLOATS: dict[str, tuple[str, list[Any]]] = {
    "SELECT * FROM f JOIN d USING (k)": ("FLOAT", [(NARROW, 1, 7)]),
    "SELECT * FROM f LEFT JOIN d USING (k)": ("FLOAT", [(NARROW, 1, 7), (2.5, 2, None)]),
    "SELECT * FROM f RIGHT JOIN d USING (k)": ("FLOAT", [(NARROW, 1, 7), (7.5, None, 8)]),
    "SELECT * FROM f FULL JOIN d USING (k)": ("FLOAT", [(NARROW, 1, 7), (2.5, 2, None), (7.5, None, 8)]),
    "SELECT * FROM f NATURAL RIGHT JOIN d": ("FLOAT", [(NARROW, 1, 7), (7.5, None, 8)]),
    "SELECT * FROM d FULL JOIN f USING (k)": (
        "DOUBLE",
        [(0.1, 7, None), (NARROW, None, 1), (2.5, None, 2), (7.5, 8, None)],
    ),
    "SELECT * FROM f JOIN d USING (k) JOIN d AS e USING (k)": ("FLOAT", [(NARROW, 1, 7, 7)]),
    "SELECT * FROM c JOIN f USING (k)": ("DOUBLE", [(2.5, 3, 2)]),
    "SELECT * FROM f JOIN c USING (k)": ("DOUBLE", [(2.5, 2, 3)]),
    # by its name
    "SELECT k FROM f JOIN d USING (k)": ("DOUBLE", [(NARROW,)]),
    "SELECT k FROM f FULL JOIN d USING (k)": ("DOUBLE", [(NARROW,), (2.5,), (7.5,)]),
    "SELECT k FROM c JOIN f USING (k)": ("FLOAT", [(2.5,)]),
    "SELECT k, COUNT(*) FROM f JOIN d USING (k) GROUP BY k": ("DOUBLE", [(NARROW, 1)]),
}


@pytest.mark.parametrize("sql", FLOATS)
def test_of_float_and_double_the_first_counts_for_a_star_and_the_wider_for_the_name(sql: str) -> None:
    """K2: the answers of Flink."""
    found = {
        "f": Rows({"k": FloatType(), "x": INT}, [(NARROW, 1), (2.5, 2)]),
        "d": Rows({"k": DoubleType(), "y": INT}, [(0.1, 7), (7.5, 8)]),
        "c": Rows({"k": DecimalType(10, 3), "z": INT}, [(Decimal("2.5"), 3), (Decimal("0.1"), 4)]),
    }
    kinds = {
        "f": "k FLOAT, x INT",
        "d": "k DOUBLE, y INT",
        "c": "k DECIMAL(10, 3), z INT",
    }
    tables = [f"CREATE TABLE {name} ({text}) WITH ('connector' = 'datagen')" for name, text in kinds.items()]
    wanted, rows = FLOATS[sql]
    assert str(plan_query(sql, manager_of(*tables)).schema.types[0]) == wanted
    assert sorted(run_over(found, sql).rows(), key=str) == sorted(rows, key=str)


@pytest.mark.parametrize(("one", "other"), [("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"), ("TIMESTAMP_LTZ(3)", "TIMESTAMP(3)")])
def test_of_timestamps_with_and_without_a_zone_the_first_counts_for_a_star(one: str, other: str) -> None:
    """K2: the types that Flink gives."""
    kinds = {"a": one, "b": other}
    tables = [f"CREATE TABLE {name} (k {kind}) WITH ('connector' = 'datagen')" for name, kind in kinds.items()]
    plan = plan_query("SELECT * FROM a FULL JOIN b USING (k)", manager_of(*tables))
    assert [str(kind) for kind in plan.schema.types] == [one]
