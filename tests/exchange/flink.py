"""Flink's side, with PyFlink. `FLINK_JARS` is the directory of its jars for formats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]
from tests.exchange.cases import FORMATS, Case, select
from tests.exchange.working import Program, main


class Flink(Program):
    """Tables of the connector `filesystem`, in batch."""

    formats = FORMATS

    def __init__(self) -> None:
        self._tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        jars = ";".join(one.as_uri() for one in sorted(Path(os.environ["FLINK_JARS"]).glob("*.jar")))
        for key, value in (
            ("pipeline.jars", jars),
            ("parallelism.default", "1"),
            ("table.local-time-zone", "UTC"),
        ):
            self._tables.get_config().set(key, value)

    def probe(self, form: str, path: str, cases: list[Case]) -> None:
        """See `Program`. Planning a job finds types that a format does not have."""
        self._create(form, path, cases)
        self._tables.explain_sql(f"INSERT INTO t {select(cases, 'flink')}")

    def write(self, form: str, path: str, cases: list[Case]) -> None:
        """See `Program`."""
        self._create(form, path, cases)
        result = self._tables.execute_sql(f"INSERT INTO t {select(cases, 'flink')}")
        try:
            result.wait()
        except Exception:
            # PyFlink asks the cluster of a job that has ended, and the cluster ends with the job.
            if not any(one.name.startswith("part-") for one in Path(path).glob("*")):
                raise

    def read(self, form: str, path: str, cases: list[Case]) -> list[tuple[Any, ...]]:
        """See `Program`. Moments come as texts, because PyFlink cannot hand them over."""
        self._create(form, path, cases)
        columns = [f"CAST(`{one.name}` AS STRING)" if one.name.startswith("ltz") else f"`{one.name}`" for one in cases]
        with self._tables.execute_sql(f"SELECT id, {', '.join(columns)} FROM t").collect() as rows:
            return [tuple(row) for row in rows]

    def _create(self, form: str, path: str, cases: list[Case]) -> None:
        columns = ", ".join(["id INT", *(f"`{one.name}` {one.flink}" for one in cases)])
        more = ", 'csv.null-literal' = '~'" if form == "csv" else ""
        self._tables.execute_sql("DROP TEMPORARY TABLE IF EXISTS t")
        self._tables.execute_sql(
            f"CREATE TEMPORARY TABLE t ({columns}) WITH "
            f"('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = '{form}'{more})"
        )


if __name__ == "__main__":
    main(Flink())
