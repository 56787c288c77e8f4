"""Which columns fields stand for, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.queries import MethodCalls
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.functions.definition import Session
from penstock.sql.parser import syntax, to_sql
from penstock.sql.typed import Field, FunctionCall, Typed
from penstock.table.expression import Expression
from penstock.table.expressions import col, concat, lit, range_, with_columns
from penstock.table.plans import selected
from penstock.table.types import DataTypes

PLACE = DataTypes.ROW([DataTypes.FIELD("city", DataTypes.STRING()), DataTypes.FIELD("number", DataTypes.INT())])


def shown(*fields: object) -> list[str]:
    """Fields over a table with the columns a, b and place."""

    def analyse_type(node: syntax.Expression) -> DataType:
        return PLACE if node == syntax.Reference(("place",)) else DataTypes.INT()

    items = selected(fields, ["a", "b", "place"], analyse_type, Calls(Session()))
    return [f"{to_sql(item.expression)} AS {item.alias}" for item in items]


NAMED: list[tuple[Expression, str]] = [
    (col("a"), "`a` AS a"),
    (col("a") + 1, "(`a` + 1) AS _c0"),
    (col("a").cast(DataTypes.DOUBLE()), "CAST(`a` AS DOUBLE) AS a-DOUBLE"),
    ((col("a") + 1).cast(DataTypes.DOUBLE()), "CAST((`a` + 1) AS DOUBLE) AS _c0"),
    (col("place").city, "`place`.`city` AS place$city"),
    (col("a").sum, "SUM(`a`) AS EXPR$0"),
    (col("a").sum + 1, "(SUM(`a`) + 1) AS _c0"),
    (col("w").start, "`$START`(`w`) AS EXPR$0"),
    (col("a").sum.over(col("w")), "SUM(`a`) OVER `w` AS _c0"),
    (lit(1).alias("one"), "1 AS one"),
]


@pytest.mark.parametrize(("field", "column"), NAMED, ids=[column for _, column in NAMED])
def test_a_column_has_the_name_that_flink_gives_it(field: Expression, column: str) -> None:
    """Unless it has an alias."""
    assert shown(field) == [column]


def test_a_name_has_the_place_of_the_column_or_the_number_of_the_aggregate() -> None:
    """An aggregate that occurs twice counts once."""
    total = col("a").sum
    assert shown("b", lit(1), total / col("b").max, col("b").max, total.alias("c")) == [
        "`b` AS b",
        "1 AS _c1",
        "(SUM(`a`) / MAX(`b`)) AS _c2",
        "MAX(`b`) AS EXPR$1",
        "SUM(`a`) AS c",
    ]


def test_a_row_is_taken_apart() -> None:
    """Each field gets the name of the row before its own."""
    assert shown("a", col("place").flatten) == [
        "`a` AS a",
        "`place`.`city` AS place$city",
        "`place`.`number` AS place$number",
    ]
    with pytest.raises(ValidationError, match="flatten takes a row apart, and `a` is INT"):
        shown(col("a").flatten)


def test_a_range_may_stand_in_a_call() -> None:
    """Its columns are operands."""
    assert shown(concat("x", with_columns(range_("a", "b"))).alias("c")) == ["CONCAT('x', `a`, `b`) AS c"]
    with pytest.raises(ValidationError, match="2 columns stand where there must be one expression"):
        shown(with_columns("a", "b").cast(DataTypes.INT()))


class _Calls(Calls):
    def call(self, name: str, operands: Sequence[Typed], options: tuple[str, ...] = ()) -> Typed:
        return FunctionCall(operands[0].type, name, tuple(operands))


def test_a_plus_joins_texts() -> None:
    """In SQL it adds numbers alone."""
    calls = MethodCalls(_Calls(Session()))
    text, number = Field(DataTypes.STRING(), 0, "s"), Field(DataTypes.INT(), 1, "n")
    assert str(calls.call("+", [text, number])) == "||(s, CAST(n))"
    assert str(calls.call("+", [number, number])) == "+(n, n)"
