"""CREATE TABLE AS and CREATE OR REPLACE TABLE AS into a lake in batch: all of it, or nothing.

`python -m tests.table.catalog.test_created_as --kills 20` kills programs that do it at random moments, while a reader
looks: the table is not there, or has all rows. The seed that it prints makes the same pauses again.
"""

from __future__ import annotations

import argparse
import itertools
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.table.batch.batches import SETTINGS
from tests.table.catalog.crosswise import column, rows

from penstock.connectors.iceberg.tables import CatalogLoader
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment

ROWS = 20_000


@dataclass(frozen=True)
class Lake:
    """A catalog of one kind in a directory."""

    kind: str
    folder: Path

    def options(self) -> dict[str, str]:
        if self.kind == "delta":
            return {"type": "delta", "path": str(self.folder)}
        return {
            "type": "iceberg",
            "catalog-type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/warehouse",
        }

    def register(self, tables: TableEnvironment) -> TableEnvironment:
        told = ", ".join(f"'{key}' = '{value}'" for key, value in self.options().items())
        tables.execute_sql(f"CREATE CATALOG lake WITH ({told})")
        tables.execute_sql("USE CATALOG lake")
        return tables

    def versions(self, table: str) -> int:
        """How many commits have made the table what it is."""
        if self.kind == "delta":
            return DeltaTable(self.folder / "default" / table).version() + 1
        return len(self._load(table).history())

    def _load(self, table: str) -> Any:
        options = {key: value for key, value in self.options().items() if key != "type"}
        with CatalogLoader.of("lake", options).load_catalog() as catalog:
            return catalog.load_table(("default", table))

    def look(self, table: str) -> tuple[list[str], int] | None:
        """The columns and the number of rows that another library sees; None without a table."""
        if self.kind == "delta":
            if not DeltaTable.is_deltatable(str(self.folder / "default" / table)):
                return None
            data = DeltaTable(self.folder / "default" / table).to_pyarrow_table()
            return data.column_names, data.num_rows
        try:
            found = self._load(table).scan().to_arrow()
        except Exception as error:
            if "NoSuch" in type(error).__name__:
                return None
            raise
        return found.column_names, found.num_rows


def batch() -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    for key, value in SETTINGS.items():
        tables.get_config().set(key, value)
    tables.get_config().set("table.dml-sync", "true")
    return tables


SOURCE = (
    "CREATE TEMPORARY TABLE numbers (id BIGINT, name STRING) WITH ('connector' = 'datagen', "
    "'number-of-rows' = '{rows}', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '{rows}', "
    "'fields.name.length' = '2')"
)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_table_is_made_in_one_commit(kind: str, tmp_path: Path) -> None:
    lake = Lake(kind, tmp_path)
    tables = lake.register(batch())
    tables.execute_sql(SOURCE.format(rows=200))
    tables.execute_sql("CREATE TABLE t (PRIMARY KEY (id) NOT ENFORCED) COMMENT 'c' AS SELECT id, name FROM numbers")
    assert lake.versions("t") == 1
    assert lake.look("t") == (["id", "name"], 200)
    assert [row[3] for row in rows(tables, "DESCRIBE t")] == ["PRI(id)", None]
    assert "COMMENT 'c'" in column(tables, "SHOW CREATE TABLE t")[0]
    with pytest.raises(ValidationError, match="already exists"):
        tables.execute_sql("CREATE TABLE t AS SELECT 1 AS n")
    tables.execute_sql("CREATE OR REPLACE TABLE t PARTITIONED BY (half) AS SELECT id, id > 100 AS half FROM numbers")
    assert lake.versions("t") == 2
    assert lake.look("t") == (["id", "half"], 200)
    assert column(tables, "SHOW PARTITIONS t") == ["half=false", "half=true"]
    assert rows(tables, "SELECT COUNT(*), SUM(id) FROM t WHERE half") == [(100, sum(range(101, 201)))]
    tables.execute_sql("CREATE TABLE nothing AS SELECT id FROM t WHERE id < 0")
    assert lake.look("nothing") == (["id"], 0)
    tables.execute_sql("INSERT INTO t SELECT id + 200, TRUE FROM t")
    assert lake.look("t") == (["id", "half"], 400)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_query_that_fails_leaves_what_was_there(kind: str, tmp_path: Path) -> None:
    lake = Lake(kind, tmp_path)
    tables = lake.register(batch())
    tables.execute_sql(SOURCE.format(rows=20))
    failing = "SELECT id, CAST(CONCAT('x', name) AS INT) AS n FROM numbers"
    with pytest.raises(Exception, match="cannot be read as a whole number"):
        tables.execute_sql(f"CREATE TABLE t AS {failing}")
    assert lake.look("t") is None
    tables.execute_sql("CREATE TABLE t AS SELECT id FROM numbers")
    with pytest.raises(Exception, match="cannot be read as a whole number"):
        tables.execute_sql(f"CREATE OR REPLACE TABLE t AS {failing}")
    assert lake.look("t") == (["id"], 20)


# --- kills ------------------------------------------------------------------------------------------------------------


def _program(kind: str, folder: str, statement: str) -> None:
    """Make the table; a process of its own."""
    tables = Lake(kind, Path(folder)).register(batch())
    tables.execute_sql(SOURCE.format(rows=ROWS))
    rows(tables, "SELECT COUNT(*) FROM numbers")  # starts Spark
    print("begins", flush=True)
    tables.execute_sql(statement)
    print("done", flush=True)


CREATES = "CREATE OR REPLACE TABLE t AS SELECT id, name AS {name} FROM numbers"


def _run_once(lake: Lake, name: str, pause_s: float, check: Callable[[], None]) -> float | None:
    """Run the program and kill it after a pause; the seconds that it took, if it was done before."""
    arguments = [lake.kind, str(lake.folder), CREATES.format(name=name)]
    code = f"from tests.table.catalog.test_created_as import _program; _program(*{arguments!r})"
    running = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        for line in running.stdout:
            if line.strip() == "begins":
                break
        began = ended = time.monotonic()
        while ended < began + pause_s and running.poll() is None:
            check()
            time.sleep(0.02)
            ended = time.monotonic()
    finally:
        running.kill()
    rest = running.stdout.read()
    running.wait()
    return ended - began if "done" in rest else None


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--kind", choices=["iceberg", "delta"], default="iceberg")
    told = parser.parse_args(arguments)
    print(f"seed {told.seed}", flush=True)
    choose = random.Random(told.seed)
    with tempfile.TemporaryDirectory() as folder:
        lake, killed, finished = Lake(told.kind, Path(folder)), 0, 0
        takes_s: float | None = None  # the first program is not killed
        before = lake.look("t")
        for number in itertools.count():
            wanted = ["id", f"n{number}"], ROWS

            def check(before: Any = before, wanted: Any = wanted) -> None:
                found = lake.look("t")
                assert found in (before, wanted), f"half a table: {found}, before {before}"

            pause_s = 600.0 if takes_s is None else choose.uniform(0, 1.2 * takes_s)
            done_s = _run_once(lake, f"n{number}", pause_s, check)
            check()
            before = lake.look("t")
            killed, finished = killed + (done_s is None), finished + (before == wanted)
            takes_s = done_s or takes_s
            print(f"{killed} killed, {finished} committed", flush=True)
            if killed == told.kills:
                break
        print(
            f"{killed} programs killed, {finished} tables committed: a reader saw each {told.kind} table whole, "
            f"at last {lake.look('t')}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
