"""Functions of whole columns: pandas Series, and Arrow arrays."""

from __future__ import annotations

import datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.table.udf.jobs import environment, read_rows

from penstock.base.errors import UserFunctionError
from penstock.sql.data.errors import ValidationError
from penstock.table import DataTypes
from penstock.table.expressions import col
from penstock.table.udf import udf


def test_a_pandas_function_gets_series() -> None:
    """One for each operand; a constant is one value."""

    @udf(result_type="DOUBLE", func_type="pandas")
    def scaled(price: pd.Series[float], factor: int) -> Any:
        assert isinstance(price, pd.Series)
        assert factor == 2
        return price * factor

    made = environment(scaled=scaled)
    assert read_rows(made, "SELECT scaled(CAST(price AS DOUBLE), 2) FROM words") == [(3.0,), (5.0,), (8.0,)]


def test_an_arrow_function_gets_arrays() -> None:
    """What it returns is cast to the result type."""

    @udf(result_type=DataTypes.BIGINT(), func_type="arrow")
    def lengths(text: pa.Array) -> pa.Array:
        return pc.utf8_length(text)

    assert read_rows(environment(lengths=lengths), "SELECT id, lengths(text) FROM words") == [(1, 4), (2, 1), (3, None)]


def test_constants_alone_come_as_columns() -> None:
    """So that the function can tell how many rows there are."""
    same = udf(lambda one: one, result_type="INT", func_type="pandas")
    assert read_rows(environment(same=same), "SELECT same(5) FROM words") == [(5,), (5,), (5,)]


def test_null_is_what_pandas_has_for_it() -> None:
    """On the way in and on the way out."""
    filled = udf(lambda text: text.fillna("-"), result_type="STRING", func_type="pandas")
    lost = udf(lambda number: number.where(number != 2), result_type="INT", func_type="pandas")
    made = environment(filled=filled, lost=lost)
    assert read_rows(made, "SELECT filled(text), lost(id) FROM words") == [("-", 3), ("a bb", 1), ("c", None)]


def test_points_in_time_keep_their_zone() -> None:
    """TIMESTAMP_LTZ comes with the session's zone."""

    def hour(moment: Any) -> Any:
        return moment.dt.hour

    made = environment(
        hour_of=udf(hour, result_type="BIGINT", func_type="pandas"),
        later=udf(lambda t: t + datetime.timedelta(hours=1), result_type="TIMESTAMP(3)", func_type="pandas"),
    )
    assert read_rows(made, "SELECT hour_of(t) FROM (VALUES (TO_TIMESTAMP_LTZ(0, 3))) AS x (t)") == [(1,)]
    assert read_rows(made, "SELECT later(t) FROM (VALUES (TIMESTAMP '2024-01-01 00:00:00')) AS x (t)") == [
        (datetime.datetime(2024, 1, 1, 1),)
    ]


def test_map_gives_a_data_frame_and_takes_one() -> None:
    """A row of columns comes as one, and goes as one."""

    @udf(result_type="ROW<id BIGINT, twice DOUBLE>", func_type="pandas")
    def twice(frame: pd.DataFrame) -> Any:
        return pd.concat([frame["id"], frame["price"].astype(float) * 2], axis=1)

    made = environment()
    table = made.from_path("words").map(twice)
    assert table.get_schema().get_field_names() == ["id", "twice"]
    assert read_rows(made, table) == [(1, 8.0), (2, 5.0), (3, 3.0)]


WRONG: dict[str, tuple[str, Any, str]] = {
    "too few": ("pandas", lambda one: one[:1], "it returned 1 values for a batch of 3 rows"),
    "no series": ("pandas", lambda one: 5, "returns a pandas.Series, not int"),
    "no array": ("arrow", lambda one: one.to_pylist(), "returns an Arrow array, not list"),
    "too many": ("arrow", lambda one: pa.concat_arrays([one, one]), "it returned 6 values for a batch of 3 rows"),
    "other type": ("pandas", lambda one: one.map(lambda _: "x"), "it returned values that are no INT"),
    "raises": ("arrow", lambda one: one / 0, "unsupported operand"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_fails_with_the_function(case: str) -> None:
    """Its name, and what is wrong."""
    func_type, function, message = WRONG[case]
    made = environment()
    wrong = udf(function, result_type="INT", func_type=func_type, name="wrong")
    with pytest.raises(UserFunctionError, match=message) as caught:
        read_rows(made, made.from_path("words").select(wrong(col("id"))))
    assert "scalar function 'wrong'" in str(caught.value)


@pytest.mark.parametrize(("given", "kind"), [("ROW(id, text)", "{}"), ("ARRAY[ROW(id, text)]", "ARRAY<{}>")])
def test_rows_with_other_fields_are_refused(given: str, kind: str) -> None:
    """Arrow would give NULL for the fields that are missing."""
    result_type = kind.format("ROW<`EXPR$0` INT, note STRING>")
    made = environment(wrong=udf(lambda rows: rows, result_type=result_type, func_type="arrow"))
    with pytest.raises(UserFunctionError, match=r"the fields .*, and its result type is .*: name a field "):
        read_rows(made, f"SELECT wrong({given}) FROM words")


def test_null_is_refused_where_the_type_has_none() -> None:
    """As for functions of rows."""
    made = environment()
    wrong = udf(lambda one: one, result_type="STRING NOT NULL", func_type="arrow", name="wrong")
    with pytest.raises(UserFunctionError, match="it returned NULL, and its result type is STRING NOT NULL"):
        read_rows(made, made.from_path("words").select(wrong(col("text"))))


def test_without_operands_there_is_nothing_to_work_on() -> None:
    """So it is refused when it is planned."""
    made = environment(f=udf(lambda: 1, result_type="INT", func_type="pandas"))
    with pytest.raises(ValidationError, match=r"works on columns \(pandas\), so it needs an operand"):
        made.sql_query("SELECT f() FROM words")


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_maps_are_plain_ones(kind: str) -> None:
    """On the way in and on the way out. A key that is NULL has no place in them, and a function by rows gets it."""
    same = udf(lambda found: found, result_type="MAP<STRING, INT>", func_type=kind)
    sql = "SELECT same(MAP[text, id]) FROM words"
    assert read_rows(environment(same=same), sql + " WHERE text IS NOT NULL") == [({"a bb": 1},), ({"c": 2},)]
    with pytest.raises(UserFunctionError, match="it cannot get an operand: a key of a map is NULL"):
        read_rows(environment(same=same), sql)
    by_rows = udf(lambda found: {**found, None: 7} if 2 in found.values() else found, result_type="MAP<STRING, INT>")
    assert read_rows(environment(same=by_rows), sql) == [({"a bb": 1},), ({"c": 2, None: 7},), ({None: 3},)]
