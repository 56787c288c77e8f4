"""Nexmark beside Flink SQL: what is done here of it. No Flink is needed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from benchmarks.nexmark_sql.beside_flink import Compared, Side, lines, table
from benchmarks.nexmark_sql.flink_process import FlinkInstall, statements, write_events
from benchmarks.nexmark_sql.memory import Memory
from benchmarks.nexmark_sql.queries import query

OURS = Side(0.5, 0.25, 0.1, Memory(2_000_000, 1_000_000, 500_000))
FLINK = Side(1.0, 1.0, 0.2, Memory(4_000_000, 3_000_000, 700_000))


def test_the_parts_of_a_row_that_is_null_are_null_in_the_file(tmp_path: Path) -> None:
    """Flink's reader asks a part alone, and a part below NULL may hold anything."""
    parts = pa.StructArray.from_arrays([pa.array([1, 2])], ["id"], mask=pa.array([False, True]))
    write_events(pa.table({"bid": parts}), tmp_path / "events.arrow")
    read = pa.ipc.open_file(tmp_path / "events.arrow").read_all()["bid"].combine_chunks()
    assert read.to_pylist() == [{"id": 1}, None]
    assert read.field(0).to_pylist() == [1, None]


def test_flink_gets_the_statements_but_for_where_events_come_from(tmp_path: Path) -> None:
    """Options of files that Penstock does not know go to Flink as they are."""
    sink = "CREATE TABLE s (a BIGINT) WITH ('connector' = 'filesystem', 'sink.partition-commit.delay' = '1min')"
    (tmp_path / "ddl_gen.sql").write_text("CREATE TABLE datagen (a BIGINT) WITH ('connector' = 'nexmark');")
    (tmp_path / "ddl_views.sql").write_text("CREATE VIEW bid AS SELECT a FROM ${NEXMARK_TABLE};")
    (tmp_path / "q0.sql").write_text(f"{sink}; INSERT INTO s SELECT a FROM bid;")
    found = query(tmp_path, "q0", tmp_path)
    events, view, _, given, insert = statements(tmp_path, found, tmp_path / "e", 10, 1)
    assert events == f"CREATE TABLE datagen (a BIGINT) WITH ('connector' = 'nexmark-arrow', 'path' = '{tmp_path}/e')"
    assert (view, given, insert) == (
        "CREATE VIEW bid AS SELECT a FROM datagen",
        sink,
        "INSERT INTO s SELECT a FROM bid",
    )
    assert found.own_sink == "CREATE TABLE s (a BIGINT) WITH ('connector' = 'filesystem')"


def test_without_flink_it_says_how_to_install_it(tmp_path: Path) -> None:
    """One command."""
    with pytest.raises(FileNotFoundError, match=r"python3 -m venv .* && .*/bin/pip install apache-flink"):
        FlinkInstall(tmp_path / "bin" / "python", "1g").command()


def test_both_sides_are_shown_and_a_query_that_is_refused_does_not_count() -> None:
    """The ratio is that of times; above 1 Penstock is faster."""
    found = [
        Compared("q0", OURS, FLINK),
        Compared("q6", "refused: a", "refused: b"),
        Compared("q13", OURS, "refused: b"),
    ]
    shown = list(table(1_000_000, iter(found), with_memory=True))
    assert shown[2] == (
        "| q0 | 2,000,000 | 1,000,000 | 2.00 | 2.00 | 0.25 / 1.00 | 4.00 | 2.0 / 4.0 | 1.0 / 3.0 | 0.5 / 0.7 |"
    )
    assert {line.count("|") for line in shown[:5]} == {11}
    assert shown[-1] == list(lines(1_000_000, iter(found)))[-1]
    assert shown[-1] == "1 of 1 at least as fast as Flink, ratio: median 2.00"
