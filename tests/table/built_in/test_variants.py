"""VARIANT: how JSON becomes values, and values JSON, parts and other types."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from tests.table.flink_values import parse_type
from tests.table.functions import Row, results, session_of, typed_sql

from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.functions.variants import Variant, variant_cast, variant_item


def evaluated(sql: str, value: str | None) -> tuple[Any, str]:
    """The value of an expression over the text `x`, and its type."""
    row = Row(["x"], [parse_type("STRING")], [value])
    session = session_of()
    (typed,) = typed_sql(sql, row, session)
    return results([typed], row, session)[0], str(typed.type)


@pytest.mark.parametrize(
    ("text", "value", "json"),
    [
        ("1", 1, "1"),
        ("1.50", Decimal("1.50"), "1.5"),
        ("1.5e3", 1500.0, "1500.0"),
        ("12345678901234567890", Decimal("12345678901234567890"), "12345678901234567890"),
        ("1" * 40, float("1" * 40), "1.1111111111111112E39"),
        ("true", True, "true"),
        ("null", None, "null"),
        ('"a\\n"', "a\n", '"a\\n"'),
        ('{"b": [1, null], "a": {}}', {"a": {}, "b": [1, None]}, '{"a":{},"b":[1,null]}'),
    ],
)
def test_json_becomes_values(text: str, value: object, json: str) -> None:
    assert evaluated("PARSE_JSON(x)", text) == (Variant(value), "VARIANT")
    assert evaluated("JSON_STRING(PARSE_JSON(x))", text) == (json, "STRING")
    assert Variant.of_json(text).json() == json


def test_null_has_no_value() -> None:
    assert evaluated("PARSE_JSON(x)", None) == (None, "VARIANT")


@pytest.mark.parametrize("text", ["", "{", "abc", '{"a": 1, "a": 2}'])
def test_what_is_no_json_fails_or_is_null(text: str) -> None:
    with pytest.raises(TableRuntimeError, match="Failed to parse json string"):
        evaluated("PARSE_JSON(x)", text)
    assert evaluated("TRY_PARSE_JSON(x)", text) == (None, "VARIANT")


def test_keys_may_come_twice_if_asked() -> None:
    assert evaluated("PARSE_JSON(x, TRUE)", '{"a": 1, "a": 2}')[0] == Variant({"a": 2})


def test_only_text_is_read() -> None:
    with pytest.raises(ValidationError):
        evaluated("PARSE_JSON(1)", "")


def test_parts() -> None:
    array, thing = Variant([10, None]), Variant({"k": [1]})
    assert [variant_item(array, index) for index in (0, 1, 2, 3)] == [None, Variant(10), Variant(None), None]
    assert variant_item(thing, "k") == Variant([1])
    assert variant_item(thing, "other") is None
    assert variant_item(None, 1) is None
    with pytest.raises(TableRuntimeError):
        variant_item(thing, 1)
    with pytest.raises(TableRuntimeError):
        variant_item(array, "k")


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (42, "TINYINT", 42),
        (Decimal("42.0"), "INT", 42),
        (42, "DOUBLE", 42.0),
        (Decimal("1.5"), "DECIMAL(4, 2)", Decimal("1.50")),
        (True, "BOOLEAN", True),
        ({"a": 1}, "STRING", '{"a":1}'),
        ("x", "STRING", '"x"'),
        (None, "INT", None),
    ],
)
def test_casts(value: object, kind: str, expected: object) -> None:
    assert variant_cast(Variant(value), parse_type(kind)) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [(300, "TINYINT"), (Decimal("1.5"), "INT"), ("1", "INT"), (1, "BOOLEAN"), (Decimal("1.25"), "DECIMAL(4, 1)"),
     ([1], "INT"), (1, "DATE"), (1000, "DECIMAL(3, 0)")],
)  # fmt: skip
def test_casts_change_no_value(value: object, kind: str) -> None:
    data_type: DataType = parse_type(kind)
    with pytest.raises(TableRuntimeError):
        variant_cast(Variant(value), data_type)
