"""Savepoints made from rows or from others, and the jobs that begin from them."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.state_processor.programs import (
    EVENTS,
    HOUR_MS,
    MEAN,
    NUMBERS,
    TOTAL,
    VISITS,
    WINDOW_MS,
    Event,
    Mean,
    Remember,
    by_user,
    environment,
)
from tests.stores import copy_tree, remove_tree

from penstock.base.errors import CheckpointError, JobExecutionError
from penstock.base.time import Duration
from penstock.base.types import Row
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.datastream.functions import KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.state.errors import StateError
from penstock.state.keys import assign_key_group
from penstock.state_processor import SavepointReader, SavepointWriter
from penstock.storage.metadata import state_of_subtask

USERS = by_user()
COUNTS = ValueStateDescriptor("count")
ITEMS = ListStateDescriptor("items")
PLACES = MapStateDescriptor("places")


def word_of(pair: Any) -> Any:
    return pair[0]


def add_counts(one: Any, other: Any) -> Any:
    return one[0], one[1] + other[1]


class CountOn(KeyedProcessFunction):
    """(key, count, items, places) for each record, after counting it."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(COUNTS)
        self.items = runtime_context.get_list_state(ITEMS)
        self.places = runtime_context.get_map_state(PLACES)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value(), list(self.items.get()), sorted(self.places.items())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), -timestamp, [], []


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results, key=str)


def run_counter(path: str, words: list[Any], parallelism: int = 2, **options: Any) -> list[Any]:
    env = environment(parallelism, **{"execution.state-recovery.path": path, **options})
    source: CollectionSource[Any] = CollectionSource([(word,) for word in words], [0] * len(words))
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_source(source, strategy, "words").key_by(word_of).process(CountOn()).uid("counter")
    return collected(stream)


ROWS = [("a", 3), ("b", 40), (("c", 1), 500), (7, 6000)]
FRAME = pd.DataFrame({"key": ["a", "b"], "value": [3, 40]})
SOURCES: dict[str, tuple[Any, dict[str, Any]]] = {
    "pandas": (FRAME, {}),
    "arrow": (pa.Table.from_pandas(FRAME), {}),
    "batch": (pa.RecordBatch.from_pandas(FRAME), {"value": lambda row: row.value}),
    "renamed": (FRAME.rename(columns={"key": "k", "value": "v"}), {"key": "k", "value": "v"}),
    "dicts": ([{"key": "a", "value": 3}, {"key": "b", "value": 40}], {}),
    "rows": ([Row(key="a", value=3), Row(key="b", value=40)], {}),
    "tuples": ([("a", 3), ("b", 40)], {"key": 0, "value": 1}),
    "generator": ((pair for pair in [("a", 1), ("b", 38)]), {"key": word_of, "value": lambda pair: pair[1] + 2}),
    "numbers of numpy": (pd.DataFrame({"key": ["a", "b"], "value": np.array([3, 40], np.int16)}), {}),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_job_begins_from_state_made_of_rows(name: str, store_directory: Path) -> None:
    """H5, H4: rows of any source become state that a job goes on from."""
    source, selectors = SOURCES[name]
    writer = SavepointWriter.new_savepoint().with_keyed_state("counter", COUNTS, source, **selectors)
    path = writer.write(str(store_directory / "made"))
    assert run_counter(path, ["a", "b", "new"]) == [("a", 4, [], []), ("b", 41, [], []), ("new", 1, [], [])]


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_all_kinds_of_state_are_made(
    parallelism: int, inline: bool, store_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H5, D4: value, list and map state and timers go to the key groups in which the job looks, at any parallelism."""
    if not inline:
        monkeypatch.setattr("penstock.state_processor.writer.CHECKPOINTING_INLINE_BYTES", _Zero)
    items = pd.DataFrame({"key": ["b", "a", "b"], "value": [3, 1, 2]})
    places = pd.DataFrame({"key": ["a", "a"], "map_key": ["x", "y"], "value": [1.5, 2.5]})
    due = datetime.datetime(1970, 1, 1, 0, 0, 9)
    writer = SavepointWriter.new_savepoint(parallelism=parallelism)
    writer.with_keyed_state("counter", COUNTS, ROWS, 0, 1).with_keyed_state("counter", ITEMS, items)
    writer.with_keyed_state("counter", PLACES, places).with_timers(
        "counter", [("b", due), ("b", 9000), ("other", 12_000)], 0, 1
    )
    made = writer.write(str(store_directory / "made"))
    reader = SavepointReader.read(made)
    assert sorted(reader.read_value_state("counter", COUNTS), key=str) == sorted(ROWS, key=str)
    assert sorted(reader.read_timers("counter")) == [("event", 9000, "b"), ("event", 12_000, "other")]
    assert reader.operator("counter").parallelism == parallelism
    for subtask in reader.metadata.operators[0].subtasks.values():
        for handles in subtask.keyed.values():
            for handle in handles:
                assert all((file.path is None) is inline for file in handle.files)
    moved = str(store_directory / "moved")
    copy_tree(made, moved)
    remove_tree(made)
    expected = [
        ("a", 4, [1], [("x", 1.5), ("y", 2.5)]),
        ("b", 41, [3, 2], []),
        ("b", -9000, [], []),
        ("other", -12_000, [], []),
        (7, 6001, [], []),
        (("c", 1), 501, [], []),
    ]
    assert sorted(run_counter(moved, ["a", "b"]), key=str) == sorted(
        [e for e in expected if e[0] not in (7, ("c", 1))], key=str
    )
    for key, count in ROWS[2:]:
        assert (key, count + 1, [], []) in run_counter_of(moved, key)


class _Zero:
    @staticmethod
    def default_value() -> int:
        return 0


def run_counter_of(path: str, key: Any) -> list[Any]:
    env = environment(2, **{"execution.state-recovery.path": path})
    stream = env.from_collection([(key,)]).key_by(word_of).process(CountOn()).uid("counter")
    return collected(stream)


def test_folded_and_aggregated_states_are_made(store_directory: Path) -> None:
    """H5, D1: the rows of a reducing state are folded, those of an aggregating state are added."""
    writer = SavepointWriter.new_savepoint().with_keyed_state("remember", TOTAL, EVENTS, "user", "number")
    writer.with_keyed_state("remember", MEAN, EVENTS, "user", "number")
    reader = SavepointReader.read(writer.write(str(store_directory / "made")))
    totals = {user: sum(e.number for e in events) for user, events in USERS.items()}
    assert dict(reader.read_reducing_state("remember", TOTAL)) == totals
    means: dict[Any, Any] = dict(reader.read_aggregating_state("remember", MEAN, Mean()))
    assert means == {user: totals[user] / len(events) for user, events in USERS.items()}


def test_a_reduce_and_windows_go_on_from_rows(store_directory: Path) -> None:
    """H5: the state of a keyed reduce and the contents of open windows can be made, too."""
    writer = SavepointWriter.new_savepoint()
    writer.with_reduce_state("reduce", [("a", 10), ("b", 20)], key=word_of, value=lambda pair: pair)
    windows = pd.DataFrame({"key": ["a"], "window_start": [0], "window_end": [WINDOW_MS], "value": [5]})
    writer.with_window_state("windows", windows, value=lambda row: Event("a", row.value, 0))
    path = writer.write(str(store_directory / "made"))

    env = environment(2, **{"execution.state-recovery.path": path})
    events = [Event("a", 1, 7), Event("c", 3, WINDOW_MS)]
    source: CollectionSource[Any] = CollectionSource(events, [e.time_ms for e in events])
    keyed = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "events").key_by(word_of)
    reduced = keyed.reduce(add_counts).uid("reduce").map(lambda pair: ("reduce", *pair))
    windowed = keyed.window(TumblingEventTimeWindows.of(Duration.of_millis(WINDOW_MS)))
    summed = windowed.reduce(add_counts, WithStart()).uid("windows")
    assert collected(reduced.union(summed)) == [
        ("reduce", "a", 11),
        ("reduce", "c", 3, WINDOW_MS),
        ("window", "a", 0, 6),
        ("window", "c", WINDOW_MS, 3),
    ]


class WithStart(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        for element in elements:
            yield "window", key, context.window().start, element[1]


def test_operator_states_are_made(store_directory: Path) -> None:
    """H5, D2: lists are dealt out over subtasks, union lists and broadcast maps go to all."""
    writer = SavepointWriter.new_savepoint(parallelism=2)
    writer.with_operator_state("op", "list", range(5)).with_operator_state("op", "all", ["x", "y"], "union")
    writer.with_operator_state("op", PLACES, {"k": 1, "l": 2}, "broadcast")
    reader = SavepointReader.read(writer.write(str(store_directory / "made")))
    assert sorted(value for _, _, value in reader.read_list_state("op", "list")) == list(range(5))
    assert Counter(subtask for subtask, _, _ in reader.read_operator_state("op", "list")) == {0: 3, 1: 2}
    assert [value for _, _, value in reader.read_union_state("op", "all")] == ["x", "y"]
    assert dict(reader.read_broadcast_state("op", PLACES)) == {"k": 1, "l": 2}
    (operator,) = reader.metadata.operators
    for parallelism in (1, 2, 3):
        for subtask in range(parallelism):
            assert state_of_subtask(operator, subtask, parallelism, 128).operator.keys() >= {"all", "places"}


# --- changing a savepoint -------------------------------------------------------------------------------------------


def test_states_are_changed_and_dropped(savepoint: Path, store_directory: Path) -> None:
    """H5: values are put through a function, entries and states left out; all else stays as it was, in new files."""
    before = {path.name: path.read_bytes() for path in savepoint.iterdir()}
    writer = SavepointWriter.from_existing_savepoint(str(savepoint))
    writer.transform_state("remember", "visits", lambda user, visits: None if user == "user-3" else visits * 10)
    writer.transform_state("remember", "numbers", lambda user, numbers: numbers[:2])
    writer.transform_window_state("windows", lambda key, start, end, mean: None if key == "user-1" else (1, end))
    writer.transform_window_state("sessions", lambda key, start, end, e: None if key == "user-1" else e)
    writer.remove_state("remember", "odd").remove_timers("remember", "processing").remove_operator("sink")
    path = writer.write(str(store_directory / "changed"))
    assert {p.name: p.read_bytes() for p in savepoint.iterdir()} == before

    old, new = SavepointReader.read(str(savepoint)), SavepointReader.read(path)
    new.verify()
    assert {f.path.rpartition("/")[0] for f in new.metadata.state_files() if f.path} <= {
        path if "://" in path else f"file://{path}"
    }
    assert dict(new.read_value_state("remember", "visits")) == {
        user: 10 * len(events) for user, events in USERS.items() if user != "user-3"
    }
    assert new.read_list_state("remember", NUMBERS).count() == 2 * len(USERS)
    assert list(new.read_value_state("remember", "profile")) == list(old.read_value_state("remember", "profile"))
    assert {domain for domain, _, _ in new.read_timers("remember")} == {"event"}
    assert "odd" not in {state.name for state in new.operator("remember").states}
    assert "sink" not in {operator.uid for operator in new.operators}
    assert {(k, v) for k, _, end, _, v in new.read_window_state("windows")} == {
        (k, (1, end)) for k, _, end, _, _ in old.read_window_state("windows") if k != "user-1"
    }
    assert {k for k, *_ in new.read_window_state("sessions")} == set(USERS) - {"user-1"}


def test_a_job_goes_on_from_a_changed_savepoint_under_another_uid(savepoint: Path, store_directory: Path) -> None:
    """H5, H3, H4: an operator's state is given to another uid, and the job that has it goes on; timers fire."""
    writer = SavepointWriter.from_existing_savepoint(str(savepoint))
    writer.transform_state("remember", "visits", lambda user, visits: visits + 1000)
    writer.change_operator_id("remember", "renamed")
    (sums,) = [o.operator_id for o in SavepointReader.read(str(savepoint)).operators if o.name == "sums"]
    writer.change_operator_id(sums, "sums")
    path = writer.write(str(store_directory / "changed"))
    assert {o.uid for o in SavepointReader.read(path).operators} >= {"renamed", "sums"}

    options = {"execution.state-recovery.path": path, "execution.state-recovery.ignore-unclaimed-state": "true"}
    env = environment(2, **options)
    event = Event("user-2", 0, HOUR_MS)
    source: CollectionSource[Any] = CollectionSource([event], [event.time_ms])
    events = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "events").key_by(word_of)
    found = Counter(collected(events.process(Remember()).uid("renamed")))
    assert found["user-2", 1000 + len(USERS["user-2"]) + 1] == 1
    fired = [(f"timer of {e.user}", e.time_ms + HOUR_MS) for e in [*EVENTS, event]]
    assert found == Counter([("user-2", 1000 + len(USERS["user-2"]) + 1), *fired])


def test_state_is_added_to_a_savepoint_and_replaced(savepoint: Path, store_directory: Path) -> None:
    """H5: what is there is only replaced when it was removed; a state read can be written back."""
    reader = SavepointReader.read(str(savepoint))
    visits = reader.read_value_state("remember", VISITS).to_arrow()
    writer = SavepointWriter.from_existing_savepoint(str(savepoint))
    with pytest.raises(
        StateError, match="'remember' already has a state 'visits': use remove_state or transform_state"
    ):
        writer.with_keyed_state("remember", VISITS, visits)
    writer.remove_state("remember", "visits").with_keyed_state("remember", VISITS, visits)
    timers = reader.read_timers("remember").to_pandas()
    writer.remove_timers("remember").with_timers("remember", timers[timers["time_domain"] == "event"])
    writer.with_keyed_state("added", COUNTS, [("a", 1)], 0, 1)
    again = SavepointReader.read(writer.write(str(store_directory / "again")))
    assert dict(again.read_value_state("remember", VISITS)) == dict(reader.read_value_state("remember", VISITS))
    assert sorted(again.read_timers("remember")) == sorted(reader.read_timers("remember"))
    assert dict(again.read_value_state("added", COUNTS)) == {"a": 1}
    assert again.operator("added").max_parallelism == 128


MISTAKES: dict[str, tuple[Callable[[SavepointWriter], Any], str]] = {
    "no operator": (lambda w: w.remove_operator("x"), "no operator with uid 'x'; there are: 'source'"),
    "no state": (lambda w: w.remove_state("remember", "x"), "operator 'remember' has no state 'x'; there are: "),
    "no state to change": (lambda w: w.transform_state("remember", "x", max), "has no state 'x'; there are: "),
    "operator state": (lambda w: w.transform_state("source", "_penstock_splits", max), "is operator state"),
    "no windows": (lambda w: w.transform_window_state("remember", max), "'remember' has no windows"),
    "taken uid": (lambda w: w.change_operator_id("sink", "source"), "uid 'source' already"),
    "mode": (lambda w: w.with_operator_state("a", "b", [], "other"), "one of split, union, broadcast, not 'other'"),
    "time domain": (lambda w: w.with_timers("a", [], time_domain="other"), "one of event, processing, not 'other'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_answered_at_once(name: str, savepoint: Path) -> None:
    """H5: what is not there, or there already, is said when it is asked for."""
    call, message = MISTAKES[name]
    with pytest.raises(StateError, match=message):
        call(SavepointWriter.from_existing_savepoint(str(savepoint)))


BAD_ROWS: dict[str, tuple[Any, str]] = {
    "twice": (
        [{"key": 1, "value": 1}, {"key": 1.0, "value": 2}],
        "2 rows have the key 1, but a key has only one value",
    ),
    "no column": (FRAME.rename(columns={"value": "other"}), "no column 'value'; there are: key, other"),
    "no field": ([{"key": 1}], "there is no 'value' in {'key': 1}"),
    "no rows": (5, "rows come from a pandas, Arrow or Spark table or from an iterable, not from a int"),
    "no hash": ([{"key": {1}, "value": 1}], "a key of type set has no stable value"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_make_no_state_leave_nothing_behind(name: str, store_directory: Path) -> None:
    """H5, G11: a savepoint that cannot be written leaves no directory that looks like one."""
    source, message = BAD_ROWS[name]
    writer = SavepointWriter.new_savepoint().with_keyed_state("good", COUNTS, FRAME)
    writer.with_keyed_state("counter", COUNTS, source)
    with pytest.raises(StateError, match=message):
        writer.write(str(store_directory / "made"))
    assert not (store_directory / "made").exists()


def test_a_directory_in_use_is_refused(savepoint: Path) -> None:
    """H5: nothing is ever overwritten."""
    with pytest.raises(CheckpointError, match="already exists and is not empty"):
        SavepointWriter.from_existing_savepoint(str(savepoint)).write(str(savepoint))


def test_the_max_parallelism_must_be_the_jobs(store_directory: Path) -> None:
    """H5, D4: key groups are those of the max parallelism that was said; another job refuses the state."""
    writer = SavepointWriter.new_savepoint(16).with_keyed_state("counter", COUNTS, ROWS, 0, 1)
    path = writer.write(str(store_directory / "made"))
    with pytest.raises(JobExecutionError, match="max parallelism 16, the job has 128"):
        run_counter(path, ["a"])
    assert run_counter(path, ["a"], **{"pipeline.max-parallelism": 16}) == [("a", 4, [], [])]
    for handle in SavepointReader.read(path).metadata.operators[0].subtasks[0].keyed["count"]:
        assert (handle.first_key_group, handle.last_key_group) == (0, 15)
    assert all(0 <= assign_key_group(key, 16) < 16 for key, _ in ROWS)


def test_long_states_are_cut_into_files(store_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H5: no file grows without bound, and a history of several files says the same."""
    monkeypatch.setattr("penstock.state_processor.draft.CHUNK_BYTES", 1000)
    monkeypatch.setattr("penstock.state_processor.writer.CHECKPOINTING_INLINE_BYTES", _Zero)
    rows = [(f"key-{i}", i) for i in range(300)]
    path = (
        SavepointWriter.new_savepoint()
        .with_keyed_state("counter", COUNTS, rows, 0, 1)
        .write(str(store_directory / "one"))
    )
    reader = SavepointReader.read(path)
    (state,) = reader.operator("counter").states
    assert state.files > 5
    assert sorted(reader.read_value_state("counter", COUNTS)) == sorted(rows)
    monkeypatch.setattr("penstock.state_processor.writer.SLICE_BYTES", 2000)
    writer = SavepointWriter.from_existing_savepoint(path)
    writer.transform_state("counter", "count", lambda key, count: count + 1 if count % 2 else None)
    again = SavepointReader.read(writer.write(str(store_directory / "two")))
    assert sorted(again.read_value_state("counter", COUNTS)) == sorted((k, i + 1) for k, i in rows if i % 2)
