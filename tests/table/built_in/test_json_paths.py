"""Paths in JSON: what they lead to, and what is no path."""

from __future__ import annotations

import pytest

from penstock.sql.functions.json_path import JsonPathError, json_path
from penstock.sql.functions.variants import read_json, write_json

STORE = """{"books": [
  {"title": "S", "author": "Rees", "price": 8.95, "kind": "reference"},
  {"title": "W", "author": "Waugh", "price": 12.99, "kind": "fiction"},
  {"title": "M", "author": "Melville", "price": 8.99, "kind": "fiction", "isbn": "0-553"}],
 "bike": {"color": "red", "price": 19.95}, "limit": 10, "a.b": [1, 2, 3], "none": null}"""


def read(path: str, document: str = STORE) -> str:
    """What a path leads to, as text."""
    found, is_lax = json_path(path)
    return write_json(found.read(read_json(document), is_lax))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.limit", "10"),
        ("limit", "10"),
        ("$['limit']", "10"),
        ('$.["a.b"][0]', "1"),
        ("strict $.limit", "10"),
        ("LAX $.limit", "10"),
        ("$.none", "null"),
        ("$.books[0].title", '"S"'),
        ("$.books[-1].title", '"M"'),
        ("$.books[*].title", '["S","W","M"]'),
        ("$.books[0,2].title", '["S","M"]'),
        ("$.books[5,2].title", '["M"]'),
        ("$['a.b'][:2]", "[1,2]"),
        ("$['a.b'][1:]", "[2,3]"),
        ("$['a.b'][-2:]", "[2,3]"),
        ("$['a.b'][1:2]", "[2]"),
        ("$['a.b'][:-1]", "[1,2]"),
        ("$.bike.*", '["red",19.95]'),
        ("$..price", "[8.95,12.99,8.99,19.95]"),
        ("$..isbn", '["0-553"]'),
        ("$..books[1].title", '["W"]'),
        ("$.books[0]['title','price']", '{"price":8.95,"title":"S"}'),
        ("$.books.length()", "3"),
        ("$.bike.keys()", '["color","price"]'),
        ("$['a.b'].sum()", "6.0"),
        ("$['a.b'].last()", "3"),
        ("$['a.b'].index(1)", "2"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert read(path) == expected


@pytest.mark.parametrize(
    ("condition", "titles"),
    [
        ("@.isbn", '["M"]'),
        ("!@.isbn", '["S","W"]'),
        ("@.price < 10", '["S","M"]'),
        ("@.price < $.limit", '["S","M"]'),
        ("@.price < $['limit']", '["S","M"]'),
        ("@.kind == 'fiction' && @.price > 10", '["W"]'),
        ("@.isbn || (@.price >= 12 && @.price <= 13)", '["W","M"]'),
        ("@.kind != 'fiction'", '["S"]'),
        ("@.kind in ['reference', 'x']", '["S"]'),
        ("@.kind nin ['reference', 'x']", '["W","M"]'),
        ("@.author =~ /w.*/i", '["W"]'),
        ("@.author contains 'v'", '["M"]'),
        ("@.isbn == null", "[]"),
        ("@.title size 1", '["S","W","M"]'),
        ("@.isbn empty false", '["M"]'),
        ("@.price == '8.95'", '["S"]'),
        ("@.title < 5", "[]"),
    ],
)
def test_conditions(condition: str, titles: str) -> None:
    assert read(f"$.books[?({condition})].title") == titles


@pytest.mark.parametrize("path", ["$.other", "$.other.more", "$.limit.more", "$.bike[0]", "$.books[7]", "$.none.x"])
def test_what_a_definite_path_does_not_find(path: str) -> None:
    with pytest.raises(JsonPathError):
        read(path)
    assert read(f"lax {path}") == "null"


@pytest.mark.parametrize("path", ["$..other", "$.books[*].other", "$.books[?(@.other)]", "$.books[7:]"])
def test_what_other_paths_do_not_find(path: str) -> None:
    assert read(path) == read(f"lax {path}") == "[]"


@pytest.mark.parametrize(
    "path",
    ["", "$.", "$..", "$x", "$.a b", "$[", "$[x]", "$[:]", "$['a'", "$['a' 'b']", "$[?(@.a]", "$[?(@.a >)]", "$.a.b()"],
)
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(JsonPathError):
        json_path(path)
