"""Scalar functions row by row: what they see, what they may return, and how often they are called."""

from __future__ import annotations

import datetime
import functools
from decimal import Decimal
from typing import Any

import pytest
from tests.table.udf import importable
from tests.table.udf.jobs import changes_of, environment, read_rows

from penstock.base.errors import UserFunctionError
from penstock.sql.data.errors import ValidationError
from penstock.table import DataTypes, Row
from penstock.table.expressions import call, col, lit
from penstock.table.udf import ScalarFunction, udf


@udf
def upper(text: str | None) -> str | None:
    return None if text is None else text.upper()


def test_a_function_is_called_in_sql_by_its_name() -> None:
    """In whatever case, inside other calls, and in conditions."""
    made = environment(shout=upper)
    assert read_rows(made, "SELECT id, SHOUT(text) || '!' FROM words WHERE shout(text) <> 'C'") == [(1, "A BB!")]


def test_a_function_is_called_in_the_table_api() -> None:
    """Itself, by `call`, and by `call` with its name; values of Python are literals."""
    add = udf(lambda one, other: one + other, result_type=DataTypes.BIGINT())
    made = environment(add=add)
    table = made.from_path("words").select(
        add(col("id"), 1), call(add, col("id"), 2).alias("b"), call("add", col("id"), lit(3)).alias("c")
    )
    assert table.get_schema().get_field_names() == ["_c0", "b", "c"]
    assert read_rows(made, table) == [(2, 3, 4), (3, 4, 5), (4, 5, 6)]


def test_null_is_none() -> None:
    """A function is called for NULL, too."""
    made = environment(is_none=udf(lambda text: text is None, result_type="BOOLEAN"))
    assert read_rows(made, "SELECT id, is_none(text) FROM words") == [(1, False), (2, False), (3, True)]


SEEN = {
    "CAST(1 AS TINYINT)": "1",
    "CAST(1.5 AS DOUBLE)": "1.5",
    "1.50": "Decimal('1.50')",
    "TRUE": "True",
    "X'6162'": "b'ab'",
    "DATE '2024-05-06'": "datetime.date(2024, 5, 6)",
    "TIME '01:02:03'": "datetime.time(1, 2, 3)",
    "TIMESTAMP '2024-05-06 07:08:09.123'": "datetime.datetime(2024, 5, 6, 7, 8, 9, 123000)",
    "INTERVAL '1' MINUTE": "datetime.timedelta(seconds=60)",
    "ARRAY[1, 2]": "[1, 2]",
    "MAP['a', DATE '2024-05-06']": "{'a': datetime.date(2024, 5, 6)}",
    "CAST(ROW(1, 'x') AS ROW<a INT, b STRING>)": "Row(a=1, b='x')",
    "CAST(NULL AS INT)": "None",
}


@pytest.mark.parametrize("sql", SEEN)
def test_values_come_as_python_has_them(sql: str) -> None:
    """A constant is the same in every row, and comes as any other value."""
    made = environment(shown=udf(repr, result_type="STRING"))
    assert read_rows(made, f"SELECT shown({sql})") == [(SEEN[sql],)]
    assert read_rows(made, f"SELECT shown(x) FROM (VALUES ({sql})) AS t (x)") == [(SEEN[sql],)]


def test_a_point_in_time_has_the_zone_of_the_session() -> None:
    """TIMESTAMP_LTZ is a datetime with that zone, and one without a zone is in it."""
    seen = udf(lambda moment: f"{moment.isoformat()} {moment.tzinfo}", result_type="STRING")
    made = environment(seen=seen, back=udf(lambda: datetime.datetime(2024, 1, 1), result_type="TIMESTAMP_LTZ(3)"))
    assert read_rows(made, "SELECT seen(TO_TIMESTAMP_LTZ(0, 3))") == [("1970-01-01T01:00:00+01:00 Europe/Berlin",)]
    assert read_rows(made, "SELECT CAST(back() AS STRING)") == [("2024-01-01 00:00:00.000",)]


RETURNED = {
    "TINYINT": 5,
    "DOUBLE": 2,
    "DECIMAL(5, 2)": Decimal("1.005"),
    "BYTES": bytearray(b"x"),
    "DATE": datetime.date(2024, 5, 6),
    "TIMESTAMP(3)": datetime.datetime(2024, 5, 6, 7, 8, 9),
    "INTERVAL SECOND(3)": datetime.timedelta(seconds=5),
    "ARRAY<INT>": (1, None),
    "MAP<STRING, INT>": {"a": 1},
    "ROW<a INT, b STRING>": {"b": "x", "a": 1},
}


@pytest.mark.parametrize("kind", RETURNED)
def test_values_go_back_by_the_result_type(kind: str) -> None:
    """A decimal is rounded to its scale; a row may be a dict, and an array a tuple."""
    expected = {"DOUBLE": 2.0, "DECIMAL(5, 2)": Decimal("1.01"), "BYTES": b"x", "ARRAY<INT>": [1, None]}
    expected |= {"ROW<a INT, b STRING>": Row(1, "x")}
    made = environment(f=udf(lambda: RETURNED[kind], result_type=kind))
    assert read_rows(made, "SELECT f()") == [(expected.get(kind, RETURNED[kind]),)]


WRONG = {
    "BIGINT": 1.5,
    "TINYINT": 300,
    "STRING": 5,
    "BOOLEAN": "yes",
    "DOUBLE": "1.5",
    "INT NOT NULL": None,
    "ARRAY<INT>": "ab",
    "DATE": "2024-01-01",
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_value_of_another_type_fails_with_the_function_and_the_row(kind: str) -> None:
    """And not with something that is nearly the value."""
    made = environment(f=udf(lambda number: WRONG[kind], result_type=kind))
    with pytest.raises(UserFunctionError, match=r"it returned .*which is no") as caught:
        read_rows(made, "SELECT f(id) FROM words WHERE id = 2")
    assert "scalar function 'f'" in str(caught.value)
    assert "(2,)" in str(caught.value)


def test_an_error_shows_the_function_the_row_and_the_users_own_lines() -> None:
    """Not pages of Penstock's."""

    def inverse(number: int) -> float:
        return 1 / (number - 2)

    made = environment(inverse=udf(inverse))
    with pytest.raises(UserFunctionError) as caught:
        read_rows(made, "SELECT inverse(id) FROM words")
    text = str(caught.value)
    assert "scalar function 'inverse'" in text
    assert "ZeroDivisionError" in text
    assert "return 1 / (number - 2)" in text
    assert "src/penstock" not in text


def test_the_end_of_an_iterator_is_an_error() -> None:
    """It does not end the rows."""
    made = environment(f=udf(lambda number: next(iter(())), result_type="INT"))
    with pytest.raises(UserFunctionError, match="raised StopIteration"):
        read_rows(made, "SELECT f(id) FROM words")


# --- how it is made --------------------------------------------------------------------------------------------------


def test_lambdas_partials_callables_and_objects_are_functions() -> None:
    """Their names are those that messages show."""

    def scaled(factor: int, number: int) -> int:
        return factor * number

    class Scale:
        def __call__(self, number: int) -> int:
            return 7 * number

    class Times(ScalarFunction):
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def eval(self, number: int) -> int:
            return self.factor * number

    twice = udf(functools.partial(scaled, 2))
    made = environment()
    fields = [one(col("id")) for one in (udf(lambda n: n + 1, result_type="INT"), twice, udf(Scale()), udf(Times(5)))]
    assert read_rows(made, made.from_path("words").select(*fields))[0] == (2, 2, 7, 5)
    assert [repr(one) for one in (twice, udf(Scale()), udf(Times(5), name="five"))] == [
        "<scalar function 'scaled'>",
        "<scalar function 'Scale'>",
        "<scalar function 'five'>",
    ]


ANNOTATED: dict[str, Any] = {
    "BOOLEAN": bool,
    "BIGINT": int,
    "DOUBLE": float,
    "STRING": "str | None",
    "BYTES": bytes,
    "DECIMAL(38, 18)": Decimal,
    "DATE": datetime.date,
    "TIME(0)": datetime.time,
    "TIMESTAMP_LTZ(6)": datetime.datetime,
    "ARRAY<BIGINT>": list[int],
    "MAP<STRING, ARRAY<DOUBLE>>": dict[str, list[float]],
}


@pytest.mark.parametrize("kind", ANNOTATED)
def test_the_annotation_says_the_type(kind: str) -> None:
    """Where no result type is given."""

    def function() -> Any: ...

    function.__annotations__["return"] = ANNOTATED[kind]
    assert str(udf(function).definition.result_type) == kind


@pytest.mark.parametrize("annotation", [None, object, "tuple[int]", "int | str"])
def test_without_a_type_it_is_said_what_to_write(annotation: Any) -> None:
    """When the function is made."""

    def function() -> Any: ...

    del function.__annotations__["return"]
    if annotation is not None:
        function.__annotations__["return"] = annotation
    with pytest.raises(ValidationError, match=r"function 'function' .*: write result_type=DataTypes.BIGINT\(\), or"):
        udf(function)


def test_what_is_no_function_is_refused() -> None:
    """As PyFlink does, with a TypeError or a ValueError."""
    with pytest.raises(TypeError, match="not a function or callable"):
        udf(17, result_type="INT")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"Noted is a class; give an object: Noted\(\)"):
        udf(importable.Noted, result_type="INT")
    with pytest.raises(TypeError, match="a ScalarFunction is expected, not Letters"):
        udf(importable.Letters())  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="returnType should be DataType or str but is 5"):
        udf(upper, result_type=5)
    with pytest.raises(ValueError, match="func_type must be one of 'general, pandas, arrow', got sql"):
        udf(upper, result_type="INT", func_type="sql")
    with pytest.raises(ValueError, match="Inconsistent deterministic: False and True"):
        udf(importable.Noted(), deterministic=False)


def test_operands_are_checked_when_the_query_is_planned() -> None:
    """Their number by the parameters; with input types, these too, and what fits is cast."""
    text = udf(lambda number: repr(number), input_types=["DOUBLE"], result_type="STRING")
    made = environment(add=importable.add, text=text)
    with pytest.raises(ValidationError, match=r"scalar function 'add' takes the operands .*, and gets 1"):
        made.sql_query("SELECT add(id) FROM words")
    with pytest.raises(ValidationError, match="operand 1 of scalar function 'text' is STRING, and it takes DOUBLE"):
        made.sql_query("SELECT text(text) FROM words")
    assert read_rows(made, "SELECT text(id) FROM words WHERE id = 1") == [("1.0",)]


# --- how often it is called ------------------------------------------------------------------------------------------


def test_it_is_opened_before_the_first_row_and_closed_after_the_last() -> None:
    """Once in a subtask, even where it is called in a condition and twice in columns."""
    importable.CALLS.clear()
    made = environment(("pipeline.global-job-parameters", "greeting:hello"))
    noted = udf(importable.Noted())
    table = made.from_path("words").filter(noted(col("id")) > 0).select(noted(col("id")) + 0, noted(col("id") + 10))
    read_rows(made, table)
    assert importable.CALLS[0] == "open 0 hello"
    assert importable.CALLS[-1] == "close"
    assert [one for one in importable.CALLS if not one.startswith("eval")] == ["open 0 hello", "close"]


def test_a_class_is_called_for_every_row() -> None:
    """It may count its calls, so equal rows are no reason to leave one out."""
    importable.CALLS.clear()
    made = environment()
    table = made.from_elements([(5,)] * 40, ["n"])
    noted = udf(importable.Noted())
    assert sorted(read_rows(made, table.select(noted(col("n"))))) == [(5 * count,) for count in range(1, 41)]


CALLS: list[int] = []


def number_of_call() -> int:
    """1, 2 and on."""
    CALLS.append(len(CALLS) + 1)
    return CALLS[-1]


@pytest.mark.parametrize("deterministic", [True, False])
def test_equal_rows_are_one_call_of_a_plain_function_that_is_deterministic(deterministic: bool) -> None:
    """One that is not is called for each."""
    made = environment()
    counted = udf(lambda text: importable.CALLS.append(text), result_type="INT", deterministic=deterministic)
    importable.CALLS.clear()
    read_rows(made, made.from_elements([("a",), (None,)] * 20, ["t"]).select(counted(col("t"))))
    assert len(importable.CALLS) == (2 if deterministic else 40)


QUERIES_ONCE = (
    "SELECT id FROM words WHERE dice(id) BETWEEN 0 AND 100",
    "SELECT CASE dice(id) WHEN 1 THEN 'a' WHEN 2 THEN 'b' ELSE 'c' END FROM words",
    "SELECT d, d + 1, d + 2 FROM (SELECT dice(id) AS d FROM words) WHERE d >= 0",
    "SELECT NULLIF(dice(id), 100) FROM words",
)


@pytest.mark.parametrize("sql", QUERIES_ONCE)
def test_what_is_not_deterministic_is_worked_out_once_a_row(sql: str) -> None:
    """Wherever its value is used."""
    importable.CALLS.clear()

    def rolled(number: int) -> int:
        importable.CALLS.append("rolled")
        return number + 1

    read_rows(environment(dice=udf(rolled, result_type="INT", deterministic=False)), sql)
    assert len(importable.CALLS) == 3


def test_two_calls_of_what_is_not_deterministic_are_two_values() -> None:
    """Each has its own."""
    dice = udf(number_of_call, result_type="INT", deterministic=False)
    ((one, other),) = read_rows(environment(dice=dice), "SELECT dice(), dice()")
    assert one != other


def test_a_branch_that_is_not_taken_does_not_call() -> None:
    """CASE, COALESCE, AND and OR decide first."""
    inverse = udf(lambda number: 1 // (number - 2), result_type="INT")
    made = environment(inverse=inverse)
    assert read_rows(made, "SELECT CASE WHEN id <> 2 THEN inverse(id) END FROM words") == [(-1,), (1,), (None,)]
    assert read_rows(made, "SELECT id FROM words WHERE id <> 2 AND inverse(id) > 0") == [(3,)]


def test_constants_are_not_folded() -> None:
    """A function runs in the job, and never while a query is planned."""
    importable.CALLS.clear()
    made = environment(noted=udf(importable.Noted()), add=importable.add)
    plan = made.explain_sql("SELECT noted(1), add(1, 2)")
    assert "select=[noted(1) AS EXPR$0, add(1, 2) AS EXPR$1]" in plan
    assert importable.CALLS == []
    assert read_rows(made, "VALUES (add(1, 2)), (add(3, 4))") == [(3,), (7,)]


def test_rows_keep_their_kinds() -> None:
    """A row that goes is given to the function as one that comes."""
    made = environment(add=importable.add)
    sql = "SELECT add(n, 10) FROM (SELECT COUNT(*) AS n FROM words)"
    assert changes_of(made, sql) == ["+I[11]", "-U[11]", "+U[12]", "-U[12]", "+U[13]"]


def test_a_function_may_be_grouped_by_and_joined_on() -> None:
    """As any expression."""
    made = environment(odd=udf(lambda number: number % 2 == 1, result_type="BOOLEAN"), add=importable.add)
    counts = "SELECT odd(id), COUNT(*) FROM words GROUP BY odd(id)"
    assert changes_of(made, counts)[-1] == "+U[True, 2]"
    joined = "SELECT a.id, b.id FROM words AS a JOIN words AS b ON add(a.id, 1) = b.id"
    assert read_rows(made, joined) == [(1, 2), (2, 3)]
    behind = "SELECT a.id, b.id FROM words AS a JOIN words AS b ON a.id <= b.id AND odd(CAST(add(a.id, b.id) AS INT))"
    assert read_rows(made, behind) == [(1, 2), (2, 3)]
