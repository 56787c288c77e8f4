"""A3: expressions of the Table API are the nodes that SQL makes for the same."""

from __future__ import annotations

import copy
import inspect
import pickle
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest

from penstock.base.errors import WrongTypeError
from penstock.base.types import Row
from penstock.sql.analyzer.calls import Calls, constant
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.queries import MethodCalls
from penstock.sql.analyzer.scopes import build_scope
from penstock.sql.catalogs.columns import Schema, parse_expression
from penstock.sql.data.errors import ValidationError
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import RowSchema, Values
from penstock.sql.typed import Constant
from penstock.table.expression import (
    Expression,
    JsonExistsOnError,
    JsonOnNull,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
    TimeIntervalUnit,
    TimePointUnit,
)
from penstock.table.expressions import (
    and_,
    array,
    atan2,
    call,
    call_sql,
    coalesce,
    col,
    concat,
    concat_ws,
    current_date,
    current_watermark,
    descriptor,
    e,
    from_unixtime,
    if_then_else,
    json_array,
    json_array_agg,
    json_object,
    json_object_agg,
    lag,
    lead,
    lit,
    local_timestamp,
    log,
    map_,
    negative,
    not_,
    null_of,
    or_,
    rand,
    rand_integer,
    source_watermark,
    temporal_overlaps,
    timestamp_diff,
    to_timestamp_ltz,
    unix_timestamp,
)
from penstock.table.types import DataTypes

A, B = col("a"), col("b")

SAME = [
    # operators of Python
    (A + 1, "a + 1"),
    (1 - A, "1 - a"),
    (A * B / 2, "a * b / 2"),
    (A % 3, "a % 3"),
    (A**2, "POWER(a, 2)"),
    (2**A, "POWER(2, a)"),
    (-A, "-a"),
    (abs(A), "ABS(a)"),
    (A == "x", "a = 'x'"),
    (A != B, "a <> b"),
    (A < -1, "a < -1"),
    (A <= 1, "a <= 1"),
    (A > 1, "a > 1"),
    (A >= 1, "a >= 1"),
    ((A > 1) & (B > 2), "a > 1 AND b > 2"),
    ((A > 1) | True, "a > 1 OR TRUE"),
    (~A.is_null, "NOT a IS NULL"),
    (A[1], "a[1]"),
    # NULL, truth, one of several
    (A.is_not_true, "a IS NOT TRUE"),
    (A.is_not_null, "a IS NOT NULL"),
    (A.if_null(0), "IFNULL(a, 0)"),
    (A.between(1, B), "a BETWEEN 1 AND b"),
    (A.not_between(1, 2), "a NOT BETWEEN 1 AND 2"),
    (A.in_(1, 2, 3), "a IN (1, 2, 3)"),
    (A.cast(DataTypes.BIGINT()), "CAST(a AS BIGINT)"),
    (A.try_cast(DataTypes.INT()), "TRY_CAST(a AS INT)"),
    ((A > 1).then("big", None), "CASE WHEN a > 1 THEN 'big' ELSE NULL END"),
    (if_then_else(A > 1, B, 0), "CASE WHEN a > 1 THEN b ELSE 0 END"),
    (and_(A, B, True), "a AND b AND TRUE"),
    (or_(A, B), "a OR b"),
    (not_(A), "NOT a"),
    (coalesce(A, B, 0), "COALESCE(a, b, 0)"),
    # numbers
    (A.sqrt, "SQRT(a)"),
    (A.log(2), "LOG(2, a)"),
    (log(A), "LOG(a)"),
    (A.round(2), "ROUND(a, 2)"),
    (A.truncate(), "TRUNCATE(a, 0)"),
    (A.floor(), "FLOOR(a)"),
    (A.ceil(TimeIntervalUnit.DAY), "CEIL(a TO DAY)"),
    (atan2(A, B), "ATAN2(a, b)"),
    (rand_integer(10, 7), "RAND_INTEGER(7, 10)"),
    (rand(), "RAND()"),
    (e(), "E()"),
    (negative(A), "-a"),
    # texts
    (A.upper_case, "UPPER(a)"),
    (A.substring(2, 3), "SUBSTRING(a, 2, 3)"),
    (A.substring(2), "SUBSTRING(a FROM 2)"),
    (A.trim(), "TRIM(BOTH FROM a)"),
    (A.trim_leading("x"), "TRIM(LEADING 'x' FROM a)"),
    (A.like("%x!%", "!"), "a LIKE '%x!%' ESCAPE '!'"),
    (A.similar("x+"), "a SIMILAR TO 'x+'"),
    (A.position(B), "POSITION(a IN b)"),
    (A.locate(B, 2), "LOCATE(a, b, 2)"),
    (A.overlay("x", 2, 1), "OVERLAY(a PLACING 'x' FROM 2 FOR 1)"),
    (A.regexp_extract("x(.)", 1), "REGEXP_EXTRACT(a, 'x(.)', 1)"),
    (A.str_to_map(), "STR_TO_MAP(a)"),
    (A.str_to_map(key_value_delimiter=":"), "STR_TO_MAP(a, ',', ':')"),
    (A.split_index(",", 0), "SPLIT_INDEX(a, ',', 0)"),
    (A.starts_with("x"), "STARTSWITH(a, 'x')"),
    (A.sha2(256), "SHA2(a, 256)"),
    (A.printf(1, None), "PRINTF(a, 1, NULL)"),
    (concat(A, "-", B), "CONCAT(a, '-', b)"),
    (concat_ws(",", A, B), "CONCAT_WS(',', a, b)"),
    # points in time and intervals
    (lit(10).minutes, "INTERVAL '10' MINUTE"),
    (lit(-1).day, "INTERVAL -'1' DAY"),
    (lit(2).weeks, "INTERVAL '2' WEEK"),
    (lit(1).quarter, "INTERVAL '1' QUARTER"),
    (lit(1500).millis, "INTERVAL '1.5' SECOND"),
    (A.hours, "a * INTERVAL '1' HOUR"),
    (A - lit(1).year, "a - INTERVAL '1' YEAR"),
    (A.extract(TimeIntervalUnit.MONTH), "EXTRACT(MONTH FROM a)"),
    (A.to_date, "CAST(a AS DATE)"),
    (A.to_timestamp, "CAST(a AS TIMESTAMP(3))"),
    (timestamp_diff(TimePointUnit.DAY, A, B), "TIMESTAMPDIFF(DAY, a, b)"),
    (temporal_overlaps(A, B, A, lit(1).hour), "(a, b) OVERLAPS (a, INTERVAL '1' HOUR)"),
    (current_date(), "CURRENT_DATE"),
    (local_timestamp(), "LOCALTIMESTAMP"),
    (current_watermark(A), "CURRENT_WATERMARK(a)"),
    (source_watermark(), "SOURCE_WATERMARK()"),
    (from_unixtime(A), "FROM_UNIXTIME(a)"),
    (unix_timestamp(A, "yyyy"), "UNIX_TIMESTAMP(a, 'yyyy')"),
    (to_timestamp_ltz(A, 3), "TO_TIMESTAMP_LTZ(a, 3)"),
    # rows, arrays and maps
    (array(A, B), "ARRAY[a, b]"),
    (map_("k", A), "MAP['k', a]"),
    (A.cardinality, "CARDINALITY(a)"),
    (A.array_join(",", "?"), "ARRAY_JOIN(a, ',', '?')"),
    (A.array_append(None), "ARRAY_APPEND(a, NULL)"),
    (A.array_sort(null_first=False), "ARRAY_SORT(a, TRUE, FALSE)"),
    # JSON
    (A.is_json(), "a IS JSON"),
    (A.is_json(JsonType.OBJECT), "a IS JSON OBJECT"),
    (A.json_exists("$.x"), "JSON_EXISTS(a, '$.x')"),
    (A.json_exists("$.x", JsonExistsOnError.TRUE), "JSON_EXISTS(a, '$.x' TRUE ON ERROR)"),
    (
        A.json_value("$.x", DataTypes.INT(), JsonValueOnEmptyOrError.DEFAULT, 0, JsonValueOnEmptyOrError.ERROR),
        "JSON_VALUE(a, '$.x' RETURNING INT DEFAULT 0 ON EMPTY ERROR ON ERROR)",
    ),
    (
        A.json_query("$.x", JsonQueryWrapper.CONDITIONAL_ARRAY, JsonQueryOnEmptyOrError.EMPTY_ARRAY),
        "JSON_QUERY(a, '$.x' WITH CONDITIONAL ARRAY WRAPPER EMPTY ARRAY ON EMPTY NULL ON ERROR)",
    ),
    (json_object(JsonOnNull.NULL, "k", A), "JSON_OBJECT('k' VALUE a NULL ON NULL)"),
    (json_array(JsonOnNull.ABSENT, A, B), "JSON_ARRAY(a, b ABSENT ON NULL)"),
    (json_object_agg(JsonOnNull.NULL, A, B), "JSON_OBJECTAGG(a VALUE b NULL ON NULL)"),
    (json_array_agg(JsonOnNull.ABSENT, A), "JSON_ARRAYAGG(a ABSENT ON NULL)"),
    # aggregates
    (A.count, "COUNT(a)"),
    (A.sum.distinct, "SUM(DISTINCT a)"),
    (A.list_agg("-"), "LISTAGG(a, '-')"),
    (A.percentile(0.5), "PERCENTILE(a, 0.5E0)"),
    (A.avg.over(col("w")), "AVG(a) OVER w"),
    (lag(A, 2, 0), "LAG(a, 2, 0)"),
    (lead(A), "LEAD(a, 1)"),
    # calls
    (call("my_cat.my_db.f", A), "my_cat.my_db.f(a)"),
    (call_sql("ABS(a)"), "ABS(a)"),
]


@pytest.mark.parametrize(("expression", "sql"), SAME, ids=[sql for _, sql in SAME])
def test_an_expression_is_that_of_sql(expression: Expression, sql: str) -> None:
    """Both are analysed alike from here on."""
    assert expression._node == parse_expression(sql)


def test_sql_in_the_table_api_keeps_its_rules() -> None:
    """A sum in SQL joins no texts, and takes the type of the first number."""
    calls = MethodCalls(Calls(Session()))
    typed = ScalarAnalyser(build_scope(Values(schema=RowSchema(()), rows=()), calls), calls).typed
    assert str(call_sql("a + 1 * b")) == str(A + lit(1) * B)
    assert str(typed((lit("a") + "b")._node).type) == "CHAR(2) NOT NULL"
    with pytest.raises(ValidationError, match="Invalid function call"):
        typed(call_sql("'a' + 'b'")._node)
    sql = "CAST(1 AS FLOAT) + CAST(1 AS DOUBLE)"
    assert str(typed(call_sql(sql)._node).type) == "FLOAT NOT NULL"
    assert str(typed(call_sql(f"ABS({sql})")._node).type) == "FLOAT NOT NULL"
    assert str(typed(parse_expression(sql)).type) == "DOUBLE NOT NULL"


LITERALS: list[tuple[object, str, object]] = [
    (1, "INT NOT NULL", 1),
    (2**31, "BIGINT NOT NULL", 2**31),
    (1.5, "DOUBLE NOT NULL", 1.5),
    (float("inf"), "DOUBLE NOT NULL", float("inf")),
    (Decimal("1.50"), "DECIMAL(3, 2) NOT NULL", Decimal("1.50")),
    (Decimal("5E+2"), "DECIMAL(3, 0) NOT NULL", Decimal(500)),
    ("abc", "CHAR(3) NOT NULL", "abc"),
    (True, "BOOLEAN NOT NULL", True),
    (b"\x00\xff", "BINARY(2) NOT NULL", b"\x00\xff"),
    (date(2020, 1, 31), "DATE NOT NULL", 18_292),
    (time(0, 0, 1, 780_000), "TIME(2) NOT NULL", 1_780),
    (datetime(1970, 1, 1, 0, 0, 1), "TIMESTAMP(0) NOT NULL", 1_000_000_000),
    (datetime(1970, 1, 1, 0, 0, 0, 789_000), "TIMESTAMP(3) NOT NULL", 789_000_000),
    (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "TIMESTAMP_LTZ(0) NOT NULL", 1_000_000_000),
    (timedelta(days=-1, seconds=-1.5), "INTERVAL DAY(2) TO SECOND(6) NOT NULL", -86_401_500),
]


@pytest.mark.parametrize(("value", "data_type", "held"), LITERALS, ids=[repr(one[0]) for one in LITERALS])
def test_a_value_of_python_has_the_type_that_fits(value: object, data_type: str, held: object) -> None:
    """Whole numbers are INT where they fit, floats DOUBLE, texts CHAR of their length."""
    found = constant(lit(value)._node)
    assert found is not None
    assert (str(found.type), found.value) == (data_type, held)


def test_a_number_below_zero_is_a_sign_and_a_number() -> None:
    """As SQL reads it; the least INT is one."""
    calls = Calls(Session())
    typed = ScalarAnalyser(build_scope(Values(schema=RowSchema(()), rows=()), calls), calls).typed
    ours = [typed(lit(value)._node) for value in (-(2**31), -0.25)]
    assert [(str(one.type), one.value) for one in ours if isinstance(one, Constant)] == [
        ("INT NOT NULL", -(2**31)),
        ("DOUBLE NOT NULL", -0.25),
    ]


def test_collections_are_literals_of_their_parts() -> None:
    """A list is an array, a dict a map, a tuple or Row a row."""
    assert str(lit([1, None])) == "ARRAY[1, NULL]"
    assert str(lit({"k": [1]})) == "MAP['k', ARRAY[1]]"
    assert str(lit((1, "x"))) == str(lit(Row(1, "x"))) == "ROW(1, 'x')"


def test_a_literal_may_have_a_type() -> None:
    """NULL has just this type; other values are cast to it, if they are of its kind."""
    assert constant(null_of(DataTypes.INT())._node) == constant(lit(None, DataTypes.INT())._node)
    assert str(lit(1, DataTypes.BIGINT())) == "CAST(1 AS BIGINT)"
    assert str(lit(None, DataTypes.INT())) == "CAST(NULL AS INT)"
    with pytest.raises(ValidationError, match="'INT' does not support a value literal of a class 'str'"):
        lit("1", DataTypes.INT())


def test_what_is_no_value_is_no_literal() -> None:
    """Objects of the program have no type in SQL."""
    with pytest.raises(WrongTypeError, match="cannot be a literal"):
        lit(object())


def test_an_attribute_that_is_no_method_is_a_field() -> None:
    """`get` takes names that methods have."""
    assert str(col("place").street.name) == "`place`.`street`.`name`"
    assert str(col("place").get("count")) == "`place`.`count`"
    assert str(col("place").get(0)) == "`place`[1]"


def test_properties_have_documentation() -> None:
    """For `help`."""
    assert inspect.getdoc(Expression.sum) == "The sum, or NULL for zero values."
    assert inspect.getdoc(Expression.minutes) == "The number of minutes as an interval."


def test_expressions_can_be_copied_and_pickled() -> None:
    """What begins with an underscore is no field."""
    expression = (A + 1).alias("b")
    assert str(copy.copy(expression)) == str(pickle.loads(pickle.dumps(expression))) == "(`a` + 1) AS b"
    assert not hasattr(A, "_repr_html_")


def test_an_expression_is_neither_true_nor_false() -> None:
    """`and` of Python would lose one side."""
    with pytest.raises(WrongTypeError, match=r"write & \| ~"):
        bool(A > 1)


def test_names_and_orders_show() -> None:
    """They are beside the node."""
    assert str(A.sum.alias("total")) == "SUM(`a`) AS total"
    assert str(A.desc) == "`a` DESC"
    assert str(A.as_argument("x")) == "`x` => `a`"
    assert str(descriptor("ts")) == "DESCRIPTOR(`ts`)"


def test_a_name_of_the_table_api_is_known_to_call() -> None:
    """As well as the name in SQL."""
    assert str(call("isNull", A)) == str(A.is_null)
    with pytest.raises(TypeError, match="one that udf, udtf, udaf or udtaf made, not <built-in function max>"):
        call(max, A)  # type: ignore[arg-type]


def test_expressions_are_generic_for_annotations() -> None:
    """Programs write `Expression[int]`."""
    assert Expression[int]  # type: ignore[misc]


def test_a_default_of_json_value_needs_the_behaviour() -> None:
    """It would be without effect."""
    with pytest.raises(ValidationError, match="DEFAULT"):
        A.json_value("$.x", DataTypes.INT(), default_on_empty=1)


def test_a_schema_takes_expressions() -> None:
    """For computed columns and watermarks."""
    built = (
        Schema.new_builder()
        .column("a", DataTypes.INT())
        .column("ts", "TIMESTAMP(3)")
        .column_by_expression("b", A + 1)
        .watermark("ts", col("ts") - lit(5).seconds)
        .build()
    )
    assert built.columns[2].expression == parse_expression("a + 1")
    assert built.watermarks[0].expression == parse_expression("ts - INTERVAL '5' SECOND")


def test_all_names_of_the_module_leave_the_functions_of_the_module_json() -> None:
    """PyFlink's examples import `json`, then all of these names, and then parse with it."""
    names: dict[str, object] = {}
    exec("import json\nfrom penstock.table.expressions import *\nparsed = json.loads('[1]'), str(json('{}'))", names)
    assert names["parsed"] == ([1], "JSON('{}')")
