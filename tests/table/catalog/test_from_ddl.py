"""CREATE TABLE: what a catalog gets, and what is refused."""

from __future__ import annotations

import pytest
from tests.table.planned import create, manager_of

from penstock.sql.data.errors import ValidationError

BASE = """
CREATE TABLE base (
  id INT, ts TIMESTAMP(3), twice AS id * 2, offset_ BIGINT METADATA FROM 'offset' VIRTUAL,
  WATERMARK FOR ts AS ts, PRIMARY KEY (id) NOT ENFORCED
) COMMENT 'c' PARTITIONED BY (id) WITH ('connector' = 'x', 'a' = '1')
"""


def described(*ddl: str, name: str = "t") -> str:
    """The resolved schema of a table as text."""
    manager = manager_of(*ddl)
    found = manager.find((name,))
    assert found is not None
    return str(manager.resolved(found[1]))


def test_columns_of_all_kinds() -> None:
    """Physical, computed and metadata columns, a watermark and a key; columns of the key are not NULL."""
    text = described(
        "CREATE TABLE t (id INT, ts TIMESTAMP(3), same AS id, now_ AS PROCTIME(), at_ TIMESTAMP_LTZ(3) METADATA, "
        "WATERMARK FOR ts AS ts, CONSTRAINT pk PRIMARY KEY (id) NOT ENFORCED)"
    )
    assert text == (
        "(\n  `id` INT NOT NULL,\n  `ts` TIMESTAMP(3) *ROWTIME*,\n  `same` INT AS `id`,\n"
        "  `now_` TIMESTAMP_LTZ(3) NOT NULL *PROCTIME* AS PROCTIME(),\n  `at_` TIMESTAMP_LTZ(3) METADATA,\n"
        "  WATERMARK FOR `ts`: TIMESTAMP(3) AS `ts`,\n  CONSTRAINT `pk` PRIMARY KEY (`id`) NOT ENFORCED\n)"
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("a INT, a INT", r"duplicate column names. Found duplicates: \[a\]"),
        ("a INT, b AS c", "Invalid expression for computed column 'b': Column 'c' not found"),
        ("a INT, WATERMARK FOR b AS b", "Invalid column name 'b' for rowtime attribute"),
        ("a INT, WATERMARK FOR a AS a", r"must be of type TIMESTAMP\(p\) or TIMESTAMP_LTZ\(p\)"),
        ("a TIMESTAMP(6), WATERMARK FOR a AS a", "the supported precision 'p' is from 0 to 3"),
        ("a INT, PRIMARY KEY (b) NOT ENFORCED", "Column 'b' does not exist"),
        ("a INT, b AS a, PRIMARY KEY (b) NOT ENFORCED", "Column 'b' is not a physical column"),
        ("a INT, PRIMARY KEY (a)", "doesn't support ENFORCED mode"),
        ("a INT PRIMARY KEY NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED", "Duplicate primary key definition"),
        ("a INT, UNIQUE (a)", "UNIQUE constraint is not supported"),
    ],
)
def test_what_does_not_fit_is_refused(columns: str, message: str) -> None:
    """With the column that is wrong."""
    with pytest.raises(ValidationError, match=message):
        described(f"CREATE TABLE t ({columns})")


def test_partitions_are_columns() -> None:
    """Others are refused."""
    with pytest.raises(ValidationError, match="Partition column 'b' not defined"):
        described("CREATE TABLE t (a INT) PARTITIONED BY (b)")


def test_like_takes_all_and_own_options_win() -> None:
    """Columns of the other table come first."""
    manager = manager_of(BASE.replace("twice AS id * 2, ", ""), "CREATE TABLE t (b INT) WITH ('a' = '2') LIKE base")
    found = manager.find(("t",))
    assert found is not None
    table = found[1]
    assert [column.name for column in table.schema.columns] == ["id", "ts", "offset_", "b"]
    assert table.options == {"connector": "x", "a": "2"}
    assert table.partition_keys == ("id",)
    assert table.schema.primary_key == ("id",)
    assert [mark.column for mark in table.schema.watermarks] == ["ts"]


def test_like_leaves_out_what_it_shall() -> None:
    """EXCLUDING ALL, and INCLUDING of one part again."""
    manager = manager_of(BASE, "CREATE TABLE t (b INT) LIKE base (EXCLUDING ALL INCLUDING OPTIONS)")
    found = manager.find(("t",))
    assert found is not None
    table = found[1]
    assert [column.name for column in table.schema.columns] == ["id", "ts", "b"]
    assert table.options == {"connector": "x", "a": "1"}
    assert (table.partition_keys, table.schema.primary_key, table.schema.watermarks) == ((), (), ())


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE t (id INT) LIKE base", "A column named 'id' already exists in the base table"),
        ("CREATE TABLE t (PRIMARY KEY (ts) NOT ENFORCED) LIKE base", "already has a primary key"),
        ("CREATE TABLE t (WATERMARK FOR ts AS ts) LIKE base", "already exists a watermark spec for column 'ts'"),
        ("CREATE TABLE t (b INT) WITH ('a' = '2') LIKE base (INCLUDING OPTIONS)", "already exists an option"),
        ("CREATE TABLE t (b INT) PARTITIONED BY (b) LIKE base", "already has partitions"),
    ],
)
def test_like_refuses_what_is_there_twice(statement: str, message: str) -> None:
    """The message says what could be left out."""
    manager = manager_of(BASE.replace("twice AS id * 2, ", ""))
    with pytest.raises(ValidationError, match=message):
        create(manager, statement)
