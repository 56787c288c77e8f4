"""Results of windows in GROUP BY before their ends and behind them, by the options of Flink."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.state.rocks import CanonicalRocks
from tests.table.running import run
from tests.table.streaming.windowed import ByRow, Timed

from penstock.sql.data.errors import ValidationError
from penstock.sql.stream.planning.options import Emission
from penstock.testing import operator_harness

S = 1_000
EARLY = {"table.exec.emit.early-fire.enabled": "true", "table.exec.emit.early-fire.delay": "0 s"}
LATE = {
    "table.exec.emit.late-fire.enabled": "true",
    "table.exec.emit.late-fire.delay": "0 s",
    "table.exec.emit.allow-lateness": "5 s",
}
SUMS = "SELECT k, SUM(v) AS total FROM t GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND)"
#: 4 is late by 2 seconds, and 8 by 10 seconds
ROWS = (("a", 1, 1 * S), ("a", 2, 2 * S), ("a", 3, 12 * S), ("a", 4, 9 * S), ("a", 5, 20 * S), ("a", 8, 3 * S))


def changes(options: dict[str, str], *rows: tuple[object, ...], sql: str = SUMS, **more: Any) -> list[str]:
    """What comes, as texts such as `+I 1`."""
    return [f"{kind} {total}" for kind, *_, total in run(sql, t=Timed(*rows), options=options, **more).shown()]


def test_a_window_gives_its_result_after_each_row() -> None:
    assert changes(EARLY, *ROWS[:3]) == ["+I 1", "-U 1", "+U 3", "+I 3"]


def test_a_result_that_stays_the_same_is_not_given_again() -> None:
    highest = "SELECT MAX(v) AS m FROM t GROUP BY TUMBLE(ts, INTERVAL '10' SECOND)"
    assert changes(EARLY, ("a", 5, 0), ("a", 2, 1), ("a", 5, 2), sql=highest) == ["+I 5"]


def test_updates_come_without_the_row_as_it_was_where_nobody_asks() -> None:
    assert changes(EARLY, *ROWS[:2], wants_before=False) == ["+I 1", "+U 3"]


def test_rows_behind_the_end_change_the_result_for_as_long_as_is_allowed() -> None:
    assert changes(LATE, *ROWS) == ["+I 3", "-U 3", "+U 7", "+I 3", "+I 5"]


def test_early_and_late() -> None:
    assert changes(EARLY | LATE, *ROWS) == ["+I 1", "-U 1", "+U 3", "+I 3", "-U 3", "+U 7", "+I 5"]


def test_without_late_results_late_rows_are_dropped_whatever_lateness_is_allowed() -> None:
    assert changes({"table.exec.emit.allow-lateness": "5 s"}, *ROWS) == ["+I 3", "+I 3", "+I 5"]


def test_the_lifetime_of_state_is_the_lateness_that_is_allowed_by_default() -> None:
    lasting = {**LATE, "table.exec.state.ttl": "1 h"}
    del lasting["table.exec.emit.allow-lateness"]
    assert changes(lasting, *ROWS) == ["+I 3", "-U 3", "+U 7", "+I 3", "-U 7", "+U 15", "+I 5"]


def test_each_window_that_a_row_is_in_gives_its_result() -> None:
    hopping = "SELECT SUM(v) AS total FROM t GROUP BY HOP(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
    assert sorted(changes(EARLY, ("a", 1, 6 * S), ("a", 2, 11 * S), sql=hopping)) == [
        "+I 1",
        "+I 1",
        "+I 2",
        "+U 3",
        "-U 1",
    ]


def test_a_group_whose_last_row_goes_is_deleted() -> None:
    rows = (("+I", "a", 1, 0), ("-D", "a", 1, 0), ("+I", "a", 2, 1 * S))
    assert changes(EARLY, *rows) == ["+I 1", "-D 1", "+I 2"]


def test_what_groups_by_the_times_of_such_windows_is_no_window() -> None:
    windows = "SELECT TUMBLE_START(ts, INTERVAL '10' SECOND) AS s, TUMBLE_END(ts, INTERVAL '10' SECOND) AS e, k FROM t"
    inner = f"{windows} GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND)"
    rows = (("a", 1, 1 * S), ("b", 1, 2 * S))
    assert changes({}, *rows, sql=f"SELECT COUNT(*) FROM ({inner}) GROUP BY s, e") == ["+I 1", "-U 1", "+U 2"]


# --- by the clock -----------------------------------------------------------------------------------------------------


def counts(sent: list[tuple[Any, ...]]) -> list[tuple[str, int]]:
    """The kinds of what was sent, and the numbers of rows."""
    return [(row[0], row[-2]) for row in sent]


@pytest.mark.parametrize("is_processing", [False, True])
def test_early_results_come_again_and_again_while_they_change(is_processing: bool) -> None:
    windows = ByRow(10 * S, Emission(early_ms=1 * S), is_processing)
    windows.table.rows(("a", 1, 0))
    windows.table.rows(("a", 2, 0))
    assert counts(windows.wait(1 * S)) == [("+I", 2)]
    assert counts(windows.wait(1 * S)) == []
    windows.table.rows(("a", 3, 0))
    assert counts(windows.wait(1 * S)) == [("+U", 3)]


def test_what_is_due_by_the_clock_survives_a_recovery() -> None:
    windows = ByRow(10 * S, Emission(early_ms=1 * S), False)
    windows.table.rows(("a", 1, 0))
    windows.windows.recover()
    assert counts(windows.wait(1 * S)) == [("+I", 1)]


def test_late_results_wait_too() -> None:
    windows = ByRow(10 * S, Emission(late_ms=1 * S, lateness_ms=5 * S), False)
    windows.table.rows(("a", 1, 0))
    windows.watermark(9_999)
    windows.table.rows(("a", 2, 0))
    assert counts(windows.windows.take()) == [("+I", 1)]
    assert counts(windows.wait(1 * S)) == [("+U", 2)]


def test_a_recovered_window_whose_lateness_is_over_is_dropped() -> None:
    windows = ByRow(10 * S, Emission(late_ms=0, lateness_ms=5 * S), False)
    windows.table.rows(("a", 1, 0))
    windows.watermark(9_999)
    windows.windows.recover()
    windows.watermark(14_999)
    windows.table.rows(("a", 2, 0))
    assert counts(windows.windows.take()) == [("+I", 1)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("row"), st.sampled_from(["a", "b"]), st.integers(0, 3), st.integers(0, 6)),
        st.tuples(st.just("watermark"), st.integers(1, 5)),
        st.tuples(st.just("wait"), st.integers(1, 3)),
    ),
    max_size=14,
)
EMISSIONS = st.builds(
    Emission,
    early_ms=st.sampled_from([None, 0, 1 * S, 2 * S]),
    late_ms=st.sampled_from([None, 0, 1 * S]),
    lateness_ms=st.sampled_from([0, 4 * S, 8 * S]),
)


def run_steps(steps: list[Any], emission: Emission, recoveries: list[int]) -> list[tuple[Any, ...]]:
    """What windows of 4 s send, in order; `recoveries`: the steps after which there is one."""
    windows = ByRow(4 * S, emission, False)
    sent: list[tuple[Any, ...]] = []
    time = 0
    for number, (kind, *numbers) in enumerate(steps):
        if kind == "row":
            key, value, behind = numbers
            windows.table.rows((key, value, max(0, time - (behind - 3) * S)))
        elif kind == "watermark":
            time += numbers[0] * S
            windows.watermark(time - 1)
        else:
            windows.wait_quietly(numbers[0] * S)
        if number in recoveries:
            windows.windows.recover()
        sent += windows.windows.take()
    windows.watermark(100 * S)
    return sent + windows.windows.take()


def _by_window(changes: list[Any]) -> dict[Any, list[Any]]:
    """The changes of each key and window, in order."""
    by_window: dict[Any, list[Any]] = {}
    for change in changes:
        by_window.setdefault(change[1:4], []).append(change)
    return by_window


@given(steps=STEPS, emission=EMISSIONS, data=st.data())
def test_results_are_the_same_after_a_recovery_at_any_step(steps: list[Any], emission: Emission, data: Any) -> None:
    """K1: what was sent, what is due by the clock and what is over are in the snapshot."""
    if emission.late_ms is None:
        emission = replace(emission, lateness_ms=0)
    recoveries = data.draw(st.lists(st.integers(0, max(0, len(steps) - 1)), unique=True))
    # Windows that are due at one moment fire in any order.
    assert _by_window(run_steps(steps, emission, recoveries)) == _by_window(run_steps(steps, emission, []))


@settings(max_examples=30)
@given(steps=STEPS, emission=EMISSIONS, data=st.data())
def test_results_are_the_same_after_a_recovery_on_rocksdb(steps: list[Any], emission: Emission, data: Any) -> None:
    """K1: a restored window has its groups in files alone."""
    if emission.late_ms is None:
        emission = replace(emission, lateness_ms=0)
    recoveries = data.draw(st.lists(st.integers(0, max(0, len(steps) - 1)), unique=True))
    wanted = run_steps(steps, emission, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
        assert sorted(run_steps(steps, emission, recoveries), key=str) == sorted(wanted, key=str)


def test_a_restored_window_that_was_over_gives_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
    windows = ByRow(4 * S, Emission(late_ms=0, lateness_ms=8 * S), False)
    windows.table.rows(("a", 1, 0), ("b", 1, 0))
    windows.windows.recover()
    windows.watermark(5 * S)
    windows.windows.recover()
    windows.watermark(6 * S)
    assert counts(windows.windows.take()) == [("+I", 1), ("+I", 1)]


@pytest.mark.parametrize("recoveries", [[], [0], [1], [2], [1, 2]])
def test_a_window_whose_first_row_is_late_waits_for_the_clock(recoveries: list[int]) -> None:
    """K1: no watermark makes it give its later rows, before a recovery or after it."""
    steps = [("watermark", 4), ("row", "a", 0, 4), ("row", "a", 0, 4)]
    sent = run_steps(steps, Emission(late_ms=1 * S, lateness_ms=4 * S), recoveries)
    assert sent == [("+I", "a", 0, 4 * S, 1, 0)]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "options", "message"),
    [
        (SUMS, {"table.exec.emit.early-fire.enabled": "true"}, "early-fire.delay has to be set"),
        (SUMS, LATE | {"table.exec.emit.allow-lateness": "0 s"}, "needs a time for which windows wait"),
        (SUMS, LATE | {"table.exec.emit.late-fire.delay": "6 s"}, r"Allow-lateness \[5000ms\] should not be smaller"),
        ("SELECT COUNT(*) FROM t GROUP BY SESSION(ts, INTERVAL '1' SECOND)", EARLY, "Session window doesn't support"),
        (
            "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
            "GROUP BY window_start, window_end",
            EARLY,
            "window table function based aggregate doesn't support early-fire and late-fire",
        ),
    ],
)
def test_what_is_refused(sql: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        run(sql, t=Timed(), options=options)
