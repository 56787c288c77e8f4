"""What results look like, collected and in print."""

import datetime
import decimal
import math
from typing import Any

import pytest
from tests.table.api.recording import Recorder, environment

from penstock.base.errors import WrongTimeError
from penstock.base.types import Row, RowKind
from penstock.sql.data.arrow import to_column
from penstock.sql.data.conversion import to_external, to_internal
from penstock.sql.data.types import DataType, YearMonthIntervalType
from penstock.sql.logical.nodes import PlanColumn, RowSchema
from penstock.sql.session.result import Tableau, display_width, format_value
from penstock.sql.session.session import parse_zone
from penstock.table import DataTypes, ResultKind

CHANGES = [("+I", (1, "a")), ("-U", (1, "a")), ("+U", (None, "日本" * 10))]


def printed(table: Tableau, rows: list) -> str:
    lines: list[str] = []
    table.print(rows, lines.append)
    return "".join(lines)


def test_a_query_is_printed_as_a_changelog_as_wide_as_its_types(capsys: pytest.CaptureFixture[str]) -> None:
    made = environment(Recorder(CHANGES), "CREATE TABLE t (id INT, name STRING)")
    made.execute_sql("SELECT * FROM t").print()
    assert capsys.readouterr().out == (
        "+----+-------------+--------------------------------+\n"
        "| op |          id |                           name |\n"
        "+----+-------------+--------------------------------+\n"
        "| +I |           1 |                              a |\n"
        "| -U |           1 |                              a |\n"
        "| +U |      <NULL> |  日本日本日本日本日本日本日... |\n"
        "+----+-------------+--------------------------------+\n"
        "3 rows in set\n"
    )


def test_in_batch_there_are_no_kinds_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    made = environment(Recorder([("+I", (True,))]), "CREATE TABLE t (yes BOOLEAN)", is_batch=True)
    made.execute_sql("SELECT * FROM t").print()
    assert capsys.readouterr().out == "+--------+\n|    yes |\n+--------+\n|   TRUE |\n+--------+\n1 row in set\n"


def test_without_rows_a_result_is_an_empty_set(capsys: pytest.CaptureFixture[str]) -> None:
    environment(Recorder(), "CREATE TABLE t (id INT)").execute_sql("SELECT * FROM t").print()
    assert capsys.readouterr().out == "Empty set\n"


def test_ddl_prints_ok_and_show_fits_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    made = environment()
    made.execute_sql("CREATE TABLE orders (id INT)").print()
    made.execute_sql("SHOW TABLES").print()
    assert capsys.readouterr().out == (
        "OK\n+------------+\n| table name |\n+------------+\n|     orders |\n+------------+\n1 row in set\n"
    )


def test_a_client_of_a_stream_counts_what_it_has_received() -> None:
    table = Tableau(RowSchema((PlanColumn("a", DataTypes.INT()),)), counts_received=True)
    assert printed(table, [("+I", (1,)), ("+I", (2,))]).endswith("Received a total of 2 rows\n")
    assert printed(table, []) == "Received a total of 0 row\n"


def test_wide_characters_take_two_columns() -> None:
    assert display_width("日本x") == 5


def test_rows_have_kinds_and_come_once() -> None:
    recorder = Recorder(CHANGES)
    result = environment(recorder, "CREATE TABLE t (id INT, name STRING)").execute_sql("SELECT * FROM t")
    assert result.get_result_kind() is ResultKind.SUCCESS_WITH_CONTENT
    assert result.get_resolved_schema().get_column_names() == ["id", "name"]
    with result.collect() as rows:
        assert next(rows) == Row(1, "a")
        assert rows.next() == Row.of_kind(RowKind.UPDATE_BEFORE, 1, "a")
    assert recorder.jobs[-1].is_cancelled
    with pytest.raises(WrongTimeError, match="come once"):
        result.collect()
    client: Any = result.get_job_client()
    assert client == "client"


def test_ddl_has_a_row_but_no_job() -> None:
    result = environment().execute_sql("CREATE DATABASE d")
    assert result.get_result_kind() is ResultKind.SUCCESS
    assert list(result.collect()) == list(result.collect()) == [Row("OK")]
    assert result.get_job_client() is None
    result.wait()


@pytest.mark.parametrize(
    ("value", "data_type", "text"),
    [
        (None, DataTypes.INT(), "NULL"),
        (False, DataTypes.BOOLEAN(), "FALSE"),
        (1.0, DataTypes.DOUBLE(), "1.0"),
        (1e10, DataTypes.DOUBLE(), "1.0E10"),
        (1.5e-7, DataTypes.DOUBLE(), "1.5E-7"),
        (123456.789, DataTypes.DOUBLE(), "123456.789"),
        (0.10000000149011612, DataTypes.FLOAT(), "0.1"),
        (float("-inf"), DataTypes.DOUBLE(), "-Infinity"),
        (-0.0, DataTypes.DOUBLE(), "-0.0"),
        (decimal.Decimal("1E+3"), DataTypes.DECIMAL(5, 0), "1000"),
        (b"hi", DataTypes.BYTES(), "x'6869'"),
        (datetime.date(2020, 1, 31), DataTypes.DATE(), "2020-01-31"),
        (datetime.time(12, 3, 4, 5_000), DataTypes.TIME(3), "12:03:04.005"),
        (datetime.time(12, 3, 4), DataTypes.TIME(), "12:03:04"),
        (datetime.datetime(2020, 1, 31, 1, 2, 3), DataTypes.TIMESTAMP(3), "2020-01-31 01:02:03.000"),
        (datetime.datetime(2020, 1, 31, 1, 2, 3, 4), DataTypes.TIMESTAMP(9), "2020-01-31 01:02:03.000004000"),
        (datetime.timedelta(days=1, hours=2), DataTypes.INTERVAL(DataTypes.DAY()), "+1 02:00:00.000"),
        (-14, YearMonthIntervalType(), "-1-02"),
        ([1, None], DataTypes.ARRAY(DataTypes.INT()), "[1, NULL]"),
        ({"a": 1.0}, DataTypes.MAP(DataTypes.STRING(), DataTypes.DOUBLE()), "{a=1.0}"),
        (Row(1, "a"), DataTypes.ROW([DataTypes.INT(), DataTypes.STRING()]), "(1, a)"),
    ],
)
def test_values_are_printed_as_casts_to_string_give_them(value: object, data_type: DataType, text: str) -> None:
    assert format_value(value, data_type) == text


NEW_YORK = parse_zone("America/New_York")
NOON = datetime.datetime(2020, 7, 1, 12)


@pytest.mark.parametrize(
    ("value", "data_type", "held"),
    [
        (datetime.date(1970, 1, 2), DataTypes.DATE(), 1),
        (datetime.time(0, 0, 1, 2_000), DataTypes.TIME(3), 1_002),
        (datetime.datetime(1970, 1, 1, 0, 0, 0, 5), DataTypes.TIMESTAMP(6), 5_000),
        (NOON.replace(tzinfo=NEW_YORK), DataTypes.TIMESTAMP_LTZ(3), 1_593_619_200 * 10**9),
        (datetime.timedelta(seconds=1), DataTypes.INTERVAL(DataTypes.DAY()), 1_000),
        (decimal.Decimal("1.50"), DataTypes.DECIMAL(5, 2), decimal.Decimal("1.50")),
        ([1, None], DataTypes.ARRAY(DataTypes.INT()), [1, None]),
        ({"a": 1}, DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()), [("a", 1)]),
        ({"a": 2}, DataTypes.MULTISET(DataTypes.STRING()), [("a", 2)]),
        (Row(1, Row("x")), DataTypes.ROW([DataTypes.INT(), DataTypes.ROW([DataTypes.STRING()])]), (1, ("x",))),
        (b"x", DataTypes.BYTES(), b"x"),
        (None, DataTypes.DATE(), None),
    ],
)
def test_values_go_into_tables_and_come_out_again(value: object, data_type: DataType, held: object) -> None:
    assert to_internal(data_type, NEW_YORK)(value) == held
    assert to_external(data_type, NEW_YORK)(held) == value


TENTH = 0.10000000149011612
FLOATS = DataTypes.ROW([DataTypes.FLOAT(), DataTypes.ARRAY(DataTypes.FLOAT())])


@pytest.mark.parametrize(
    ("held", "shown"), [(TENTH, 0.1), (16_777_216.0, 16_777_216.0), (3.4028234663852886e38, 3.4028235e38)]
)
def test_a_float_has_the_digits_of_a_float(held: float, shown: float) -> None:
    """K4: nested too, and it is the same FLOAT when it returns to a table."""
    found = to_external(FLOATS, NEW_YORK)((held, [held, None]))
    assert found == Row(shown, [shown, None])
    assert to_column([shown], DataTypes.FLOAT()).to_pylist() == [held]


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0])
def test_special_floats_stay(value: float) -> None:
    found = to_external(DataTypes.FLOAT(), NEW_YORK)(value)
    assert (found, math.copysign(1, found)) == (value, math.copysign(1, value))


def test_functions_get_the_exact_value_of_a_float() -> None:
    """As in PyFlink."""
    assert to_external(FLOATS, NEW_YORK, for_functions=True)((TENTH, [TENTH]))[0] == TENTH


def test_times_with_and_without_zones_are_read_in_the_zone_of_the_session() -> None:
    aware = NOON.replace(tzinfo=datetime.UTC)
    assert to_external(DataTypes.TIMESTAMP(3), NEW_YORK)(to_internal(DataTypes.TIMESTAMP(3), NEW_YORK)(aware)) == (
        datetime.datetime(2020, 7, 1, 8)
    )
    moment = to_internal(DataTypes.TIMESTAMP_LTZ(3), NEW_YORK)(NOON)
    assert to_external(DataTypes.TIMESTAMP_LTZ(3), NEW_YORK)(moment) == NOON.replace(tzinfo=NEW_YORK)
