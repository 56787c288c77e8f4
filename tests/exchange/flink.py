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
        """See `Program`. Values that PyFlink changes or cannot hand over come as texts."""
        self._create(form, path, cases)
        columns = [f"CAST(`{one.name}` AS STRING)" if _is_text(one) else f"`{one.name}`" for one in cases]
        with self._tables.execute_sql(f"SELECT id, {', '.join(columns)} FROM t").collect() as rows:
            return [(row[0], *map(_of_text, list(row)[1:], cases)) for row in rows]

    def _create(self, form: str, path: str, cases: list[Case]) -> None:
        columns = ", ".join(["id INT", *(f"`{one.name}` {one.flink}" for one in cases)])
        more = ", 'csv.null-literal' = '~'" if form == "csv" else ""
        self._tables.execute_sql("DROP TEMPORARY TABLE IF EXISTS t")
        self._tables.execute_sql(
            f"CREATE TEMPORARY TABLE t ({columns}) WITH "
            f"('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = '{form}'{more})"
        )


def _is_text(case: Case) -> bool:
    return case.name.startswith(("ts", "ltz")) or case.name in ("arr", "dict", "rec")


def _of_text(text: Any, case: Case) -> Any:
    """A nested value of a text such as `[1, NULL]`, `{k=1}` or `(1, q)`."""
    if text is None or case.name not in ("arr", "dict", "rec"):
        return text
    parts = [None if one == "NULL" else one for one in text[1:-1].split(", ")]
    if case.name == "arr":
        return parts
    if case.name == "rec":
        return [None if parts[0] is None else int(parts[0]), parts[1]]
    pairs = [one.split("=") for one in text[1:-1].split(", ")]
    return {key: None if item == "NULL" else item for key, item in pairs}


if __name__ == "__main__":
    main(Flink())
