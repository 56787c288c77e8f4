"""A4: the same query gives the same rows in a stream, when its changes are made, and in batch."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.table.batch.batches import check_agrees, run_batch
from tests.table.running import Rows

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import (
    BigIntType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntType,
    SmallIntType,
    TimestampType,
    TimeType,
    VarCharType,
)
from penstock.table import EnvironmentSettings, TableEnvironment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STRING = VarCharType(2**31 - 1)
SALES = Rows(
    {
        "id": BigIntType(),
        "who": STRING,
        "amount": IntType(),
        "price": DecimalType(12, 2),
        "weight": DoubleType(),
        "day": DateType(),
        "small": SmallIntType(),
        "ok": BooleanType(),
        "at": TimestampType(9),
        "clock": TimeType(),
    },
    [
        (1, "Anna", 2, Decimal("1.50"), 0.5, 0, 1, True, 1_000_000_001, 5),
        (2, "Ben", 2**31 - 1, Decimal("2.25"), 1.25, 365, 32767, False, None, None),
        (3, "Anna", 1, None, None, 20_000, -32768, None, 7, 86_399_999),
        (4, None, None, Decimal("-3.00"), 2.5, None, None, True, 1_000_000_001, 5),
        (5, "Čapek's 'x' \\ y\n", -4, Decimal("9999999999.99"), -0.75, -1, 7, False, 0, 0),
        (5, "Ben", 3, Decimal("0.01"), 4.0, 11, 7, False, 0, 0),
    ],
)
PEOPLE = Rows(
    {"name": STRING, "city": STRING, "age": IntType()},
    [("Anna", "Prag", 30), ("Ben", "Wien", 40), ("Ben", "Graz", 41), ("Carla", "Linz", None), (None, "Enns", 1)],
)
QUERIES = [
    # functions with and without a frame over one window
    "SELECT id, RANK() OVER (ORDER BY id), COUNT(*) OVER (ORDER BY id) FROM sales",
    "SELECT id, SUM(amount) OVER w, DENSE_RANK() OVER w FROM sales WINDOW w AS (PARTITION BY who ORDER BY id)",
    # rows of their own
    "SELECT * FROM sales",
    "SELECT id + 1, amount * 2, price * 2, weight / 2, -amount, -id FROM sales",
    "SELECT amount + 1, amount * amount, small + small, small * 3, id * 9223372036854775807 FROM sales",
    "SELECT UPPER(who), CHAR_LENGTH(who), who || '!', SUBSTRING(who, 2, 2) FROM sales WHERE who IS NOT NULL",
    "SELECT id FROM sales WHERE who LIKE '%n%' AND UPPER(who) <> 'BEN' AND amount > 0",
    "SELECT CASE WHEN amount > 1 THEN 'many' WHEN amount > 0 THEN 'one' END, COALESCE(price, 0) FROM sales",
    "SELECT EXTRACT(YEAR FROM `day`), EXTRACT(MONTH FROM `day`), `day` + INTERVAL '1' MONTH FROM sales",
    "SELECT CAST(amount AS STRING), CAST(price AS DOUBLE), CAST(weight AS INT), CAST(id AS DECIMAL(20, 2)) FROM sales",
    "SELECT who FROM sales WHERE who = 'Čapek''s ''x'' \\ y\n'",
    "SELECT 1, 'a', DATE '2020-01-01', TIME '10:11:12', TIMESTAMP '2020-01-01 00:00:00.123456789', INTERVAL '3' DAY",
    "SELECT `at`, CAST(`at` AS STRING), clock FROM sales WHERE `at` > TIMESTAMP '1970-01-01 00:00:00.000000006'",
    "VALUES (1, 'a'), (2, CAST(NULL AS STRING))",
    "SELECT ARRAY[id, 1], MAP['a', who], ROW(id, who) FROM sales",
    # groups
    "SELECT who, COUNT(*), COUNT(price), SUM(amount), SUM(price), SUM(id) FROM sales GROUP BY who",
    "SELECT who, AVG(amount), AVG(price), AVG(id) FROM sales GROUP BY who",
    "SELECT SUM(amount), SUM(small), AVG(small), MIN(who), MAX(`day`), MIN(price), MAX(ok) FROM sales",
    "SELECT who, COUNT(DISTINCT amount), SUM(DISTINCT amount), COUNT(DISTINCT id) FROM sales GROUP BY who",
    "SELECT who, SUM(amount) FILTER (WHERE ok), COUNT(*) FILTER (WHERE NOT ok) FROM sales GROUP BY who",
    "SELECT who, COLLECT(amount), STDDEV_POP(amount), VAR_SAMP(weight), SUM(DISTINCT id) FROM sales GROUP BY who",
    "SELECT UPPER(who), SUM(CHAR_LENGTH(UPPER(who))) FROM sales GROUP BY UPPER(who) HAVING COUNT(*) > 1",
    "SELECT DISTINCT ok, who FROM sales",
    "SELECT SUM(id * 4611686018427387904) FROM sales",
    "SELECT SUM(id) FROM sales GROUP BY 1",
    # groups of several sets
    "SELECT who, COUNT(*), GROUPING(who) FROM sales GROUP BY GROUPING SETS ((who), ())",
    "SELECT who, COUNT(*) FROM sales GROUP BY ROLLUP (who) HAVING GROUPING(who) = 1",
    "SELECT who, ok, SUM(amount), GROUPING_ID(who, ok), GROUPING(ok), GROUP_ID() FROM sales GROUP BY CUBE (who, ok)",
    "SELECT who, COLLECT(amount), GROUPING(ok, who) FROM sales GROUP BY ROLLUP (who, ok)",
    "SELECT GROUP_ID(), who, GROUPING(who), COUNT(id) FROM sales GROUP BY GROUPING SETS ((who), (), (), (ok), (who))",
    "SELECT who, COUNT(*), GROUPING(who) FROM sales GROUP BY GROUPING SETS ((who), (1))",
    "SELECT MAP['a', who], COUNT(*), GROUPING(MAP['a', who]) FROM sales GROUP BY ROLLUP (MAP['a', who])",
    # joins
    "SELECT id, city FROM sales JOIN people ON who = name",
    "SELECT id, city FROM sales LEFT JOIN people ON who = name AND age > amount",
    "SELECT id, city FROM sales RIGHT JOIN people ON who = name",
    "SELECT id, city FROM sales FULL JOIN people ON UPPER(who) = UPPER(name)",
    "SELECT id, city FROM sales JOIN people ON who = name AND POSITION(SUBSTRING(city, 1, 1) IN who) = 0",
    "SELECT id, name FROM sales, people",
    "SELECT id FROM sales WHERE who IN (SELECT name FROM people)",
    "SELECT id FROM sales WHERE who NOT IN (SELECT name FROM people WHERE name IS NOT NULL)",
    "SELECT id FROM sales WHERE who NOT IN (SELECT name FROM people)",
    "SELECT id FROM sales WHERE EXISTS (SELECT * FROM people WHERE name = who AND age > 35)",
    "SELECT id FROM sales WHERE NOT EXISTS (SELECT * FROM people WHERE name = who)",
    "SELECT id, (SELECT MAX(age) FROM people WHERE name = who) FROM sales",
    "SELECT id FROM sales WHERE price > (SELECT AVG(price) FROM sales)",
    "SELECT * FROM (SELECT id, who AS name FROM sales) AS s FULL JOIN people USING (name)",
    "SELECT * FROM (SELECT id, who AS name FROM sales) AS s NATURAL RIGHT JOIN people",
    "SELECT name, COUNT(*) FROM (SELECT * FROM people AS p RIGHT JOIN (SELECT id, who AS name FROM sales) AS s "
    "USING (name) LEFT JOIN (SELECT who AS name, ok FROM sales) AS o USING (name)) AS t WHERE name > 'B' GROUP BY name",
    # set operations
    "SELECT who FROM sales UNION ALL SELECT name FROM people",
    "SELECT who FROM sales UNION SELECT name FROM people",
    "SELECT a.n, b.n FROM (SELECT COUNT(*) AS n FROM sales) a, (SELECT COUNT(*) AS n FROM people) b",
    "WITH s AS (SELECT who, SUM(amount) AS n FROM sales GROUP BY who) SELECT a.who, b.n FROM s a JOIN s b ON a.n = b.n",
    # order
    "SELECT id, who FROM sales ORDER BY id DESC, who LIMIT 3",
    "SELECT id FROM sales ORDER BY price NULLS LAST, id OFFSET 1 ROWS FETCH NEXT 2 ROWS ONLY",
]


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_gives_the_same_in_a_stream_and_in_batch(sql: str) -> None:
    check_agrees(sql, sales=SALES, people=PEOPLE)


def stamps(*times: int) -> list[tuple[int, int, str]]:
    return [(number, time * 1_000_000, "ab"[number % 2]) for number, time in enumerate(times)]


EVENTS: dict[str, DataType] = {"id": BigIntType(), "ts": TimestampType(3), "who": STRING}
WINDOWS = [
    "TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND)",
    "HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '5' SECOND)",
    "CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)",
]


class Events(Rows):
    """Rows with event time."""

    def ddl(self, name: str) -> str:
        return super().ddl(name).removesuffix(")") + ", WATERMARK FOR ts AS ts)"


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_of_event_time_agree(window: str) -> None:
    events = Events(EVENTS, stamps(0, 1000, 4999, 5000, 7300, 12000))
    check_agrees(f"SELECT id, window_start, window_end, window_time FROM TABLE({window})", events=events)
    check_agrees(
        f"SELECT who, window_start, COUNT(*), SUM(id) FROM TABLE({window}) GROUP BY who, window_start, window_end",
        events=events,
    )


def test_calls_over_windows_agree() -> None:
    events = Events(EVENTS, stamps(0, 1000, 1500, 5000, 7300, 12000))
    check_agrees(
        "SELECT id, SUM(id) OVER w, COUNT(*) OVER w, MIN(who) OVER w, COLLECT(id) OVER w FROM events "
        "WINDOW w AS (PARTITION BY who ORDER BY ts RANGE BETWEEN INTERVAL '6' SECOND PRECEDING AND CURRENT ROW)",
        events=events,
    )
    check_agrees(
        "SELECT id, AVG(id) OVER (ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM events", events=events
    )
    check_agrees("SELECT id, ROW_NUMBER() OVER (PARTITION BY who ORDER BY ts) FROM events", events=events)


def test_the_first_rows_of_partitions_agree() -> None:
    ranked = "SELECT *, ROW_NUMBER() OVER (PARTITION BY who ORDER BY id DESC) AS n FROM sales"
    check_agrees(f"SELECT id, who FROM ({ranked}) WHERE n <= 1", sales=SALES)


def test_sessions_end_a_gap_after_their_last_row() -> None:
    events = Events(EVENTS, stamps(0, 1000, 3000, 6001, 6500))
    window = "SESSION(TABLE events PARTITION BY who, DESCRIPTOR(ts), INTERVAL '3' SECOND)"
    rows = run_batch(f"SELECT who, window_start, window_end, id FROM TABLE({window}) ORDER BY id", events=events)
    seconds = [(who, start / 1e9, end / 1e9, number) for who, start, end, number in rows]
    assert seconds == [
        ("a", 0.0, 6.0, 0),
        ("b", 1.0, 4.0, 1),
        ("a", 0.0, 6.0, 2),
        ("b", 6.001, 9.001, 3),
        ("a", 6.5, 9.5, 4),
    ]


def test_filter_comes_ahead_of_sessions_that_rows_are_grouped_by() -> None:
    """K1, K2: as in Flink; in the rows of sessions themselves it comes after them."""
    events = Events(EVENTS, stamps(0, 1000, 2000, 3000, 4000))
    window = "TABLE(SESSION(TABLE events PARTITION BY who, DESCRIPTOR(ts), INTERVAL '3' SECOND)) WHERE id <> 2"
    grouped = f"SELECT who, window_start, window_end, COUNT(*) FROM {window} GROUP BY who, window_start, window_end"
    check_agrees(grouped, events=events)
    assert len(run_batch(grouped, events=events)) == 3
    check_agrees(f"SELECT DISTINCT who, window_start, window_end FROM {window}", events=events)
    check_agrees(f"SELECT id, window_start, window_end FROM {window}", events=events)
    ends = {row[1] for row in run_batch(f"SELECT id, window_end FROM {window} AND who = 'a'", events=events)}
    assert len(ends) == 1


def test_a_look_up_finds_what_a_table_has_now() -> None:
    """The rows of the other side for each key, with none, one or several; other conditions are asked of them."""
    joined = "FROM (SELECT *, PROCTIME() AS p FROM sales) {} people FOR SYSTEM_TIME AS OF p AS f ON who = f.name"
    inner = run_batch(f"SELECT id, city {joined.format('JOIN')} AND f.age > 30", **BOTH)
    assert sorted(inner) == [(2, "Graz"), (2, "Wien"), (5, "Graz"), (5, "Wien")]
    outer = run_batch(f"SELECT id, city {joined.format('LEFT JOIN')} WHERE id < 5", **BOTH)
    assert sorted(outer, key=str) == [(1, "Prag"), (2, "Graz"), (2, "Wien"), (3, "Prag"), (4, None)]


def test_versions_by_event_time_are_refused() -> None:
    """A batch has the last version of each key alone."""
    events = Events(EVENTS, stamps(0, 1000))
    sql = "SELECT e.id FROM events AS e JOIN events FOR SYSTEM_TIME AS OF e.ts AS p ON e.who = p.who"
    with pytest.raises(UnsupportedError, match="an event time is not supported in batch"):
        run_batch(sql, events=events)


def test_a_decimal_that_overflows_and_is_not_null_fails_the_query() -> None:
    """K2: in batch as in streams."""
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    result = tables.execute_sql("SELECT CAST(x AS DECIMAL(3, 1)) FROM (VALUES (12345)) AS t (x)")
    with (
        pytest.raises(TableRuntimeError, match=r"Column 1 of the query is NOT NULL.*DECIMAL\(3, 1\)"),
        result.collect() as rows,
    ):
        list(rows)


def test_what_only_batch_does() -> None:
    """INTERSECT, EXCEPT, grouping sets and numbers of rows over whole partitions."""
    assert sorted(map(str, run_batch("SELECT who FROM sales INTERSECT SELECT name FROM people", **BOTH))) == [
        "('Anna',)",
        "('Ben',)",
        "(None,)",
    ]
    all_of = "SELECT who FROM sales INTERSECT ALL SELECT name FROM people ORDER BY who"
    assert run_batch(all_of, **BOTH) == [(None,), ("Anna",), ("Ben",), ("Ben",)]
    rest = "SELECT who FROM sales EXCEPT ALL SELECT name FROM people ORDER BY who"
    assert run_batch(rest, **BOTH) == [("Anna",), ("Čapek's 'x' \\ y\n",)]
    assert run_batch("SELECT name FROM people EXCEPT SELECT who FROM sales", **BOTH) == [("Carla",)]
    sets = "SELECT name, city, COUNT(*) FROM people WHERE age > 20 GROUP BY ROLLUP (name, city) ORDER BY name, city"
    assert run_batch(sets, **BOTH) == [
        (None, None, 3),
        ("Anna", None, 1),
        ("Anna", "Prag", 1),
        ("Ben", None, 2),
        ("Ben", "Graz", 1),
        ("Ben", "Wien", 1),
    ]
    assert run_batch("SELECT COUNT(*), SUM(id), MAX(who) FROM sales WHERE id > 100", **BOTH) == [(0, None, None)]
    numbers = "SELECT id, RANK() OVER w, LEAD(id) OVER w, NTILE(2) OVER w FROM sales WINDOW w AS (ORDER BY id)"
    assert run_batch(numbers, **BOTH)[-2:] == [(5, 5, 5, 2), (5, 5, None, 2)]


BOTH = {"sales": SALES, "people": PEOPLE}
