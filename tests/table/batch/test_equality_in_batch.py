"""K1: NaN, zeros, and maps in any order mean the same in batch as in streams: in groups, joins, sets and orders."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from tests.table.batch.batches import run_batch
from tests.table.running import Rows, run

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import (
    ArrayType,
    BitmapType,
    DecimalType,
    DoubleType,
    IntType,
    MapType,
    RowField,
    RowType,
    VarCharType,
)
from penstock.sql.stream.rows.rows import RowEquality

pytestmark = [pytest.mark.spark, pytest.mark.slow]

INT, DOUBLE, STRING = IntType(), DoubleType(), VarCharType(10)
NAN = math.nan
NUMBERS = Rows(
    {"id": INT, "x": DOUBLE, "y": DOUBLE},
    [(1, NAN, NAN), (2, NAN, 1.0), (3, 1.0, NAN), (4, 0.0, -0.0), (5, 1.0, 2.0), (6, None, NAN)],
)
NESTED = Rows(
    {
        "id": INT,
        "m": MapType(STRING, DOUBLE),
        "a": ArrayType(DOUBLE),
        "r": RowType([RowField("n", MapType(STRING, ArrayType(DOUBLE))), RowField("x", DOUBLE)]),
        "l": ArrayType(MapType(STRING, MapType(INT, DOUBLE))),
    },
    [
        (1, [("a", NAN), ("b", 0.0)], [NAN, 0.0], ([("p", [NAN]), ("q", None)], 0.0), [[("s", [(1, NAN), (2, 0.0)])]]),
        (
            2,
            [("b", -0.0), ("a", NAN)],
            [NAN, -0.0],
            ([("q", None), ("p", [NAN])], -0.0),
            [[("s", [(2, -0.0), (1, NAN)])]],
        ),
        (3, [("x", None)], [7.0], ([], None), [None]),
        (4, None, None, None, None),
    ],
)
OF_NUMBERS = [
    "SELECT x = y, x <> y, x < y, x >= y, x IS DISTINCT FROM y, x IS NOT DISTINCT FROM y FROM t",
    "SELECT GREATEST(x, y), LEAST(x, y), x IN (1e0, CAST('NaN' AS DOUBLE)), NULLIF(x, y) FROM t",
    "SELECT MIN(x), MAX(x), MIN(y), MAX(y), COUNT(DISTINCT x), COUNT(DISTINCT y) FROM t",
    "SELECT x, COUNT(*) FROM t GROUP BY x",
    "SELECT DISTINCT y FROM t",
    "SELECT PERCENTILE(x, 0.5), PERCENTILE(y, ARRAY[0, 1]), COLLECT(x), ARRAY_AGG(DISTINCT y) FROM t WHERE id < 5",
    "SELECT a.id, b.id FROM t a JOIN t b ON a.x = b.y",
    "SELECT a.id, b.id FROM t a, t b WHERE a.x = b.y",
    "SELECT i, j FROM (SELECT a.id AS i, b.id AS j, a.x AS p, b.y AS q FROM t a, t b) WHERE p = q AND i < 9",
    "SELECT a.id, b.id FROM t a LEFT JOIN t b ON a.x = b.y AND a.id < b.id",
    "SELECT a.id, b.id FROM t a LEFT JOIN t b ON a.id = b.id WHERE a.x = b.y",
    "SELECT a.id, b.id FROM t a FULL JOIN t b ON a.x = b.y AND a.id < b.id",
    "SELECT a.id, b.id FROM t a JOIN t b ON a.x IS NOT DISTINCT FROM b.y",
    "SELECT a.id, b.id FROM t a JOIN t b ON a.x = b.y OR a.id = b.id",
    "SELECT a.id, b.id, c.id FROM t a, t b, t c WHERE a.x = b.y AND b.x = c.y",
    "SELECT a.id, b.id FROM t a JOIN t b ON a.x + 1 = b.y + 1",
    "SELECT id FROM t WHERE x IN (SELECT y FROM t)",
    "SELECT id FROM t WHERE x NOT IN (SELECT y FROM t WHERE id < 3)",
    "SELECT id FROM t WHERE EXISTS (SELECT * FROM t w WHERE w.y = t.x AND w.id <> t.id)",
    "SELECT id, (SELECT MAX(id) FROM t w WHERE w.y = t.x) FROM t",
    "SELECT x FROM t INTERSECT SELECT y FROM t",
    "SELECT x FROM t EXCEPT SELECT y FROM t WHERE id < 3",
    "SELECT x FROM t UNION SELECT y FROM t",
]
OF_NESTED = [
    query.format(c)
    for c in "marl"
    for query in (
        "SELECT {0}, COUNT(*) FROM t GROUP BY {0}",
        "SELECT DISTINCT {0} FROM t",
        "SELECT COUNT(DISTINCT {0}) FROM t",
        "SELECT x.id, y.id FROM t x JOIN t y ON x.{0} = y.{0}",
        "SELECT x.id, y.id FROM t x LEFT JOIN t y ON x.{0} = y.{0} AND x.id < y.id",
        "SELECT id FROM t WHERE {0} IN (SELECT {0} FROM t WHERE id > 1)",
        "SELECT id, {0} = {0}, {0} IS DISTINCT FROM {0} FROM t",
        "SELECT {0} FROM t UNION SELECT {0} FROM t WHERE id > 1",
        "SELECT {0} FROM t EXCEPT SELECT {0} FROM t AS u WHERE id + 1 < 3",
        "SELECT {0} FROM t INTERSECT SELECT {0} FROM t AS u WHERE id <> 1",
        "SELECT COUNT(*) OVER (PARTITION BY {0} ORDER BY id) FROM t",
        "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {0} ORDER BY id) AS n FROM t) WHERE n = 1",
        "SELECT x.id, y.id FROM t x, t y WHERE x.{0} <> y.{0}",
    )
]


def check(sql: str, table: Rows) -> None:
    """The rows of a stream are those of the batch, in canonical form."""
    answer = run(sql, t=table)
    equality = RowEquality(answer.types, zeros="merged")
    streamed, in_batch = Counter(map(equality.key, answer.rows())), Counter(map(equality.key, run_batch(sql, t=table)))
    assert in_batch == streamed


@pytest.mark.parametrize("sql", OF_NUMBERS)
def test_numbers_mean_the_same(sql: str) -> None:
    check(sql, NUMBERS)


@pytest.mark.parametrize("sql", OF_NESTED)
def test_nested_values_mean_the_same(sql: str) -> None:
    check(sql, NESTED)


def test_keys_of_groups_are_in_canonical_form() -> None:
    """Bit for bit those of a stream."""
    for sql in ("SELECT y, COUNT(*) FROM t WHERE id = 4 GROUP BY y", "SELECT MIN(y), MAX(y) FROM t WHERE id = 4"):
        assert repr(run_batch(sql, t=NUMBERS)) == repr(run(sql, t=NUMBERS).rows())
        assert "-0.0" not in repr(run_batch(sql, t=NUMBERS))
    sql = "SELECT m, COUNT(*) FROM t WHERE id < 3 GROUP BY m"
    assert repr(run_batch(sql, t=NESTED)) == "[([('a', nan), ('b', 0.0)], 2)]"


def test_maps_of_values_without_equality_are_refused() -> None:
    table = Rows({"m": MapType(STRING, BitmapType())}, [(None,)])
    with pytest.raises(UnsupportedError, match="cannot be compared in batch: group, partition or match rows by a part"):
        run_batch("SELECT DISTINCT m FROM t", t=table)


@pytest.mark.parametrize("scale", [0, 2, 6])
def test_decimal_sums_come_back_from_overflow(scale: int) -> None:
    """Spark's own sum is NULL from the first overflow on."""
    large, less, one, least = (
        Decimal(f"{digits}E-{scale}") for digits in ("9" + "0" * 37, "-9" + "0" * 37, "1", "-" + "9" * 38)
    )
    for values in (
        [large, large, large, less, less, one],
        [large, one, less, one],
        [least, one, None],
        [large, large],
        [one, one],
        [None],
    ):
        rows: list[Any] = [(value,) for value in values]
        table = Rows({"v": DecimalType(38, scale)}, rows)
        for sql in ("SELECT SUM(v) FROM t", "SELECT SUM(v) OVER (), AVG(v) OVER () FROM t LIMIT 1"):
            if "OVER" not in sql:
                check(sql, table)
            else:
                assert run_batch(sql, t=table)[0][0] == run_batch("SELECT SUM(v) FROM t", t=table)[0][0]


def test_keys_of_maps_that_are_null() -> None:
    """K2: they pass from function to function; a column of Spark cannot hold them, and the error says so."""
    keys = Rows({"k": STRING}, [("a",), (None,)])
    sql = "SELECT CAST(MAP[k, 1] AS STRING), CARDINALITY(MAP_FROM_ARRAYS(ARRAY[k, 'z'], ARRAY[1, 2])) FROM t"
    check(sql, keys)
    with pytest.raises(TableRuntimeError, match="a key of a map is NULL: Spark, which runs queries in batch mode"):
        run_batch("SELECT MAP[k, 1] FROM t", t=keys)
