"""CREATE TABLE AS and CREATE OR REPLACE TABLE AS into a lake in batch: all of it, or nothing.

`python -m tests.table.catalog.test_created_as --kills 20 --verb merge` kills programs that do it, or that change rows,
while a reader looks: the table is as it was, or as it shall be. Half of the programs stop at a random point of their
commit and wait there to be killed: when the commit begins, before the catalog or the log is changed, or just after. The
others are killed at random moments. The seed that is printed makes the same choices again.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark import SparkContext
from tests.table.batch.batches import SETTINGS, spark_of_tests
from tests.table.catalog.crosswise import column, rows

from penstock.base.errors import UnsupportedError
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
        data = self.read(table)
        return None if data is None else (data.column_names, data.num_rows)

    def read(self, table: str) -> pa.Table | None:
        """The rows that another library sees; None without a table."""
        if self.kind == "delta":
            if not DeltaTable.is_deltatable(str(self.folder / "default" / table)):
                return None
            return pa.table(DeltaTable(self.folder / "default" / table).to_pyarrow_table())
        try:
            return self._load(table).scan().to_arrow()
        except Exception as error:
            if "NoSuch" in type(error).__name__:
                return None
            raise


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.spark
def test_a_partitioned_table_of_iceberg_is_replaced(tmp_path: Path) -> None:
    """A column that partitions files keeps its place in the format, and the others are new ones."""
    lake = Lake("iceberg", tmp_path)
    tables = lake.register(batch())
    tables.execute_sql("CREATE TABLE t PARTITIONED BY (name) AS SELECT 1 AS id, 'a' AS name, 2 AS n")
    for number in (3, 4):
        query = f"SELECT {number} AS n, 'b' AS name, 1.5 AS id"
        tables.execute_sql(f"CREATE OR REPLACE TABLE t PARTITIONED BY (name) AS {query}")
        assert lake.look("t") == (["n", "name", "id"], 1)
        assert rows(tables, "SELECT n, name FROM t") == [(number, "b")]
    assert column(tables, "SHOW PARTITIONS t") == ["name=b"]
    with pytest.raises(UnsupportedError, match="would have column 'name' with another type: drop it first"):
        tables.execute_sql("CREATE OR REPLACE TABLE t AS SELECT 1 AS name, 2 AS id")
    with pytest.raises(UnsupportedError, match="would have no column that does not partition it"):
        tables.execute_sql("CREATE OR REPLACE TABLE t AS SELECT 'c' AS name")


# --- kills ------------------------------------------------------------------------------------------------------------


#: where a program can stop at its commit: the functions that change what readers see
_COMMITTER = "penstock.connectors.delta.commits.DeltaCommitter", "_commit"
STOPS: dict[str, dict[str, tuple[tuple[str, str], ...]]] = {
    "iceberg": dict.fromkeys(
        ("replace", "overwrite", "update", "delete", "merge"),
        (
            ("penstock.connectors.iceberg.committer.IcebergCommitter", "_commit"),
            ("pyiceberg.catalog.sql.SqlCatalog", "_write_metadata"),
            ("pyiceberg.catalog.sql.SqlCatalog", "commit_table"),
        ),
    ),
    "delta": {
        "replace": (_COMMITTER, ("deltalake.transaction", "create_table_with_add_actions")),
        "overwrite": (_COMMITTER, ("deltalake.DeltaTable", "create_write_transaction")),
        **dict.fromkeys(("update", "delete", "merge"), (_COMMITTER, ("deltalake.table.TableMerger", "execute"))),
    },
}
#: the function at which a program stops, by name, and whether it stops after it
Stop = tuple[tuple[str, str], bool]


def _stop_at(place: tuple[str, str], after: bool) -> None:
    """Let this process wait to be killed before or after it calls a function."""
    owner, name = resolve_name(place[0]), place[1]
    original = getattr(owner, name)
    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)

    def stopping(*arguments: Any, **named: Any) -> Any:
        answer = original(*arguments, **named) if after else None
        print("stops", flush=True)
        time.sleep(600)
        return answer

    setattr(owner, name, staticmethod(stopping) if is_static else stopping)


def _program(kind: str, folder: str, statement: str, stop: Stop | None) -> None:
    """Run the statement; a process of its own."""
    tables = Lake(kind, Path(folder)).register(batch())
    tables.execute_sql(SOURCE.format(rows=ROWS))
    print("begins", flush=True)
    if stop is not None:
        _stop_at(*stop)
    tables.execute_sql(statement)
    print("done", flush=True)


def _serve(kind: str, folder: str) -> None:
    """Start Spark, then fork a program for each line of the input, which says what it is to do."""
    spark_of_tests()
    for line in sys.stdin:
        statement, stop = json.loads(line)
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            print("ended", flush=True)
            continue
        print(f"pid {os.getpid()}", flush=True)
        client: Any = SparkContext._gateway._gateway_client  # type: ignore[union-attr]
        client.deque.clear()  # the connections of the parent
        client.thread_connection = threading.local()
        try:
            _program(kind, folder, statement, None if stop is None else (tuple(stop[0]), stop[1]))
        except Exception:  # noqa: BLE001 - shown, and the process ends
            traceback.print_exc()
        os._exit(0)


@dataclass(frozen=True)
class Verb:
    """A statement whose outcome is known: `{number}` differs each time."""

    statement: str
    #: the rows after it, from the rows before
    outcome: Callable[[Sums, int], Sums]


#: the number of rows and the sum of each whole-number column
Sums = tuple[int, int, int]
_SUM = ROWS * (ROWS + 1) // 2
VERBS = {
    "replace": Verb(
        "CREATE OR REPLACE TABLE t AS SELECT id, CAST({number} AS BIGINT) AS n FROM numbers",
        lambda _, number: (ROWS, _SUM, ROWS * number),
    ),
    "overwrite": Verb(
        "INSERT OVERWRITE t SELECT id, CAST({number} AS BIGINT) FROM numbers",
        lambda _, number: (ROWS, _SUM, ROWS * number),
    ),
    "update": Verb(
        "UPDATE t SET n = n + {number} WHERE MOD(id, 2) = 0",
        lambda before, number: (before[0], before[1], before[2] + number * (before[0] // 2)),
    ),
    "delete": Verb(
        "DELETE FROM t WHERE MOD(id, 1000) = {number}",
        lambda before, number: (before[0] - 20, before[1] - 20 * number - 190_000, before[2] - 20),  # n is 1
    ),
    "merge": Verb(
        "MERGE INTO t USING (SELECT id FROM numbers) AS s ON t.id = s.id WHEN MATCHED AND MOD(s.id, 2) = 0 "
        "THEN UPDATE SET n = t.n + {number} WHEN NOT MATCHED THEN INSERT VALUES (s.id, 0)",
        lambda before, number: (ROWS, _SUM, before[2] + number * (ROWS // 2)),
    ),
}


class _Programs:
    """Runs programs and kills them; they are forked from one process that has started Spark."""

    def __init__(self, lake: Lake) -> None:
        code = f"from tests.table.catalog.test_created_as import _serve; _serve({lake.kind!r}, {str(lake.folder)!r})"
        self._server = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._server.stdout or ():
            self._lines.put(line.strip())

    def run(
        self, statement: str, pause_s: float, stop: Stop | None, check: Callable[[], None]
    ) -> tuple[float | None, bool]:
        """Run a program, and kill it where it stops or after a pause.

        Returns the seconds that it took, if it was done before, and whether it stopped at its commit.
        """
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps([statement, stop]) + "\n")
        self._server.stdin.flush()
        pid = 0
        while (line := self._lines.get()) != "begins":
            pid = int(line.removeprefix("pid ")) if line.startswith("pid ") else pid
        began = ended = time.monotonic()
        said: list[str] = []
        while ended < began + pause_s and not {"stops", "ended"} & set(said):
            check()
            with suppress(queue.Empty):
                said.append(self._lines.get(timeout=0.1))
            ended = time.monotonic()
        if "ended" not in said:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while "ended" not in said:
            said.append(self._lines.get())
        return (ended - began if "done" in said else None), "stops" in said

    def close(self) -> None:
        self._server.kill()
        self._server.wait()


def _sums(lake: Lake) -> Sums | None:
    """The number of rows and the sums of `id` and `n`, as another library sees them; None without a table."""
    data = lake.read("t")
    if data is None:
        return None
    return data.num_rows, *(pc.sum(data.column(name)).as_py() or 0 for name in ("id", "n"))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--kind", choices=["iceberg", "delta"], default="iceberg")
    parser.add_argument("--verb", choices=list(VERBS), default="replace")
    told = parser.parse_args(arguments)
    print(f"seed {told.seed}", flush=True)
    choose = random.Random(told.seed)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        lake, killed, finished, at_commit, number = Lake(told.kind, Path(folder)), 0, 0, 0, 0
        takes_s: float | None = None  # the first program of a statement is not killed
        programs = stack.enter_context(closing(_Programs(lake)))
        while killed < told.kills:
            before, number = _sums(lake), number + 1
            verb = VERBS["replace" if before is None else told.verb]
            wanted = verb.outcome(before or (0, 0, 0), number)

            def check(before: Any = before, wanted: Any = wanted) -> None:
                seen = _sums(lake)
                assert seen in (before, wanted), f"half a table: {seen}, before {before}, wanted {wanted}"

            stop: Stop | None = None
            pause_s = 600.0
            if takes_s is not None and choose.random() < 0.6:
                stop = choose.choice(STOPS[told.kind][told.verb]), choose.random() < 0.5
            elif takes_s is not None:
                pause_s = choose.uniform(0, 1.2 * takes_s)
            done_s, stopped = programs.run(verb.statement.format(number=number), pause_s, stop, check)
            check()
            killed, finished = killed + (done_s is None), finished + (_sums(lake) == wanted)
            at_commit += stopped
            takes_s = done_s or takes_s if before is not None or told.verb == "replace" else takes_s
            print(f"{killed} killed, {at_commit} of them at the commit, {finished} committed", flush=True)
        print(
            f"{killed} programs killed, {at_commit} of them at the commit; {finished} times {told.verb} was committed: "
            f"a reader saw each {told.kind} table whole, at last {_sums(lake)}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
