"""Functions that create Table API expressions: columns, literals, calls, and functions that are not methods.

Date and time functions of the Table API.
"""

from __future__ import annotations

import json as json_module
from typing import Final

from penstock.base.errors import WrongTypeError
from penstock.sql.analyzer.expressions import by_sql
from penstock.sql.catalogs.columns import parse_expression
from penstock.sql.data.types import DataType
from penstock.sql.expressions.builder import build_call, to_literal, to_node
from penstock.sql.functions.registry import PYTHON_NAMES
from penstock.sql.parser import syntax
from penstock.table.expression import Expression, JsonOnNull, TimePointUnit
from penstock.table.udf import UserDefinedFunctionWrapper, check_wrapper


def made(name: str, *operands: object | None) -> Expression:
    """Build a call of a SQL function, omitting operands that are not given (None)."""
    return Expression(build_call(name, *(operand for operand in operands if operand is not None)))


def current_date() -> Expression:
    """Return the current date in the session's time zone."""
    return made("CURRENT_DATE")


def current_time() -> Expression:
    """Return the current time of day in the session's time zone."""
    return made("CURRENT_TIME")


def current_timestamp() -> Expression:
    """Return the current instant."""
    return made("CURRENT_TIMESTAMP")


def local_time() -> Expression:
    """Return the current time of day in the session's time zone."""
    return made("LOCALTIME")


def local_timestamp() -> Expression:
    """Return the current date and time of day in the session's time zone."""
    return made("LOCALTIMESTAMP")


def current_watermark(rowtimeAttribute: object) -> Expression:
    """Return the current watermark of a time attribute; NULL before the first one."""
    return made("CURRENT_WATERMARK", rowtimeAttribute)


def source_watermark() -> Expression:
    """Return the watermark that the source itself emits; valid only as the watermark of a schema."""
    return made("SOURCE_WATERMARK")


def temporal_overlaps(
    left_time_point: object, left_temporal: object, right_time_point: object, right_temporal: object
) -> Expression:
    """Return whether two periods overlap; each has a start, and an end or a length."""
    left = syntax.RowValue((to_node(left_time_point), to_node(left_temporal)))
    right = syntax.RowValue((to_node(right_time_point), to_node(right_temporal)))
    return Expression(syntax.Call("OVERLAPS", (left, right)))


def timestamp_diff(time_point_unit: TimePointUnit, time_point1: object, time_point2: object) -> Expression:
    """Return the number of whole units of time from the first point in time to the second."""
    unit = Expression(syntax.Unit(time_point_unit.value))
    return made("TIMESTAMPDIFF", unit, time_point1, time_point2)


def date_format(timestamp: object, format: object) -> Expression:
    """Format a point in time by a pattern of Java's `SimpleDateFormat`."""
    return made("DATE_FORMAT", timestamp, format)


def convert_tz(date_str: object, tz_from: object, tz_to: object) -> Expression:
    """Convert text such as `2020-01-31 12:34:56` from one time zone to another."""
    return made("CONVERT_TZ", date_str, tz_from, tz_to)


def from_unixtime(unixtime: object, format: object | None = None) -> Expression:
    """Format seconds since 1970 as text, by default as `yyyy-MM-dd HH:mm:ss`."""
    return made("FROM_UNIXTIME", unixtime, format)


def unix_timestamp(date_str: object | None = None, format: object | None = None) -> Expression:
    """Return the seconds from 1970 to the point in time that the text describes, or to now."""
    return made("UNIX_TIMESTAMP", date_str, format)


def to_date(date_str: object, format: object | None = None) -> Expression:
    """Parse text as a date, by default in the format `yyyy-MM-dd`."""
    return made("TO_DATE", date_str, format)


def to_timestamp(timestamp_str: object, format: object | None = None) -> Expression:
    """Parse text as a timestamp, by default in the format `yyyy-MM-dd HH:mm:ss`."""
    return made("TO_TIMESTAMP", timestamp_str, format)


def to_timestamp_ltz(*args: object) -> Expression:
    """Convert a number with its precision (0: seconds since 1970, 3: ms), or text with its format, to an instant."""
    return made("TO_TIMESTAMP_LTZ", *args)


__all__ = [
    "CURRENT_RANGE",
    "CURRENT_ROW",
    "UNBOUNDED_RANGE",
    "UNBOUNDED_ROW",
    "and_",
    "array",
    "atan2",
    "call",
    "call_sql",
    "coalesce",
    "col",
    "concat",
    "concat_ws",
    "convert_tz",
    "current_database",
    "current_date",
    "current_time",
    "current_timestamp",
    "current_watermark",
    "date_format",
    "descriptor",
    "e",
    "from_unixtime",
    "if_then_else",
    "json",
    "json_array",
    "json_array_agg",
    "json_object",
    "json_object_agg",
    "json_string",
    "lag",
    "lead",
    "lit",
    "local_time",
    "local_timestamp",
    "log",
    "map_",
    "map_from_arrays",
    "negative",
    "not_",
    "null_of",
    "object_of",
    "or_",
    "pi",
    "rand",
    "rand_integer",
    "range_",
    "row",
    "row_interval",
    "source_watermark",
    "temporal_overlaps",
    "timestamp_diff",
    "to_date",
    "to_timestamp",
    "to_timestamp_ltz",
    "unix_timestamp",
    "uuid",
    "with_all_columns",
    "with_columns",
    "without_columns",
]


# --- columns, literals and calls -------------------------------------------------------------------------------------


def col(name: str) -> Expression:
    """Return the column with this name; `*` for all columns.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.from_elements([("tea", 2)], ["drink", "cups"])
        >>> list(orders.select(col("drink").upper_case, col("cups") + 1).execute().collect())
        [<Row('TEA', 3)>]
    """
    return with_all_columns() if name == "*" else Expression(syntax.Reference((name,)))


def lit(v: object, data_type: DataType | None = None) -> Expression:
    """Return a value as a literal, of the given type or else of the type derived from the value.

    Args:
        v: a plain value of Python, such as a number, a text or a datetime; None for NULL.
        data_type: one of `DataTypes`; None derives it: int is INT or BIGINT, float DOUBLE, a text CHAR of its length.

    Raises:
        TypeError: if a value of this class cannot be a literal.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col, lit
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> numbers = t_env.from_elements([(1,)], ["n"])
        >>> list(numbers.select(lit(10) - col("n"), lit("tea")).execute().collect())
        [<Row(9, 'tea')>]
    """
    return Expression(to_literal(v, data_type))


def null_of(data_type: DataType) -> Expression:
    """Return a NULL of a type."""
    return Expression(to_literal(None, data_type))


def call(f: str | UserDefinedFunctionWrapper, *args: object) -> Expression:
    """Call a function: a built-in or registered one by its name, or one created by `udf` or `udtf`.

    Args:
        f: the name, or the function itself.
        args: the operands: expressions or plain values.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import call, col
        >>> from penstock.table.udf import udf
        >>> shout = udf(lambda word: word + "!", result_type="STRING")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> words = t_env.from_elements([("tea",)], ["word"])
        >>> list(words.select(call(shout, col("word")), call("UPPER", col("word"))).execute().collect())
        [<Row('tea!', 'TEA')>]
    """
    if not isinstance(f, str):
        return check_wrapper(f)(*args)
    path = tuple(f.split("."))
    name = PYTHON_NAMES.get(f.lower(), path[-1].upper())
    return Expression(syntax.Call(name, tuple(map(to_node, args)), (name,) if len(path) == 1 else path))


def call_sql(sql_expression: str) -> Expression:
    """Parse an SQL expression. Raises `SqlParserError`."""
    return Expression(by_sql(parse_expression(sql_expression)))


def descriptor(*column_names: str) -> Expression:
    """Return column names as a function argument."""
    return Expression(syntax.DescriptorArgument(tuple((name,) for name in column_names)))


# --- several columns at once -----------------------------------------------------------------------------------------


def with_all_columns() -> Expression:
    """Return all columns."""
    return Expression(syntax.Star())


def range_(start: str | int, end: str | int) -> Expression:
    """Return the columns from one to another, inclusive, by their names or by their positions from 1."""
    return Expression(syntax.Call("$RANGE", (_column(start), _column(end))))


def with_columns(head: object, *tails: object) -> Expression:
    """Return these columns, given by name, position or range."""
    return Expression(syntax.Call("$WITH_COLUMNS", tuple(map(_column, (head, *tails)))))


def without_columns(head: object, *tails: object) -> Expression:
    """Return all columns except these."""
    return Expression(syntax.Call("$WITHOUT_COLUMNS", tuple(map(_column, (head, *tails)))))


def _column(column: object) -> syntax.Expression:
    return col(column)._node if isinstance(column, str) else to_node(column)


# --- logic -----------------------------------------------------------------------------------------------------------


def and_(predicate0: object, predicate1: object, *predicates: object) -> Expression:
    """Return whether all conditions are true.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import and_, col
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> numbers = t_env.from_elements([(1,), (5,), (9,)], ["n"])
        >>> list(numbers.where(and_(col("n") > 1, col("n") < 9)).execute().collect())
        [<Row(5)>]
    """
    return _chained("AND", (predicate0, predicate1, *predicates))


def or_(predicate0: object, predicate1: object, *predicates: object) -> Expression:
    """Return whether at least one condition is true."""
    return _chained("OR", (predicate0, predicate1, *predicates))


def _chained(operator: str, operands: tuple[object, ...]) -> Expression:
    return Expression(syntax.Call(operator, tuple(map(to_node, operands))))


def not_(expression: object) -> Expression:
    """Return whether a condition is false."""
    return Expression(syntax.Call("NOT", (to_node(expression),)))


def if_then_else(condition: object, if_true: object, if_false: object) -> Expression:
    """Return the first value if a condition is true, else the second one.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col, if_then_else
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> numbers = t_env.from_elements([(1,), (5,)], ["n"])
        >>> list(numbers.select(if_then_else(col("n") > 3, "many", "few")).execute().collect())
        [<Row('few')>, <Row('many')>]
    """
    return Expression(to_node(condition)).then(if_true, if_false)


def coalesce(*args: object) -> Expression:
    """Return the first value that is not NULL.

    Examples:
        >>> from penstock.table import DataTypes, EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import coalesce, col, null_of
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> words = t_env.from_elements([("tea",)], ["word"])
        >>> list(words.select(coalesce(null_of(DataTypes.STRING()), col("word"))).execute().collect())
        [<Row('tea')>]
    """
    return Expression(build_call("COALESCE", *args))


# --- numbers and texts -----------------------------------------------------------------------------------------------


def pi() -> Expression:
    """Return the number pi."""
    return made("PI")


def e() -> Expression:
    """Return the number e."""
    return made("E")


def rand(seed: object | None = None) -> Expression:
    """Return a random number from 0 (inclusive) to 1 (exclusive)."""
    return made("RAND", seed)


def rand_integer(bound: object, seed: object | None = None) -> Expression:
    """Return a random integer from 0 (inclusive) to a bound (exclusive)."""
    return made("RAND_INTEGER", seed, bound)


def atan2(y: object, x: object) -> Expression:
    """Return the angle in radians of the point at `x` and `y`."""
    return made("ATAN2", y, x)


def negative(v: object) -> Expression:
    """Return the number with the opposite sign."""
    return -Expression(to_node(v))


def log(v: object, base: object | None = None) -> Expression:
    """Return the logarithm of `v` to a base, which defaults to e."""
    return made("LOG", base, v)


def concat(first: object, *others: object) -> Expression:
    """Concatenate texts."""
    return Expression(build_call("CONCAT", first, *others))


def concat_ws(separator: object, first: object, *others: object) -> Expression:
    """Concatenate texts with a separator between them."""
    return Expression(build_call("CONCAT_WS", separator, first, *others))


def uuid() -> Expression:
    """Return a random UUID as text."""
    return made("UUID")


def current_database() -> Expression:
    """Return the name of the current database."""
    return made("CURRENT_DATABASE")


# --- rows, arrays and maps -------------------------------------------------------------------------------------------


def row(head: object, *tail: object) -> Expression:
    """Return a row of these values, with fields `f0`, `f1` and so on; SQL's ROW(…) has `EXPR$0`, `EXPR$1`."""
    return Expression(syntax.numbered_row(map(to_node, (head, *tail))))


def array(head: object, *tail: object) -> Expression:
    """Return an array of these elements."""
    return Expression(syntax.Collection("ARRAY", tuple(map(to_node, (head, *tail)))))


def map_(key: object, value: object, *tail: object) -> Expression:
    """Return a map of alternating keys and values."""
    return Expression(syntax.Collection("MAP", tuple(map(to_node, (key, value, *tail)))))


def map_from_arrays(key: object, value: object) -> Expression:
    """Return a map from an array of keys and an array of values."""
    return made("MAP_FROM_ARRAYS", key, value)


def object_of(class_name: str, *args: object) -> Expression:
    """Return an object of a class, from alternating names and values of its fields."""
    return Expression(build_call("OBJECT_OF", class_name, *args))


# --- JSON ------------------------------------------------------------------------------------------------------------


def json(value: object) -> Expression:
    """Return a text that is already JSON, as a value of a JSON object or array.

    It also has the functions of the module `json`, which `from penstock.table.expressions import *` hides.
    """
    return made("JSON", value)


vars(json).update({name: getattr(json_module, name) for name in json_module.__all__})


def json_string(value: object) -> Expression:
    """Return any value as JSON."""
    return Expression(build_call("JSON_STRING", value))


def json_object(on_null: JsonOnNull = JsonOnNull.NULL, *args: object) -> Expression:
    """Return a JSON object of alternating keys and values."""
    return Expression(build_call("JSON_OBJECT", *args, options=_on_null(on_null)))


def json_array(on_null: JsonOnNull = JsonOnNull.ABSENT, *args: object) -> Expression:
    """Return a JSON array of values."""
    return Expression(build_call("JSON_ARRAY", *args, options=_on_null(on_null)))


def json_object_agg(on_null: JsonOnNull, key_expr: object, value_expr: object) -> Expression:
    """Return a JSON object of one key and value per row."""
    return Expression(build_call("JSON_OBJECTAGG", key_expr, value_expr, options=_on_null(on_null)))


def json_array_agg(on_null: JsonOnNull, item_expr: object) -> Expression:
    """Return a JSON array of one value per row."""
    return Expression(build_call("JSON_ARRAYAGG", item_expr, options=_on_null(on_null)))


def _on_null(on_null: JsonOnNull) -> tuple[str]:
    if not isinstance(on_null, JsonOnNull):
        raise WrongTypeError(f"what to do with NULL comes first, as JsonOnNull.NULL, and not {on_null!r}")
    return (f"{on_null.value} ON NULL",)


# --- windows ---------------------------------------------------------------------------------------------------------


def lag(expr: object, offset: object = 1, default: object | None = None) -> Expression:
    """Return the value `offset` rows earlier; the default, or NULL, if that row does not exist."""
    return made("LAG", expr, offset, default)


def lead(expr: object, offset: object = 1, default: object | None = None) -> Expression:
    """Return the value `offset` rows later; the default, or NULL, if that row does not exist."""
    return made("LEAD", expr, offset, default)


def row_interval(rows: int) -> Expression:
    """Return a number of rows, for the size of a window."""
    return Expression(syntax.Call("$ROWS", (to_literal(rows),)))


#: ends a window of rows at the current row
CURRENT_ROW: Final = Expression(syntax.Unit("CURRENT ROW"))
#: ends a window of time at the current row and the rows with the same time
CURRENT_RANGE: Final = Expression(syntax.Unit("CURRENT RANGE"))
#: a window of rows without an end
UNBOUNDED_ROW: Final = Expression(syntax.Unit("UNBOUNDED ROW"))
#: a window of time without an end
UNBOUNDED_RANGE: Final = Expression(syntax.Unit("UNBOUNDED RANGE"))
