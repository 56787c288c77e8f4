"""Views in accumulators: what they do, where they lie, and what a change costs."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.state.rocks import CanonicalRocks, FolderRocks
from tests.table.planned import plan_query
from tests.table.udf.aggregates import Groups, manager, timed_rows

from penstock.base.types import Row
from penstock.runtime.operators.base import UserCodeError
from penstock.state.rocksdb.cache import WriteCache
from penstock.table.data_view import DataView, ListView, MapView
from penstock.table.udf import AggregateFunction, udaf
from penstock.testing import operator_harness


def test_a_list_view() -> None:
    view: ListView[int] = ListView()
    view.add(1)
    view.add_all([2, 1])
    assert (list(view), list(view.get()), repr(view)) == ([1, 2, 1], [1, 2, 1], "ListView([1, 2, 1])")
    other = pickle.loads(pickle.dumps(view))
    assert other == view
    other.clear()
    assert list(other) == []
    assert other != view
    assert isinstance(view, DataView)
    before = view.get()
    view.add_all(view.get())
    assert (before, before, len(view.get())) == ([1, 2, 1], [1, 2, 1], 6)


def test_a_map_view() -> None:
    """What is not there is None, and can be taken out."""
    view: MapView[str, int] = MapView()
    assert view.is_empty()
    view.put("a", 1)
    view["b"] = 2
    view.put_all({"c": 3})
    view.remove("a")
    del view["nothing"]
    assert (view.get("b"), view["b"], view["a"]) == (2, 2, None)
    assert ("b" in view, view.contains("a"), view.is_empty()) == (True, False, False)
    assert (list(view), list(view.keys()), list(view.values())) == (["b", "c"], ["b", "c"], [2, 3])
    assert repr(view) == "MapView({'b': 2, 'c': 3})"
    other = copy.deepcopy(view)
    assert other == view
    for key, _ in view.items():
        view.remove(key)
    assert view.is_empty()
    other.clear()
    assert other == view


class Counted(AggregateFunction[str, Any]):
    """How often each value is there, and all values in order, as text."""

    def create_accumulator(self) -> Any:
        return Row(MapView(), ListView(), 0)

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        counts, values, _ = accumulator
        counts[args[0]] = (counts[args[0]] or 0) + 1
        values.add(args[0])
        accumulator[2] += 1

    def retract(self, accumulator: Any, *args: Any) -> None:
        counts, values, _ = accumulator
        count = (counts[args[0]] or 0) - 1
        if count:
            counts[args[0]] = count
        else:
            del counts[args[0]]
        left = list(values)
        if args[0] in left:
            left.remove(args[0])
        values.clear()
        values.add_all(left)
        accumulator[2] -= 1

    def get_value(self, accumulator: Any) -> str:
        counts, values, rows = accumulator
        return f"{sorted(counts.items())} {list(values)} {rows}"


def expected(values: list[int]) -> str:
    return f"{sorted(Counter(values).items())} {values} {len(values)}"


@pytest.fixture(params=["heap", "rocksdb"])
def subtasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """In how many subtasks a test may go on: the backend on RocksDB that tests have cannot deal state out again."""
    if request.param == "rocksdb":
        monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
    return 3 if request.param == "heap" else 1


def test_views_of_groups_are_apart_and_restored(subtasks: int) -> None:
    """At another parallelism too."""
    groups = Groups(udaf(Counted()))
    keys = [f"key {number}" for number in range(8)]
    groups.rows(*((key, number) for number, key in enumerate(keys)))
    groups.rows(*((key, 7) for key in keys))
    groups.recover(subtasks)
    found = groups.rows(*((key, 8) for key in keys))
    assert {(k, v) for kind, k, v in found if kind == "+U"} == {
        (key, expected([number, 7, 8])) for number, key in enumerate(keys)
    }
    groups.recover(1)
    assert groups.last(("key 3", 3)) == expected([3, 7, 8, 3])
    groups.close()


EVENTS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.booleans()), max_size=25)


@settings(max_examples=30, deadline=None)
@given(EVENTS, st.integers(1, 4), st.booleans())
def test_views_are_as_what_was_done_to_them(events: list[Any], at_once: int, is_rocks: bool) -> None:
    """In batches of any size, with rows that go, over recoveries."""
    with pytest.MonkeyPatch.context() as patch:
        if is_rocks:
            patch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
        groups = Groups(udaf(Counted()), retracts=True)
        model: dict[str, list[int]] = {"a": [], "b": []}
        waiting: list[tuple[Any, ...]] = []
        told: dict[str, str] = {}
        for number, (key, value, goes) in enumerate(events):
            if goes and value in model[key]:
                model[key].remove(value)
                waiting.append(("-D", key, value))
            else:
                model[key].append(value)
                waiting.append(("+I", key, value))
            if number % at_once == 0 or number == len(events) - 1:
                for kind, k, text in groups.rows(*waiting):
                    if kind in ("+I", "+U"):
                        told[k] = text
                    else:
                        assert told.pop(k) == text
                assert told == {k: expected(values) for k, values in model.items() if values}
                waiting = []
                groups.recover()
        groups.close()


def test_views_go_with_their_group() -> None:
    """When its last row goes."""
    groups = Groups(udaf(Counted()), retracts=True)
    groups.rows(("a", 1), ("a", 2))
    assert groups.entries == {"groups": 1, "groups.0.view0": 1, "groups.0.view1": 1}
    groups.rows(("-D", "a", 1), ("-D", "a", 2), ("b", 3), ("-D", "b", 3))
    assert groups.entries == {}
    assert groups.last(("a", 5)) == expected([5])


def test_views_expire_with_their_group() -> None:
    """Whether somebody looks at them again or not."""
    groups = Groups(udaf(Counted()), ttl_ms=1_000)
    groups.rows(("a", 1), ("b", 2))
    groups.wait(600)
    assert groups.last(("a", 3)) == expected([1, 3])
    groups.wait(600)
    assert groups.last(("b", 4)) == expected([4])
    groups.wait(10_000)
    assert groups.entries == {}


def test_a_change_of_a_big_view_costs_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On RocksDB: a row of the map, one of the list, and the group's own."""
    monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", FolderRocks)
    written: list[int] = []
    encode = WriteCache.encode

    def counted(self: WriteCache, name: str, raw: bytes, *keys: Any) -> bytes:
        written.append(len(raw))
        return encode(self, name, raw, *keys)

    monkeypatch.setattr(WriteCache, "encode", counted)

    class Added(Counted):
        def get_value(self, accumulator: Any) -> str:
            return str(accumulator[2])

    groups = Groups(udaf(Added()))
    groups.rows(*(("a", number) for number in range(2_000)))
    keyed = groups.harnesses[0].context.keyed
    keyed.capture(1)
    written.clear()
    assert groups.last(("a", 17)) == "2001"
    keyed.capture(2)
    assert len(written) == 3
    assert sum(written) < 500
    groups.close()


class Pair(NamedTuple):
    """An accumulator that is a tuple with names."""

    values: ListView[int]
    counts: MapView[int, int]


SHAPES: list[Any] = [ListView, lambda: [ListView()], lambda: (ListView(), 1), lambda: Pair(ListView(), MapView())]


@pytest.mark.parametrize("make", SHAPES)
def test_views_are_found_in_accumulators_of_many_shapes(make: Any) -> None:
    """A view itself, and one in a list or a tuple."""

    class Listed(AggregateFunction[str, Any]):
        def create_accumulator(self) -> Any:
            return make()

        def _list(self, accumulator: Any) -> Any:
            return accumulator if isinstance(accumulator, ListView) else accumulator[0]

        def accumulate(self, accumulator: Any, *args: Any) -> None:
            self._list(accumulator).add(args[0])

        def get_value(self, accumulator: Any) -> str:
            return str(list(self._list(accumulator)))

    groups = Groups(udaf(Listed()))
    groups.rows(("a", 1), ("b", 2))
    groups.recover()
    assert "groups.0.view0" in groups.entries or "groups.0.view-1" in groups.entries
    assert groups.last(("a", 3)) == "[1, 3]"


class Renewed(AggregateFunction[str, Any]):
    """Puts something else in the place of its view."""

    def __init__(self, other: Any) -> None:
        self._other = other

    def create_accumulator(self) -> Any:
        view: ListView[int] = ListView()
        view.add(0)
        return [view]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator[0].add(args[0])
        if args[0] == 9:
            accumulator[0] = self._other()

    def get_value(self, accumulator: Any) -> str:
        return str(list(accumulator[0]))


@pytest.mark.usefixtures("subtasks")
def test_a_view_may_begin_with_values_and_be_replaced() -> None:
    """By another one of its kind."""
    groups = Groups(udaf(Renewed(ListView)))
    assert groups.last(("a", 1)) == "[0, 1]"
    assert groups.last(("a", 9)) == "[]"
    groups.recover()
    assert groups.last(("a", 2)) == "[2]"
    groups.close()


def test_a_view_cannot_be_replaced_by_anything_else() -> None:
    """The job fails with what is there."""
    groups = Groups(udaf(Renewed(list)))
    with pytest.raises(UserCodeError, match="f") as caught:
        groups.rows(("a", 9))
    assert "began with a ListView, and now has []" in str(caught.value.__cause__)


def test_views_in_windows_and_with_distinct_are_in_the_accumulator() -> None:
    """They work just the same."""
    groups = Groups(udaf(Counted()), is_distinct=True)
    assert groups.last(("a", 1), ("a", 1), ("a", 2)) == expected([1, 2])
    assert groups.entries == {"groups": 1}
    known = manager(counted=udaf(Counted()))
    tumble = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)"
    window = plan_query(f"SELECT counted(v) FROM {tumble} GROUP BY window_start, window_end", known)
    over = plan_query("SELECT counted(v) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t", known)
    rows = [("a", 1, 100), ("a", 2, 200), ("a", 3, 1200)]
    assert timed_rows(window, known, *rows) == [(expected([1, 2]),), (expected([3]),)]
    assert timed_rows(over, known, *rows) == [(expected([1]),), (expected([1, 2]),), (expected([2, 3]),)]
