"""Penstock's side."""

from __future__ import annotations

from typing import Any

from tests.exchange.cases import FORMATS, Case, select
from tests.exchange.working import Program, main

from penstock.common import Configuration
from penstock.table import EnvironmentSettings, TableEnvironment


class Penstock(Program):
    """Tables of the connector `filesystem`, in this process."""

    formats = FORMATS
    writes_each_alone = True

    def write(self, form: str, path: str, cases: list[Case]) -> None:
        """See `Program`."""
        tables = self._tables(form, path, cases)
        tables.execute_sql(f"INSERT INTO t {select(cases, 'penstock')}").wait()

    def read(self, form: str, path: str, cases: list[Case]) -> list[tuple[Any, ...]]:
        """See `Program`."""
        with self._tables(form, path, cases).execute_sql("SELECT * FROM t").collect() as rows:
            return [tuple(row) for row in rows]

    def _tables(self, form: str, path: str, cases: list[Case]) -> TableEnvironment:
        settings = EnvironmentSettings.new_instance().in_streaming_mode()
        configuration = Configuration.from_dict({"execution.target": "local"})
        tables = TableEnvironment.create(settings.with_configuration(configuration).build())
        tables.get_config().set("table.local-time-zone", "UTC")
        columns = ", ".join(["id INT", *(f"`{one.name}` {one.flink}" for one in cases)])
        more = ", 'csv.null-literal' = '~'" if form == "csv" else ""
        tables.execute_sql(
            f"CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', "
            f"'format' = '{form}'{more})"
        )
        return tables


if __name__ == "__main__":
    main(Penstock())
