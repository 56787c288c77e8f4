"""INTERSECT and EXCEPT of tables that change."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.table.running import Change, Rows, run

from penstock.sql.functions.definition import BIGINT, STRING

COLUMNS = {"a": BIGINT, "b": STRING}
LEFT: list[Any] = [(1, "x"), (1, "x"), (2, None), (3, "z")]
RIGHT: list[Any] = [(1, "x"), (2, None), (2, None), (4, "w")]


def rows(sql: str, left: list[Any], right: list[Any]) -> Counter[Any]:
    return Counter(run(sql, t=Rows(COLUMNS, left), u=Rows(COLUMNS, right)).rows())


@pytest.mark.parametrize(
    ("operator", "wanted"),
    [
        ("INTERSECT", [(1, "x"), (2, None)]),
        ("EXCEPT", [(3, "z")]),
        ("INTERSECT ALL", [(1, "x"), (2, None)]),
        ("EXCEPT ALL", [(1, "x"), (3, "z")]),
    ],
)
def test_null_is_like_null_and_all_counts_rows(operator: str, wanted: list[Any]) -> None:
    assert rows(f"SELECT * FROM t {operator} SELECT * FROM u", LEFT, RIGHT) == Counter(wanted)


def test_more_than_two_parts_and_parts_of_parts() -> None:
    both = "SELECT a FROM t INTERSECT SELECT a FROM u INTERSECT SELECT a FROM t WHERE b IS NULL"
    assert rows(both, LEFT, RIGHT) == Counter([(2,)])
    nested = "SELECT a FROM t EXCEPT ALL (SELECT a FROM u UNION ALL SELECT a FROM u)"
    assert rows(nested, LEFT, RIGHT) == Counter([(3,)])


def test_columns_of_different_types_get_their_common_type() -> None:
    assert rows("SELECT CAST(a AS INT) FROM t INTERSECT SELECT CAST(a AS DOUBLE) FROM u", LEFT, RIGHT) == Counter(
        [(1.0,), (2.0,)]
    )


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    """A table to which rows come and from which they go."""
    steps = st.lists(st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, "x"]), st.booleans()), max_size=8)
    there: list[Any] = []
    found: list[Change] = []
    for number, text, goes in draw(steps):
        if goes and there:
            found.append(("-D", there.pop((number or 0) % len(there))))
        else:
            there.append((number, text))
            found.append(("+I", there[-1]))
    return found


def folded(found: list[Change]) -> Counter[Any]:
    left: Counter[Any] = Counter()
    for kind, row in found:
        left[row] += 1 if kind == "+I" else -1
    return +left


@settings(deadline=None, max_examples=15)
@given(changes(), changes())
def test_rows_that_go_are_taken_back(left: list[Change], right: list[Change]) -> None:
    one, other = folded(left), folded(right)
    query = "SELECT * FROM t {} SELECT * FROM u"
    assert rows(query.format("INTERSECT ALL"), left, right) == one & other
    assert rows(query.format("EXCEPT ALL"), left, right) == one - other
    assert rows(query.format("INTERSECT"), left, right) == Counter(set(one) & set(other))
    assert rows(query.format("EXCEPT"), left, right) == Counter(set(one) - set(other))
