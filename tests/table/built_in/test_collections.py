"""Rows, arrays, maps, multisets and structured objects: what their functions give, and what they refuse."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.table.flink_values import parse_type
from tests.table.functions import Row, session_of, typed_sql

from penstock.base.errors import UnsupportedError
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator

Column = tuple[str, Sequence[Any]]


def shown(sql: str, **columns: Column) -> tuple[list[Any], str]:
    """What an expression gives for each row of these columns, and its type."""
    kinds = [parse_type(kind) for kind, _ in columns.values()]
    session = session_of()
    (found,) = typed_sql(sql, Row(list(columns), kinds, []), session)
    arrays = [to_column(values, kind) for (_, values), kind in zip(columns.values(), kinds, strict=True)]
    rows = len(arrays[0]) if arrays else 1
    (column,) = Evaluator([found], session)(Columns(arrays, rows))
    column.validate(full=True)
    return to_values(column, found.type), str(found.type)


def gives(sql: str, **columns: Column) -> list[Any]:
    """Only the values."""
    return shown(sql, **columns)[0]


def of_one(sql: str) -> tuple[Any, str]:
    """What an expression without columns gives, and its type."""
    (value,), kind = shown(sql)
    return value, kind


NUMBERS: Column = ("ARRAY<INT>", [[3, 1, None, 3], None, [], [2]])
NAMES: Column = ("ARRAY<STRING>", [["b", None, "a"], [None], None])
AGES: Column = ("MAP<STRING, INT>", [[("a", 1), ("b", None)], None, []])


class TestConstructors:
    @pytest.mark.parametrize(
        ("sql", "value", "kind"),
        [
            ("ARRAY[1, 2]", [1, 2], "ARRAY<INT NOT NULL> NOT NULL"),
            ("ARRAY[1, NULL]", [1, None], "ARRAY<INT> NOT NULL"),
            ("ARRAY[1, CAST(2 AS BIGINT)]", [1, 2], "ARRAY<BIGINT NOT NULL> NOT NULL"),
            ("ARRAY['a', 'bcd']", ["a", "bcd"], "ARRAY<VARCHAR(3) NOT NULL> NOT NULL"),
            ("ARRAY[ARRAY[1], ARRAY[2, 3]]", [[1], [2, 3]], "ARRAY<ARRAY<INT NOT NULL> NOT NULL> NOT NULL"),
            ("MAP['a', 1, 'b', 2]", [("a", 1), ("b", 2)], "MAP<CHAR(1) NOT NULL, INT NOT NULL> NOT NULL"),
            ("MAP[1, 2, 1, NULL]", [(1, None)], "MAP<INT NOT NULL, INT> NOT NULL"),
            ("MAP['a', NULL]", [("a", None)], "MAP<CHAR(1) NOT NULL, CHAR(1)> NOT NULL"),
            ("MULTISET[2, 1, 2]", [(2, 2), (1, 1)], "MULTISET<INT NOT NULL> NOT NULL"),
            ("ROW(1, 'a')", (1, "a"), "ROW<`EXPR$0` INT NOT NULL, `EXPR$1` CHAR(1) NOT NULL> NOT NULL"),
        ],
    )
    def test_of_constants(self, sql: str, value: object, kind: str) -> None:
        assert of_one(sql) == (value, kind)

    def test_of_columns(self) -> None:
        columns: dict[str, Column] = {"a": ("INT", [1, None, 1]), "b": ("INT", [1, 2, 3])}
        assert gives("ARRAY[a, 7, b]", **columns) == [[1, 7, 1], [None, 7, 2], [1, 7, 3]]
        assert gives("MAP[b, a]", **columns) == [[(1, 1)], [(2, None)], [(3, 1)]]
        assert gives("MAP[b, 'b', 3, 'three']", **columns) == [
            [(1, "b"), (3, "three")],
            [(2, "b"), (3, "three")],
            [(3, "three")],
        ]
        assert gives("MULTISET[a, b]", a=("INT", [1, 5]), b=("INT", [1, 2])) == [[(1, 2)], [(5, 1), (2, 1)]]

    def test_rows_take_the_names_of_columns(self) -> None:
        values, kind = shown("ROW(a, 5, b)", a=("INT", [1]), b=("STRING", ["x"]))
        assert (values, kind) == ([(1, 5, "x")], "ROW<`EXPR$0` INT, `EXPR$1` INT NOT NULL, `EXPR$2` STRING> NOT NULL")

    @pytest.mark.parametrize("sql", ["ARRAY[NULL, NULL]", "ARRAY[1, 'a']", "ARRAY[]", "MAP[1]", "MAP[1, 2, 'a', 3]"])
    def test_what_is_refused(self, sql: str) -> None:
        with pytest.raises(ValidationError):
            of_one(sql)

    def test_keys_of_maps_that_are_null(self) -> None:
        """K2: as in Flink."""
        keys: Column = ("STRING", ["a", None])
        assert shown("MAP[k, 1]", k=keys) == ([[("a", 1)], [(None, 1)]], "MAP<STRING, INT NOT NULL> NOT NULL")
        assert gives("MAP[k, 1, 'a', 2, k, 3]", k=keys) == [[("a", 3)], [("a", 2), (None, 3)]]
        assert gives("CAST(MAP[k, 1] AS STRING)", k=keys) == ["{a=1}", "{NULL=1}"]
        assert gives("MAP_FROM_ARRAYS(ARRAY[k, 'z'], ARRAY[1, 2])", k=keys) == [
            [("a", 1), ("z", 2)],
            [(None, 1), ("z", 2)],
        ]
        assert gives("CARDINALITY(MAP[k, 1, 'a', 2])", k=keys) == [1, 2]
        assert gives("MAP[k, 1][k]", k=keys) == [1, None]
        assert gives("MAP_KEYS(MAP[k, 1])", k=keys) == [["a"], [None]]
        assert gives("MAP_ENTRIES(MAP[k, 1])", k=keys) == [[("a", 1)], [(None, 1)]]
        assert gives("MAP_UNION(MAP[k, 1], MAP[CAST(NULL AS STRING), 2])", k=keys) == [
            [("a", 1), (None, 2)],
            [(None, 2)],
        ]
        assert gives("CAST(MAP[k, '7'] AS MAP<STRING, INT>)", k=keys) == [[("a", 7)], [(None, 7)]]
        assert gives("MAP[k, 1] = MAP[k, 1]", k=keys) == [True, True]
        assert gives("MAP[k, 1] = MAP['a', 1]", k=keys) == [True, False]
        assert gives("ARRAY[MAP[k, MAP[k, 1]]]", k=keys) == [[[("a", [("a", 1)])]], [[(None, [(None, 1)])]]]

    def test_json_has_no_key_that_is_null(self) -> None:
        """K2: the words are Flink's."""
        with pytest.raises(TableRuntimeError, match=r"Key at index 1 was null\. This is not supported"):
            gives("JSON_STRING(MAP['a', 1, k, 2])", k=("STRING", [None]))
        lazy = "CASE WHEN k IS NULL THEN '' ELSE JSON_STRING(MAP[k, 2]) END"
        assert gives(lazy, k=("STRING", [None, "a"])) == ["", '{"a":2}']


class TestAccess:
    def test_elements_of_arrays(self) -> None:
        assert shown("a[1]", a=NUMBERS) == ([3, None, None, 2], "INT")
        assert gives("a[i]", a=NUMBERS, i=("BIGINT", [2, 1, 1, None])) == [1, None, None, None]
        assert gives("a[i]", a=NUMBERS, i=("INT", [5, 1, 0, -1])) == [None] * 4
        assert gives("ARRAY['x', 'y'][i]", i=("INT", [2, 1, 3])) == ["y", "x", None]
        assert of_one("ARRAY['x', 'y'][2]") == ("y", "CHAR(1)")

    def test_an_index_begins_at_one(self) -> None:
        with pytest.raises(ValidationError, match="starting at 1 but was 0"):
            gives("a[0]", a=NUMBERS)

    def test_values_of_maps(self) -> None:
        assert shown("m['a']", m=AGES) == ([1, None, None], "INT")
        assert gives("m[k]", m=AGES, k=("STRING", ["b", "a", "a"])) == [None] * 3
        assert gives("m[k]", m=("MAP<INT, STRING>", [[(1, "x"), (2, "y")]] * 3), k=("INT", [2, 3, None])) == [
            "y",
            None,
            None,
        ]
        assert of_one("MAP['ab', 1]['abc']") == (None, "INT")
        assert gives("m[ROW(a)]", m=("MAP<ROW<a INT>, INT>", [[((1,), 7)]]), a=("INT", [1])) == [7]

    def test_fields_of_rows(self) -> None:
        people: Column = ("ROW<name STRING, age INT NOT NULL>", [("x", 1), None])
        assert shown("p.age", p=people) == ([1, None], "INT")
        assert shown("p['name']", p=people) == (["x", None], "STRING")
        assert gives("p[2]", p=people) == [1, None]
        assert shown("p.age", p=("ROW<age INT NOT NULL> NOT NULL", [(1,)])) == ([1], "INT NOT NULL")
        with pytest.raises(ValidationError):
            gives("p['size']", p=people)

    def test_how_many(self) -> None:
        assert shown("CARDINALITY(a)", a=NUMBERS) == ([4, None, 0, 1], "INT")
        assert gives("CARDINALITY(m)", m=AGES) == [2, None, 0]
        assert gives("CARDINALITY(m)", m=("MULTISET<INT>", [[(1, 2), (5, 1)], None, []])) == [3, None, 0]
        assert of_one("CARDINALITY(MAP[1, 2])") == (1, "INT NOT NULL")

    def test_the_only_element(self) -> None:
        assert shown("ELEMENT(a)", a=("ARRAY<INT NOT NULL>", [[4], [], None])) == ([4, None, None], "INT")
        with pytest.raises(TableRuntimeError, match="more than one element"):
            gives("ELEMENT(a)", a=NUMBERS)


class TestArrays:
    @pytest.mark.parametrize(
        ("sql", "values", "kind"),
        [
            ("ARRAY_APPEND(a, 9)", [[3, 1, None, 3, 9], None, [9], [2, 9]], "ARRAY<INT>"),
            ("ARRAY_APPEND(a, NULL)", [[3, 1, None, 3, None], None, [None], [2, None]], "ARRAY<INT>"),
            ("ARRAY_PREPEND(a, 9)", [[9, 3, 1, None, 3], None, [9], [9, 2]], "ARRAY<INT>"),
            ("ARRAY_CONTAINS(a, 3)", [True, None, False, False], "BOOLEAN"),
            ("ARRAY_CONTAINS(a, NULL)", [True, None, False, False], "BOOLEAN"),
            ("ARRAY_POSITION(a, 3)", [1, None, 0, 0], "INT"),
            ("ARRAY_POSITION(a, NULL)", [None] * 4, "INT"),
            ("ARRAY_REMOVE(a, 3)", [[1, None], None, [], [2]], "ARRAY<INT>"),
            ("ARRAY_REMOVE(a, NULL)", [[3, 1, 3], None, [], [2]], "ARRAY<INT>"),
            ("ARRAY_DISTINCT(a)", [[3, 1, None], None, [], [2]], "ARRAY<INT>"),
            ("ARRAY_REVERSE(a)", [[3, None, 1, 3], None, [], [2]], "ARRAY<INT>"),
            ("ARRAY_SLICE(a, 2, 3)", [[1, None], None, [], []], "ARRAY<INT>"),
            ("ARRAY_SLICE(a, -2)", [[None, 3], None, [], [2]], "ARRAY<INT>"),
            ("ARRAY_SLICE(a, 1, 0)", [[3], None, [], [2]], "ARRAY<INT>"),
            ("ARRAY_SLICE(a, CAST(NULL AS INT))", [None] * 4, "ARRAY<INT>"),
            ("ARRAY_SORT(a)", [[None, 1, 3, 3], None, [], [2]], "ARRAY<INT>"),
            ("ARRAY_SORT(a, FALSE)", [[3, 3, 1, None], None, [], [2]], "ARRAY<INT>"),
            ("ARRAY_SORT(a, FALSE, TRUE)", [[None, 3, 3, 1], None, [], [2]], "ARRAY<INT>"),
            ("ARRAY_SORT(a, TRUE, NULL)", [None] * 4, "ARRAY<INT>"),
            ("ARRAY_CONCAT(a, ARRAY[7], a)", [[3, 1, None, 3, 7, 3, 1, None, 3], None, [7], [2, 7, 2]], "ARRAY<INT>"),
            ("ARRAY_UNION(a, ARRAY[1, NULL, 2])", [[3, 1, None, 2], None, [1, None, 2], [2, 1, None]], "ARRAY<INT>"),
            ("ARRAY_EXCEPT(a, ARRAY[1, NULL])", [[3], None, [], [2]], "ARRAY<INT>"),
            ("ARRAY_INTERSECT(a, ARRAY[NULL, 3, 2, 2])", [[3, None], None, [], [2]], "ARRAY<INT>"),
            ("ARRAY_MAX(a)", [3, None, None, 2], "INT"),
            ("ARRAY_MIN(a)", [1, None, None, 2], "INT"),
        ],
    )
    def test_of_numbers(self, sql: str, values: object, kind: str) -> None:
        assert shown(sql, a=NUMBERS) == (values, kind)

    @pytest.mark.parametrize(
        ("sql", "value", "kind"),
        [
            ("ARRAY_APPEND(ARRAY[1], 2)", [1, 2], "ARRAY<INT NOT NULL> NOT NULL"),
            ("ARRAY_APPEND(ARRAY[1], CAST(NULL AS INT))", [1, None], "ARRAY<INT>"),
            ("ARRAY_CONTAINS(ARRAY['ab'], 'abc')", False, "BOOLEAN NOT NULL"),
            ("ARRAY_POSITION(ARRAY[1, 2], 2)", 2, "INT NOT NULL"),
            ("ARRAY_UNION(ARRAY[1], ARRAY[CAST(2 AS BIGINT)])", [1, 2], "ARRAY<BIGINT NOT NULL> NOT NULL"),
            ("ARRAY_MAX(ARRAY['b', 'a'])", "b", "CHAR(1)"),
            (
                "ARRAY_SORT(ARRAY[DATE '2024-01-02', DATE '2024-01-01'])",
                [19723, 19724],
                "ARRAY<DATE NOT NULL> NOT NULL",
            ),
            ("ARRAY_JOIN(ARRAY['a', 'b'], ', ')", "a, b", "STRING NOT NULL"),
            ("ARRAY_DISTINCT(ARRAY[MAP[1, 2, 3, 4], MAP[3, 4, 1, 2]])[2]", None, "MAP<INT NOT NULL, INT NOT NULL>"),
        ],
    )
    def test_of_constants(self, sql: str, value: object, kind: str) -> None:
        assert of_one(sql) == (value, kind)

    def test_operands_that_differ_from_row_to_row(self) -> None:
        assert gives("ARRAY_CONTAINS(a, n)", a=NUMBERS, n=("INT", [1, 1, 1, None])) == [True, None, False, False]
        assert gives("ARRAY_CONTAINS(ARRAY[1, 2], n)", n=("INT", [1, 3, None])) == [True, False, False]
        assert gives("ARRAY_SORT(a, b)", a=NUMBERS, b=("BOOLEAN", [False, True, True, None])) == [
            [3, 3, 1, None],
            None,
            [],
            None,
        ]
        assert gives("ARRAY_SLICE(a, i, 3)", a=NUMBERS, i=("INT", [-3, 1, 1, 1])) == [[1, None], None, [], [2]]

    def test_texts_are_joined(self) -> None:
        assert shown("ARRAY_JOIN(a, '-')", a=NAMES) == (["b-a", "", None], "STRING")
        assert gives("ARRAY_JOIN(a, '-', 'none')", a=NAMES) == ["b-none-a", "none", None]
        assert gives("ARRAY_JOIN(a, d, r)", a=NAMES, d=("STRING", ["+", None, "-"]), r=("STRING", ["?", "?", "?"])) == [
            "b+?+a",
            None,
            None,
        ]
        assert gives("ARRAY_JOIN(a, '-', CAST(NULL AS STRING))", a=NAMES) == [None] * 3

    def test_rows_are_compared_by_their_fields(self) -> None:
        rows: Column = ("ARRAY<ROW<x INT, y STRING>>", [[(1, "a"), (1, None), None, (1, "a"), (1, None)]])
        assert gives("ARRAY_DISTINCT(a)", a=rows) == [[(1, "a"), (1, None), None]]
        assert gives("ARRAY_POSITION(a, ROW(x, y))", a=rows, x=("INT", [1]), y=("STRING", [None])) == [2]

    def test_zero_is_the_same_with_any_sign(self) -> None:
        assert gives("ARRAY_DISTINCT(a)", a=("ARRAY<DOUBLE>", [[0.0, -0.0, 1.5]])) == [[0.0, 1.5]]

    @pytest.mark.parametrize(
        "sql",
        [
            "ARRAY_CONTAINS(a, 'x')",
            "ARRAY_CONCAT(a, ARRAY['x'])",
            "ARRAY_CONCAT(a, NULL)",
            "ARRAY_UNION(a)",
            "ARRAY_JOIN(a, ',')",
            "ARRAY_SORT(ARRAY[ROW(1)])",
            "ARRAY_MAX(ARRAY[TRUE])",
            "ARRAY_SLICE(a, 1.5)",
            "ARRAY_REVERSE(1)",
        ],
    )
    def test_what_is_refused(self, sql: str) -> None:
        with pytest.raises(ValidationError):
            gives(sql, a=NUMBERS)

    @pytest.mark.parametrize(
        ("sql", "expected"),
        [
            ("ARRAY_SORT(a)", lambda a, b: sorted(a, key=lambda one: (one is not None, one or 0))),
            ("ARRAY_REVERSE(a)", lambda a, b: a[::-1]),
            ("ARRAY_CONCAT(a, b)", lambda a, b: a + b),
            ("ARRAY_DISTINCT(a)", lambda a, b: list(dict.fromkeys(a))),
            ("ARRAY_UNION(a, b)", lambda a, b: list(dict.fromkeys(a + b))),
            ("ARRAY_EXCEPT(a, b)", lambda a, b: [one for one in dict.fromkeys(a) if one not in b]),
            ("ARRAY_INTERSECT(a, b)", lambda a, b: [one for one in dict.fromkeys(a) if one in b]),
        ],
    )
    def test_many_rows_at_once(self, sql: str, expected: Callable[[list[Any], list[Any]], list[Any]]) -> None:
        chance = random.Random(7)
        pairs = [
            [
                None if chance.random() < 0.1 else chance.choices([None, 1, 2, 3, 4], k=chance.randrange(6))
                for _ in range(2)
            ]
            for _ in range(300)
        ]
        uses_both = "b" in sql
        found = gives(sql, a=("ARRAY<INT>", [one for one, _ in pairs]), b=("ARRAY<INT>", [two for _, two in pairs]))
        assert found == [None if a is None or (uses_both and b is None) else expected(a, b or []) for a, b in pairs]

    def test_what_is_looked_for_says_whether_the_result_is_nullable(self) -> None:
        array: Column = ("ARRAY<INT> NOT NULL", [[1]])
        assert shown("ARRAY_POSITION(a, 1)", a=array) == ([1], "INT NOT NULL")
        assert shown("ARRAY_POSITION(a, n)", a=array, n=("INT", [None])) == ([None], "INT")
        assert shown("ARRAY_APPEND(a, 2)", a=array) == ([[1, 2]], "ARRAY<INT> NOT NULL")

    def test_no_rows_at_all(self) -> None:
        assert gives("ARRAY_EXCEPT(a, ARRAY[1])", a=("ARRAY<INT>", [])) == []


class TestMaps:
    def test_parts_of_maps(self) -> None:
        assert shown("MAP_KEYS(m)", m=AGES) == ([["a", "b"], None, []], "ARRAY<STRING>")
        assert shown("MAP_VALUES(m)", m=AGES) == ([[1, None], None, []], "ARRAY<INT>")
        entries = [[("a", 1), ("b", None)], None, []]
        assert shown("MAP_ENTRIES(m)", m=AGES) == (entries, "ARRAY<ROW<`key` STRING, `value` INT>>")
        assert of_one("MAP_KEYS(MAP[1, 2])") == ([1], "ARRAY<INT NOT NULL> NOT NULL")

    def test_maps_of_arrays(self) -> None:
        keys: Column = ("ARRAY<STRING NOT NULL>", [["a", "b", "a"], None, []])
        values: Column = ("ARRAY<INT>", [[1, None, 3], [1], []])
        found = [[("b", None), ("a", 3)], None, []]
        assert shown("MAP_FROM_ARRAYS(k, v)", k=keys, v=values) == (found, "MAP<STRING NOT NULL, INT>")

    def test_arrays_of_keys_and_values_have_the_same_length(self) -> None:
        with pytest.raises(TableRuntimeError, match="keys array 2 is not equal to the length of the values array 1"):
            gives("MAP_FROM_ARRAYS(k, v)", k=("ARRAY<INT>", [[1, 2]]), v=("ARRAY<INT>", [[1]]))

    def test_of_the_same_key_the_last_map_counts(self) -> None:
        assert gives("MAP_UNION(m, MAP['a', 5])", m=AGES) == [[("b", None), ("a", 5)], None, [("a", 5)]]
        assert gives("MAP_UNION(m)", m=AGES) == AGES[1]
        with pytest.raises(ValidationError):
            gives("MAP_UNION(m, MAP[1, 2])", m=AGES)


class TestObjects:
    def test_an_object_is_made_of_names_and_values(self) -> None:
        value, kind = of_one("OBJECT_OF('a.User', 'name', 'Bob', 'age', 7)")
        assert value == ("Bob", 7)
        assert kind == "STRUCTURED<'a.User', `name` CHAR(3) NOT NULL, `age` INT NOT NULL>"
        assert gives("OBJECT_OF('a.User', 'n', n)", n=("INT", [1, None])) == [(1,), (None,)]
        assert of_one("OBJECT_OF('a.User')") == ((), "STRUCTURED<'a.User'>")

    def test_fields_are_replaced(self) -> None:
        found, kind = shown("OBJECT_UPDATE(OBJECT_OF('U', 'a', n, 'b', 'x'), 'b', n)", n=("INT", [1, None]))
        assert (found, kind) == ([(1, 1), (None, None)], "STRUCTURED<'U', `a` INT, `b` INT>")
        objects: Column = ("STRUCTURED<'U', a INT, b STRING>", [(1, "x"), None])
        assert gives("OBJECT_UPDATE(o, 'b', 'y', 'a', 2)", o=objects) == [(2, "y"), None]

    @pytest.mark.parametrize(
        ("sql", "message"),
        [
            ("OBJECT_OF('U', 'a', 1, 'a', 2)", "'a' at position 4 is repeated"),
            ("OBJECT_OF('U', 'a')", "Invalid function call"),
            ("OBJECT_OF(5)", "name of the class"),
            ("OBJECT_OF('U', n, 1)", "position 2 must be a literal"),
            ("OBJECT_UPDATE(OBJECT_OF('U', 'a', 1), 'c', 1)", "'c' at position 2 is not part of the structured type"),
            ("OBJECT_UPDATE(ROW(1), 'a', 1)", "must be a structured type"),
        ],
    )
    def test_what_is_refused(self, sql: str, message: str) -> None:
        with pytest.raises(ValidationError, match=message):
            gives(sql, n=("STRING", ["x"]))


@pytest.mark.parametrize("sql", ["1 MEMBER OF m", "m SUBMULTISET OF m", "m MULTISET UNION m", "m IS A SET"])
def test_operators_of_multisets_are_not_supported(sql: str) -> None:
    with pytest.raises(UnsupportedError, match="not supported"):
        gives(sql, m=("MULTISET<INT>", [[(1, 1)]]))
