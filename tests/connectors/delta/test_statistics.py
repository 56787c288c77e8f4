"""Statistics of other writers: a statistic that cannot be compared excludes no file and no row group."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.connectors.delta.test_source import FEED, Following, append, follow

from penstock.base.types import RowKind
from penstock.connectors.delta import log
from penstock.sql.connectors import delta as pruning
from penstock.sql.formats.columnar_files import Figures
from penstock.table import EnvironmentSettings, TableEnvironment

NAN = float("nan")


def rewrite_statistics(path: Path, least: Any, greatest: Any, nulls: Any = 0) -> None:
    """Let the log give these statistics of the column `v`, as another writer might."""
    log = path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            statistics = json.loads(action["add"]["stats"])
            statistics["minValues"]["v"], statistics["maxValues"]["v"] = least, greatest
            statistics["nullCount"]["v"] = nulls
            action["add"]["stats"] = json.dumps(statistics)
    log.write_text("\n".join(map(json.dumps, actions)))


def matching(path: Path, kind: str, condition: str) -> list[Any]:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    tables.execute_sql(f"CREATE TABLE t (id INT, v {kind}) WITH ('connector' = 'delta', 'table-path' = '{path}')")
    with tables.execute_sql(f"SELECT id FROM t WHERE {condition}").collect() as rows:
        return sorted(row[0] for row in rows)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
@pytest.mark.parametrize(
    ("least", "greatest", "nulls"),
    [
        (3.0, "NaN", 0),
        ("NaN", "NaN", 0),
        ("NaN", 3.0, 0),
        ("-Infinity", "Infinity", 0),
        (3.0, "Infinity", None),
        (9.0, 1.0, 0),
        (3.0, "NaN", 2),
        (3.0, 3.0, 7),
        (3.0, 3.0, -1),
    ],
)
def test_bounds_without_order_exclude_no_file(
    tmp_path: Path, kind: pa.DataType, least: Any, greatest: Any, nulls: Any
) -> None:
    """K4: Spark counts NaN as the greatest value, others swap bounds or count wrongly; each row is found."""
    write_deltalake(tmp_path, pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([NAN, 3.0], kind)}))
    rewrite_statistics(tmp_path, least, greatest, nulls)
    declared = "DOUBLE" if kind == pa.float64() else "FLOAT"
    for condition in ("v = 3", "v > 2", "v < 4", "v >= 3 AND id = 2", "v IN (3, 4)", "id = 2 AND v IS NOT NULL"):
        assert matching(tmp_path, declared, condition) == [2], condition


def test_decimals_that_the_log_rounds_are_found(tmp_path: Path) -> None:
    """K4: delta-rs puts decimals into the log as doubles, so a bound may be on the wrong side of the value."""
    values = [Decimal(text) for text in ("12345678901234.5678", "-12345678901234.5678", "98765432109876.5432")]
    for number, value in enumerate(values):
        columns = {"id": pa.array([number], pa.int32()), "v": pa.array([value], pa.decimal128(18, 4))}
        write_deltalake(tmp_path, pa.table(columns), mode="append")
    for number, value in enumerate(values):
        assert matching(tmp_path, "DECIMAL(18, 4)", f"v = {value}") == [number]
        assert matching(tmp_path, "DECIMAL(18, 4)", f"v >= {value} AND v <= {value}") == [number]


def test_bounds_in_another_unit_do_not_wrap(tmp_path: Path) -> None:
    """K4: 9999-12-31 in microseconds is no nanosecond of 64 bits."""
    bound = pa.scalar(253_402_300_799_000_000, pa.timestamp("us"))
    nanoseconds = pa.timestamp("ns")
    found = pruning._of_file(log.Figures(1, pa.scalar(0, pa.timestamp("us")), bound, 0), nanoseconds)
    assert found.has_bounds
    assert found.greatest > 2**63


def test_digits_of_a_time_are_cut_off_towards_the_past(tmp_path: Path) -> None:
    """K2: before 1970, too."""
    write_deltalake(tmp_path, pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([-1], pa.timestamp("us"))}))
    assert matching(tmp_path, "TIMESTAMP(3)", "v = TIMESTAMP '1969-12-31 23:59:59.999'") == [1]


def test_a_count_of_nulls_that_bounds_contradict_is_not_believed() -> None:
    assert Figures(2, nulls=2).has_only_nulls
    assert not Figures(2, 1, 2, 2).has_only_nulls
    assert not Figures(2, nulls=3).has_only_nulls
    assert not Figures(2, NAN, 2.0).has_bounds


def changes_of(following: Following) -> list[tuple[RowKind, Any]]:
    return [(row.get_row_kind(), *row) for row in following.rows()]


def replace_files(path: Path, rows: list[tuple[Any, ...]], names: list[str], partitions: list[str]) -> None:
    """Overwrite the table: the version removes all files and adds new ones, and has no file of changes."""
    columns = pa.table({name: list(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)})
    write_deltalake(path, columns, mode="overwrite", partition_by=partitions or None)


@pytest.mark.parametrize("partitions", [[], ["p"]])
def test_rows_that_a_version_removes_and_adds_again_are_no_changes(tmp_path: Path, partitions: list[str]) -> None:
    """K4: equal rows cancel one by one: nested values, NULL, NaN and rows that are there twice included."""
    names = ["id", "v", "items", "p"]
    first = [(1, 1.5, [1, None], "a"), (1, 1.5, [1, None], "a"), (2, NAN, None, "a"), (3, None, [], "b")]
    columns = pa.table({name: list(values) for name, values in zip(names, zip(*first, strict=True), strict=True)})
    write_deltalake(tmp_path, columns, configuration=FEED, partition_by=partitions or None)
    following = Following(follow(tmp_path).read_change_feed(True).build())
    assert len(following.rows()) == 4
    replace_files(tmp_path, list(reversed(first)), names, partitions)
    assert changes_of(following) == []
    second = [(1, 1.5, [1, None], "a"), (2, NAN, [], "a"), (3, None, [], "c"), (4, 0.0, [2], "b")]
    replace_files(tmp_path, second, names, partitions)
    changes = changes_of(following)
    removed = [tuple(change[1:]) for change in changes if change[0] is RowKind.DELETE]
    added = [tuple(change[1:]) for change in changes if change[0] is RowKind.INSERT]
    assert sorted(map(repr, removed)) == sorted(map(repr, [first[0], first[2], first[3]]))
    assert sorted(map(repr, added)) == sorted(map(repr, second[1:]))
    assert len(changes) == 6


def test_an_update_that_changes_nothing_gives_no_changes(tmp_path: Path) -> None:
    """K4: delta-rs replaces the file and writes no file of changes."""
    append(tmp_path, range(6), configuration=FEED)
    following = Following(follow(tmp_path).read_change_feed(True).build())
    assert len(following.rows()) == 6
    DeltaTable(tmp_path).update(updates={"name": "name"}, predicate="id > 1")
    assert changes_of(following) == []
