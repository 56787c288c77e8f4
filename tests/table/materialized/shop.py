"""Orders in files, which arrive while materialized tables are kept up to date, and what an environment sees of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.sql.materialized_tables.definition import Definition
from penstock.sql.materialized_tables.refresh import JOBS
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.table.catalog import ObjectPath

OPTIONS = {
    "execution.target": "local",
    "execution.checkpointing.interval": "100 ms",
    "table.dml-sync": "true",
    "materialized-table.refresh-mode.freshness-threshold": "4 s",
    "penstock.materialized-table.micro-batch-threshold": "2 s",
}
COUNTS = "SELECT k, COUNT(*) AS n FROM orders GROUP BY k"


class Shop:
    """A directory with orders, a lake, checkpoints and savepoints.

    Args:
        here: the directory.
        options: further options of the environments.
    """

    def __init__(self, here: Path, **options: str) -> None:
        self.here = here
        (here / "orders").mkdir(exist_ok=True)
        (here / "hidden").mkdir(exist_ok=True)
        self._options = OPTIONS | options
        self._files = 0
        self.tables = self.environment()
        self.reader = self.environment()
        for option in ("execution.checkpointing.interval", "execution.checkpointing.dir"):
            self.reader.get_config().reset(option)

    def environment(self, is_batch: bool = False) -> TableEnvironment:
        """A new environment over the lake and the orders; in batch these end."""
        settings = EnvironmentSettings.in_batch_mode() if is_batch else EnvironmentSettings.in_streaming_mode()
        made = TableEnvironment.create(settings)
        places = {
            "execution.checkpointing.dir": f"{self.here}/checkpoints",
            "execution.checkpointing.savepoint-dir": f"{self.here}/savepoints",
        }
        for key, value in (self._options | places).items():
            made.get_config().set(key, value)
        made.execute_sql(
            "CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-type' = 'sql', "
            f"'uri' = 'sqlite:///{self.here}/c.db', 'warehouse' = 'file://{self.here}/warehouse')"
        )
        made.execute_sql("CREATE DATABASE IF NOT EXISTS lake.shop")
        follows = "" if is_batch else ", 'source.monitor-interval' = '50 ms'"
        made.execute_sql(
            "CREATE TABLE orders (k INT NOT NULL, v BIGINT, day_of STRING) WITH ('connector' = 'filesystem', "
            f"'format' = 'json', 'path' = '{self.here}/orders'{follows})"
        )
        return made

    def order(self, orders: Iterable[tuple[int, int]]) -> None:
        """Let orders arrive, in a file of their own."""
        hidden = self.here / "hidden" / f"{self._files}.json"
        hidden.write_text(
            "".join(json.dumps({"k": k, "v": v, "day_of": f"2024-01-0{1 + v % 2}"}) + "\n" for k, v in orders)
        )
        hidden.rename(self.here / "orders" / hidden.name)
        self._files += 1

    def forget(self) -> None:
        """Remove the files of the orders: only state knows them from now on."""
        for file in (self.here / "orders").iterdir():
            file.unlink()

    def rows(self, sql: str = "SELECT * FROM lake.shop.m") -> list[tuple[Any, ...]]:
        """The rows of a query that ends, sorted."""
        with self.reader.execute_sql(sql).collect() as found:
            return sorted((tuple(row) for row in found), key=repr)

    def definition(self, name: str = "m") -> Definition:
        """What the catalog keeps of a table."""
        catalog = self.tables.get_catalog("lake")
        assert catalog is not None
        return Definition.read(catalog.get_table(ObjectPath("shop", name)))

    def lose_job(self, definition: Definition | None = None) -> None:
        """End the job of a table as the death of its process does: without a savepoint."""
        client = JOBS.find((definition or self.definition()).job_id)
        assert client is not None
        client.cancel().result()
        client.get_job_execution_result().exception()
