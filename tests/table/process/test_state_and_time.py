"""State, timers and times of process table functions, on the heap and in RocksDB, through checkpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from tests.state.rocks import CanonicalRocks
from tests.table.process import functions
from tests.table.process.called import Called

from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.records import MAX_WATERMARK
from penstock.sql.data.arrow import to_values
from penstock.sql.data.conversion import to_external
from penstock.sql.data.types import LocalZonedTimestampType, TimestampType
from penstock.sql.stream.process.calls import _has_plain_fields
from penstock.sql.user_functions.calls import seen_values
from penstock.state.backend import HeapKeyedStateBackend
from penstock.testing import operator_harness

TIMED = "SELECT * FROM f(r => TABLE w PARTITION BY k, on_time => DESCRIPTOR(ts))"


@pytest.fixture(autouse=True, params=[HeapKeyedStateBackend, CanonicalRocks])
def several(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """State is on the heap, or in RocksDB, which harnesses restore in one subtask alone. How many there may be."""
    monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", request.param)
    return 2 if request.param is HeapKeyedStateBackend else 1


# --- state -----------------------------------------------------------------------------------------------------------


def test_each_partition_has_its_own_state_through_rescaling(several: int) -> None:
    """An object of a class is state of a partition, and is there after a restore with another parallelism."""
    called = Called("SELECT * FROM f(TABLE t PARTITION BY k)", f=functions.Counting)
    called.rows(("a", 1, 0), ("b", 1, 0), ("a", 1, 0), (None, 1, 0))
    assert called.take() == ["+I a, 1", "+I b, 1", "+I a, 2", "+I None, 1"]
    called.recover(parallelism=several + several // 2)
    called.rows(("a", 1, 0), ("b", 1, 0), (None, 1, 0))
    assert sorted(called.take()) == ["+I None, 2", "+I a, 3", "+I b, 2"]
    called.recover(parallelism=several)
    called.rows(("a", 1, 0))
    assert called.take() == ["+I a, 4"]


def test_state_that_changes_in_place_is_stored() -> None:
    """A dictionary in a state object changes in place, and the change is in the next checkpoint."""
    called = Called("SELECT * FROM f(TABLE c PARTITION BY k)", f=functions.Filling)
    called.rows(("a", "tea"), ("b", "rum"))
    called.recover()
    called.rows(("a", "tea"))
    called.recover()
    called.rows(("a", "milk"))
    assert called.take() == ["+I a, [('milk', 1), ('tea', 2)] after tea"]
    called.rows(("a", "drop"), ("a", "tea"))
    assert called.take() == ["+I a, [('drop', 1), ('milk', 1), ('tea', 2)] after milk", "+I a, [('tea', 1)] after None"]


def test_an_object_with_one_field_is_stored(several: int) -> None:
    """Its value changes in place, is replaced, or becomes None, which leaves no state; checkpoints have each change."""
    called = Called("SELECT * FROM f(TABLE u PARTITION BY k)", f=functions.Stacking)
    for word, before in (
        ("tea", None),
        ("rum", ["tea"]),
        ("new", ["tea", "rum"]),
        ("ale", ["new"]),
        ("none", ["new", "ale"]),
    ):
        called.rows(("a", word), ("b", "tea"))
        assert f"+I a, {before}" in called.take()
        called.recover(parallelism=several)
    keys = [key for harness in called.harnesses for key in harness.context.keyed.table("stack").entries(None)]
    assert keys == ["b"]


def test_rows_lists_and_maps_are_state(several: int) -> None:
    """State of a Row, a ListView and a MapView; `clear_state` and `clear_all_state` remove it after the call."""
    called = Called("SELECT * FROM f(TABLE u PARTITION BY k)", f=functions.Remembering)
    called.rows(("a", "tea"), ("a", "rum"), ("b", "tea"))
    called.recover()
    called.rows(("a", "tea"))
    assert called.take() == ["+I a, tea 3 ['tea', 'rum', 'tea'] [('rum', 1), ('tea', 2)]"]
    called.rows(("a", "words"), ("a", "tea"))
    assert called.take() == [
        "+I a, tea 4 ['tea', 'rum', 'tea', 'words'] [('rum', 1), ('tea', 2), ('words', 1)]",
        "+I a, tea 5 ['tea'] [('rum', 1), ('tea', 3), ('words', 1)]",
    ]
    called.rows(("a", "all"))
    called.take()
    called.recover(parallelism=several)
    called.rows(("a", "new"))
    assert called.take() == ["+I a, new 1 ['new'] [('new', 1)]"]


def test_state_lives_as_long_as_it_declares(several: int) -> None:
    """A lifetime of an entry's own wins over that of the job, and 0 is for ever."""
    called = Called("SELECT * FROM f(TABLE t PARTITION BY k)", {"table.exec.state.ttl": "60 s"}, f=functions.Expiring)
    called.rows(("a", 1, 0))
    called.wait(6_000)
    called.rows(("a", 2, 0))
    called.wait(6_000)
    if several > 1:
        # Harnesses with RocksDB do not restore which state has a lifetime.
        called.recover()
    called.take()
    called.rows(("a", 3, 0))
    assert called.take() == ["+I a, 3 3 3 [2, 3]"]
    called.wait(11_000)
    called.rows(("a", 4, 0))
    assert called.take() == ["+I a, 1 4 4 [4]"]
    called.wait(61_000)
    called.rows(("a", 5, 0))
    assert called.take() == ["+I a, 1 1 5 [5]"]


def test_tables_of_a_call_share_state(several: int) -> None:
    """Several tables: the argument of each other table is None, and columns of PARTITION BY are there for each."""
    called = Called(
        "SELECT * FROM f(`left` => TABLE t PARTITION BY k, `right` => TABLE u PARTITION BY k, mark => '!')",
        f=functions.Joining,
    )
    assert called.node.schema.names == ["k", "k0", "EXPR$0"]
    called.rows(("a", 1, 0), table=0)
    called.recover(parallelism=several)
    called.rows(("a", "tea"), ("b", "rum"), table=1)
    assert sorted(called.take()) == ["+I a, a, !right +I[a, tea] 2", "+I b, b, !right +I[b, rum] 1"]


# --- timers ----------------------------------------------------------------------------------------------------------


def test_times_are_none_before_they_are_known() -> None:
    """The time is that of the row, the watermark is None before the first one and after a restore."""
    called = Called(TIMED, f=functions.Timing)
    called.rows(("a", "show", 5))
    called.watermark(7)
    called.rows(("a", "show", 5))
    called.recover()
    called.rows(("a", "show", 9))
    assert called.take() == ["+I a, at 9 watermark None None, 9"]
    called = Called("SELECT * FROM f(TABLE w PARTITION BY k)", f=functions.Timing)
    called.rows(("a", "show", 5))
    called.watermark(7)
    called.rows(("a", "show", 5))
    assert called.take() == ["+I a, at None watermark None None", "+I a, at None watermark 7 7"]


def test_timers_fire_when_the_watermark_reaches_them(several: int) -> None:
    """Named and unnamed timers of several partitions, through a restore with another parallelism."""
    called = Called(TIMED, f=functions.Timing)
    called.rows(("a", "set:x@10 set:y@20 set:@15 set:@15", 1), ("b", "set:x@20", 1))
    called.watermark(9)
    assert called.take() == []
    called.recover(parallelism=several)
    called.watermark(15)
    assert called.take() == [
        "+I a, timer None at 15 watermark 15 rows 1, 15",
        "+I a, timer x at 10 watermark 15 rows 1, 10",
    ]
    called.recover()
    called.watermark(MAX_WATERMARK)
    assert sorted(called.take()) == [
        f"+I a, timer y at 20 watermark {MAX_WATERMARK} rows 1, 20",
        f"+I b, timer x at 20 watermark {MAX_WATERMARK} rows 1, 20",
    ]


def test_timers_are_replaced_and_cleared() -> None:
    """A name has one timer, the last one; timers are cleared by name, by time, and all together."""
    called = Called(TIMED, f=functions.Timing)
    called.rows(("a", "set:x@10 set:x@20 set:y@10 set:@10 set:@11 clear:y clear:@11 clear:gone clear:@99", 1))
    called.rows(("b", "set:x@10 set:@10 clear-timers", 1), ("c", "set:x@10 set:@10 clear-all set:y@10", 1))
    called.watermark(12)
    assert called.take() == [
        "+I a, timer None at 10 watermark 12 rows 1, 10",
        "+I c, timer y at 10 watermark 12 rows 0, 10",
    ]
    called.watermark(20)
    assert called.take() == ["+I a, timer x at 20 watermark 20 rows 1, 20"]


def test_late_timers_fire_with_the_next_watermark() -> None:
    """A timer for a time that has passed fires at once when a timer sets it, and at the next watermark otherwise."""
    called = Called(TIMED, f=functions.Timing)
    called.watermark(100)
    called.rows(("a", "set:x@10 set:again@50", 100))
    assert called.take() == []
    called.watermark(101)
    assert called.take() == [
        "+I a, timer x at 10 watermark 101 rows 1, 10",
        "+I a, timer again at 50 watermark 101 rows 1, 50",
        "+I a, timer done at 50 watermark 101 rows 1, 50",
    ]


def test_a_timer_may_clear_what_is_left() -> None:
    """`clear_all` in `on_timer` removes state and the other timers, even those of the same time."""
    called = Called(TIMED, f=functions.Timing)
    called.rows(("a", "set:forget@10 set:x@10 set:@90 set:y@30", 1))
    called.watermark(50)
    assert called.take() == ["+I a, timer forget at 10 watermark 50 rows 1, 10"]
    called.rows(("a", "set:z@60", 60))
    called.watermark(70)
    assert called.take() == ["+I a, timer z at 60 watermark 70 rows 1, 60"]


def test_timers_without_on_timer_are_refused() -> None:
    """A timer that has nothing to call is an error of the function."""

    class Silent(functions.Timing):
        on_timer = None  # type: ignore[assignment]

    called = Called(TIMED, f=Silent)
    with pytest.raises(UserCodeError) as error:
        called.rows(("a", "set:x@10", 1))
    assert "has a timer but no on_timer()" in str(error.value.__cause__)


def test_rows_are_passed_in_order(several: int) -> None:
    """With ORDER BY rows wait for the watermark, also through a checkpoint; rows behind it are dropped."""
    called = Called(
        "SELECT * FROM f(r => TABLE w PARTITION BY k ORDER BY (ts, orders DESC), on_time => DESCRIPTOR(ts))",
        f=functions.Timing,
    )
    called.rows(("a", "show:1", 5), ("b", "show:1", 3), ("a", "show:2", 3), ("a", "show:3", 9))
    called.rows(("a", "show:4", 3))
    called.recover(parallelism=several)
    called.watermark(5)
    assert sorted(called.take()) == [
        "+I a, at 3 watermark None None, 3",
        "+I a, at 3 watermark None None, 3",
        "+I a, at 5 watermark None None, 5",
        "+I b, at 3 watermark None None, 3",
    ]
    called.rows(("a", "show:late", 5), ("a", "show:5", 8))
    called.recover()
    called.watermark(10)
    assert called.take() == ["+I a, at 8 watermark None None, 8", "+I a, at 9 watermark None None, 9"]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("kind", [TimestampType(6), LocalZonedTimestampType(6)], ids=["local", "moment"])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_are_seen_one_by_one_or_as_a_column_alike(zone: str, kind: Any, unit: str) -> None:
    first, last = (datetime(1, 1, 2), datetime(9999, 12, 30, 23, 59, 59))
    for times in ([first, last], [None, first], [None], [], [datetime(2026, 10, 25, 0, 30), datetime(1969, 12, 31)]):
        column = pa.array(times, pa.timestamp(unit))
        convert = to_external(kind, ZoneInfo(zone), for_functions=True)
        wanted = [convert(value) for value in to_values(column, kind)]
        found = seen_values(column, kind, ZoneInfo(zone), len(times))
        assert [repr(time) for time in found] == [repr(time) for time in wanted]


class Checked:
    """State whose attribute is not only an entry of its dictionary."""

    def __init__(self) -> None:
        self._half: int = 0

    @property
    def count(self) -> int:
        return 2 * self._half

    @count.setter
    def count(self, value: int) -> None:
        self._half = value // 2


def test_only_plain_attributes_take_the_short_way() -> None:
    assert not _has_plain_fields(Checked, ("count",))
    assert _has_plain_fields(Checked, ("other",))
