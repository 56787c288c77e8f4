"""Table aggregate functions: the rows that they give for groups, and what is sent when these change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.table.udf.aggregates import Greatest, Groups, Total
from tests.table.udf.jobs import environment, read_rows

from penstock.base.errors import UnsupportedError, UserFunctionError
from penstock.sql.data.errors import ValidationError
from penstock.table import DataTypes, Row
from penstock.table.expressions import call, col
from penstock.table.udf import TableAggregateFunction, udaf, udtaf

GREATEST = udtaf(Greatest())


def sold(made: Any) -> Any:
    return made.from_elements([("a", 1), ("b", 4), ("a", 3), ("a", 2), ("a", 1)], ["k", "v"])


def changes_of(table: Any) -> list[str]:
    with table.execute().collect() as rows:
        return [f"{row.get_row_kind().short_string}{list(row)}" for row in rows]


def test_a_change_takes_back_the_whole_list() -> None:
    """And sends the new one; rows that leave the list as it is send nothing."""
    table = sold(environment()).group_by(col("k")).flat_aggregate(GREATEST(col("v")).alias("v", "place"))
    assert changes_of(table.select(col("k"), col("v"), col("place"))) == [
        "+I['a', 1, 1]",
        "+I['b', 4, 1]",
        "-D['a', 1, 1]",
        "+I['a', 3, 1]",
        "+I['a', 1, 2]",
        "-D['a', 3, 1]",
        "-D['a', 1, 2]",
        "+I['a', 3, 1]",
        "+I['a', 2, 2]",
    ]


def test_columns_have_the_names_of_the_type() -> None:
    """Unless an alias says others; the key comes first, under its own name."""
    made = environment(two=Greatest())
    grouped = sold(made).group_by(col("k").alias("key"))
    assert grouped.flat_aggregate(GREATEST(col("v"))).select("*").get_schema().get_field_names() == ["key", "f0", "f1"]
    named = udtaf(Greatest(), result_type="ROW<most BIGINT, place BIGINT>")
    assert read_rows(made, grouped.flat_aggregate(named(col("v"))).select(col("most") * 10, col("key")))[-1] == (
        40,
        "b",
    )
    by_name = grouped.flat_aggregate(call("two", col("v")).alias("x", "y")).select(col("x"))
    assert by_name.get_schema().get_field_names() == ["x"]
    tiny = udtaf(Greatest(), result_type=[DataTypes.BIGINT(), DataTypes.INT()])
    assert str(grouped.flat_aggregate(tiny(col("v"))).select("f1").get_schema().get_field_data_types()[0]) == "INT"


def test_without_groups_all_rows_are_one() -> None:
    """A function alone gets the whole row; a row of one column may be its value."""

    class Names(TableAggregateFunction[str, list[str]]):
        def create_accumulator(self) -> list[str]:
            return []

        def accumulate(self, accumulator: list[str], *args: Any) -> None:
            (row,) = args
            assert isinstance(row, Row)
            accumulator.append(f"{row.k}{row.v}")

        def emit_value(self, accumulator: list[str]) -> list[str]:
            return accumulator[-1:]

    made = environment()
    changes = changes_of(sold(made).flat_aggregate(udtaf(Names()).alias("last")).select("last"))
    assert changes[-2:] == ["-D['a2']", "+I['a1']"]
    assert len(changes) == 9


def test_rows_that_change_are_taken_back() -> None:
    """Of a table with updates; a group without rows gives none."""
    made = environment()
    counts = sold(made).group_by(col("k")).select(col("k"), col("v").count.alias("n"))
    only = counts.where(col("n") < 2).group_by(col("k")).flat_aggregate(GREATEST(col("n")).alias("n", "place"))
    assert changes_of(only.select(col("k"), col("n"), col("place"))) == [
        "+I['a', 1, 1]",
        "+I['b', 1, 1]",
        "-D['a', 1, 1]",
    ]


def test_what_it_gives_can_be_queried_on() -> None:
    """Its rows come and go as any others do."""
    made = environment()
    flat = sold(made).group_by(col("k")).flat_aggregate(GREATEST(col("v")).alias("v", "place")).select("*")
    made.create_temporary_view("flat", flat)
    assert changes_of(made.sql_query("SELECT SUM(v) FROM flat"))[-1] == "+U[9]"
    assert "changelogMode=[I,D]" in flat.explain()


def test_where_state_expires_the_same_list_is_sent_anew() -> None:
    """So that its rows live on in what is behind."""
    groups = Groups(GREATEST, ttl_ms=1_000)
    assert groups.rows(("a", 3)) == [("+I", "a", 3, 1)]
    assert groups.rows(("a", 2), ("a", 1))[-4:] == [
        ("-D", "a", 3, 1),
        ("-D", "a", 2, 2),
        ("+I", "a", 3, 1),
        ("+I", "a", 2, 2),
    ]
    groups.wait(10_000)
    assert groups.rows(("a", 1)) == [("+I", "a", 1, 1)]


def test_lists_are_restored_at_another_parallelism() -> None:
    """By the keys of their groups."""
    groups = Groups(GREATEST, retracts=True)
    keys = [f"key {number}" for number in range(9)]
    groups.rows(*((key, 1) for key in keys))
    groups.recover(3)
    assert sorted(groups.rows(*(("-D", key, 1) for key in keys))) == [("-D", key, 1, 1) for key in keys]
    assert groups.entries == {}


class Wrong(Greatest):
    """Gives the same rows, whatever comes."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def emit_value(self, accumulator: list[int]) -> Iterator[tuple[int, int]]:
        yield from self._rows


WRONG: list[tuple[Any, str]] = [
    ([(1, 2, 3)], r"it gave the row \(1, 2, 3\) of 3 fields, and its result types are 2"),
    ([(1, "x")], r"it returned 'x' \(str\), which is no BIGINT, as column f1 is"),
]


@pytest.mark.parametrize(("rows", "message"), WRONG)
def test_rows_of_other_types_fail_the_job(rows: Any, message: str) -> None:
    """With the function and the column."""
    table = sold(environment()).flat_aggregate(udtaf(Wrong(rows))(col("v"))).select("*")
    with pytest.raises(UserFunctionError, match=message) as caught:
        changes_of(table)
    assert "table aggregate function 'Wrong'" in str(caught.value)


class Forward(Greatest):
    """Takes nothing back."""

    retract = TableAggregateFunction.retract


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (
        lambda table: table.flat_aggregate(udaf(Total())(col("v"))).select("*"),
        ValidationError,
        "Only a table aggregate function can be used in the flatAggregate operator",
    ),
    (
        lambda table: table.aggregate(GREATEST(col("v"))).select("*"),
        ValidationError,
        "Only an aggregate function can be used in the aggregate operator",
    ),
    (lambda table: table.flat_aggregate(max), ValidationError, "flat_aggregate takes a function, or a call of one"),
    (
        lambda table: table.flat_aggregate(GREATEST(col("v")).alias("x")).select("*"),
        ValidationError,
        "gives 2 columns, and gets 1 names",
    ),
    (
        lambda table: table.flat_aggregate(GREATEST(col("v")).alias("k", "x")).select("*"),
        ValidationError,
        "Ambiguous column name: k; name the columns of the function with alias",
    ),
    (
        lambda table: table.flat_aggregate(GREATEST(col("v"))).select(col("f0").sum),
        ValidationError,
        "Aggregate functions are not supported in the select right after the flat_aggregate",
    ),
    (
        lambda table: table.aggregate(udaf(Total())(col("v"))).select(udaf(Total())(col("f0"))),
        ValidationError,
        "Aggregate functions are not supported in the select right after the aggregate",
    ),
    (
        lambda table: table.flat_aggregate(GREATEST(col("v")).distinct).select("*"),
        UnsupportedError,
        "DISTINCT is not supported for table aggregate function 'Greatest'",
    ),
    (lambda table: table.select(GREATEST(col("v"))), ValidationError, "call it in the Table API, by flat_aggregate"),
    (
        lambda table: (
            table.select(col("k"), col("v").count.alias("n"))
            .group_by("k")
            .flat_aggregate(udtaf(Forward())(col("n")))
            .select("*")
            .execute()
        ),
        ValidationError,
        "Could not find an implementation method 'retract' in class 'Forward' for function 'Forward'",
    ),
]


@pytest.mark.parametrize(("use", "error", "message"), REFUSED)
def test_what_is_refused(use: Any, error: type[Exception], message: str) -> None:
    """With the reason."""
    with pytest.raises(error, match=message):
        use(sold(environment()).group_by(col("k")))


def test_what_udtaf_refuses() -> None:
    """When the function is made."""
    with pytest.raises(ValueError, match="The func_type must be one of 'general', got pandas"):
        udtaf(Greatest(), func_type="pandas")
    with pytest.raises(TypeError, match="a TableAggregateFunction is expected, not Total"):
        udtaf(Total())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'max' is a plain function"):
        udtaf(max, result_type="INT")  # type: ignore[arg-type]
