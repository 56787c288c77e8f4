"""Table functions, in SQL and in the Table API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.table.udf import importable
from tests.table.udf.jobs import changes_of, environment, read_rows

from penstock.base.errors import UnsupportedError, UserFunctionError
from penstock.sql.data.errors import ValidationError
from penstock.table import DataTypes, Row
from penstock.table.expressions import col
from penstock.table.udf import TableFunction, udf, udtf


class Split(TableFunction):
    """The words of a text and their lengths."""

    def eval(self, text: str | None, separator: str = " ") -> Iterator[tuple[str, int]]:
        for word in (text or "").split(separator) if text else ():
            yield word, len(word)


split = udtf(Split(), result_types=["STRING", "INT"])

SQL = {
    "SELECT id, word, n FROM words, LATERAL TABLE(split(text)) AS s (word, n)": [
        (1, "a", 1),
        (1, "bb", 2),
        (2, "c", 1),
    ],
    "SELECT id, s.f1 FROM words CROSS JOIN LATERAL TABLE(split(text, 'b')) AS s": [(1, 0), (1, 0), (1, 2), (2, 1)],
    "SELECT id, word FROM words LEFT JOIN LATERAL TABLE(split(text)) AS s (word, n) ON TRUE": [
        (1, "a"),
        (1, "bb"),
        (2, "c"),
        (3, None),
    ],
    "SELECT id, word FROM words JOIN LATERAL TABLE(split(text)) AS s (word, n) ON n = id": [(1, "a")],
    "SELECT id, word FROM words LEFT JOIN LATERAL TABLE(split(text)) AS s (word, n) ON n = id": [
        (1, "a"),
        (2, None),
        (3, None),
    ],
    "SELECT id, word FROM words, LATERAL TABLE(split(text)) AS s (word, n) WHERE CHAR_LENGTH(word) > 1": [(1, "bb")],
    "SELECT word FROM TABLE(split('x y')) AS s (word, n)": [("x",), ("y",)],
    "SELECT a.word, b.word FROM words, LATERAL TABLE(split(text)) AS a (word, n), "
    "LATERAL TABLE(split(a.word, 'b')) AS b (word, n) WHERE id = 2": [("c", "c")],
    "SELECT COUNT(*) FROM words, LATERAL TABLE(split(text)) AS s (word, n) WHERE id = 2": [(1,)],
}


@pytest.mark.parametrize("sql", SQL)
def test_a_table_function_in_sql(sql: str) -> None:
    """Each row with each row that the function makes of it. Flink's own SPLIT, which gives one value, is not meant."""
    assert read_rows(environment(split=split), sql) == SQL[sql]


def test_lateral_joins_of_the_table_api() -> None:
    """With and without the rows of which nothing is made."""
    made = environment()
    words = made.from_path("words").select(col("id"), col("text"))
    call = split(col("text")).alias("word", "n")
    assert read_rows(made, words.join_lateral(call).select(col("word"))) == [("a",), ("bb",), ("c",)]
    assert read_rows(made, words.join_lateral(call, col("n") == col("id")).select(col("word"))) == [("a",)]
    assert read_rows(made, words.left_outer_join_lateral(call).select(col("id"), col("n")))[-1] == (3, None)
    assert words.join_lateral(split(col("text"))).get_schema().get_field_names() == ["id", "text", "f0", "f1"]


def test_flat_map_leaves_the_columns_out() -> None:
    """The function alone gets the whole row."""
    made = environment()

    def both(row: Any) -> list[Any]:
        return [row.id, row[0] + 10]

    words = made.from_path("words")
    assert read_rows(made, words.flat_map(udtf(both, result_types="INT"))) == [(1,), (11,), (12,), (13,), (2,), (3,)]
    table = words.flat_map(split(col("text"), "b").alias("x", "y"))
    assert table.get_schema().get_field_names() == ["x", "y"]


def test_map_takes_a_row_apart() -> None:
    """Into its fields; a single value is a column."""
    made = environment()
    words = made.from_path("words")
    pair = udf(lambda row: Row(row.id + 1, row.text), result_type="ROW<a BIGINT, b STRING>")
    assert read_rows(made, words.map(pair)) == [(2, "a bb"), (3, "c"), (4, None)]
    assert words.map(pair).get_schema().get_field_names() == ["a", "b"]
    assert words.map(pair.alias("x", "y")).get_schema().get_field_names() == ["x", "y"]
    assert read_rows(made, words.map(importable.add(col("id"), 1))) == [(2,), (3,), (4,)]
    with pytest.raises(ValidationError, match="Only a scalar function can be used in the map operator"):
        words.map(split)


GIVEN: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "none": (None, []),
    "a list": ([(1, "a"), (2, "b")], [(1, "a"), (2, "b")]),
    "one row": ((1, "a"), [(1, "a")]),
    "a row of names": (Row(y="a", x=1), [(1, "a")]),
    "rows": ([Row(1, None)], [(1, None)]),
}


@pytest.mark.parametrize("case", GIVEN)
def test_rows_come_in_many_forms(case: str) -> None:
    """Lists, ranges and iterators are many rows, and anything else is one."""
    given, expected = GIVEN[case]
    made = environment(f=udtf(lambda number: given, result_types="ROW<x INT, y STRING>"))
    assert read_rows(made, "SELECT x, y FROM words, LATERAL TABLE(f(id)) WHERE id = 1") == expected


def test_a_single_column_needs_no_tuples() -> None:
    """A range gives its numbers."""
    made = environment(upto=udtf(range, result_types=DataTypes.INT()))
    assert read_rows(made, "SELECT id, n FROM words, LATERAL TABLE(upto(id)) AS r (n) WHERE id < 3") == [
        (1, 0),
        (2, 0),
        (2, 1),
    ]


def test_annotations_say_the_columns() -> None:
    """`Iterator[tuple[…]]` of several, `list[…]` of one."""

    def one(text: str) -> list[int]:
        return [len(text)]

    assert str(udtf(Split()).definition.result_type) == "ROW<`f0` STRING, `f1` BIGINT> NOT NULL"
    assert str(udtf(one).definition.result_type) == "ROW<`f0` BIGINT> NOT NULL"
    with pytest.raises(ValidationError, match=r'write result_types=\["BIGINT", "STRING"\]'):
        udtf(lambda text: [])


def test_rows_keep_their_kinds() -> None:
    """What a row made is taken back with it."""
    made = environment(upto=udtf(range, result_types="BIGINT"))
    sql = "SELECT n, x FROM (SELECT COUNT(*) AS n FROM words), LATERAL TABLE(upto(n)) AS r (x)"
    assert changes_of(made, sql)[:5] == ["+I[1, 0]", "-U[1, 0]", "+U[2, 0]", "+U[2, 1]", "-U[2, 0]"]


def test_it_is_opened_and_closed() -> None:
    """Once in each subtask."""

    class Opened(TableFunction):
        def open(self, function_context: object) -> None:
            importable.CALLS.append("open")

        def eval(self, number: int) -> list[int]:
            importable.CALLS.append("eval")
            return [number]

        def close(self) -> None:
            importable.CALLS.append("close")

    importable.CALLS.clear()
    read_rows(environment(opened=udtf(Opened())), "SELECT * FROM words, LATERAL TABLE(opened(id))")
    assert importable.CALLS == ["open", "eval", "eval", "eval", "close"]


WRONG: dict[str, tuple[Any, str]] = {
    "fields": (lambda number: (1, 2, 3), r"it gave the row \(1, 2, 3\) of 3 fields, and its result types are 2"),
    "type": (lambda number: ("a", 2), "it returned 'a' .str., which is no INT, as column f0 is"),
    "raises": (lambda number: [(1 / 0, 2)], "division by zero"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_fails_with_the_function_and_the_row(case: str) -> None:
    """Its name, and the operands."""
    function, message = WRONG[case]
    made = environment(wrong=udtf(function, result_types=["INT", "INT"]))
    with pytest.raises(UserFunctionError, match=message) as caught:
        read_rows(made, "SELECT * FROM words, LATERAL TABLE(wrong(id)) WHERE id = 2")
    assert "table function 'wrong'" in str(caught.value)


REFUSED = {
    "SELECT letters(text) FROM words": "table function 'letters' gives rows: call it as LATERAL TABLE",
    "SELECT * FROM words, LATERAL TABLE(nothing(text))": "No match found for function signature NOTHING",
    "SELECT * FROM words, LATERAL TABLE(vector_search(text))": "Invalid number of arguments to function",
    "SELECT * FROM words, LATERAL TABLE(ML_PREDICT(text))": "No match found for function signature ML_PREDICT",
    "SELECT * FROM words, LATERAL TABLE(add(id, 1))": "scalar function 'add' gives no rows",
    "SELECT * FROM words, LATERAL TABLE(split())": "takes the operands .*, and gets 0",
    "SELECT * FROM words, LATERAL TABLE(split(text)) AS s (a)": "table split gives 2 columns .f0, f1., whereas alias",
    "SELECT * FROM words RIGHT JOIN LATERAL TABLE(split(text)) AS s ON TRUE": "RIGHT JOIN of split is not possible",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_planned_is_refused(sql: str) -> None:
    """With the function and the reason."""
    made = environment(add=importable.add, split=split, letters=udtf(importable.Letters()))
    with pytest.raises((ValidationError, UnsupportedError), match=REFUSED[sql]):
        made.sql_query(sql)


def test_names_must_differ_in_the_table_api() -> None:
    """As in its other joins."""
    words = environment().from_path("words")
    with pytest.raises(ValidationError, match=r"ambiguous names: \[id\]"):
        words.join_lateral(split(col("text")).alias("id", "n"))
