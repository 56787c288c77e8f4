"""UNNEST of arrays, maps, multisets and arrays of rows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.table.planned import ORDERS, list_columns, manager_of, plan_query
from tests.table.running import Rows, run

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.table.types import DataTypes

INT, STRING = DataTypes.INT(), DataTypes.STRING()
PAIR = DataTypes.ROW([DataTypes.FIELD("x", INT), DataTypes.FIELD("y", STRING)])
TABLE = Rows(
    {
        "id": INT,
        "numbers": DataTypes.ARRAY(INT),
        "counts": DataTypes.MAP(STRING, INT),
        "pairs": DataTypes.ARRAY(PAIR),
        "bag": DataTypes.MULTISET(STRING),
    },
    [
        (1, [10, None], [("a", 1), ("b", None)], [(1, "p"), None], [("u", 2), ("v", 1)]),
        (2, [], [], [], []),
        (3, None, None, None, None),
        (4, [40], [("c", 3)], [(None, "q")], [("w", 1)]),
    ],
)

QUERIES: dict[str, list[tuple[Any, ...]]] = {
    "SELECT id, n FROM t CROSS JOIN UNNEST(numbers) AS u (n)": [(1, 10), (1, None), (4, 40)],
    "SELECT id, u FROM t, UNNEST(numbers) AS u": [(1, 10), (1, None), (4, 40)],
    "SELECT id, n FROM t LEFT JOIN UNNEST(numbers) AS u (n) ON TRUE": [
        (1, 10),
        (1, None),
        (2, None),
        (3, None),
        (4, 40),
    ],
    "SELECT id, n, place FROM t CROSS JOIN UNNEST(numbers) WITH ORDINALITY AS u (n, place)": [
        (1, 10, 1),
        (1, None, 2),
        (4, 40, 1),
    ],
    "SELECT id, k, v FROM t CROSS JOIN UNNEST(counts) AS u (k, v)": [(1, "a", 1), (1, "b", None), (4, "c", 3)],
    "SELECT id, k, place FROM t CROSS JOIN UNNEST(counts) WITH ORDINALITY AS u (k, v, place)": [
        (1, "a", 1),
        (1, "b", 2),
        (4, "c", 1),
    ],
    # A row that is NULL is none.
    "SELECT id, u.x, y FROM t CROSS JOIN UNNEST(pairs) AS u": [(1, 1, "p"), (4, None, "q")],
    "SELECT id, word, place FROM t CROSS JOIN UNNEST(bag) WITH ORDINALITY AS u (word, place)": [
        (1, "u", 1),
        (1, "u", 2),
        (1, "v", 3),
        (4, "w", 1),
    ],
    "SELECT id, n FROM t JOIN UNNEST(numbers) AS u (n) ON n > 10": [(4, 40)],
    "SELECT id, n FROM t LEFT JOIN UNNEST(numbers) AS u (n) ON n > 10": [(1, None), (2, None), (3, None), (4, 40)],
    "SELECT n FROM UNNEST(ARRAY[1, 2]) AS u (n)": [(1,), (2,)],
    "SELECT id, SUM(n) FROM t CROSS JOIN UNNEST(numbers) AS u (n) GROUP BY id": [(1, 10), (4, 40)],
    "SELECT id, n FROM t NATURAL JOIN UNNEST(numbers) AS u (n) WHERE id = 4": [(4, 40)],
}


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("sql", QUERIES)
def test_unnest(sql: str, parallelism: int) -> None:
    """NULL and an empty collection give no row; an element that is NULL gives one."""
    found = run(sql, parallelism=parallelism, t=TABLE).rows()
    assert sorted(found, key=str) == sorted(QUERIES[sql], key=str)


def test_rows_that_go_take_their_elements_back() -> None:
    """Each row that results has the kind of the row that it comes from."""
    changing = Rows(
        {"id": INT, "numbers": DataTypes.ARRAY(INT)},
        [("+I", (1, [1, 2])), ("-U", (1, [1, 2])), ("+U", (1, [2])), ("+I", (2, [])), ("-D", (1, [2]))],
    )
    answer = run("SELECT id, n FROM t LEFT JOIN UNNEST(numbers) AS u (n) ON TRUE", t=changing)
    assert answer.shown() == [
        ("+I", 1, 1),
        ("+I", 1, 2),
        ("-U", 1, 1),
        ("-U", 1, 2),
        ("+U", 1, 2),
        ("+I", 2, None),
        ("-D", 1, 2),
    ]


def test_an_update_takes_back_the_elements_even_where_nobody_wants_rows_as_they_were() -> None:
    """The row after it may have fewer of them."""
    sql = "SELECT n, x FROM (SELECT COUNT(*) AS n FROM t) CROSS JOIN UNNEST(ARRAY[n, n + 1]) AS u (x)"
    rows = Rows({"id": INT}, [(1,), (2,)])
    expected = [("+I", 1, 1), ("+I", 1, 2), ("-U", 1, 1), ("-U", 1, 2), ("+U", 2, 2), ("+U", 2, 3)]
    assert run(sql, wants_before=False, t=rows).shown() == expected


def test_columns_have_the_types_of_the_elements() -> None:
    """With NULL where a row may have none; the place is never NULL."""
    assert list_columns("SELECT t.*, at_ FROM orders CROSS JOIN UNNEST(tags) WITH ORDINALITY AS t (tag, at_)") == [
        "tag STRING",
        "at_ INT NOT NULL",
        "at_ INT NOT NULL",
    ]
    assert list_columns("SELECT at_ FROM orders LEFT JOIN UNNEST(tags) WITH ORDINALITY AS t (tag, at_) ON TRUE") == [
        "at_ INT"
    ]


REFUSED = {
    "SELECT * FROM orders, UNNEST(tags, tags) AS t (a, b)": "UNNEST takes one array, map or multiset",
    "SELECT * FROM orders, UNNEST(tags) AS t (a, b)": "gives 1 columns .*, whereas alias list has 2",
    "SELECT * FROM orders FULL JOIN UNNEST(tags) AS t (a) ON TRUE": "FULL JOIN of UNNEST is not possible",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_planned_is_refused(sql: str) -> None:
    """With the reason."""
    with pytest.raises(ValidationError, match=REFUSED[sql]):
        plan_query(sql, manager_of(ORDERS))


def test_shared_names_are_written_as_conditions() -> None:
    """NATURAL and USING are refused, rather than taken for a cross join."""
    with pytest.raises(UnsupportedError, match="write the condition after ON"):
        plan_query("SELECT * FROM orders JOIN UNNEST(tags) AS t (customer) USING (customer)", manager_of(ORDERS))
