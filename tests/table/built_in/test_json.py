"""Functions of JSON: what they give for documents, and what for texts that are none."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from tests.table.flink_values import parse_type
from tests.table.functions import Row, results, session_of, typed_sql

from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.functions.definition import Session
from penstock.sql.functions.json import json_text

DOCUMENT = """{"type": "account", "age": 42, "balance": 13.370, "big": 12345678901234567890.125, "active": true,
"owner": {"name": "Ann", "a b": null}, "tags": ["x", "y"], "empty": [], "nothing": null}"""
ROW = Row(["doc", "gap", "bad"], [parse_type("STRING")] * 3, [DOCUMENT, None, "{"])


def evaluated(sql: str, row: Row = ROW) -> tuple[Any, str]:
    """The value of an expression and the text of its type."""
    session = session_of()
    (typed,) = typed_sql(sql, row, session)
    return results([typed], row, session)[0], str(typed.type)


def column(sql: str, kind: str, values: list[Any]) -> list[Any]:
    """The values of an expression over a column `x`."""
    data_type = parse_type(kind)
    session = session_of()
    (typed,) = typed_sql(sql, Row(["x"], [data_type], [None]), session)
    (found,) = Evaluator([typed], session)(Columns([to_column(values, data_type)], len(values)))
    return to_values(found, typed.type)


def of_value(value: Any, kind: str) -> Row:
    return Row(["x"], [parse_type(kind)], [value])


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("JSON_EXISTS(doc, '$.age')", True),
        ("JSON_EXISTS(doc, '$.other')", False),
        ("JSON_EXISTS(doc, 'lax $.other')", False),
        ("JSON_EXISTS(doc, '$.nothing')", False),
        ("JSON_EXISTS(doc, '$.tags[*]')", True),
        ("JSON_EXISTS(doc, '$.other' TRUE ON ERROR)", True),
        ("JSON_EXISTS(doc, '$.other' UNKNOWN ON ERROR)", None),
        ("JSON_EXISTS(gap, '$.age' TRUE ON ERROR)", None),
        ("JSON_EXISTS(bad, '$.age')", False),
        ("JSON_EXISTS(doc, '$[' UNKNOWN ON ERROR)", None),
        ("JSON_EXISTS(doc, CAST(NULL AS STRING))", None),
    ],
)
def test_json_exists(sql: str, expected: object) -> None:
    assert evaluated(sql) == (expected, "BOOLEAN")


@pytest.mark.parametrize("sql", ["JSON_EXISTS(doc, '$.other' ERROR ON ERROR)", "JSON_EXISTS(bad, '$' ERROR ON ERROR)"])
def test_json_exists_may_fail(sql: str) -> None:
    with pytest.raises(TableRuntimeError):
        evaluated(sql)


@pytest.mark.parametrize(
    ("sql", "expected", "kind"),
    [
        ("JSON_VALUE(doc, '$.type')", "account", "STRING"),
        ("JSON_VALUE(doc, '$.age')", "42", "STRING"),
        ("JSON_VALUE(doc, '$.balance')", "13.370", "STRING"),
        ("JSON_VALUE(doc, '$.big')", "12345678901234567890.125", "STRING"),
        ("JSON_VALUE(doc, '$.active')", "true", "STRING"),
        ("JSON_VALUE(doc, '$.age' RETURNING INT)", 42, "INT"),
        ("JSON_VALUE(doc, '$.balance' RETURNING DOUBLE)", 13.37, "DOUBLE"),
        ("JSON_VALUE(doc, '$.age' RETURNING DOUBLE)", 42.0, "DOUBLE"),
        ("JSON_VALUE(doc, '$.active' RETURNING BOOLEAN)", True, "BOOLEAN"),
        ("JSON_VALUE(doc, '$.owner[''a b'']')", None, "STRING"),
        ("JSON_VALUE(doc, '$.owner')", None, "STRING"),
        ("JSON_VALUE(doc, '$.owner' DEFAULT 'e' ON EMPTY DEFAULT 'r' ON ERROR)", "r", "STRING"),
        ("JSON_VALUE(doc, 'lax $.owner' DEFAULT 'e' ON EMPTY DEFAULT 'r' ON ERROR)", "e", "STRING"),
        ("JSON_VALUE(doc, 'lax $.other' DEFAULT 'r' ON ERROR DEFAULT 'e' ON EMPTY)", "e", "STRING"),
        ("JSON_VALUE(doc, '$.nothing' DEFAULT 'e' ON EMPTY)", "e", "STRING"),
        ("JSON_VALUE(doc, 'lax $.other' DEFAULT FALSE ON EMPTY)", "false", "STRING"),
        ("JSON_VALUE(doc, 'lax $.other' RETURNING INT DEFAULT 7 ON EMPTY)", 7, "INT"),
        ("JSON_VALUE(doc, 'strict $.other' DEFAULT 'r' ON ERROR)", "r", "STRING"),
        ("JSON_VALUE(bad, '$.a' DEFAULT 'r' ON ERROR)", "r", "STRING"),
        ("JSON_VALUE(bad, 'lax $.a' DEFAULT 'e' ON EMPTY DEFAULT 'r' ON ERROR)", "e", "STRING"),
        ("JSON_VALUE(gap, '$.a' DEFAULT 'e' ON EMPTY)", None, "STRING"),
    ],
)
def test_json_value(sql: str, expected: object, kind: str) -> None:
    assert evaluated(sql) == (expected, kind)


@pytest.mark.parametrize(
    "sql",
    [
        "JSON_VALUE(doc, 'lax $.other' ERROR ON EMPTY)",
        "JSON_VALUE(doc, '$.other' ERROR ON ERROR)",
        "JSON_VALUE(doc, '$.owner' ERROR ON ERROR)",
        "JSON_VALUE(doc, '$.type' RETURNING INT)",
        "JSON_VALUE('3000000000', '$' RETURNING INT)",
    ],
)
def test_json_value_may_fail(sql: str) -> None:
    with pytest.raises(TableRuntimeError):
        evaluated(sql)


def test_json_value_gives_few_types() -> None:
    with pytest.raises(ValidationError, match="Unsupported type"):
        evaluated("JSON_VALUE(doc, '$.age' RETURNING DATE)")


def test_json_value_reads_columns_with_repeats_and_nulls() -> None:
    texts = [None, '{"a": 1}', '{"a": 2}', "{", *['{"a": 1}'] * 40]
    expected = [None, 1, 2, None, *[1] * 40]
    assert column("JSON_VALUE(x, '$.a' RETURNING INT)", "STRING", texts) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("JSON_QUERY(doc, '$.owner')", '{"a b":null,"name":"Ann"}'),
        ("JSON_QUERY(doc, '$.tags')", '["x","y"]'),
        ("JSON_QUERY(doc, '$.age')", None),
        ("JSON_QUERY(doc, '$.age' WITH WRAPPER)", "[42]"),
        ("JSON_QUERY(doc, '$.age' WITH CONDITIONAL WRAPPER)", "[42]"),
        ("JSON_QUERY(doc, '$.tags' WITH CONDITIONAL ARRAY WRAPPER)", '["x","y"]'),
        ("JSON_QUERY(doc, '$.tags' WITH UNCONDITIONAL ARRAY WRAPPER)", '[["x","y"]]'),
        ("JSON_QUERY(doc, '$.owner' WITH CONDITIONAL WRAPPER)", '[{"a b":null,"name":"Ann"}]'),
        ("JSON_QUERY(doc, '$.nothing' WITH WRAPPER)", None),
        ("JSON_QUERY(doc, 'lax $.other' EMPTY OBJECT ON EMPTY)", "{}"),
        ("JSON_QUERY(doc, 'strict $.other' EMPTY ARRAY ON ERROR)", "[]"),
        ("JSON_QUERY(doc, '$.age' EMPTY OBJECT ON ERROR)", "{}"),
        ("JSON_QUERY(doc, 'lax $.age' EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR)", "[]"),
        ("JSON_QUERY(bad, '$' EMPTY ARRAY ON ERROR)", "[]"),
        ("JSON_QUERY(gap, '$' EMPTY ARRAY ON ERROR)", None),
        ("JSON_QUERY(1, '$')", None),
        ("JSON_QUERY(1, '$' WITH CONDITIONAL ARRAY WRAPPER)", "[1]"),
        ("JSON_QUERY('[1.50, 1e3, \"\\u00e9\"]', '$')", '[1.50,1E+3,"é"]'),
    ],
)
def test_json_query(sql: str, expected: object) -> None:
    assert evaluated(sql) == (expected, "STRING")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("JSON_QUERY(doc, '$.tags' RETURNING ARRAY<STRING>)", ["x", "y"]),
        ("JSON_QUERY('[1, 2.50, true, null, {\"b\": 1, \"a\": []}]', '$' RETURNING ARRAY<STRING>)",
         ["1", "2.50", "true", None, '{"a":[],"b":1}']),
        ("JSON_QUERY(doc, '$.owner' RETURNING ARRAY<STRING>)", None),
        ("JSON_QUERY(doc, '$.owner' RETURNING ARRAY<STRING> EMPTY ARRAY ON ERROR)", []),
        ("JSON_QUERY(doc, 'lax $.other' RETURNING ARRAY<STRING> EMPTY ARRAY ON EMPTY)", []),
    ],
)  # fmt: skip
def test_json_query_of_arrays(sql: str, expected: object) -> None:
    assert evaluated(sql) == (expected, "ARRAY<STRING>")


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("{}", {"VALUE", "OBJECT"}),
        (" [1] ", {"VALUE", "ARRAY"}),
        ("1", {"VALUE", "SCALAR"}),
        ('"a"', {"VALUE", "SCALAR"}),
        ("null", {"VALUE", "SCALAR"}),
        ("{} and more", {"VALUE", "OBJECT"}),
        ("1a", set()),
        ("", set()),
        ("{'a': 1}", set()),
        ("[1,]", set()),
        ("01", set()),
        ("NaN", set()),
        (None, set()),
    ],
)
def test_is_json(text: str | None, kinds: set[str]) -> None:
    row = of_value(text, "STRING")
    for kind in ("VALUE", "OBJECT", "ARRAY", "SCALAR"):
        assert evaluated(f"x IS JSON {kind}", row) == (kind in kinds, "BOOLEAN NOT NULL")
        assert evaluated(f"x IS NOT JSON {kind}", row) == (kind not in kinds, "BOOLEAN NOT NULL")
    assert evaluated("x IS JSON", row)[0] is ("VALUE" in kinds)


def test_is_json_takes_text_alone() -> None:
    with pytest.raises(ValidationError):
        evaluated("1 IS JSON")


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ('a"\\\n\x01/é', "STRING", '"a\\"\\\\\\n\\u0001/é"'),
        (True, "BOOLEAN", "true"),
        (-1, "TINYINT", "-1"),
        (1.0, "DOUBLE", "1.0"),
        (1e10, "DOUBLE", "1.0E+10"),
        (1e-7, "DOUBLE", "1.0E-7"),
        (1e-5, "DOUBLE", "0.000010"),
        (12345678.9, "DOUBLE", "12345678.9"),
        (-0.0, "DOUBLE", "0.0"),
        (math.nan, "DOUBLE", '"NaN"'),
        (-math.inf, "DOUBLE", '"-Infinity"'),
        (float(np.float32(0.1)), "FLOAT", "0.10000000149011612"),
        (1e10, "FLOAT", "1.0E+10"),
        (Decimal("1.50"), "DECIMAL(3, 2)", "1.50"),
        (643_210_000_001_000_000, "TIMESTAMP(9)", '"1990-05-20T13:26:40.001"'),
        (0, "TIMESTAMP(3)", '"1970-01-01T00:00:00"'),
        (500_000_000, "TIMESTAMP_LTZ(3)", '"1970-01-01T00:00:00.5Z"'),
        (b"Test", "BYTES", '"VGVzdA=="'),
        ([1, None], "ARRAY<INT>", "[1,null]"),
        ([("b", 1), ("a", None)], "MAP<STRING, INT>", '{"a":null,"b":1}'),
        ([("b", 2)], "MULTISET<STRING>", '{"b":2}'),
        ((1, ("x",)), "ROW<b INT, a ROW<c STRING>>", '{"a":{"c":"x"},"b":1}'),
        (None, "INT", None),
    ],
)
def test_json_string(value: object, kind: str, expected: object) -> None:
    assert evaluated("JSON_STRING(x)", of_value(value, kind)) == (expected, "STRING")
    assert json_text(value, parse_type(kind), Session()) == ("null" if expected is None else expected)


@pytest.mark.parametrize("kind", ["DATE", "TIME", "INTERVAL YEAR", "MAP<INT, INT>", "ARRAY<DATE>"])
def test_some_types_do_not_become_json(kind: str) -> None:
    with pytest.raises(ValidationError):
        evaluated("JSON_STRING(x)", of_value(None, kind))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("JSON_OBJECT()", "{}"),
        ("JSON_OBJECT('b' VALUE 1, KEY 'a' VALUE 'x')", '{"a":"x","b":1}'),
        ("JSON_OBJECT('a' VALUE 1, 'a' VALUE 2)", '{"a":2}'),
        ("JSON_OBJECT('a' VALUE gap)", '{"a":null}'),
        ("JSON_OBJECT('a' VALUE gap, 'b' VALUE 1 ABSENT ON NULL)", '{"b":1}'),
        ("JSON_OBJECT('a' VALUE 1, 'a' VALUE gap ABSENT ON NULL)", '{"a":1}'),
        ("JSON_OBJECT('a' VALUE gap ABSENT ON NULL)", "{}"),
        ("JSON_OBJECT('a' VALUE JSON_OBJECT('b' VALUE 1))", '{"a":{"b":1}}'),
        ("JSON_OBJECT('a' VALUE JSON_ARRAY(1, JSON_ARRAY()))", '{"a":[1,[]]}'),
        ("JSON_OBJECT('a' VALUE JSON_STRING('b'))", '{"a":"\\"b\\""}'),
        ("JSON_OBJECT('a' VALUE JSON('{\"y\": 1,  \"x\": [2, 3]}'))", '{"a":{"x":[2,3],"y":1}}'),
        ("JSON_OBJECT('a' VALUE JSON('  '))", '{"a":null}'),
        ("JSON_OBJECT('a' VALUE JSON(gap) ABSENT ON NULL)", "{}"),
        ("JSON_ARRAY()", "[]"),
        ("JSON_ARRAY(1, 'a', TRUE, gap)", '[1,"a",true]'),
        ("JSON_ARRAY(1, gap NULL ON NULL)", "[1,null]"),
        ("JSON_ARRAY(gap)", "[]"),
        ("JSON_ARRAY(JSON('[1, 2]'), JSON_OBJECT())", "[[1,2],{}]"),
    ],
)
def test_objects_and_arrays(sql: str, expected: str) -> None:
    assert evaluated(sql) == (expected, "STRING NOT NULL")


def test_objects_of_columns() -> None:
    sql = "JSON_OBJECT('v' VALUE x, 'w' VALUE JSON_ARRAY(x, 'k') ABSENT ON NULL)"
    assert column(sql, "STRING", ["a", None, 'b"', "a"]) == [
        '{"v":"a","w":["a","k"]}',
        '{"w":["k"]}',
        '{"v":"b\\"","w":["b\\"","k"]}',
        '{"v":"a","w":["a","k"]}',
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "JSON(doc)",
        "JSON()",
        "UPPER(JSON(doc))",
        "JSON_STRING(JSON(doc))",
        "JSON_OBJECT(KEY JSON('{}') VALUE 1)",
        "JSON_OBJECT(doc VALUE 1)",
        "JSON_OBJECT(KEY 1 VALUE 1)",
        "JSON_ARRAY(DATE '2020-01-01')",
        "JSON_QUERY(doc, '$.tags' RETURNING ARRAY<INT>)",
        "JSON_QUERY(doc, '$.tags' RETURNING INT)",
        "JSON_QUERY(doc, '$.tags' RETURNING ARRAY<STRING> EMPTY OBJECT ON EMPTY)",
        "JSON_QUERY(doc, '$.tags' RETURNING ARRAY<STRING> EMPTY OBJECT ON ERROR)",
    ],
)
def test_refused_when_planned(sql: str) -> None:
    with pytest.raises(ValidationError):
        evaluated(sql)


def test_json_takes_json_alone() -> None:
    with pytest.raises(TableRuntimeError, match="Invalid JSON string"):
        evaluated("JSON_ARRAY(JSON(bad))")


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("a", '"a"'),
        ('"\\/\b\f\n\r\t', '"\\"\\\\\\/\\b\\f\\n\\r\\t"'),
        ("≠😀\x01", '"\\u2260\\ud83d\\ude00\\u0001"'),
        ("", '""'),
        (None, None),
    ],
)
def test_quotes_and_back(text: str | None, quoted: str | None) -> None:
    assert evaluated("JSON_QUOTE(x)", of_value(text, "STRING")) == (quoted, "STRING")
    assert evaluated("JSON_UNQUOTE(x)", of_value(quoted, "STRING")) == (text, "STRING")


@pytest.mark.parametrize("text", ["a", "[1, 2]", '"a', ' "a" ', '"\\q"', "", "true"])
def test_what_is_no_text_in_quotes_stays(text: str) -> None:
    assert evaluated("JSON_UNQUOTE(x)", of_value(text, "STRING"))[0] == text


def test_types_say_whether_null_can_be() -> None:
    row = Row(["x"], [DataType.not_null(parse_type("STRING"))], ["a"])
    for name in ("JSON_QUOTE", "JSON_UNQUOTE", "JSON_STRING"):
        assert evaluated(f"{name}(x)", row)[1] == "STRING NOT NULL"
