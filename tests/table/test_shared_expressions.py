"""What stands more than once in an operator's expressions is worked out once for each row."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.table.evaluated import column
from tests.table.functions import Row, session_of, typed_sql

from penstock.sql.data.arrow import to_values
from penstock.sql.expressions import evaluator
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import compile_expressions, repeated
from penstock.sql.functions.definition import STRING
from penstock.sql.typed import Typed


def typed(sql: str) -> Typed:
    (found,) = typed_sql(sql, Row(["t"], [STRING], [None]), session_of())
    return found


def values(texts: Sequence[str | None], *expressions: str) -> list[list[object]]:
    """The values of several expressions of one operator over t."""
    found = [typed(one) for one in expressions]
    columns = Columns([pa.array(texts, pa.string())], len(texts))
    parts = compile_expressions(found, session_of())
    return [to_values(part.run(columns), one.type) for part, one in zip(parts, found, strict=True)]


TEXTS = st.lists(st.one_of(st.none(), st.text("/a", max_size=5)), min_size=1, max_size=9)


@settings(deadline=None)
@given(TEXTS)
def test_parts_of_one_split_are_those_of_a_split_each(texts: list[str | None]) -> None:
    calls = [f"SPLIT_INDEX(t, '/', {index})" for index in range(4)]
    assert values(texts, *calls) == [column(call, t=texts) for call in calls]


def calls_of(monkeypatch: pytest.MonkeyPatch, *expressions: str) -> int:
    """How often the kernel of UPPER runs for a batch whose rows are then chosen from."""
    count = 0
    calling = evaluator._calling

    def counted(kernel, parts, takes_rows):
        run = calling(kernel, parts, takes_rows)

        def wrapped(columns: Columns):
            nonlocal count
            count += 1
            return run(columns)

        return wrapped

    monkeypatch.setattr(evaluator, "_calling", counted)
    columns = Columns([pa.array(["a", None, "b"])], 3)
    parts = compile_expressions([typed(one) for one in expressions], session_of())
    parts[0].run(columns)
    for part in parts[1:]:
        part.run(columns.take(pa.array([2, 0])))
    return count


def test_a_condition_and_a_column_share_what_both_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls_of(monkeypatch, "UPPER(t)", "UPPER(t)", "UPPER(t)") == 1


def test_what_varies_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls_of(monkeypatch, "RAND()", "RAND()") == 2


def test_chosen_rows_are_cut_from_what_is_known() -> None:
    expressions = [typed("UPPER(t)"), typed("CONCAT(UPPER(t), 'x')")]
    parts = compile_expressions(expressions, session_of())
    columns = Columns([pa.array(["a", None, "b"])], 3)
    parts[0].run(columns)
    assert parts[1].run(columns.take(pa.array([2, 1]))).to_pylist() == ["Bx", None]
    assert parts[1].run(Columns([pa.array(["z"])], 1)).to_pylist() == ["Zx"]


def test_most_rows_are_chosen_by_a_mask() -> None:
    texts = pa.array(list("abcdefghij"))
    rows = [0, 1, 2, 4, 5, 6, 7, 8, 9]
    chosen = Columns([texts], 10).where(pa.array([row != 3 for row in range(10)]))
    assert chosen.numbers.tolist() == rows
    assert chosen[0].to_pylist() == [texts[row].as_py() for row in rows]
    assert chosen.take(pa.array([0, 3]))[0].to_pylist() == ["a", "e"]


def test_what_is_known_of_chosen_rows_is_cut_for_those_that_are_chosen_of_them() -> None:
    parts = compile_expressions([typed("CONCAT(UPPER(t), 'y')"), typed("CONCAT(UPPER(t), 'x')")], session_of())
    rows = Columns([pa.array(["a", None, "b", "c"])], 4).take(pa.array([3, 2, 1]))
    assert parts[0].run(rows).to_pylist() == ["Cy", "By", None]
    assert parts[1].run(rows.take(pa.array([1]))).to_pylist() == ["Bx"]


def test_products_of_decimals_are_shared_and_those_of_numbers_are_not() -> None:
    decimals, numbers = typed("CHAR_LENGTH(t) * 0.5"), typed("ASCII(t) * 2")
    assert decimals in repeated([decimals, decimals])
    assert numbers not in repeated([numbers, numbers])
    assert values(["ab", None], "CHAR_LENGTH(t) * 0.5 > 0.9", "CHAR_LENGTH(t) * 0.5") == [
        [True, None],
        [Decimal("1.0"), None],
    ]


def test_calls_stand_more_than_once_beside_constants_of_arrays_and_maps() -> None:
    """K2: such a constant is a list, and has a hash all the same."""
    assert values(["a"], "ARRAY[t] = ARRAY['a']", "ARRAY[t] = ARRAY['b']") == [[True], [False]]
    assert values(["a"], "MAP[t, 1] = MAP['a', 1]", "MAP[t, 1] = MAP['a', 2]") == [[True], [False]]
    union = typed("MAP_UNION(MAP[t, 1], MAP['a', 1])")
    assert union in repeated([union, union])


def test_zeros_of_either_sign_are_apart_in_arrays() -> None:
    zeros = ["ARRAY_CONCAT(ARRAY[CHAR_LENGTH(t) * 1e0], ARRAY[0e0])", "ARRAY_CONCAT(ARRAY[CHAR_LENGTH(t) * 1e0], {})"]
    found = values([""], zeros[0], zeros[1].format("ARRAY[CAST('-0.0' AS DOUBLE)]"))
    assert repr(found) == "[[[0.0, 0.0]], [[0.0, -0.0]]]"
