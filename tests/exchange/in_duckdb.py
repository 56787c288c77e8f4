"""DuckDB's side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
from tests.exchange.cases import Case, select
from tests.exchange.working import Program, main


class DuckDb(Program):
    """Queries of files. DuckDB reads Avro with an extension, which is not part of it, and writes none."""

    formats = ("parquet", "json", "csv")
    writes_each_alone = True

    def __init__(self) -> None:
        self._database = duckdb.connect()
        self._database.execute("SET TimeZone = 'UTC'")

    def write(self, form: str, path: str, cases: list[Case]) -> None:
        """See `Program`."""
        Path(path).mkdir(parents=True)
        options = {"csv": ", HEADER false, NULLSTR '~'"}.get(form, "")
        self._database.execute(f"COPY ({select(cases, 'duckdb')}) TO '{path}/part-0' (FORMAT {form}{options})")

    def read(self, form: str, path: str, cases: list[Case]) -> list[tuple[Any, ...]]:
        """See `Program`."""
        files = sorted(str(one) for one in Path(path).rglob("*") if one.is_file() and one.name[0] not in "._")
        kinds = {"id": "INTEGER", **{one.name: one.duckdb for one in cases}}
        shapes = ", ".join(f"'{name}': '{kind}'" for name, kind in kinds.items())
        csv = "header = false, nullstr = '~', quote = '\"', delim = ','"
        source = {
            "parquet": f"read_parquet({files})",
            "json": f"read_json({files}, format = 'newline_delimited', columns = {{{shapes}}})",
            "csv": f"read_csv({files}, {csv}, columns = {{{shapes}}})",
        }[form]
        columns = ", ".join(
            f"CAST({one.name} AS VARCHAR)" if one.name.startswith("ltz") else f"CAST({one.name} AS {one.duckdb})"
            for one in cases
        )
        return self._database.execute(f"SELECT id, {columns} FROM {source}").fetchall()


if __name__ == "__main__":
    main(DuckDb())
