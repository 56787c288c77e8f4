"""Queries of one value for each row around them: also of a row for which the query reads none."""

from __future__ import annotations

from typing import Any

import pytest
from tests.table.running import Rows, run

from penstock.base.errors import UnsupportedError
from penstock.sql.data.types import IntType

AROUND = Rows({"k": IntType()}, [(1,), (2,), (3,), (None,)])
READ = Rows({"k": IntType(), "x": IntType()}, [(1, 10), (1, 20), (2, None)])


def found(value: str, condition: str = "i.k = o.k") -> dict[int | None, Any]:
    """The value for each row."""
    sql = f"SELECT k, (SELECT {value} FROM i WHERE {condition}) FROM o"
    return dict(run(sql, o=AROUND, i=READ).rows())


@pytest.mark.parametrize(
    ("value", "of_one", "of_null", "of_none"),
    [
        ("SUM(x)", 30, None, None),
        ("2 * SUM(x) + 1", 61, None, None),
        ("COUNT(*)", 2, 1, 0),
        ("COUNT(x) + 1", 3, 1, 1),
        ("COALESCE(SUM(x), 5)", 30, 5, 5),
        ("NULLIF(COUNT(x), 2)", None, 0, 0),
        ("CARDINALITY(ARRAY_AGG(x))", 2, 1, None),
        ("CASE WHEN COUNT(*) = 0 THEN -1 ELSE SUM(x) END", 30, None, -1),
    ],
)
def test_the_value_of_no_rows(value: str, of_one: Any, of_null: Any, of_none: Any) -> None:
    assert found(value) == {1: of_one, 2: of_null, 3: of_none, None: of_none}


def test_groups_that_nothing_tells_apart_from_none() -> None:
    """A join cannot tell whether the group is not there or its value is NULL."""
    with pytest.raises(UnsupportedError, match=r"has to compare one of its columns with those .* around it by ="):
        found("NULLIF(COUNT(x), 2)", "i.k + 1 = o.k")
    assert found("COUNT(x)", "i.k + 1 = o.k") == {1: 0, 2: 2, 3: 0, None: 0}
