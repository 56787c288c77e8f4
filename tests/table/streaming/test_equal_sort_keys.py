"""K1: rows with equal sort keys are in the order in which they come, in every operator that sorts, as in Flink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest
from tests.table.running import Answer, Rows, run_over

from penstock.sql.data.types import IntType, TimestampType
from penstock.sql.stream.planning.options import EXCLUDED, Optimization

SECOND_NS: Final = 1_000_000_000
#: k, v, id, second of ts: v and ts are often equal, and rows come late within the watermark
ROWS: Final = [
    (1, 5, 0, 2),
    (1, 5, 1, 2),
    (2, 5, 2, 1),
    (1, 3, 3, 4),
    (2, 5, 4, 1),
    (1, 3, 5, 1),
    (1, 5, 6, 2),
    (2, 3, 7, 4),
    (1, 3, 8, 4),
    (2, 3, 9, 4),
    (1, 3, 10, 1),
]
SETTINGS: Final = {
    "heap": {},
    "general": {EXCLUDED.key(): ";".join(optimization.value for optimization in Optimization)},
    "rocksdb": {"state.backend.type": "rocksdb"},
    "micro-batch": {"execution.runtime-mode": "MICRO_BATCH"},
}
WINDOWS: Final = "TABLE(TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '3' SECOND))"


def events(at_once: int | None) -> Rows:
    rows = [(k, v, number, second * SECOND_NS) for k, v, number, second in ROWS]
    columns = {"k": IntType(), "v": IntType(), "id": IntType(), "ts": TimestampType(3)}
    return Rows(columns, rows, at_once, "WATERMARK FOR ts AS ts - INTERVAL '9' SECOND")


def answer(sql: str, setting: str, at_once: int | None) -> Answer:
    columns = {"k": IntType(), "v": IntType(), "id": IntType()}
    changes: list[Any] = [("+I", row[:3]) for row in ROWS]
    changes[4:4] = [("-D", ROWS[1][:3]), ("+I", (2, 5, 11))]
    return run_over({"e": events(at_once), "c": Rows(columns, changes, at_once)}, sql, options=SETTINGS[setting])


every_setting = pytest.mark.parametrize("setting", SETTINGS)
every_size = pytest.mark.parametrize("at_once", [1, 4, None])


def ranked(rows: Sequence[tuple[int, ...]], end: int) -> Sequence[tuple[int, ...]]:
    """The k, the number and the id of the first rows of each k by v."""
    found: list[tuple[int, ...]] = []
    for k in (1, 2):
        in_order = sorted((row for row in rows if row[0] == k), key=lambda row: row[1])
        found += [(k, number, row[2]) for number, row in enumerate(in_order[:end], 1)]
    return found


@every_setting
@every_size
@pytest.mark.parametrize("end", [1, 2, 4])
def test_the_first_rows_of_a_partition(setting: str, at_once: int | None, end: int) -> None:
    numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM {{}}) WHERE n <= {end}"
    inserted = answer(f"SELECT k, n, id FROM ({numbered.format('e')}", setting, at_once)
    assert sorted(inserted.rows()) == ranked(ROWS, end)
    changed = answer(f"SELECT k, n, id FROM ({numbered.format('c')}", setting, at_once)
    rows = [row for row in [*ROWS[:4], (2, 5, 11), *ROWS[4:]] if row[2] != 1]
    assert sorted(changed.rows()) == ranked(rows, end)


@every_setting
@every_size
@pytest.mark.parametrize(
    ("kind", "wanted"), [("v * 10 + k", [(1, 31), (2, 51), (3, 52), (4, 32)]), ("id", [(1, 0), (2, 1), (3, 2), (4, 3)])]
)
def test_rows_that_count_up(setting: str, at_once: int | None, kind: str, wanted: list[tuple[int, int]]) -> None:
    """The one that reached a count first is ahead."""
    counts = f"SELECT {kind} AS kind, COUNT(*) AS c FROM e GROUP BY {kind}"
    sql = f"SELECT n, kind FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY c DESC) AS n FROM ({counts})) WHERE n <= 4"
    assert sorted(answer(sql, setting, at_once).rows()) == wanted


@every_setting
@every_size
@pytest.mark.parametrize("order", ["ts", "ts, v"])
def test_order_by(setting: str, at_once: int | None, order: str) -> None:
    in_order = sorted(ROWS, key=lambda row: (row[3], row[1] if order == "ts, v" else 0))
    assert answer(f"SELECT id FROM e ORDER BY {order}", setting, at_once).rows() == [(row[2],) for row in in_order]


@every_setting
@every_size
def test_order_by_with_limit(setting: str, at_once: int | None) -> None:
    in_order = sorted(ROWS, key=lambda row: row[1])
    found = answer("SELECT id FROM e ORDER BY v LIMIT 7", setting, at_once).rows()
    assert sorted(found) == sorted((row[2],) for row in in_order[:7])


@every_setting
@every_size
def test_the_first_rows_of_a_window(setting: str, at_once: int | None) -> None:
    numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v) AS n FROM {WINDOWS}"
    found = answer(f"SELECT n, id FROM ({numbered}) WHERE n <= 3", setting, at_once).rows()
    wanted = []
    for start in (0, 3):
        in_order = sorted((row for row in ROWS if start <= row[3] < start + 3), key=lambda row: row[1])
        wanted += [(number, row[2]) for number, row in enumerate(in_order[:3], 1)]
    assert sorted(found) == sorted(wanted)


@every_setting
@every_size
def test_rows_before_the_present_one(setting: str, at_once: int | None) -> None:
    sql = "SELECT id, SUM(id) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM e"
    wanted = []
    for k in (1, 2):
        ids = [row[2] for row in sorted((row for row in ROWS if row[0] == k), key=lambda row: row[3])]
        wanted += [(number, number + before) for number, before in zip(ids, [0, *ids], strict=False)]
    assert sorted(answer(sql, setting, at_once).rows()) == sorted(wanted)


@every_setting
@every_size
@pytest.mark.parametrize(("order", "ids"), [("ts", [(1, 5), (2, 2)]), ("ts DESC", [(1, 8), (2, 9)])])
def test_the_first_and_the_last_row_by_time(
    setting: str, at_once: int | None, order: str, ids: list[tuple[int, int]]
) -> None:
    numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {order}) AS n FROM e"
    assert sorted(answer(f"SELECT k, id FROM ({numbered}) WHERE n = 1", setting, at_once).rows()) == ids
