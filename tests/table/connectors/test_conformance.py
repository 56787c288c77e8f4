"""The sources behind tables, where they are others than those of streams, keep the rules of connectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.table.connectors.tables import build_reader
from tests.table.connectors.test_datagen import ddl as datagen_ddl
from tests.table.connectors.test_datagen import plan_source

from penstock.testing.connectors import (
    SOURCE_CASES,
    SourceUnderTest,
    check_source,
)


def tuples(rows: list[Any]) -> list[Any]:
    return [tuple(row) for row in rows]


def generated() -> SourceUnderTest:
    sequence = ("'fields.id.kind' = 'sequence'", "'fields.id.start' = '1'", "'fields.id.end' = '20'")
    source = plan_source(datagen_ddl("id BIGINT", *sequence))
    return SourceUnderTest(source, [(n,) for n in range(1, 21)], result=tuples)


def files(folder: Path) -> Callable[[], SourceUnderTest]:
    rows = [(part, f"{part}{n}") for part in range(3) for n in range(5)]
    for part in range(3):
        place = folder / f"part={part}"
        place.mkdir()
        (place / "f.csv").write_text("".join(f"{name}\n" for at, name in rows if at == part))
    ddl = (
        f"CREATE TABLE t (part INT, name STRING) PARTITIONED BY (part) "
        f"WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'csv')"
    )
    return lambda: SourceUnderTest(build_reader(ddl).source, rows, result=tuples)


@pytest.mark.parametrize("case", SOURCE_CASES)
def test_generated_rows(case: str) -> None:
    check_source(generated, case, places=8)


@pytest.mark.parametrize("case", SOURCE_CASES)
def test_rows_of_partitioned_files(tmp_path: Path, case: str) -> None:
    check_source(files(tmp_path), case, places=5)
