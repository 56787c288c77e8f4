"""Aggregate functions row by row: where they are called, what they see, and what they may give."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from tests.table.udf.aggregates import Greatest, Groups, Texts, Total
from tests.table.udf.jobs import changes_of, environment, read_rows

from penstock.base.errors import UserFunctionError
from penstock.sql.data.errors import ValidationError
from penstock.table import DataTypes, Row
from penstock.table.expressions import call, col
from penstock.table.udf import AggregateFunction, FunctionContext, udaf, udf

TOTAL, TEXTS = udaf(Total()), udaf(Texts())
SOLD = (
    "CREATE TEMPORARY VIEW sold AS SELECT * FROM (VALUES ('a', 1, 'x'), ('b', 2, 'x'), ('a', 3, 'y'), "
    "('a', 3, 'z'), ('b', CAST(NULL AS INT), 'y')) AS t (k, v, w)"
)


def sold(**functions: Any) -> Any:
    made = environment(total=TOTAL, texts=TEXTS, **functions)
    made.execute_sql(SOLD)
    return made


QUERIES: dict[str, list[tuple[Any, ...]]] = {
    "SELECT k, total(v) FROM sold GROUP BY k": [("a", 7), ("b", 2)],
    "SELECT TOTAL(v) + 1, COUNT(*) FROM sold": [(10, 5)],
    "SELECT k, total(DISTINCT v) FROM sold GROUP BY k": [("a", 4), ("b", 2)],
    "SELECT k, total(v) FILTER (WHERE w <> 'z') FROM sold GROUP BY k": [("a", 4), ("b", 2)],
    "SELECT k FROM sold GROUP BY k HAVING total(v) > 2": [("a",)],
    "SELECT k, total(v) AS s, total(v) * 2 FROM sold GROUP BY k HAVING total(v) > 2": [("a", 7, 14)],
    "SELECT total(s) FROM (SELECT k, total(v) AS s FROM sold GROUP BY k)": [(9,)],
    "SELECT k, texts(v) FROM sold GROUP BY k": [("a", "1,3,3"), ("b", "2,None")],
    "SELECT k, texts(v, w) FROM sold GROUP BY k": [("a", "(1, 'x'),(3, 'y'),(3, 'z')"), ("b", "(2, 'x'),(None, 'y')")],
    "SELECT texts(1) FROM sold WHERE k = 'b'": [("1,1",)],
    "SELECT texts(DISTINCT v, k) FROM sold": [("(1, 'a'),(2, 'b'),(3, 'a'),(None, 'b')",)],
    "SELECT total((SELECT MAX(v) FROM sold)) FROM sold WHERE k = 'b'": [(6,)],
}


@pytest.mark.parametrize("sql", QUERIES)
def test_queries(sql: str) -> None:
    """In the end, after all changes."""
    made, found = sold(), {}
    with made.execute_sql(sql).collect() as rows:
        for row in rows:
            if row.get_row_kind().short_string in ("+I", "+U"):
                found[tuple(row)] = True
            else:
                del found[tuple(row)]
    assert sorted(found, key=str) == QUERIES[sql]


def test_a_function_is_called_in_the_table_api() -> None:
    """Itself and by its name; without a name of its own the column is an aggregate's."""
    made = sold()
    grouped = made.from_path("sold").where(col("k") == "a").group_by(col("k"))
    table = grouped.select(col("k"), TOTAL(col("v")), call("total", col("v")).alias("b"), TOTAL(col("v")).distinct)
    assert table.get_schema().get_field_names() == ["k", "EXPR$0", "b", "EXPR$2"]
    assert read_rows(made, table)[-1] == ("a", 7, 7, 4)


def test_aggregate_takes_a_row_apart() -> None:
    """Into columns of these names, which may stand in expressions; keys come along."""

    class Ends(AggregateFunction[Any, Any]):
        def create_accumulator(self) -> Any:
            return Row(None, None)

        def accumulate(self, accumulator: Any, *args: Any) -> None:
            accumulator[0] = accumulator[0] or args[0]
            accumulator[1] = args[0]

        def get_value(self, accumulator: Any) -> Any:
            return accumulator

    ends = udaf(Ends(), result_type="ROW<low INT, high INT>")
    made = sold()
    table = made.from_path("sold").where(col("k") == "a")
    found = table.group_by(col("k").alias("key")).aggregate(ends(col("v"))).select(col("high") - col("low"), "key")
    assert read_rows(made, found)[-1] == (2, "a")
    named = table.aggregate(ends(col("v")).alias("x", "y")).select("*")
    assert named.get_schema().get_field_names() == ["x", "y"]
    assert read_rows(made, named)[-1] == (1, 3)
    one = table.aggregate(TOTAL(col("v"))).select("f0")
    assert read_rows(made, one)[-1] == (7,)


def test_a_function_alone_gets_the_row() -> None:
    """With the names of its columns."""

    class Shown(Texts):
        def accumulate(self, accumulator: list[str], *args: Any) -> None:
            (row,) = args
            accumulator.append(f"{row.k}{row.w}")

    made = sold()
    table = made.from_path("sold").where(col("k") == "b")
    assert read_rows(made, table.aggregate(udaf(Shown())).select("f0"))[-1] == ("bx,by",)
    assert read_rows(made, table.aggregate(udaf(Shown()).alias("all")).select("all"))[-1] == ("bx,by",)


REFUSED = {
    "SELECT total(v) FROM sold WHERE total(v) > 1": "'total' cannot be called here: it is for columns that are select",
    "SELECT total(total(v)) FROM sold": "Aggregate expressions cannot be nested",
    "SELECT k, total(v) FROM sold": "Expression 'k' is not being grouped",
    "SELECT total(*) FROM sold": r"aggregate function 'total' takes values: total\(\*\) has none",
    "SELECT total(v) WITHIN GROUP (ORDER BY v) FROM sold": "'total' takes no order",
    "SELECT total() FROM sold": r"total",
    "SELECT narrow(w) FROM sold": "operand 1 of aggregate function 'narrow' is .*, and it takes BIGINT",
    "SELECT narrow(v, v) FROM sold": r"'narrow' takes 1 operands \(BIGINT\), and gets 2",
    "SELECT two(v) FROM sold": "'two' gives rows: call it in the Table API, by flat_aggregate",
    "SELECT plus(v) OVER (ORDER BY v) FROM sold": "function 'plus' is no aggregate function: it cannot be called",
    "SELECT texts(s) FROM (SELECT k, COUNT(*) AS s FROM sold GROUP BY k)": (
        "Could not find an implementation method 'retract' in class 'Texts' for function 'texts': .* Implement "
        r"retract\(accumulator, \*args\)"
    ),
    "SELECT mean(v) FROM sold": "Pandas UDAFs are not supported in streaming mode without windows: aggregate function",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_refused(sql: str) -> None:
    """When the query is planned, with the function and the reason."""
    made = sold(
        narrow=udaf(Total(), input_types="BIGINT"),
        two=Greatest(),
        plus=udf(lambda number: number + 1, result_type="BIGINT"),
        mean=udaf(lambda values: values.mean(), result_type="DOUBLE", func_type="pandas"),
    )
    error = ValidationError if "total()" not in sql else Exception
    with pytest.raises(error, match=REFUSED[sql]):
        changes_of(made, sql)


def test_rows_that_go_are_taken_back() -> None:
    """A group that changes is retracted with what it was, and gone when it has no row."""
    changes = changes_of(sold(), "SELECT total(s) FROM (SELECT k, total(v) AS s FROM sold WHERE k = 'a' GROUP BY k)")
    assert changes == ["+I[1]", "-D[1]", "+I[4]", "-D[4]", "+I[7]"]


SEEN = {
    "1.50": "Decimal('1.50')",
    "DATE '2024-05-06'": "datetime.date(2024, 5, 6)",
    "TIMESTAMP '2024-05-06 07:08:09'": "datetime.datetime(2024, 5, 6, 7, 8, 9)",
    "ARRAY[1, 2]": "[1, 2]",
    "CAST(ROW(1, 'x') AS ROW<a INT, b STRING>)": "Row(a=1, b='x')",
    "CAST(NULL AS INT)": "None",
}


@pytest.mark.parametrize("sql", SEEN)
def test_values_come_as_python_has_them(sql: str) -> None:
    """Also those of DISTINCT."""
    made = sold()
    assert read_rows(made, f"SELECT texts(x) FROM (VALUES ({sql})) AS t (x)") == [(SEEN[sql],)]
    assert read_rows(made, f"SELECT texts(DISTINCT x) FROM (VALUES ({sql})) AS t (x)") == [(SEEN[sql],)]


class Given(AggregateFunction[Any, Any]):
    """Gives the same, whatever comes."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        pass

    def get_value(self, accumulator: Any) -> Any:
        return self._value


GIVEN: list[tuple[str, Any, Any]] = [
    ("DECIMAL(10, 2)", Decimal("1.5"), Decimal("1.50")),
    ("DATE", datetime.date(2024, 1, 2), datetime.date(2024, 1, 2)),
    ("ARRAY<INT>", [1, None], [1, None]),
    ("ROW<a INT, b STRING>", (1, "x"), Row(a=1, b="x")),
    ("MAP<STRING, INT>", {"a": 1}, {"a": 1}),
    ("BIGINT", None, None),
    ("FLOAT", 1, 1.0),
]


@pytest.mark.parametrize(("kind", "value", "expected"), GIVEN)
def test_values_that_a_function_gives(kind: str, value: Any, expected: Any) -> None:
    """Are those of its type."""
    made = sold(given=udaf(Given(value), result_type=kind))
    ((found,),) = read_rows(made, "SELECT given(v) FROM sold WHERE v = 2")
    assert list(found) == list(expected) if isinstance(expected, Row) else found == expected


WRONG: list[tuple[str, Any, str]] = [
    ("BIGINT", "x", r"it returned 'x' \(str\), which is no BIGINT"),
    ("TINYINT", 300, "it returned 300"),
    ("BIGINT NOT NULL", None, "it returned None"),
    ("ROW<a INT>", (1, 2), "it returned"),
]


@pytest.mark.parametrize(("kind", "value", "message"), WRONG)
def test_values_of_another_type_fail_the_job(kind: str, value: Any, message: str) -> None:
    """With the function."""
    made = sold(given=udaf(Given(value), result_type=kind))
    with pytest.raises(UserFunctionError, match=message) as caught:
        read_rows(made, "SELECT given(v) FROM sold")
    assert "aggregate function 'given'" in str(caught.value)


class Broken(Total):
    """Raises in one of its methods."""

    def __init__(self, where: str) -> None:
        self._where = where

    def _look(self, where: str) -> None:
        if where == self._where:
            raise LookupError("broken")

    def open(self, function_context: FunctionContext) -> None:
        self._look("open")

    def close(self) -> None:
        self._look("close")

    def create_accumulator(self) -> Any:
        self._look("create_accumulator")
        return super().create_accumulator()

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        self._look("accumulate")
        super().accumulate(accumulator, *args)

    def retract(self, accumulator: Any, *args: Any) -> None:
        self._look("retract")
        super().retract(accumulator, *args)

    def get_value(self, accumulator: Any) -> int | None:
        self._look("get_value")
        return super().get_value(accumulator)


@pytest.mark.parametrize("where", ["open", "close", "create_accumulator", "accumulate", "retract", "get_value"])
def test_an_error_of_a_function_fails_the_job(where: str) -> None:
    """With the method, the function, and its own traceback."""
    made = sold(broken=udaf(Broken(where)))
    with pytest.raises(UserFunctionError, match="broken") as caught:
        read_rows(made, "SELECT broken(s) FROM (SELECT k, COUNT(*) AS s FROM sold GROUP BY k)")
    assert f"{where}() of aggregate function 'broken'" in str(caught.value)
    assert "src/penstock" not in str(caught.value)


def test_none_is_no_accumulator() -> None:
    """As functions change accumulators in place."""
    none = Broken("")
    none.create_accumulator = lambda: None  # type: ignore[method-assign]
    with pytest.raises(UserFunctionError, match="it returned None, which is no accumulator"):
        read_rows(sold(nothing=udaf(none)), "SELECT nothing(v) FROM sold")


@pytest.mark.parametrize(("is_deterministic", "calls"), [(True, 2), (False, 3)])
def test_a_function_that_is_not_deterministic_gives_a_value_for_each_call(is_deterministic: bool, calls: int) -> None:
    """Others give one for all calls that are the same."""
    noted = Total()
    noted.is_deterministic = lambda: is_deterministic  # type: ignore[method-assign]
    selected = "noted(v), noted(v), noted(v + 1)"
    plan = sold(noted=udaf(noted)).explain_sql(f"SELECT {selected} FROM sold")
    assert plan.split("== Streams")[0].count("AS $agg") == calls


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_a_group_without_rows_is_forgotten() -> None:
    """Whatever its accumulator looks like then."""

    class Noted(Total):
        def _change(self, accumulator: Any, value: int | None, by: int) -> None:
            super()._change(accumulator, value, by)
            self.calls = getattr(self, "calls", 0) + 1
            accumulator[1] += 0 * self.calls

        def create_accumulator(self) -> Any:
            return [0, 0, object]

        def accumulate(self, accumulator: Any, *args: Any) -> None:
            super().accumulate(accumulator, *args)
            accumulator[2] = "never as it was"

    groups = Groups(udaf(Noted()), retracts=True)
    assert groups.rows(("a", 1), ("a", 2), ("-D", "a", 1)) == [
        ("+I", "a", 1),
        ("-U", "a", 1),
        ("+U", "a", 3),
        ("-U", "a", 3),
        ("+U", "a", 2),
    ]
    assert groups.rows(("-D", "a", 2)) == [("-D", "a", 2)]
    assert groups.entries == {}


def test_a_row_that_goes_before_it_comes_is_owed() -> None:
    """Also while its group has as many rows as have gone."""
    groups = Groups(udaf(Total()), retracts=True)
    assert groups.rows(("-D", "a", 5)) == []
    assert groups.rows(("a", 7)) == []
    assert groups.entries == {"groups": 1}
    groups.recover()
    assert groups.rows(("a", 5)) == [("+I", "a", 7)]
    assert groups.rows(("-D", "a", 7)) == [("-D", "a", 7)]
    assert groups.entries == {}


def test_accumulators_are_restored_at_another_parallelism() -> None:
    """By the keys of their groups."""
    groups = Groups(udaf(Total()))
    keys = [f"key {number}" for number in range(20)]
    groups.rows(*((key, 1) for key in keys))
    groups.recover(3)
    assert sorted(groups.rows(*((key, 2) for key in keys))) == sorted(
        [("-U", key, 1) for key in keys] + [("+U", key, 3) for key in keys]
    )
    groups.recover(1)
    assert groups.last(("key 0", 4)) == 7


# --- declarations ----------------------------------------------------------------------------------------------------


def test_types_are_said_by_methods_too() -> None:
    """As PyFlink has them; the parameters of `udaf` come before them, and annotations last."""

    class Said(Given):
        def get_result_type(self) -> Any:
            return DataTypes.INT()

        def get_accumulator_type(self) -> Any:
            return "ARRAY<INT>"

    assert udaf(Said(1)).definition.result_type == DataTypes.INT()
    assert udaf(Said(1)).definition.accumulator_type == DataTypes.ARRAY(DataTypes.INT())
    assert udaf(Said(1), result_type="STRING").definition.result_type == DataTypes.STRING()
    assert udaf(Total()).definition.result_type == DataTypes.BIGINT()
    assert udaf(Total()).definition.accumulator_type is None


DECLARED: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (Given(1), {}, ValidationError, "function 'Given' is annotated with .*, which says no type"),
    (Given, {"result_type": "INT"}, TypeError, r"Given is a class; give an object: Given\(\)"),
    (max, {"result_type": "INT"}, TypeError, "'max' is a plain function; .* derives from AggregateFunction"),
    (Greatest(), {}, TypeError, "a AggregateFunction is expected, not Greatest"),
    (Total(), {"func_type": "slow"}, ValueError, "The func_type must be one of 'general, pandas, arrow', got slow"),
    (Total(), {"deterministic": False}, ValueError, "Inconsistent deterministic"),
    (Total(), {"accumulator_type": 17}, TypeError, "accumulator_type should be DataType or str"),
]


@pytest.mark.parametrize(("function", "more", "error", "message"), DECLARED)
def test_what_udaf_refuses(function: Any, more: dict[str, Any], error: type[Exception], message: str) -> None:
    """When the function is made."""
    with pytest.raises(error, match=message):
        udaf(function, **more)


def test_sql_makes_aggregate_functions_of_modules() -> None:
    """Of a class, or of what `udaf` made."""
    made = sold()
    module = "tests.table.udf.aggregates"
    made.execute_sql(f"CREATE TEMPORARY FUNCTION mine AS '{module}.Total' LANGUAGE PYTHON")
    made.execute_sql("CREATE FUNCTION other AS 'tests.table.udf.test_aggregate_functions.TEXTS' LANGUAGE PYTHON")
    assert read_rows(made, "SELECT mine(v), other(v) FROM sold WHERE v = 2") == [(2, "2")]


def test_a_temporary_system_function_hides_an_aggregate_of_flink() -> None:
    """And is another one in plans."""
    made = sold()
    made.create_temporary_system_function("count", TEXTS)
    assert read_rows(made, "SELECT COUNT(v) FROM sold WHERE v = 2") == [("2",)]
    assert "`count`($f0)" in made.explain_sql("SELECT COUNT(v) FROM sold")
