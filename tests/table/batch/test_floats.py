"""K2: FLOAT beside DOUBLE, DECIMAL and whole numbers: every answer is Flink's, in streams and in batch."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from tests.table.batch.batches import run_batch
from tests.table.running import Rows, run

from penstock.sql.data.types import DecimalType, DoubleType, FloatType, IntType

TENTH = float(np.float32(0.1))
NUMBERS = Rows(
    {"id": IntType(), "f": FloatType(), "db": DoubleType(), "de": DecimalType(10, 2), "i": IntType()},
    [
        (1, TENTH, 0.1, Decimal("0.10"), 1),
        (2, 1.5, 1.5, Decimal("1.50"), 16_777_217),
        (3, 16_777_216.0, 16_777_216.4, Decimal("16777216.00"), 16_777_217),
        (4, TENTH, 0.2, Decimal("0.20"), 16_777_216),
    ],
)
#: a condition, and the rows of which it is true
CONDITIONS: dict[str, tuple[int, ...]] = {
    # the first operand decides whether FLOAT and DOUBLE are compared as FLOAT
    "f = db": (1, 2, 3),
    "f <> db": (4,),
    "db = f": (2,),
    "db <> f": (1, 3, 4),
    # order is exact
    "f < db": (3, 4),
    "f <= db": (2, 3, 4),
    "f > db": (1,),
    "f >= db": (1, 2),
    "db < f": (1,),
    "f IS DISTINCT FROM db": (1, 3, 4),
    "f IS NOT DISTINCT FROM de": (2, 3),
    # FLOAT and DECIMAL are DOUBLE
    "f = de": (2, 3),
    "de = f": (2, 3),
    "f < de": (4,),
    "f > de": (1,),
    "f = 0.1": (),
    "f > 0.1": (1, 2, 3, 4),
    "f = 1e-1": (1, 4),
    "f = CAST(0.1 AS FLOAT)": (1, 4),
    "f = i": (3,),
    "f < i": (1, 2, 4),
    # constants of IN take the type of the first operand
    "f IN (0.1)": (1, 4),
    "f IN (0.1, 0.2)": (1, 4),
    "f IN (1e-1, 2e-1)": (1, 4),
    "f IN (0.1, 2e-1)": (1, 4),
    "f IN (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)": (1, 4),
    "f NOT IN (0.1, 0.3)": (2, 3),
    "f IN (db)": (1, 2, 3),
    "f IN (de)": (1, 2, 3),
    "f IN (de, db)": (1, 2, 3),
    "de IN (f, db)": (1, 2, 3, 4),
    "f IN (db, 7)": (1, 2, 3),
    "db IN (f)": (2,),
    "db IN (f, 0.2)": (2, 4),
    "(id, f) IN ((1, 0.1), (2, 1.5))": (1, 2),
    "f BETWEEN 0.1 AND 0.1": (),
    "f BETWEEN 1e-1 AND 1e-1": (),
    "f BETWEEN db AND db": (2,),
    "f BETWEEN de AND db": (2, 3),
    "de BETWEEN f AND f": (2, 3),
    "f NOT BETWEEN 0.1 AND 0.2": (2, 3),
    "f BETWEEN db AND 1": (1,),
    "f = 0.1 OR f = 1.5": (2,),
    "CASE f WHEN 0.1 THEN 'd' WHEN 1e-1 THEN 'e' ELSE 'n' END = 'e'": (1, 4),
    "NULLIF(f, db) IS NULL": (1, 2, 3),
    "NULLIF(f, de) IS NULL": (2, 3),
    "NULLIF(db, f) IS NULL": (2,),
    "ARRAY[f] = ARRAY[db]": (1, 2, 3),
    "ROW(f) = ROW(db)": (2,),
    "ROW(f) = ROW(de)": (2, 3),
    # queries
    "f IN (SELECT db FROM t)": (1, 2, 3, 4),
    "db IN (SELECT f FROM t)": (2,),
    "f IN (SELECT de FROM t)": (2, 3),
    "f NOT IN (SELECT de FROM t)": (1, 4),
    "(id, f) IN (SELECT id, db FROM t)": (1, 2, 3),
    "EXISTS (SELECT 1 FROM t AS b WHERE t.f = b.db)": (1, 2, 3, 4),
    "f = (SELECT MAX(db) FROM t WHERE id = 1)": (1, 4),
}
#: a query and its rows
QUERIES: dict[str, list[tuple[Any, ...]]] = {
    "SELECT a.id, b.id FROM t a JOIN t b ON a.f = b.db": [(1, 1), (2, 2), (3, 3), (4, 1)],
    "SELECT a.id, b.id FROM t a JOIN t b ON a.db = b.f": [(2, 2)],
    "SELECT a.id, b.id FROM t a JOIN t b ON a.f = b.de": [(2, 2), (3, 3)],
    "SELECT a.id, b.id FROM t a JOIN t b ON a.f = b.i": [(3, 2), (3, 3), (3, 4)],
    "SELECT a.id, b.id FROM t a JOIN t b ON a.f < b.db AND a.id = b.id": [(3, 3), (4, 4)],
    "SELECT f FROM t UNION SELECT db FROM t": [(TENTH,), (1.5,), (16_777_216.0,), (float(np.float32(0.2)),)],
    "SELECT f FROM t INTERSECT SELECT db FROM t": [(TENTH,), (1.5,), (16_777_216.0,)],
    "SELECT db FROM t INTERSECT SELECT f FROM t": [(1.5,)],
    "SELECT f FROM t INTERSECT SELECT de FROM t": [(1.5,), (16_777_216.0,)],
    "SELECT f FROM t EXCEPT SELECT db FROM t": [],
    "SELECT de FROM t EXCEPT SELECT f FROM t": [(0.1,), (0.2,)],
    "SELECT f FROM t WHERE id = 1 UNION ALL SELECT de FROM t WHERE id = 4": [(TENTH,), (0.2,)],
    "SELECT i FROM t WHERE id = 1 UNION ALL SELECT f FROM t WHERE id = 4": [(1.0,), (TENTH,)],
    "SELECT f + de, f - de, f * de, f / de, de + f FROM t WHERE id = 1": [
        (TENTH + 0.1, TENTH - 0.1, TENTH * 0.1, TENTH / 0.1, 0.1 + TENTH)
    ],
    "SELECT f + db, db + f, f * 1.0, f + 1e0 FROM t WHERE id = 1": [
        (float(np.float32(0.2)), 0.1 + TENTH, TENTH, float(np.float32(1.1)))
    ],
    "SELECT SUM(f * 1.0), SUM(f + de) FROM t WHERE id < 3": [(TENTH + 1.5, TENTH + 0.1 + 3.0)],
    "SELECT CASE WHEN id < 3 THEN f ELSE db END, CASE WHEN id < 3 THEN f ELSE de END FROM t WHERE id = 4": [
        (float(np.float32(0.2)), 0.2)
    ],
    "SELECT COALESCE(f, db), COALESCE(f, de), COALESCE(de, f), IFNULL(f, de) FROM t WHERE id = 1": [
        (TENTH, TENTH, TENTH, TENTH)
    ],
    "SELECT GREATEST(f, db), GREATEST(f, de), LEAST(db, f), LEAST(de, f) FROM t WHERE id = 1": [
        (TENTH, TENTH, 0.1, TENTH)
    ],
    "SELECT x FROM (VALUES (CAST(0.1 AS FLOAT)), (CAST(0.2 AS DOUBLE))) AS v(x)": [
        (TENTH,),
        (float(np.float32(0.2)),),
    ],
}


def stream_rows(sql: str) -> Counter[tuple[Any, ...]]:
    return run(sql, t=NUMBERS).net()


def batch_rows(sql: str) -> Counter[tuple[Any, ...]]:
    return Counter(run_batch(sql, t=NUMBERS))


@pytest.mark.parametrize("sql", CONDITIONS)
def test_conditions_over_floats_in_a_stream(sql: str) -> None:
    wanted = Counter((number,) for number in CONDITIONS[sql])
    assert stream_rows(f"SELECT id FROM t WHERE {sql}") == wanted


@pytest.mark.parametrize("sql", QUERIES)
def test_queries_over_floats_in_a_stream(sql: str) -> None:
    assert stream_rows(sql) == Counter(QUERIES[sql])


@pytest.mark.spark
@pytest.mark.slow
def test_conditions_over_floats_in_batch() -> None:
    """One query of all conditions without queries, because each query costs a second of Spark."""
    scalar = {sql: wanted for sql, wanted in CONDITIONS.items() if "SELECT" not in sql}
    tested = ", ".join(f"({sql}) AS c{number}" for number, sql in enumerate(scalar))
    rows = batch_rows(f"SELECT id, {tested} FROM t")
    found = {sql: tuple(sorted(row[0] for row in rows if row[place])) for place, sql in enumerate(scalar, 1)}
    assert found == scalar


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("sql", [one for one in CONDITIONS if "SELECT" in one])
def test_subqueries_over_floats_in_batch(sql: str) -> None:
    assert batch_rows(f"SELECT id FROM t WHERE {sql}") == Counter((number,) for number in CONDITIONS[sql])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("sql", QUERIES)
def test_queries_over_floats_in_batch(sql: str) -> None:
    assert batch_rows(sql) == Counter(QUERIES[sql])
