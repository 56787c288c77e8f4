"""Queries and INSERT that run, in this process."""

from __future__ import annotations

import pytest

from penstock.base.errors import JobExecutionError, UnsupportedError
from penstock.datastream import StreamExecutionEnvironment
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, StreamTableEnvironment, TableEnvironment
from penstock.table.expressions import col

ORDERS = (
    "CREATE TEMPORARY VIEW orders AS SELECT * FROM "
    "(VALUES (1, 'Anna', 4.0), (2, 'Ben', 2.5), (3, 'Anna', 1.5)) AS o (id, customer, price)"
)


def environment(*options: tuple[str, str]) -> TableEnvironment:
    """An environment in one process that knows `orders`."""
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    made.get_config().set("execution.target", "local").set("parallelism.default", "2")
    for key, value in options:
        made.get_config().set(key, value)
    made.execute_sql(ORDERS)
    return made


def changes_of(made: TableEnvironment, sql: str) -> list[str]:
    """The changes that a query gives."""
    with made.execute_sql(sql).collect() as rows:
        return sorted(f"{row.get_row_kind().short_string}{list(row)}" for row in rows)


def test_a_query_gives_its_rows() -> None:
    """Rows of a changelog, each with its kind."""
    assert changes_of(environment(), "SELECT customer, COUNT(*) FROM orders GROUP BY customer") == [
        "+I['Anna', 1]",
        "+I['Ben', 1]",
        "+U['Anna', 2]",
        "-U['Anna', 1]",
    ]


def test_mini_batches_send_one_change_for_each_group() -> None:
    """The options of the session reach the plan."""
    made = environment(
        ("table.exec.mini-batch.enabled", "true"),
        ("table.exec.mini-batch.allow-latency", "1 h"),
        ("table.exec.mini-batch.size", "100"),
    )
    query = "SELECT customer, COUNT(*) FROM orders GROUP BY customer"
    assert changes_of(made, query) == ["+I['Anna', 2]", "+I['Ben', 1]"]


def test_with_a_lifetime_of_state_groups_are_sent_again() -> None:
    """By the option, and by a hint."""
    query = "{} customer, MAX(price) FROM orders GROUP BY customer"
    again = ["+I['Anna', Decimal('4.0')]", "+I['Ben', Decimal('2.5')]", "+U['Anna', Decimal('4.0')]"]
    again.append("-U['Anna', Decimal('4.0')]")
    made = environment(("table.exec.state.ttl", "1 h"))
    assert changes_of(made, query.format("SELECT")) == again
    assert changes_of(environment(), query.format("SELECT /*+ STATE_TTL('orders' = '1d') */")) == again
    assert changes_of(made, query.format("SELECT /*+ STATE_TTL('orders' = '0') */")) == again[:2]


def test_the_session_says_the_parallelism() -> None:
    """`table.exec.resource.default-parallelism` is ahead of that of jobs."""
    made = environment(("table.exec.resource.default-parallelism", "3"), ("pipeline.max-parallelism", "2"))
    with pytest.raises(ValueError, match="parallelism 3, over its maximum parallelism 2"):
        changes_of(made, "SELECT customer, COUNT(*) FROM orders GROUP BY customer")


def test_the_table_api_gives_the_same() -> None:
    """It makes the same plan."""
    table = environment().from_path("orders").filter(col("price") > 2).select(col("id"), col("customer").upper_case)
    with table.execute().collect() as rows:
        assert sorted(map(list, rows)) == [[1, "ANNA"], [2, "BEN"]]


def test_a_table_is_a_pandas_frame() -> None:
    """With the columns of the table."""
    frame = environment().sql_query("SELECT id, price * 2 AS twice FROM orders").to_pandas()
    assert sorted(zip(frame["id"].tolist(), frame["twice"].map(float).tolist(), strict=True)) == [
        (1, 8.0),
        (2, 5.0),
        (3, 3.0),
    ]


def test_print_shows_rows_as_flink_does(capfd: pytest.CaptureFixture[str]) -> None:
    """A sink of a catalog, which takes all changes."""
    made = environment(("parallelism.default", "1"))
    made.execute_sql("CREATE TABLE shown (c STRING, n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'x')")
    made.execute_sql("INSERT INTO shown SELECT customer, COUNT(*) FROM orders GROUP BY customer").wait()
    assert sorted(capfd.readouterr().out.splitlines()) == [
        "x> +I[Anna, 1]",
        "x> +I[Ben, 1]",
        "x> +U[Anna, 2]",
        "x> -U[Anna, 1]",
    ]


def test_several_inserts_are_one_job() -> None:
    """A set of statements."""
    made = environment()
    made.execute_sql("CREATE TABLE first_ (id INT) WITH ('connector' = 'blackhole')")
    made.execute_sql("CREATE TABLE second_ (id INT) WITH ('connector' = 'blackhole')")
    both = made.create_statement_set()
    both.add_insert_sql("INSERT INTO first_ SELECT id FROM orders")
    both.add_insert_sql("INSERT INTO second_ SELECT id + 1 FROM orders")
    both.execute().wait()


@pytest.mark.parametrize("drops", [False, True])
def test_null_does_not_go_where_the_table_has_none(drops: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """The job fails, or such rows are dropped."""
    made = environment(("table.exec.sink.not-null-enforcer", "DROP" if drops else "ERROR"))
    made.execute_sql("CREATE TABLE shown (c STRING NOT NULL) WITH ('connector' = 'print')")
    insert = "INSERT INTO shown SELECT CASE WHEN id = 1 THEN customer END FROM orders"
    if drops:
        made.execute_sql(insert).wait()
        assert [line[line.index("+") :] for line in capfd.readouterr().out.splitlines()] == ["+I[Anna]"]
    else:
        with pytest.raises(JobExecutionError, match="Column 'c' is NOT NULL"):
            made.execute_sql(insert).wait()


def test_a_program_of_streams_shares_its_options() -> None:
    """`StreamTableEnvironment` runs where the environment of streams does."""
    streams = StreamExecutionEnvironment.get_execution_environment()
    streams.get_configuration().set_string("execution.target", "local")
    made = StreamTableEnvironment.create(streams)
    with made.execute_sql("SELECT 1 AS only_one").collect() as rows:
        assert [list(row) for row in rows] == [[1]]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT * FROM orders MATCH_RECOGNIZE (ORDER BY id MEASURES A.id AS n ALL ROWS PER MATCH PATTERN (A) "
            "DEFINE A AS A.id > 0)",
            "All rows per match mode is not supported",
        ),
    ],
)
def test_what_does_not_run_yet_says_so(sql: str, message: str) -> None:
    """Before a job begins."""
    with pytest.raises(UnsupportedError, match=message):
        environment().execute_sql(sql)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "do not contain an option key 'connector'"),
        ("WITH ('connector' = 'pulsar')", "Could not find any connector 'pulsar'.*there are blackhole, .*print"),
        ("WITH ('connector' = 'print', 'colour' = 'red')", "Unsupported options found for 'print'.*colour"),
    ],
)
def test_a_table_that_nobody_can_write_is_refused(options: str, message: str) -> None:
    """The error names the table, and what there is."""
    made = environment()
    made.execute_sql(f"CREATE TABLE t (id INT) {options}")
    with pytest.raises(ValidationError, match=message):
        made.execute_sql("INSERT INTO t SELECT id FROM orders")
    made.execute_sql("CREATE TABLE shown (id INT) WITH ('connector' = 'print')")
    with pytest.raises(ValidationError, match="can only be used as a sink"):
        made.execute_sql("SELECT * FROM shown")


def test_explain_shows_the_changes_of_each_step() -> None:
    """Below the logical plan."""
    text = environment().explain_sql("SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer")
    assert "== Abstract Syntax Tree ==" in text
    assert "select=[COUNT(*) AS $agg0], changelogMode=[I,UB,UA])" in text
