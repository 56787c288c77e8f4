"""K1: a row or value is found again whatever form it comes in: NaN, zeros, maps in any order, also nested."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from tests.table.running import Answer, Rows, run

from penstock.sql.data.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntType,
    MapType,
    RowField,
    RowType,
    VarCharType,
)
from penstock.sql.stream.rows.rows import RowEquality

INT, DOUBLE, STRING = IntType(), DoubleType(), VarCharType(10)
NUMBERS = ArrayType(DOUBLE)
PAIR = RowType([RowField("x", DOUBLE), RowField("y", INT)])
MAP = MapType(STRING, INT)


def nan() -> float:
    """Another object each time, as decoding makes one."""
    return float("nan")


#: by name: the type, two forms of one value, and another value
VALUES: dict[str, tuple[DataType, Any, Any, Any]] = {
    "NaN": (DOUBLE, nan(), nan(), 7.0),
    "FLOAT NaN": (FloatType(), nan(), nan(), 7.0),
    "zeros": (DOUBLE, 0.0, -0.0, 7.0),
    "array": (NUMBERS, [nan(), -0.0], [nan(), 0.0], [7.0]),
    "row": (PAIR, (nan(), 1), (nan(), 1), (7.0, 2)),
    "map": (MAP, [("a", 1), ("b", None)], [("b", None), ("a", 1)], [("x", 3)]),
    "map of NaN": (MapType(DOUBLE, NUMBERS), [(nan(), [nan()]), (0.0, [])], [(-0.0, []), (nan(), [nan()])], []),
    "row of map": (RowType([RowField("m", MAP)]), ([("a", 1), ("b", 2)],), ([("b", 2), ("a", 1)],), ([],)),
    "maps": (ArrayType(MAP), [[("a", 1), ("b", 2)], None], [[("b", 2), ("a", 1)], None], [[]]),
}
COMPARED = ("NaN", "FLOAT NaN", "zeros", "array", "row")
QUERIES = [
    "SELECT k, v FROM t",
    "SELECT v, COUNT(*), SUM(k) FROM t GROUP BY v",
    "SELECT DISTINCT v FROM t",
    "SELECT COUNT(DISTINCT v), COUNT(*) FROM t",
    "SELECT COLLECT(v) FROM t",
    "SELECT ARRAY_AGG(v), ARRAY_AGG(DISTINCT v) FROM t",
    "SELECT FIRST_VALUE(v), LAST_VALUE(v) FROM t",
    "SELECT k, v, SUM(k) OVER (ORDER BY k) FROM t",
    "SELECT k, v, SUM(k) OVER (PARTITION BY v ORDER BY k) FROM t",
    "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY k) AS n FROM t) WHERE n <= 2",
    "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY v ORDER BY k) AS n FROM t) WHERE n <= 1",
    "SELECT t.k, t.v, o.z FROM t FULL JOIN o ON t.k = o.k",
    "SELECT t.k, t.v FROM t WHERE t.k IN (SELECT k FROM o)",
    "SELECT v FROM t UNION SELECT v FROM t WHERE k > 1",
    "SELECT v FROM t EXCEPT SELECT v FROM t WHERE k = 2",
    "SELECT v FROM t EXCEPT ALL SELECT v FROM t WHERE k = 2",
    "SELECT v FROM t INTERSECT ALL SELECT v FROM t WHERE k < 3",
    "SELECT x.k, y.k FROM t AS x JOIN t AS y ON x.v = y.v",
]
#: Those whose steps hold a retraction back until its row comes.
HOLDING = QUERIES[1:11]
OF_NUMBERS = [
    "SELECT MIN(v), MAX(v), MIN(k) FROM t",
    "SELECT SUM(v), AVG(v), STDDEV_POP(v) FROM t",
    "SELECT PERCENTILE(v, 0.5), PERCENTILE(v, ARRAY[0, 1]) FROM t",
    "SELECT k, COUNT(*) OVER (ORDER BY v), RANK() OVER (ORDER BY v) FROM t",
    "SELECT k FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY v DESC) AS n FROM t) WHERE n <= 2",
]
OTHERS = Rows({"k": INT, "z": INT}, [(1, 10), (2, 20)])


def net(answer: Answer) -> Counter[Any]:
    """The rows that are there in the end, in canonical form. No row is retracted that is not there."""
    equality = RowEquality(answer.types, zeros="merged")
    rows: Counter[Any] = Counter()
    for kind, values in answer.changes:
        key = equality.key(values)
        rows[key] += 1 if kind in ("+I", "+U") else -1
        assert rows[key] >= 0, f"{kind}{values} retracts a row that is not there"
    return +rows


def check(sql: str, data_type: DataType, changes: list[Any], left: list[Any], **options: str) -> None:
    """Changes lead to the same result as the rows that are left; in one batch, and row by row."""
    columns = {"k": INT, "v": data_type}
    wanted = net(run(sql, t=Rows(columns, left), o=OTHERS))
    for at_once in (None, 1):
        answer = run(sql, t=Rows(columns, changes, at_once), o=OTHERS, options=options)
        assert net(answer) == wanted, f"{sql}, batches of {at_once}"


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("sql", QUERIES)
def test_a_retraction_finds_its_row_in_any_form(sql: str, name: str) -> None:
    data_type, value, same, other = VALUES[name]
    changes = [("+I", (1, value)), ("+I", (2, other)), ("-D", (1, same)), ("+I", (3, other))]
    check(sql, data_type, changes, [(2, other), (3, other)])


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("sql", HOLDING)
def test_a_retraction_may_come_before_its_row(sql: str, name: str) -> None:
    data_type, value, same, other = VALUES[name]
    changes = [("-D", (1, value)), ("+I", (2, other)), ("+I", (1, same))]
    check(sql, data_type, changes, [(2, other)])


@pytest.mark.parametrize("name", VALUES)
def test_equal_values_are_one_group_with_one_key(name: str) -> None:
    """All changes of a group have the same key, bit for bit."""
    data_type, value, same, other = VALUES[name]
    rows = [(1, same), (2, value), (3, other), (4, same)]
    for at_once in (None, 1):
        table = Rows({"k": INT, "v": data_type}, rows, at_once)
        answer = run("SELECT v, COUNT(*) FROM t GROUP BY v", t=table)
        keys = {repr(values[0]) for _, values in answer.changes}
        assert len(keys) == 2
        assert not any("-0.0" in key for key in keys)
        assert sorted(values[1] for values in answer.rows()) == [1, 3]
        distinct = run("SELECT DISTINCT v FROM t", t=table)
        assert {repr(values[0]) for _, values in distinct.changes} == keys


@pytest.mark.parametrize("name", COMPARED[:3])
@pytest.mark.parametrize("sql", OF_NUMBERS)
def test_numbers_leave_no_trace(sql: str, name: str) -> None:
    data_type, value, same, other = VALUES[name]
    changes = [("+I", (1, value)), ("+I", (2, other)), ("-D", (1, same)), ("+I", (3, 5.0))]
    check(sql, data_type, changes, [(2, other), (3, 5.0)])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_nan_is_the_greatest_number_in_any_order_of_rows(order: tuple[int, ...]) -> None:
    """Of insert-only rows, and of rows that may be retracted."""
    values = [nan(), 8.0, 1.0]
    rows = [(number, values[index]) for number, index in enumerate(order)]
    for changes in (rows, [*(("+I", row) for row in rows), ("+I", (9, 5.0)), ("-D", (9, 5.0))]):
        table = Rows({"k": INT, "v": DOUBLE}, changes)
        (row,) = run("SELECT MIN(v), MAX(v), PERCENTILE(v, 0.5), PERCENTILE(v, 1) FROM t", t=table).rows()
        assert repr(row) == "(1.0, nan, 8.0, nan)"
    ranked = run("SELECT k, RANK() OVER (ORDER BY v) FROM t", t=Rows({"k": INT, "v": DOUBLE}, [*rows, (7, nan())]))
    assert sorted(rank for _, rank in ranked.rows()) == [1, 2, 3, 3]


def test_the_least_of_zeros_is_zero() -> None:
    """0.0 stands for both, whichever comes first."""
    for values in ((0.0, -0.0), (-0.0, 0.0), (-0.0,)):
        (row,) = run(
            "SELECT MIN(v), MAX(v), SUM(v) FROM t", t=Rows({"v": DOUBLE}, [(value,) for value in values])
        ).rows()
        assert repr(row) == "(0.0, 0.0, 0.0)"


def test_comparisons_of_nan_are_those_of_flink() -> None:
    """K2: `=` and `<` go by IEEE 754; IS DISTINCT FROM, GREATEST, LEAST and nested values by the one equality."""
    table = Rows({"x": DOUBLE, "y": DOUBLE, "a": NUMBERS, "b": NUMBERS}, [(nan(), nan(), [nan()], [nan()])])
    sql = "SELECT x = y, x <> y, x < y, x >= y, x IN (1e0, CAST('NaN' AS DOUBLE)), NULLIF(x, y) IS NULL FROM t"
    assert run(sql, t=table).rows() == [(False, True, False, False, False, False)]
    sql = "SELECT x IS DISTINCT FROM y, GREATEST(x, 1e0), LEAST(1e0, x), a = b, a <> b, ARRAY_CONTAINS(a, y) FROM t"
    assert repr(run(sql, t=table).rows()) == "[(False, nan, 1.0, True, False, True)]"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT x.k, y.k FROM t AS x JOIN t AS y ON x.v = y.v",
        "SELECT x.k, y.k FROM t AS x, t AS y WHERE x.v = y.v",
        "SELECT x.k, y.k FROM t AS x LEFT JOIN t AS y ON x.v = y.v",
    ],
)
def test_nan_finds_nan_as_the_key_of_a_join(sql: str) -> None:
    """K2: as in a stream of Flink's. Zeros find each other too, which they do not there."""
    table = Rows({"k": INT, "v": DOUBLE}, [(1, nan()), (2, 0.0), (3, -0.0), (4, nan())])
    pairs = {frozenset(row) for row in run(sql, t=table).rows()}
    assert pairs == {frozenset(pair) for pair in [(1,), (2,), (3,), (4,), (1, 4), (2, 3)]}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_last_row_that_is_the_same_sends_nothing(backend: str) -> None:
    """Deduplication by processing time compares rows: as columns in memory, and row by row in RocksDB."""
    sql = "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p DESC) AS n FROM u) WHERE n = 1"
    for name in ("NaN", "zeros", "array", "map"):
        data_type, value, same, _ = VALUES[name]
        table = Rows({"k": INT, "v": data_type}, [(1, value), (1, same), (1, value)])
        query = f"WITH u AS (SELECT *, PROCTIME() AS p FROM t) {sql}"
        answer = run(query, t=table, options={"state.backend.type": backend})
        assert [kind for kind, _ in answer.changes] == ["+I"], name


@pytest.mark.parametrize("sql", [QUERIES[1], QUERIES[5], QUERIES[7], QUERIES[9], QUERIES[11]])
def test_retractions_find_their_rows_in_rocksdb(sql: str) -> None:
    for name in ("NaN", "array", "map"):
        data_type, value, same, other = VALUES[name]
        changes = [("+I", (1, value)), ("+I", (2, other)), ("-D", (1, same)), ("+I", (3, other))]
        check(sql, data_type, changes, [(2, other), (3, other)], **{"state.backend.type": "rocksdb"})


def test_an_update_to_nan_again_is_no_update() -> None:
    """A sum that stays NaN, in one batch and row by row, few rows and many."""
    for count in (3, 200):
        rows = [(number, nan()) for number in range(count)]
        for at_once in (None, 1):
            answer = run("SELECT SUM(v), MAX(v) FROM t", t=Rows({"k": INT, "v": DOUBLE}, rows, at_once))
            assert len(answer.changes) == 1
    assert math.isnan(answer.changes[0][1][0])


@pytest.mark.parametrize("kind", [DOUBLE, FloatType()])
def test_zeros_are_equal_in_sets_of_in(kind: DataType) -> None:
    table = Rows({"k": INT, "v": kind}, [(1, 0.0), (2, -0.0), (3, 1.0), (4, nan())])
    typed = f"CAST('{{}}' AS {kind})"
    for zero in map(typed.format, ("0.0", "-0.0")):
        answer = run(f"SELECT k FROM t WHERE v IN ({zero}, {typed.format('7')})", t=table)
        assert sorted(answer.rows()) == [(1,), (2,)]


JOINS_OF_ZEROS = {
    "left": "SELECT t.k, t.v, o.z FROM t LEFT JOIN o ON t.k = o.k",
    "full": "SELECT t.k, t.v, o.z FROM o FULL JOIN t ON t.k = o.k",
    "semi": "SELECT t.k, t.v FROM t WHERE t.k IN (SELECT k FROM o)",
    "anti": "SELECT t.k, t.v FROM t WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.k = t.k)",
}


@pytest.mark.parametrize("lifetime", ["0 s", "1 h"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("name", ["zeros", "array"])
@pytest.mark.parametrize("join", JOINS_OF_ZEROS)
def test_a_join_takes_back_the_very_row_that_it_sent(join: str, name: str, backend: str, lifetime: str) -> None:
    """Rows that are equal but for the signs of their zeros are two rows: each is taken back as it was sent."""
    data_type, value, same, _ = VALUES[name]
    inserts = [("+I", (1, value)), ("+I", (1, same)), ("+I", (1, value)), ("-D", (1, value)), ("-D", (1, same))]
    others = [("+I", (1, 10)), ("-D", (1, 10)), ("+I", (1, 20)), ("-D", (1, 20))]
    options = {"state.backend.type": backend, "table.exec.state.ttl": lifetime}
    for at_once in (None, 1):
        tables = Rows({"k": INT, "v": data_type}, inserts, at_once), Rows({"k": INT, "z": INT}, others, at_once)
        answer = run(JOINS_OF_ZEROS[join], t=tables[0], o=tables[1], options=options)
        rows: Counter[str] = Counter()
        for kind, values in answer.changes:
            rows[repr(values)] += 1 if kind in ("+I", "+U") else -1
            assert rows[repr(values)] >= 0, f"{kind}{values} retracts a row that is not there"


@pytest.mark.parametrize("value", [1.5, -0.0, None, nan()])
def test_rows_that_are_owed_stay_the_same_over_a_restart(value: float | None) -> None:
    """A number is itself; NaN is what an earlier release wrote as text, which a text column keeps."""
    equality = RowEquality((DOUBLE, STRING))
    key = equality.key((value, "NaN"))
    assert equality.current_key(key) == key
    assert equality.current_key(("NaN", "NaN")) == equality.key((nan(), "NaN"))
