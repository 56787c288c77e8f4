"""`datagen`: rows by chance and in sequence, the same in each run and after each restart."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from tests.table.connectors.tables import build_reader, scan_of

from penstock.codecs.arrow_columns import NULLABLE_KEY
from penstock.runtime.columns import SplitColumnBatch
from penstock.runtime.connector import Boundedness, InputStatus
from penstock.runtime.records import Batch
from penstock.sql.connectors.built_in import built_in
from penstock.sql.connectors.datagen import GeneratedColumnsSource, RowsSplit
from penstock.sql.data.errors import ValidationError
from penstock.sql.tables.tables import LimitPushDown, ProjectionPushDown
from penstock.testing.connectors import ReaderHost, SourceRun

FAST = "'rows-per-second' = '100000000'"


def ddl(columns: str, *options: str) -> str:
    all_options = ", ".join(["'connector' = 'datagen'", FAST, *options])
    return f"CREATE TABLE t ({columns}) WITH ({all_options})"


def plan_source(text: str) -> GeneratedColumnsSource:
    """The source, with a clock that says when its first row is due."""
    source = build_reader(text).source
    assert isinstance(source, GeneratedColumnsSource)
    source._now_ms = moment
    return source


def moment() -> int:
    return 1_600_000_000_123


def ticking(source: Any, parallelism: int = 1, hostile: bool = False, size: int = 7) -> list[tuple[Any, ...]]:
    """The rows, read while time goes on."""
    cluster = SourceRun(source, parallelism)
    try:
        while len(cluster.ended) < parallelism:
            for host in cluster.hosts:
                host.now += 1_000
                if isinstance(cluster.poll(host.subtask_index, size), Batch) and hostile:
                    cluster.restart()
            cluster.deliver()
        return [tuple(row) for row in cluster.all_values]
    finally:
        cluster.close()


ALL_TYPES = (
    "b BOOLEAN, ti TINYINT, si SMALLINT, i INT, bi BIGINT, f FLOAT, d DOUBLE, de DECIMAL(38, 10), c CHAR(4), "
    "v VARCHAR(9), s STRING, bb BINARY(3), vb VARBINARY(5), by_ BYTES, da DATE, tm TIME(0), ts TIMESTAMP(3), "
    "ts9 TIMESTAMP(9), lt TIMESTAMP_LTZ(3), ym INTERVAL YEAR TO MONTH, ds INTERVAL DAY TO SECOND, ar ARRAY<INT>, "
    "mp MAP<STRING, INT>, ms MULTISET<STRING>, ro ROW<x INT, y ROW<z STRING>>"
)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("hostile", [False, True])
def test_rows_of_all_types_are_the_same_after_restarts(parallelism: int, hostile: bool) -> None:
    """G8: a position is the number of a row, and a row depends on its number alone."""
    table = ddl(ALL_TYPES, "'number-of-rows' = '50'", "'fields.s.var-len' = 'true'", "'fields.ts.max-past' = '1 d'")
    expected = ticking(plan_source(table), size=50)
    assert len(expected) == 50
    found = ticking(plan_source(table), parallelism, hostile)
    assert Counter(map(repr, found)) == Counter(map(repr, expected))


def test_a_sequence_counts_and_ends_the_table() -> None:
    """As numbers, decimals or text; the shortest one says how many rows there are."""
    table = ddl(
        "n BIGINT, d DECIMAL(5, 2), s STRING",
        *(f"'fields.{one}.kind' = 'sequence', 'fields.{one}.start' = '-1'" for one in "nds"),
        "'fields.n.end' = '1', 'fields.d.end' = '5', 'fields.s.end' = '9'",
    )
    source = plan_source(table)
    assert source.boundedness is Boundedness.BOUNDED
    assert ticking(source) == [(-1, Decimal("-1.00"), "-1"), (0, Decimal("0.00"), "0"), (1, Decimal("1.00"), "1")]


def test_numbers_keep_to_their_bounds() -> None:
    """Both bounds are among them."""
    table = ddl(
        "i INT, d DOUBLE, e DECIMAL(4, 1)",
        "'number-of-rows' = '2000'",
        *(f"'fields.{one}.min' = '-2', 'fields.{one}.max' = '2'" for one in "ide"),
    )
    rows = ticking(plan_source(table), size=5_000)
    assert {row[0] for row in rows} == {-2, -1, 0, 1, 2}
    assert all(-2 <= row[1] <= 2 for row in rows)
    assert {row[2] for row in rows} == {Decimal(n) / 10 for n in range(-20, 21)}


def test_null_rate_and_lengths() -> None:
    """A part of the values is NULL; texts are as long as the option says, or at most so long."""
    table = ddl(
        "a INT, s STRING, v STRING, c CHAR(3), m ARRAY<INT>, l STRING",
        "'number-of-rows' = '2000', 'fields.a.null-rate' = '0.25', 'fields.s.length' = '5'",
        "'fields.v.length' = '5', 'fields.v.var-len' = 'true', 'fields.m.length' = '2'",
    )
    rows = ticking(plan_source(table), size=5_000)
    assert 400 < sum(row[0] is None for row in rows) < 600
    assert {len(row[1]) for row in rows} == {5}
    assert {len(row[2]) for row in rows} == {1, 2, 3, 4, 5}
    assert {(len(row[3]), len(row[4]), len(row[5])) for row in rows} == {(3, 2, 100)}


def test_a_key_is_in_a_map_once() -> None:
    """Although it may be drawn twice."""
    rows = ticking(plan_source(ddl("m MAP<BOOLEAN, INT>", "'number-of-rows' = '20', 'fields.m.length' = '5'")))
    assert all(len({key[NULLABLE_KEY] for key, _ in row[0]}) == len(row[0]) for row in rows)


def test_times_go_on_with_the_rows() -> None:
    """A row has the time at which it is due at the rate of the table."""
    table = ddl("ts TIMESTAMP(3), t0 TIMESTAMP(0)", "'number-of-rows' = '5'").replace("100000000", "2")
    rows = ticking(plan_source(table))
    assert [(row[0].timestamp() - rows[0][0].timestamp()) for row in rows] == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert {row[1].microsecond for row in rows} == {0}


def test_without_an_end_rows_come_for_ever() -> None:
    """Ten thousand a second, unless the table says otherwise."""
    assert plan_source(ddl("a INT")).boundedness is Boundedness.CONTINUOUS_UNBOUNDED


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("a INT", "'fields.b.min' = '1'", "Unsupported options found .*fields.b.min"),
        ("a INT", "'fields.a.minimum' = '1'", "Unsupported options found .*fields.a.minimum"),
        ("a INT", "'fields.a.kind' = 'odd'", "'fields.a.kind' .* it must be 'random' or 'sequence'"),
        ("a INT", "'fields.a.kind' = 'sequence'", "Missing required options are: fields.a.start"),
        ("a INT", "'fields.a.start' = '1'", "'fields.a.start' .* only a field of kind 'sequence' has it"),
        ("a STRING", "'fields.a.min' = '1'", "'fields.a.min' .* a field of type STRING has none"),
        ("a INT", "'fields.a.max' = 'x'", "'fields.a.max' .* 'x' is no number"),
        ("a TINYINT", "'fields.a.max' = '128'", "'fields.a.max' .* 128 is not between -128 and 127"),
        ("a INT", "'fields.a.min' = '3', 'fields.a.max' = '2'", "above 'max': 3 > 2"),
        ("a CHAR(3)", "'fields.a.length' = '2'", "the length of a CHAR.3. is that of its type"),
        ("a VARCHAR(3)", "'fields.a.length' = '4'", "it must be from 1 to 3"),
        ("a INT", "'fields.a.max-past' = '1 s'", "only timestamps have it"),
        ("a INT", "'fields.a.var-len' = 'true'", "only VARCHAR, STRING, VARBINARY and BYTES have it"),
        ("a INT", "'fields.a.null-rate' = '2'", "it must be from 0 to 1"),
        (
            "a DATE",
            "'fields.a.kind' = 'sequence', 'fields.a.start' = '1', 'fields.a.end' = '2'",
            "a field of type DATE cannot be a sequence",
        ),
        ("a ROW<b INT>", "'fields.a.b.max' = 'x'", "'fields.a.b.max'"),
        ("a INT", "'number-of-rows' = '-1'", "'number-of-rows' .* it must not be negative"),
    ],
)
def test_options_that_say_nothing_are_refused(columns: str, options: str, said: str) -> None:
    """With the field and the reason."""
    with pytest.raises(ValidationError, match=said):
        build_reader(ddl(columns, options))


def test_columns_and_limits_are_pushed_down() -> None:
    """Columns that nobody wants are not made, and the others stay as they are."""
    table = ddl("a INT, b STRING, c INT", "'number-of-rows' = '9'")
    scan = built_in().scan(scan_of(table))
    assert isinstance(scan, ProjectionPushDown)
    narrow = scan.with_columns((2, 0))
    assert isinstance(narrow, LimitPushDown)
    whole = ticking(plan_source(table))
    assert ticking(narrow.with_limit(4).reader().source) == [(row[2], row[0]) for row in whole[:4]]
    assert narrow == replace(narrow)  # type: ignore[type-var]


def test_rows_are_read_by_any_number_of_subtasks() -> None:
    """Each makes its share."""
    table = ddl("n BIGINT", "'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '10'")
    cluster = SourceRun(plan_source(table), 4)
    assert cluster.source.max_parallelism() is None
    cluster.close()
    assert sorted(ticking(plan_source(table), 4)) == [(n,) for n in range(1, 11)]


def test_a_subtask_with_several_series_reads_the_earliest_rows_first() -> None:
    """After a restart with fewer subtasks: each series has a watermark of its own, and none is left for later."""
    host = ReaderHost()
    reader = plan_source(
        ddl("n BIGINT", "'fields.n.kind' = 'sequence'", "'fields.n.start' = '0'", "'fields.n.end' = '9'")
    )
    read = reader.create_reader(host)
    read.add_splits([RowsSplit(one, 2, 10, moment()) for one in (0, 1)])
    read.no_more_splits()
    assert host.open_splits == ["0 of 2", "1 of 2"]
    numbers: list[Any] = []
    while (found := read.poll_next(4)) is not InputStatus.END_OF_INPUT:
        host.now += 1_000
        if isinstance(found, SplitColumnBatch):
            numbers.append((found.split_id, [row[0] for row in found.values]))
    assert numbers[:3] == [("0 of 2", [0, 2]), ("1 of 2", [1, 3]), ("0 of 2", [4, 6])]
    assert sorted(one for _, part in numbers for one in part) == list(range(10))
    assert host.open_splits == []


def test_a_series_that_is_paused_is_not_read() -> None:
    host = ReaderHost()
    read = plan_source(ddl("n BIGINT")).create_reader(host)
    read.add_splits([RowsSplit(one, 2, None, moment()) for one in (0, 1)])
    host.now = 1_000
    read.pause_or_resume_splits(["0 of 2"], [])
    assert [getattr(read.poll_next(4), "split_id", None) for _ in range(2)] == ["1 of 2", "1 of 2"]
    read.pause_or_resume_splits(["1 of 2"], [])
    assert read.poll_next(4) is InputStatus.NOTHING_AVAILABLE
    read.pause_or_resume_splits([], ["0 of 2"])
    assert getattr(read.poll_next(4), "split_id", None) == "0 of 2"
