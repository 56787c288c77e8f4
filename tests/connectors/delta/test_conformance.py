"""Delta Lake's source and sink keep the rules of connectors, on tables in a folder."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from penstock.common import RowKind
from penstock.datastream.connectors.delta import DeltaSink, DeltaSource
from penstock.testing.connectors import (
    SINK_CASES,
    SOURCE_CASES,
    SinkUnderTest,
    SourceUnderTest,
    check_sink,
    check_source,
    last_of_each,
)

pytestmark = pytest.mark.slow

FEED = {"delta.enableChangeDataFeed": "true"}
#: Unlike any other, and several of each key.
ROWS = [(number % 5, f"n{number}") for number in range(24)]


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[Path]:
    """Each time the place of another table."""
    return (tmp_path / f"{number}" for number in count())


def select_key(row: Sequence[Any]) -> Any:
    return row[0]


def read_rows(path: Path) -> list[Any]:
    columns = DeltaTable(path).to_pyarrow_table()
    return list(zip(*(column.to_pylist() for column in columns.columns), strict=True))


def commits_of(path: Path) -> int:
    """Versions, but for those in which files were only put together."""
    return sum(entry["operation"] != "OPTIMIZE" for entry in DeltaTable(path).history())


@pytest.mark.parametrize("case", SINK_CASES)
def test_rows_are_added(paths: Iterator[Path], case: str) -> None:
    """Files that are added twice are there once, unless they were put together meanwhile; so that is done often."""

    def prepare() -> SinkUnderTest:
        path = next(paths)
        sink = DeltaSink.for_row_data(path, {"id": int, "name": str}).with_compaction(1).build()
        return SinkUnderTest(
            sink,
            ROWS,
            lambda: read_rows(path),
            commits=lambda: commits_of(path),
            close=lambda: shutil.rmtree(path, ignore_errors=True),
        )

    check_sink(prepare, case, parallelisms=[2], places=2)


@pytest.mark.parametrize("case", SINK_CASES)
def test_rows_are_replaced_by_their_key(paths: Iterator[Path], case: str) -> None:
    def prepare() -> SinkUnderTest:
        path = next(paths)
        sink = DeltaSink.for_row_data(path, {"id": int, "name": str}).with_key_columns("id").build()
        return SinkUnderTest(
            sink,
            ROWS,
            lambda: read_rows(path),
            shown=last_of_each(select_key),
            key=select_key,
            commits=lambda: commits_of(path),
            close=lambda: shutil.rmtree(path, ignore_errors=True),
        )

    check_sink(prepare, case, parallelisms=[2], places=2)


def add(path: Path, ids: Sequence[int], **more: Any) -> None:
    rows = pa.table({"id": list(ids), "name": [f"n{number}" for number in ids]})
    write_deltalake(path, rows, mode="append", configuration=FEED, **more)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table")
    for start in range(0, 16, 4):
        add(path, range(start, start + 4), writer_properties=WriterProperties(max_row_group_size=3))
    return path


@pytest.mark.parametrize("case", SOURCE_CASES)
def test_a_version_is_read(table: Path, case: str) -> None:
    def prepare() -> SourceUnderTest:
        source = DeltaSource.for_bounded_row_data(table).build()
        return SourceUnderTest(source, range(16), result=lambda rows: [row.id for row in rows])

    check_source(prepare, case, parallelisms=[1, 2], batch_sizes=[1, 3], places=6)


@pytest.mark.parametrize("case", [case for case in SOURCE_CASES if case != "dealt-ahead"])
def test_a_table_is_followed(paths: Iterator[Path], case: str) -> None:
    """The table as it is first; files that are only put together are not new."""

    def prepare() -> SourceUnderTest:
        path = next(paths)
        add(path, range(4))
        more: list[Callable[[], Any]] = [
            lambda: add(path, range(4, 7)),
            lambda: DeltaTable(path).optimize.compact(),
            lambda: add(path, range(7, 10)),
        ]
        return SourceUnderTest(
            DeltaSource.for_continuous_row_data(path).update_check_interval(1_000).build(),
            range(10),
            extend=more,
            result=lambda rows: [row.id for row in rows],
            close=lambda: shutil.rmtree(path),
        )

    check_source(prepare, case, parallelisms=[1, 2], batch_sizes=[2], places=3)


def fold_changes(changes: Sequence[Any]) -> list[Any]:
    """The rows that changes come to; one that goes and was not there is shown with its kind."""
    rows: Counter[Any] = Counter()
    for change in changes:
        row = tuple(change)
        if change.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            rows[row] += 1
        else:
            rows[row if rows[row] else ("gone", *row)] -= 1
    return [row for row, often in rows.items() for _ in range(abs(often))]


@pytest.mark.parametrize("case", [case for case in SOURCE_CASES if case != "dealt-ahead"])
def test_changes_are_followed(paths: Iterator[Path], case: str) -> None:
    def prepare() -> SourceUnderTest:
        path = next(paths)
        add(path, range(4))
        more: list[Callable[[], Any]] = [
            lambda: DeltaTable(path).update(updates={"name": "'x'"}, predicate="id < 2"),
            lambda: DeltaTable(path).delete("id = 1 or id = 3"),
        ]
        return SourceUnderTest(
            DeltaSource.for_continuous_row_data(path).read_change_feed(True).build(),
            [(0, "x"), (2, "n2")],
            extend=more,
            result=fold_changes,
            close=lambda: shutil.rmtree(path),
        )

    check_source(prepare, case, batch_sizes=[1], places=3)
