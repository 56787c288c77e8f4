"""Columns and values in the two forms of Flink's gateway. The texts were seen at a Flink 2.3 gateway."""

from __future__ import annotations

import json
from datetime import UTC
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from penstock.base.errors import WrongValueError
from penstock.cli.gateway.values import RowWriter, columns_json, decimal_json, logical_type
from penstock.server.gateway.sessions import RowFormat
from penstock.sql.catalogs.columns import parse_data_type
from penstock.sql.data import types
from penstock.sql.data.types import DataType
from penstock.sql.functions.variants import parse

NOON_NS = 1_704_110_400_000_000_000  # 2024-01-01 12:00:00
KOLKATA = ZoneInfo("Asia/Kolkata")


def written(text: str, value: Any, row_format: RowFormat, **options: Any) -> str:
    return RowWriter(("v",), (parse_data_type(text),), options.pop("zone", UTC), **options)(row_format, (value,))


@pytest.mark.parametrize(
    ("text", "value", "as_json", "as_text"),
    [
        ("TINYINT", 1, "1", "1"),
        ("BIGINT", 2**63 - 1, "9223372036854775807", "9223372036854775807"),
        ("BOOLEAN", True, "true", "TRUE"),
        ("FLOAT", 0.10000000149011612, "0.1", "0.1"),
        ("FLOAT", 16777216.0, "1.6777216E7", "1.6777216E7"),
        ("DOUBLE", 0.1, "0.1", "0.1"),
        ("DOUBLE", 1e20, "1.0E20", "1.0E20"),
        ("DOUBLE", 1e-4, "1.0E-4", "1.0E-4"),
        ("DOUBLE", float("nan"), '"NaN"', "NaN"),
        ("DOUBLE", float("inf"), '"Infinity"', "Infinity"),
        ("DOUBLE", float("-inf"), '"-Infinity"', "-Infinity"),
        ("DECIMAL(10, 2)", Decimal("1.50"), "1.5", "1.50"),
        ("DECIMAL(10, 0)", Decimal(100), "1E+2", "100"),
        ("DECIMAL(38, 10)", Decimal("12345678901234567890.1234567890"), "12345678901234567890.123456789", None),
        ("CHAR(5)", "ab   ", '"ab   "', "ab   "),
        ("STRING", 'a"b\\é😀\t\x01</x>', None, 'a"b\\é😀\t\x01</x>'),
        ("BINARY(2)", b"\x00\xff", '"AP8="', "x'00ff'"),
        ("BYTES", b"", '""', "x''"),
        ("DATE", 19_782, '"2024-02-29"', "2024-02-29"),
        ("DATE", -719_162, '"0001-01-01"', "0001-01-01"),
        ("TIME(0)", 45_296_000, '"12:34:56"', "12:34:56"),
        ("TIME(3)", 45_296_100, '"12:34:56.1"', "12:34:56.1"),
        ("TIME(3)", 45_296_000, '"12:34:56"', "12:34:56.0"),
        ("TIMESTAMP(6)", NOON_NS + 123_456_000, '"2024-01-01T12:00:00.123456"', "2024-01-01 12:00:00.123456"),
        ("TIMESTAMP(3)", NOON_NS + 100_000_000, '"2024-01-01T12:00:00.1"', "2024-01-01 12:00:00.100"),
        ("TIMESTAMP(9)", NOON_NS, '"2024-01-01T12:00:00"', "2024-01-01 12:00:00.000000000"),
        ("TIMESTAMP(9)", NOON_NS + 123_456_789, '"2024-01-01T12:00:00.123456789"', "2024-01-01 12:00:00.123456789"),
        ("TIMESTAMP_LTZ(3)", NOON_NS, '"2024-01-01T12:00:00Z"', "2024-01-01 12:00:00.000"),
        ("INTERVAL DAY TO SECOND(3)", 93_784_500, "93784500", "+1 02:03:04.500"),
        ("INTERVAL YEAR TO MONTH", -14, "-14", "-1-02"),
        ("ARRAY<INT>", [1, None], "[1,null]", "[1, NULL]"),
        ("ARRAY<BYTES>", [b"\x00\xff"], '["AP8="]', "[x'00ff']"),
        ("MAP<STRING, INT>", [("b", 1), ("a", None)], '{"b":1,"a":null}', "{b=1, a=NULL}"),
        ("ROW<a INT, `b c` STRING>", (1, "x"), '{"a":1,"b c":"x"}', "(1, x)"),
        ("ROW<a DECIMAL(5, 2), b BYTES>", (Decimal("1.50"), b"\x01"), '{"a":1.5,"b":"AQ=="}', "(1.50, x'01')"),
        ("ARRAY<ROW<a MAP<STRING, ARRAY<DOUBLE>>>>", [([("k", [1.5])],)], '[{"a":{"k":[1.5]}}]', "[({k=[1.5]})]"),
        ("INT", None, "null", None),
    ],
)
def test_values(text: str, value: Any, as_json: str | None, as_text: str | None) -> None:
    found = written(text, value, RowFormat.JSON)
    json.loads(found)
    assert as_json in (None, found)
    if as_json is None:
        assert json.loads(found) == value
    plain = json.loads(written(text, value, RowFormat.PLAIN_TEXT))
    assert (plain == as_text) or (value is not None and as_text is None)


@pytest.mark.parametrize(
    ("text", "value", "plain"),
    [
        ("MAP<INT, STRING>", [(1, "x")], "{1=x}"),
        ("MULTISET<STRING>", [("a", 2)], "{a=2}"),
        ("ARRAY<MAP<BOOLEAN, INT>>", [[(True, 1)]], "[{TRUE=1}]"),
        ("VARIANT", parse('{"a":1}'), '{"a":1}'),
    ],
)
def test_what_json_cannot_have_is_refused_and_the_text_named(text: str, value: Any, plain: str) -> None:
    assert json.loads(written(text, value, RowFormat.PLAIN_TEXT)) == plain
    with pytest.raises(WrongValueError, match=r"Column v: .*rowFormat=PLAIN_TEXT"):
        written(text, value, RowFormat.JSON)
    with pytest.raises(WrongValueError):
        RowWriter(("v",), (parse_data_type(text),), UTC)(RowFormat.JSON, ())


def test_an_instant_has_the_clock_of_the_session_unless_told_otherwise() -> None:
    """Flink's clients take the clock of the session's zone with a Z for what it is not."""
    text = "TIMESTAMP_LTZ(3)"
    assert written(text, NOON_NS, RowFormat.JSON, zone=KOLKATA) == '"2024-01-01T17:30:00Z"'
    assert written(text, NOON_NS, RowFormat.JSON, zone=KOLKATA, true_instants=True) == '"2024-01-01T12:00:00Z"'
    for true_instants in (False, True):
        plain = written(text, NOON_NS, RowFormat.PLAIN_TEXT, zone=KOLKATA, true_instants=true_instants)
        assert plain == '"2024-01-01 17:30:00.000"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0"),
        ("0.00", "0"),
        ("-1.50", "-1.5"),
        ("1000", "1E+3"),
        ("120", "1.2E+2"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1E-7"),
        ("-0.00000012", "-1.2E-7"),
        ("123.4500", "123.45"),
        ("100000000000000000000", "1E+20"),
        ("10.5", "10.5"),
    ],
)
def test_decimals_are_as_java_shows_them_without_zeros(text: str, expected: str) -> None:
    assert decimal_json(Decimal(text)) == expected
    assert Decimal(expected) == Decimal(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INT NOT NULL", {"type": "INTEGER", "nullable": False}),
        ("DECIMAL(10, 2)", {"type": "DECIMAL", "nullable": True, "precision": 10, "scale": 2}),
        ("STRING", {"type": "VARCHAR", "nullable": True, "length": 2_147_483_647}),
        ("BYTES", {"type": "VARBINARY", "nullable": True, "length": 2_147_483_647}),
        ("TIME(0)", {"type": "TIME_WITHOUT_TIME_ZONE", "nullable": True, "precision": 0}),
        ("TIMESTAMP(3)", {"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "nullable": True, "precision": 3}),
        ("TIMESTAMP_LTZ(3)", {"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "nullable": True, "precision": 3}),
        (
            "INTERVAL DAY(2) TO SECOND(3)",
            {"type": "INTERVAL_DAY_TIME", "nullable": True, "precision": 2}
            | {"fractionalPrecision": 3, "resolution": "SECOND"},
        ),
        ("INTERVAL MONTH", {"type": "INTERVAL_YEAR_MONTH", "nullable": True, "precision": 2, "resolution": "MONTH"}),
        (
            "ARRAY<INT NOT NULL>",
            {"type": "ARRAY", "nullable": True, "elementType": {"type": "INTEGER", "nullable": False}},
        ),
        (
            "MULTISET<INT>",
            {"type": "MULTISET", "nullable": True, "elementType": {"type": "INTEGER", "nullable": True}},
        ),
        (
            "MAP<INT, DATE>",
            {"type": "MAP", "nullable": True, "keyType": {"type": "INTEGER", "nullable": True}}
            | {"valueType": {"type": "DATE", "nullable": True}},
        ),
        (
            "ROW<a INT>",
            {"type": "ROW", "nullable": True}
            | {"fields": [{"name": "a", "fieldType": {"type": "INTEGER", "nullable": True}}]},
        ),
        ("VARIANT", {"type": "VARIANT", "nullable": True}),
    ],
)
def test_columns(text: str, expected: dict[str, Any]) -> None:
    kind = parse_data_type(text)
    assert logical_type(kind) == expected
    columns = json.loads(columns_json(("a b",), (kind,)))
    assert columns == [{"name": "a b", "logicalType": expected, "comment": None}]


def test_a_type_that_the_form_lacks_is_refused() -> None:
    kinds: list[DataType] = [types.RawType("a.Class", ""), types.ArrayType(types.RawType("a.Class", ""))]
    for kind in kinds:
        with pytest.raises(WrongValueError, match="cast it to STRING"):
            logical_type(kind)
