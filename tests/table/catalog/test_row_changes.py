"""DELETE, UPDATE, MERGE and TRUNCATE TABLE of lakes: one commit each, with the rows that a query would have.

`python -m tests.table.catalog.test_row_changes --operations 40 --kind delta` runs random operations, in turn here and
by pyiceberg or delta-rs, and compares with a list of rows after each.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.expressions import EqualTo, In, IsNull
from tests.simulation.fresh_seeds import commit_number
from tests.table.catalog.crosswise import environment, rows
from tests.table.catalog.test_created_as import Lake, batch

from penstock.base.errors import JobExecutionError, PenstockError, UnsupportedError
from penstock.sql.data.errors import UnknownNameError, ValidationError
from penstock.sql.parser import parse_statement, statements
from penstock.sql.parser.lexer import SqlParserError
from penstock.table import TableEnvironment

NO_LONG, NO_INT = "CAST(NULL AS BIGINT)", "CAST(NULL AS INT)"
KINDS = pytest.mark.parametrize("kind", ["iceberg", "delta"])


def shown(tables: TableEnvironment, name: str = "t") -> list[Any]:
    return sorted(rows(tables, f"SELECT * FROM {name}"), key=repr)


@pytest.mark.slow
@pytest.mark.spark
@KINDS
def test_rows_change_in_one_commit(kind: str, tmp_path: Path) -> None:
    lake = Lake(kind, tmp_path)
    tables = lake.register(batch())
    extra = " WITH ('delta.enableChangeDataFeed' = 'true')" if kind == "delta" else ""
    tables.execute_sql(f"CREATE TABLE t (id BIGINT NOT NULL, name STRING, n DOUBLE, more ARRAY<INT>){extra}")
    tables.execute_sql(
        "INSERT INTO t VALUES (1, 'a', 1.5, ARRAY[1]), (2, 'b', CAST(NULL AS DOUBLE), ARRAY[2, 3]), "
        "(3, 'c', 3.5, CAST(NULL AS ARRAY<INT>)), (3, 'c', 3.5, CAST(NULL AS ARRAY<INT>)), (4, 'd', 0e0, ARRAY[4])"
    )
    versions = lake.versions("t")
    with tables.execute_sql("UPDATE t SET n = id * 2 + 0.5, name = UPPER(name) WHERE id >= 3").collect() as result:
        assert [tuple(row) for row in result] == [(-1,)]
    same = [(3, "C", 6.5, None), (3, "C", 6.5, None)]
    assert shown(tables) == [(1, "a", 1.5, [1]), (2, "b", None, [2, 3]), *same, (4, "D", 8.5, [4])]
    tables.execute_sql("DELETE FROM t AS x WHERE MOD(x.id, 4) = 0 OR x.n IS NULL AND more[2] = 3")
    assert shown(tables) == [(1, "a", 1.5, [1]), *same]
    assert lake.versions("t") == versions + 2
    tables.execute_sql(
        "MERGE INTO t USING (VALUES (1, 'z'), (3, 'y'), (9, 'n'), (10, 'no')) AS s(k, v) ON t.id = s.k "
        "WHEN MATCHED AND s.v = 'z' THEN UPDATE SET name = s.v, n = t.n + 1 WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED AND s.k < 10 THEN INSERT (id, name) VALUES (s.k, s.v)"
    )
    assert shown(tables) == [(1, "z", 2.5, [1]), (9, "n", None, None)]
    tables.execute_sql(
        "MERGE INTO t USING (SELECT 7 AS id, 'q' AS name, 1e0 AS n, ARRAY[7] AS more) AS s ON t.id = s.id "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 9 THEN UPDATE SET name = 'alone' WHEN NOT MATCHED THEN INSERT *"
    )
    assert shown(tables) == [(1, "z", 2.5, [1]), (7, "q", 1.0, [7]), (9, "alone", None, None)]
    assert lake.versions("t") == versions + 4
    for wrong, message in (
        ("MERGE INTO t USING (VALUES (1), (1)) AS s(k) ON id = k WHEN MATCHED THEN DELETE", "match one row"),
        ("MERGE INTO t USING (VALUES (1, 2), (1, 3)) AS s(k, v) ON id = k WHEN MATCHED THEN UPDATE SET n = v",
         "several outcomes"),
        ("UPDATE t SET id = CAST(NULL AS BIGINT)", "may not be NULL"),
    ):  # fmt: skip
        with pytest.raises(JobExecutionError, match=message):
            tables.execute_sql(wrong)
    tables.execute_sql("UPDATE t SET n = 0 WHERE FALSE")
    assert lake.versions("t") == versions + 4
    with tables.execute_sql("DELETE FROM t WHERE name IN ('q', 'nothing')").collect() as result:
        assert [tuple(row) for row in result] == [(1,)]
    if kind == "delta":
        feed = pa.table(DeltaTable(tmp_path / "default" / "t").load_cdf(starting_version=versions)).to_pylist()
        changes = sorted((row["_change_type"], row["id"]) for row in feed if row["_commit_version"] == versions)
        assert changes == sorted((kind, number) for kind in ("update_preimage", "update_postimage")
                                 for number in (3, 3, 4))  # fmt: skip
    with tables.execute_sql("TRUNCATE TABLE t").collect() as result:
        assert [tuple(row) for row in result] == [("OK",)]
    assert shown(tables) == []


@pytest.mark.slow
@pytest.mark.spark
def test_rows_of_a_branch_change(tmp_path: Path) -> None:
    tables = Lake("iceberg", tmp_path).register(batch())
    tables.execute_sql("CREATE TABLE t AS SELECT * FROM (VALUES (1), (2)) AS v(id)")
    tables.execute_sql("ALTER TABLE t CREATE BRANCH audit RETAIN 3 DAYS")
    tables.execute_sql("ALTER TABLE t ADD (name STRING)")
    tables.execute_sql("UPDATE t /*+ OPTIONS('branch' = 'audit') */ SET name = CAST(id AS STRING)")
    tables.execute_sql("DELETE FROM t /*+ OPTIONS('branch' = 'audit') */ WHERE id = 1")
    assert rows(tables, "SELECT * FROM t VERSION AS OF 'audit'") == [(2, "2")]
    assert shown(tables) == [(1, None), (2, None)]
    assert rows(tables, "SELECT max_reference_age_in_ms FROM t$refs WHERE name = 'audit'") == [(3 * 86_400_000,)]


@pytest.mark.slow
@pytest.mark.spark
@KINDS
@pytest.mark.parametrize("condition", [
    "a = 1 OR b = 2", "a > 1 AND c = 1 OR b = 2", "a IS NULL OR b = 2", "a IS NOT NULL OR b = 2", "a < 2 OR a = 2",
    "(a = 1 OR a = 2) AND b > 1", "a IN (1, 2) OR b IN (1)", "a IS NULL AND b = 1 OR c = 2", "c = 1 OR a = 2",
    "a IS NOT NULL AND a > 1", "a = 2 AND b IS NULL", "a IS NULL AND a = 1", "a IS NULL OR a = 1",
    "NOT (a = 1 OR b = 2)",
])  # fmt: skip
def test_conditions_over_null(kind: str, condition: str, tmp_path: Path) -> None:
    """The rows that a condition removes are those that a query with it has."""
    tables = Lake(kind, tmp_path).register(batch())
    tables.execute_sql("CREATE TABLE t (a BIGINT, b INT, c INT NOT NULL)")
    values = [f"({a}, {b}, {c})" for a in ("1", "2", NO_LONG) for b in ("1", "2", NO_INT) for c in (1, 2)]
    tables.execute_sql(f"INSERT INTO t VALUES {', '.join(values)}")
    kept = shown(tables, f"t WHERE ({condition}) IS NOT TRUE")
    with tables.execute_sql(f"DELETE FROM t WHERE {condition}").collect() as result:
        assert [tuple(row) for row in result] in ([(-1,)], [(len(values) - len(kept),)])
    assert shown(tables) == kept


@KINDS
def test_statements_that_cannot_be(kind: str, tmp_path: Path) -> None:
    tables = Lake(kind, tmp_path).register(environment())
    tables.execute_sql("CREATE TABLE t (id BIGINT, name STRING)")
    tables.execute_sql("CREATE TEMPORARY VIEW v AS SELECT * FROM t")
    cases: tuple[tuple[str, type[Exception], str], ...] = (
        ("DELETE FROM t WHERE id = 1", UnsupportedError, "DELETE statement is not supported for streaming mode now"),
        ("UPDATE t SET id = 2", UnsupportedError, "UPDATE statement is not supported for streaming mode now"),
        ("UPDATE t SET id = 'x'", ValidationError, "Cannot assign to target field 'id' of type BIGINT"),
        ("UPDATE t SET other = 1", UnknownNameError, "Unknown target column 'other'"),
        ("UPDATE t SET id = 1, id = 2", ValidationError, "more than once"),
        ("DELETE FROM nothing", UnknownNameError, "Object 'nothing' not found"),
        ("DELETE FROM v", ValidationError, "is a view"),
        ("TRUNCATE TABLE v", ValidationError, "is a view"),
        ("TRUNCATE TABLE nothing", UnknownNameError, "Cannot find table"),
        ("TRUNCATE TABLE t", UnsupportedError, "not supported in streaming mode"),
        ("MERGE INTO t USING t AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (1)", ValidationError, "items"),
    )
    for sql, error, message in cases:
        with pytest.raises(error, match=message):
            tables.execute_sql(sql)


def test_connectors_that_change_no_rows_are_named() -> None:
    tables = batch()
    tables.execute_sql(
        "CREATE TABLE t (id INT) WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'csv')"
    )
    for sql in ("DELETE FROM t WHERE id = 1", "UPDATE t SET id = 1",
                "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED THEN DELETE"):  # fmt: skip
        with pytest.raises(UnsupportedError, match="not supported by connector 'filesystem'"):
            tables.execute_sql(sql)
    with pytest.raises(UnsupportedError, match="its connector 'filesystem' does not remove rows"):
        tables.execute_sql("TRUNCATE TABLE t")


def test_grammar_of_merge() -> None:
    merge = parse_statement(
        "MERGE INTO a.t /*+ OPTIONS('branch' = 'b') */ AS x USING (SELECT 1 AS k) AS s ON x.id = s.k "
        "WHEN MATCHED AND s.k > 1 THEN UPDATE SET x.n = 1, m = s.k WHEN NOT MATCHED BY TARGET THEN INSERT VALUES (1) "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )
    assert isinstance(merge, statements.Merge)
    assert [(clause.matches, clause.action) for clause in merge.clauses] == [
        ("MATCHED", "UPDATE"), ("NOT MATCHED", "INSERT"), ("NOT MATCHED BY SOURCE", "DELETE"),
    ]  # fmt: skip
    assert [name for name, _ in merge.clauses[0].assignments] == ["n", "m"]
    for wrong in ("WHEN MATCHED THEN INSERT VALUES (1)", "WHEN NOT MATCHED THEN DELETE", "",
                  "WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)"):  # fmt: skip
        with pytest.raises(SqlParserError):
            parse_statement(f"MERGE INTO t USING s ON t.id = s.id {wrong}")


@pytest.mark.slow
@pytest.mark.spark
@KINDS
def test_other_writers_meanwhile(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that another writer adds stay; rows that another has changed make the statement fail."""
    tables = Lake(kind, tmp_path).register(batch())
    tables.execute_sql("CREATE TABLE t AS SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(id, name)")
    session_write, other = tables._session.write, Library(kind, tmp_path)

    def writing_after(act: Callable[[], None]) -> None:
        def write(plans: Any) -> Any:
            act()
            return session_write(plans)

        monkeypatch.setattr(tables._session, "write", write)

    writing_after(lambda: other.delete_id(2))
    with pytest.raises(PenstockError, match="run the statement again"):
        tables.execute_sql("UPDATE t SET name = UPPER(name) WHERE MOD(id, 2) = 0")
    assert shown(tables) == [(1, "a")]
    if kind == "iceberg":
        writing_after(lambda: other.append([(5, "e")]))
        tables.execute_sql("UPDATE t SET name = UPPER(name) WHERE MOD(id, 2) = 1")
        assert shown(tables) == [(1, "A"), (5, "e")]


# --- random operations ------------------------------------------------------------------------------------------------


@dataclass
class Library:
    """The table `t` in pyiceberg or delta-rs."""

    kind: str
    folder: Path
    lake: Lake = field(init=False)

    def __post_init__(self) -> None:
        self.lake = Lake(self.kind, self.folder)

    def _delta(self) -> DeltaTable:
        return DeltaTable(self.folder / "default" / "t")

    def rows(self) -> list[Any]:
        if self.kind == "delta":
            data = pa.table(self._delta().to_pyarrow_table())
        else:
            data = self.lake._load("t").scan().to_arrow()
        return sorted((tuple(row.values()) for row in data.to_pylist()), key=repr)

    def append(self, new: Sequence[tuple[Any, ...]]) -> None:
        columns = {"id": pa.array([row[0] for row in new], pa.int64()), "name": [row[1] for row in new]}
        if len(new[0]) > 2:
            columns["n"] = pa.array([row[2] for row in new], pa.int32())
        data = pa.table(columns)
        if self.kind == "delta":
            write_deltalake(self._delta(), data, mode="append")
        else:
            table = self.lake._load("t")
            table.append(data.cast(table.schema().as_arrow().remove_metadata()))

    def delete_id(self, number: int) -> None:
        if self.kind == "delta":
            self._delta().delete(f"id = {number}")
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.lake._load("t").delete(EqualTo("id", number))  # type: ignore[call-arg, arg-type]

    def delete_names(self, names: Sequence[str]) -> None:
        if self.kind == "delta":
            self._delta().delete(f"name IN ({', '.join(map(repr, names))}) OR name IS NULL")
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                table: Any = self.lake._load("t")
                table.delete(In("name", names) | IsNull("name"))  # type: ignore[call-arg, arg-type]


NAMES = ("a", "b", "c d", "é")
Rows = list[tuple[Any, ...]]


@dataclass
class RandomOperations:
    """Random operations on a table, and the rows that it has after them."""

    tables: TableEnvironment
    other: Library
    choose: random.Random
    is_partitioned: bool
    expected: Rows = field(default_factory=list)

    def new_rows(self) -> Rows:
        choose = self.choose
        return [
            (choose.randrange(8), choose.choice((*NAMES, None)), choose.choice((None, choose.randrange(100))))
            for _ in range(choose.randint(1, 4))
        ]

    def step(self) -> str:
        operations = [self.insert, self.append, self.delete, self.delete_there, self.update, self.merge,
                      self.overwrite, self.delete_simple]  # fmt: skip
        told = self.choose.choice(operations)()
        wanted = sorted(self.expected, key=repr)
        assert self.other.rows() == wanted, told
        assert shown(self.tables) == wanted, told
        return told

    def run(self, sql: str) -> str:
        self.tables.execute_sql(sql)
        return sql

    def values(self, new: Rows) -> str:
        texts = []
        for number, name, n in new:
            name_text = "CAST(NULL AS STRING)" if name is None else f"'{name}'"
            texts.append(f"(CAST({number} AS BIGINT), {name_text}, CAST({'NULL' if n is None else n} AS INT))")
        return f"(VALUES {', '.join(texts)}) AS s(id, name, n)"

    def insert(self) -> str:
        new = self.new_rows()
        self.expected += new
        return self.run(f"INSERT INTO t SELECT * FROM {self.values(new)}")

    def append(self) -> str:
        new = self.new_rows()
        self.expected += new
        self.other.append(new)
        return f"append {new}"

    def delete(self) -> str:
        rest = self.choose.randrange(3)
        self.expected = [row for row in self.expected if not (row[0] % 3 == rest and (row[2] or 0) < 60)]
        return self.run(f"DELETE FROM t WHERE MOD(id, 3) = {rest} AND COALESCE(n, 0) < 60")

    def delete_simple(self) -> str:
        number, name = self.choose.randrange(8), self.choose.choice(NAMES)
        self.expected = [row for row in self.expected if not ((row[0] > number and row[1] == name) or row[2] == 7)]
        return self.run(f"DELETE FROM t WHERE (id > {number} AND name = '{name}') OR n = 7")

    def delete_there(self) -> str:
        if self.choose.random() < 0.5:
            number = self.choose.randrange(8)
            self.expected = [row for row in self.expected if row[0] != number]
            self.other.delete_id(number)
            return f"delete id {number}"
        names = self.choose.sample(NAMES, 1)
        self.expected = [row for row in self.expected if row[1] is not None and row[1] not in names]
        self.other.delete_names(names)
        return f"delete names {names} or NULL"

    def update(self) -> str:
        least = self.choose.randrange(8)
        self.expected = [self._updated(row, least) for row in self.expected]
        return self.run(f"UPDATE t SET n = n + CAST(id AS INT), name = name || '' WHERE id >= {least} AND name <> 'a'")

    @staticmethod
    def _updated(row: tuple[Any, ...], least: int) -> tuple[Any, ...]:
        number, name, n = row
        if number < least or name is None or name == "a":
            return row
        return number, name, None if n is None else n + number

    def merge(self) -> str:
        source = {row[0]: row for row in self.new_rows()}
        present = {row[0] for row in self.expected}
        kept = []
        for number, name, n in self.expected:
            match = source.get(number)
            if match is None:
                kept.append((number, name, n))
            elif match[2] is not None:
                kept.append((number, match[1], n))
        kept += [row for number, row in source.items() if number not in present]
        self.expected = kept
        return self.run(
            f"MERGE INTO t USING {self.values(list(source.values()))} ON t.id = s.id "
            "WHEN MATCHED AND s.n IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET name = s.name "
            "WHEN NOT MATCHED THEN INSERT *"
        )

    def overwrite(self) -> str:
        new = self.new_rows()
        if self.is_partitioned:
            names = {row[1] for row in new}
            self.expected = [row for row in self.expected if row[1] not in names]
        else:
            self.expected = []
        self.expected += new
        return self.run(f"INSERT OVERWRITE t SELECT * FROM {self.values(new)}")


def run_random(kind: str, folder: Path, seed: int, operations: int) -> None:
    choose = random.Random(seed)
    tables = Lake(kind, folder).register(batch())
    is_partitioned = choose.random() < 0.5
    suffix = " PARTITIONED BY (name)" if is_partitioned else ""
    tables.execute_sql(f"CREATE TABLE t (id BIGINT, name STRING, n INT){suffix}")
    tester = RandomOperations(tables, Library(kind, folder), choose, is_partitioned)
    for number in range(operations):
        print(number, tester.step(), flush=True)


@pytest.mark.slow
@pytest.mark.spark
@KINDS
def test_random_operations(kind: str, tmp_path: Path) -> None:
    seed = commit_number() + len(kind)
    print(f"seed {seed}")
    run_random(kind, tmp_path, seed, 8)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--operations", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--kind", choices=["iceberg", "delta"], default="iceberg")
    told = parser.parse_args(arguments)
    print(f"seed {told.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        run_random(told.kind, Path(folder), told.seed, told.operations)
    print(f"{told.operations} operations on a table of {told.kind}: all agree")


if __name__ == "__main__":
    main(sys.argv[1:])
