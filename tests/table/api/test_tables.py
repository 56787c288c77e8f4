"""A3: tables that the Table API makes have the plans of the same queries in SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.table.api.planning import PlanningEnvironment, show_plan

from penstock.base.errors import UnsupportedError, WrongTypeError
from penstock.base.types import Row, RowKind
from penstock.sql.catalogs.columns import TableSchema
from penstock.sql.data.errors import ValidationError
from penstock.table.expression import Expression
from penstock.table.expressions import (
    CURRENT_RANGE,
    CURRENT_ROW,
    UNBOUNDED_RANGE,
    UNBOUNDED_ROW,
    call,
    col,
    descriptor,
    lit,
    map_,
    range_,
    row_interval,
    with_all_columns,
    with_columns,
    without_columns,
)
from penstock.table.table import OverWindowedTable, Table
from penstock.table.types import DataTypes
from penstock.table.window import Over, Session, Slide, Tumble

Make = Callable[[Table, Table], Any]
ALL = "id, customer, price, amount, ts, tags, place"
TUMBLE = Tumble.over(lit(1).minute).on(col("ts")).alias("w")
#: what is made of `orders` and `customers`, and the same in SQL
SAME: list[tuple[str, Make]] = [
    # changelogs
    (
        "SELECT * FROM TO_CHANGELOG(TABLE customers, op_mapping => MAP['INSERT', 'i'])",
        lambda o, c: c.to_changelog(map_("INSERT", "i").as_argument("op_mapping")).select(with_all_columns()),
    ),
    (
        "SELECT * FROM FROM_CHANGELOG(TABLE customers, DESCRIPTOR(city))",
        lambda o, c: c.from_changelog(descriptor("city")).select(with_all_columns()),
    ),
    # columns
    (f"SELECT {ALL} FROM orders", lambda o, c: o.select(col("*"))),
    (f"SELECT {ALL} FROM orders", lambda o, c: o.select(with_all_columns())),
    ("SELECT id, amount > 3 AS big FROM orders", lambda o, c: o.select(o.id, (col("amount") > 3).alias("big"))),
    ("SELECT id, customer FROM orders", lambda o, c: o.select("id", "customer")),
    ("SELECT customer, price, amount, id FROM orders", lambda o, c: o.select(range_("customer", 4), "id")),
    ("SELECT id, price, amount FROM orders", lambda o, c: o.select(with_columns(1, range_("price", "amount")))),
    ("SELECT ts, tags, place FROM orders", lambda o, c: o.select(without_columns(range_(1, "amount")))),
    ("SELECT COALESCE(id, amount) AS x FROM orders", lambda o, c: o.select(_coalesced().alias("x"))),
    ("SELECT SUM(amount) AS total FROM orders", lambda o, c: o.select(col("amount").sum.alias("total"))),
    ("SELECT COUNT(DISTINCT id) AS n FROM orders", lambda o, c: o.select(col("id").count.distinct.alias("n"))),
    ("SELECT name AS a, city AS b, since FROM customers", lambda o, c: c.alias("a", "b")),
    ("SELECT name, city AS place, since FROM customers", lambda o, c: c.rename_columns(c.city.alias("place"))),
    ("SELECT name, since FROM customers", lambda o, c: c.drop_columns("city")),
    ("SELECT since FROM customers", lambda o, c: c.drop_columns(range_("name", "city"))),
    (
        "SELECT name, city, since, city IS NULL AS lost FROM customers",
        lambda o, c: c.add_columns(c.city.is_null.alias("lost")),
    ),
    (
        "SELECT name, city IS NULL AS city, since, 1 AS `one` FROM customers",
        lambda o, c: c.add_or_replace_columns(c.city.is_null.alias("city"), lit(1).alias("one")),
    ),
    # rows
    ("SELECT id FROM orders WHERE amount > 3", lambda o, c: o.where(o.amount > 3).select("id")),
    (
        "SELECT id FROM orders WHERE amount > 3 AND id <> 1",
        lambda o, c: o.filter((o.amount > 3) & (o.id != 1)).select("id"),
    ),
    (
        "SELECT id FROM orders WHERE customer IN (SELECT name FROM customers)",
        lambda o, c: o.where(o.customer.in_(c.select("name"))).select("id"),
    ),
    ("SELECT DISTINCT id, amount FROM orders", lambda o, c: o.select("id", "amount").distinct()),
    (
        "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 3 OFFSET 2",
        lambda o, c: o.select("id", "amount").order_by(col("amount").desc, "id").offset(2).fetch(3),
    ),
    ("SELECT id FROM orders ORDER BY id LIMIT 3", lambda o, c: o.select("id").order_by(col("id").asc).limit(3)),
    ("TABLE customers LIMIT 3 OFFSET 1", lambda o, c: c.limit(3, 1)),
    ("SELECT * FROM customers ORDER BY city IS NULL", lambda o, c: c.order_by(c.city.is_null)),
    # groups
    (
        "SELECT customer, SUM(price) AS total FROM orders GROUP BY customer",
        lambda o, c: o.group_by(o.customer).select(o.customer, o.price.sum.alias("total")),
    ),
    (
        "SELECT amount > 3 AS big, COUNT(id) AS n FROM orders GROUP BY amount > 3",
        lambda o, c: o.group_by((o.amount > 3).alias("big")).select(col("big"), o.id.count.alias("n")),
    ),
    (
        "SELECT MAX(price) > 3 AS big FROM orders GROUP BY customer, id",
        lambda o, c: o.group_by(with_columns("customer", "id")).select((o.price.max > 3).alias("big")),
    ),
    # windows
    (
        "SELECT customer, window_start AS s, window_end AS e, window_time AS t, SUM(price) AS total "
        "FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "GROUP BY customer, window_start, window_end, window_time",
        lambda o, c: (
            o.window(TUMBLE)
            .group_by(col("w"), o.customer)
            .select(
                o.customer,
                col("w").start.alias("s"),
                col("w").end.alias("e"),
                col("w").rowtime.alias("t"),
                o.price.sum.alias("total"),
            )
        ),
    ),
    (
        "SELECT COUNT(id) AS n FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '1' HOUR)) "
        "GROUP BY window_start, window_end",
        lambda o, c: (
            o.window(Slide.over(lit(1).hour).every(lit(5).minutes).on(o.ts).alias("w"))
            .group_by("w")
            .select(o.id.count.alias("n"))
        ),
    ),
    (
        "SELECT customer, window_start AS s FROM TABLE(SESSION(TABLE orders PARTITION BY customer, DESCRIPTOR(ts), "
        "INTERVAL '30' SECOND)) GROUP BY customer, window_start, window_end",
        lambda o, c: (
            o.window(Session.with_gap(lit(30).seconds).on(o.ts).alias("w"))
            .group_by(o.customer, col("w"))
            .select(o.customer, col("w").start.alias("s"))
        ),
    ),
    (
        "SELECT id, SUM(price) OVER (PARTITION BY customer ORDER BY ts) AS s FROM orders",
        lambda o, c: o.over_window(Over.partition_by(o.customer).order_by(o.ts).alias("w")).select(
            o.id, o.price.sum.over(col("w")).alias("s")
        ),
    ),
    (
        "SELECT SUM(price) OVER v AS s, MAX(price) OVER w AS m FROM orders WINDOW "
        "v AS (ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW), "
        "w AS (PARTITION BY customer ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING)",
        lambda o, c: o.over_window(
            Over.order_by(o.ts).preceding(lit(1).hour).following(CURRENT_RANGE).alias("v"),
            Over.partition_by(o.customer).order_by(o.ts).preceding(UNBOUNDED_ROW).following(row_interval(2)).alias("w"),
        ).select(o.price.sum.over(col("v")).alias("s"), o.price.max.over(col("w")).alias("m")),
    ),
    (
        "SELECT SUM(price) OVER (ORDER BY ts DESC ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS s FROM orders",
        lambda o, c: o.over_window(
            Over.order_by(o.ts.desc).preceding(CURRENT_ROW).following(UNBOUNDED_ROW).alias("w")
        ).select(o.price.sum.over(col("w")).alias("s")),
    ),
    # several tables
    (
        "SELECT id, city FROM orders, customers WHERE customer = name",
        lambda o, c: o.join(c).where(o.customer == c.name).select("id", "city"),
    ),
    *(
        (
            f"SELECT id, city FROM orders {sql} JOIN customers ON customer = name",
            lambda o, c, name=name: getattr(o, name)(c, o.customer == c.name).select("id", "city"),
        )
        for name, sql in (
            ("join", "INNER"),
            ("left_outer_join", "LEFT"),
            ("right_outer_join", "RIGHT"),
            ("full_outer_join", "FULL"),
        )
    ),
    *(
        (
            f"SELECT customer FROM orders {sql} SELECT name FROM customers",
            lambda o, c, name=name: getattr(o.select("customer"), name)(c.select("name")),
        )
        for name, sql in (
            ("union", "UNION"),
            ("union_all", "UNION ALL"),
            ("intersect", "INTERSECT"),
            ("intersect_all", "INTERSECT ALL"),
            ("minus", "EXCEPT"),
            ("minus_all", "EXCEPT ALL"),
        )
    ),
]


def _coalesced() -> Expression:
    return call("coalesce", with_columns("id", "amount"))


@pytest.mark.parametrize(("sql", "make"), SAME, ids=[sql for sql, _ in SAME])
def test_a_table_has_the_plan_of_the_same_query(sql: str, make: Make, environment: PlanningEnvironment) -> None:
    """Both go through one analyser."""
    made = make(environment.from_path("orders"), environment.from_path("customers"))
    assert show_plan(made) == environment.planned(sql)


def test_a_range_in_time_may_be_unbounded(environment: PlanningEnvironment) -> None:
    """It is what there is without a frame."""
    orders = environment.from_path("orders")
    window = Over.partition_by(orders.customer).order_by(orders.ts).preceding(UNBOUNDED_RANGE).alias("w")
    table = orders.over_window(window).select(orders.price.sum.over(col("w")).alias("s"))
    assert show_plan(table) == environment.planned(
        "SELECT SUM(price) OVER (PARTITION BY customer ORDER BY ts RANGE UNBOUNDED PRECEDING) AS s FROM orders"
    )


def test_in_groups_and_orders_a_number_is_no_column(environment: PlanningEnvironment) -> None:
    """In SQL it is the number of a selected column."""
    orders = environment.from_path("orders")
    assert "Project(select=[1 AS $k0" in show_plan(orders.group_by(lit(1)).select(orders.id.sum))
    assert "1 AS $sort0" in show_plan(orders.select("id").order_by(lit(1)))


def test_rows_are_fetched_of_what_was_fetched(environment: PlanningEnvironment) -> None:
    """Only an offset before it joins the same step."""
    table = environment.from_path("customers").order_by("name").fetch(5).offset(1)
    assert show_plan(table).splitlines()[:2] == ["Sort(offset=1)", "  Sort(orderBy=[name ASC], fetch=5)"]


def test_a_table_has_its_columns_as_attributes(environment: PlanningEnvironment) -> None:
    """Methods come first; a name that is neither is an error."""
    customers = environment.from_path("customers")
    assert str(customers.city) == "`city`"
    assert callable(customers.alias)
    with pytest.raises(AttributeError, match="'town': its columns are name, city, since"):
        _ = customers.town


def test_a_window_of_another_name_is_unknown(environment: PlanningEnvironment) -> None:
    """`start` and its like belong to the window of the group."""
    grouped = environment.from_path("orders").window(TUMBLE).group_by("w")
    with pytest.raises(ValidationError, match="start belongs to the window 'w'"):
        grouped.select(col("v").start)
    with pytest.raises(ValidationError, match="window 'w' is on 'ts', which is no processing time: take rowtime"):
        grouped.select(col("w").proctime)


def test_the_time_of_a_window_stays_a_time_attribute(environment: PlanningEnvironment) -> None:
    """So windows can follow windows."""
    orders = environment.from_path("orders")
    minutes = orders.window(TUMBLE).group_by("w").select(col("w").rowtime.alias("t"), orders.price.sum.alias("total"))
    hours = minutes.window(Tumble.over(lit(1).hour).on(minutes.t).alias("h")).group_by("h")
    assert str(minutes.get_resolved_schema()).splitlines()[1] == "  `t` TIMESTAMP(3) NOT NULL *ROWTIME*,"
    assert hours.select(minutes.total.sum.alias("total"))._plan.schema.names == ["total"]


WRONG: list[tuple[str, Make]] = [
    ("GroupBy must contain the window", lambda o, c: o.window(TUMBLE).group_by("customer").select("customer")),
    ("Expression 'id' is not being grouped", lambda o, c: o.group_by("customer").select("id")),
    ("Column 'nobody' not found", lambda o, c: o.select("nobody")),
    ("Ambiguous column name: id", lambda o, c: o.select("id", o.amount.alias("id"))),
    ("Ambiguous column name: id", lambda o, c: o.add_columns(o.amount.alias("id"))),
    (r"ambiguous names: \[city, name, since\]", lambda o, c: c.join(c, c.name == c.name)),
    ("Aliasing more fields than we actually have", lambda o, c: c.alias("a", "b", "c", "d")),
    ("Duplicate names in alias", lambda o, c: c.alias("a", "a")),
    (r"Cannot resolve field \[x\], input field list:\[name", lambda o, c: c.rename_columns(col("x").alias("y"))),
    ("rename_columns takes columns and new names", lambda o, c: c.rename_columns("city")),
    ("drop_columns takes columns", lambda o, c: c.drop_columns(c.city.is_null)),
    ("there is no column 9", lambda o, c: c.select(range_(1, 9))),
    ("ends with 'name', before 'city'", lambda o, c: c.select(range_("city", "name"))),
    ("one name is given to 3 columns", lambda o, c: c.select(with_all_columns().alias("a"))),
    ("WHERE clause must be a condition", lambda o, c: o.where(o.amount)),
    ("fetch takes a number of rows from 0 on", lambda o, c: c.fetch(-1)),
    ("names of over windows must differ", lambda o, c: _windowed(o, "w", "w")),
    ("Window 'v' not found", lambda o, c: _windowed(o, "w").select(o.id.sum.over(col("v")))),
    ("both count rows, or both time", lambda o, c: Over.order_by(o.ts).preceding(lit(1).day).following(CURRENT_ROW)),
    ("Column count mismatch in UNION", lambda o, c: o.union(c)),
    ("a window is on a column", lambda o, c: Tumble.over(lit(1).hour).on(o.ts.cast(DataTypes.DATE()))),
    ("from the same TableEnvironment", lambda o, c: o.join(PlanningEnvironment().from_path("customers"))),
]


def _windowed(table: Table, *names: str) -> OverWindowedTable:
    return table.over_window(*(Over.order_by(table.ts).alias(name) for name in names))


@pytest.mark.parametrize(("message", "make"), WRONG, ids=[message for message, _ in WRONG])
def test_what_cannot_be_is_told_at_once(message: str, make: Make, environment: PlanningEnvironment) -> None:
    """Names are resolved and types found while the table is made."""
    with pytest.raises(ValidationError, match=message):
        make(environment.from_path("orders"), environment.from_path("customers"))


def test_arguments_of_other_kinds_are_refused(environment: PlanningEnvironment) -> None:
    """With a word on what to give instead."""
    orders = environment.from_path("orders")
    with pytest.raises(WrongTypeError, match="a field must be an expression"):
        orders.select(1)
    with pytest.raises(WrongTypeError, match="one of Tumble, Slide and Session"):
        orders.window(Tumble.over(lit(1).day).on(orders.ts))  # type: ignore[arg-type]
    with pytest.raises(WrongTypeError, match="joined with another one"):
        orders.join("customers")  # type: ignore[arg-type]
    with pytest.raises(WrongTypeError, match="size of a window"):
        Tumble.over("10.minutes")  # type: ignore[arg-type]


def test_windows_of_a_number_of_rows_are_not_there_yet() -> None:
    """Where one is made."""
    with pytest.raises(UnsupportedError, match="windows of a number of rows"):
        Tumble.over(row_interval(10))


# --- running ---------------------------------------------------------------------------------------------------------


def test_a_table_is_written_by_path(environment: PlanningEnvironment) -> None:
    """The path may have backticks, and catalog and database before the name."""
    customers = environment.from_path("customers")
    assert customers.insert_into("db.`my table`").path == ("db", "my table")
    assert customers.execute_insert("sink", overwrite=True).overwrite
    assert customers.insert_into(17).path == ("sink of", "17")


def test_a_table_stands_for_a_name_in_sql(environment: PlanningEnvironment) -> None:
    """In an f-string."""
    assert f"SELECT * FROM {environment.from_path('customers')}" == "SELECT * FROM unnamed_with_3_columns"


def test_a_table_shows_its_plan_and_its_columns(
    environment: PlanningEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people."""
    customers = environment.from_path("customers").select("name")
    customers.print_explain()
    customers.print_schema()
    assert capsys.readouterr().out == (
        "Project(select=[name])\n"
        "  Scan(table=[default_catalog.default_database.customers], fields=[name, city, since])\n"
        "(\n  `name` STRING NOT NULL\n)\n"
    )


def test_a_table_knows_its_columns(environment: PlanningEnvironment) -> None:
    """In the form of older programs, too."""
    schema = environment.from_path("customers").drop_columns("city").get_schema()
    assert schema.get_field_names() == ["name", "since"]
    assert schema.get_field_data_type("since") == schema.get_field_data_type(1) == DataTypes.DATE()
    assert repr(schema) == "root\n |-- name: STRING NOT NULL\n |-- since: DATE\n"
    assert schema.get_field_data_type("town") is None
    assert schema.get_field_name(2) is None
    built = TableSchema.builder().field("name", DataTypes.STRING(False)).field("since", DataTypes.DATE()).build()
    assert built == schema.copy()
    assert str(built.to_row_data_type()) == "ROW<`name` STRING NOT NULL, `since` DATE> NOT NULL"


def test_rows_become_a_data_frame(environment: PlanningEnvironment) -> None:
    """Without those that later rows take back."""
    pandas = pytest.importorskip("pandas")
    environment.rows = [
        Row("Ann", 1),
        Row("Bob", None),
        Row.of_kind(RowKind.UPDATE_BEFORE, "Ann", 1),
        Row.of_kind(RowKind.UPDATE_AFTER, "Ann", 2),
    ]
    frame = environment.from_path("orders").select("customer", "amount").to_pandas()
    expected = pandas.DataFrame({"customer": ["Bob", "Ann"], "amount": [None, 2.0]})
    pandas.testing.assert_frame_equal(frame, expected, check_dtype=False)
