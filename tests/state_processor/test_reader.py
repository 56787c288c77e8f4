"""Every state of a real job's savepoint, read and compared with what the job must have."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.state_processor.programs import (
    BY_REST,
    COUNT,
    EVENTS,
    FAR_MS,
    GAP_MS,
    HOUR_MS,
    PATIENCE_S,
    WATERMARK_MS,
    WINDOW_MS,
    Mean,
    Profile,
    build,
    by_user,
    environment,
)
from tests.stores import copy_tree

from penstock.base.errors import CheckpointError
from penstock.base.types import Row
from penstock.state.errors import StateError
from penstock.state_processor import PICKLED, SavepointReader, decode

USERS = by_user()


def test_operators_and_their_states_are_listed(reader: SavepointReader) -> None:
    """H5: what is in a savepoint is listed by operator, with uid, parallelism, state names, modes and sizes."""
    assert reader.is_savepoint
    assert reader.job_name == "everything"
    assert reader.taken_at.year > 2020
    assert [o.uid for o in reader.operators if o.uid] == ["source", "remember", "sink", "windows", "sessions"]
    remember = reader.operator("remember")
    assert reader.operator(remember.operator_id) == remember
    assert (remember.name, remember.max_parallelism, remember.finished) == ("remember", 128, ())
    assert {s.name: (s.mode, s.kind) for s in remember.states if s.kind == "timers"} == {
        "_penstock_timers_event": ("keyed", "timers"),
        "_penstock_timers_processing": ("keyed", "timers"),
    }
    names = {s.name for s in remember.states}
    assert names >= {"visits", "profile", "odd", "numbers", "by rest", "total", "mean"}
    for state in remember.states:
        assert state.size_bytes > 0
        assert state.files == state.subtasks == remember.parallelism
    (splits,) = reader.operator("source").states
    assert (splits.mode, splits.kind, splits.items) == ("split", "source splits", 1)
    reader.verify()


def test_value_state(reader: SavepointReader) -> None:
    """H5, D1: simple values are columns, and so are the fields of a dataclass."""
    table = reader.read_value_state("remember", "visits").to_arrow()
    assert table.schema == pa.schema([("key", pa.string()), ("value", pa.int64())])
    assert dict(zip(*table.to_pydict().values(), strict=True)) == {user: len(e) for user, e in USERS.items()}

    profiles = reader.read_value_state("remember", "profile")
    assert profiles.schema.field("value").type == pa.struct(
        [("name", pa.string()), ("visits", pa.int64()), ("last_ms", pa.int64())]
    )
    assert {row["key"]: row["value"] for row in profiles.to_arrow().to_pylist()} == {
        user: {"name": user, "visits": len(e), "last_ms": e[-1].time_ms} for user, e in USERS.items()
    }
    assert dict(profiles) == {user: Profile(user, len(e), e[-1].time_ms) for user, e in USERS.items()}


def test_values_without_a_simple_type_come_pickled(reader: SavepointReader) -> None:
    """H5: what has no column type is pickled bytes, and `decode` gives it back."""
    table = reader.read_value_state("remember", "odd")
    assert table.pickled == ["value"]
    frame = table.to_pandas()
    assert dict(zip(frame["key"], map(decode, frame["value"]), strict=True)) == {
        user: {e.number % 3 for e in events} for user, events in USERS.items()
    }
    on_purpose = reader.read_value_state("remember", "visits", value_type=PICKLED).to_arrow()
    assert [decode(cell) for cell in on_purpose["value"].to_pylist()] == [v for _, v in table_rows(reader, "visits")]


def table_rows(reader: SavepointReader, name: str) -> list[tuple[Any, ...]]:
    return list(reader.read_value_state("remember", name))


def test_list_state(reader: SavepointReader) -> None:
    """H5, D1: a row an item, in order."""
    table = reader.read_list_state("remember", "numbers").to_arrow()
    assert table.schema.names == ["key", "index", "value"]
    found: dict[Any, list[int]] = defaultdict(list)
    for user, index, number in zip(*table.to_pydict().values(), strict=True):
        assert index == len(found[user])
        found[user].append(number)
    assert found == {user: [e.number for e in events] for user, events in USERS.items()}


def test_map_state(reader: SavepointReader) -> None:
    """H5, D1: a row an entry of the map; rows become structs."""
    rows = {
        (user, e.number % 5): {"number": e.number, "text": str(e.number)}
        for user, events in USERS.items()
        for e in events
    }
    table = reader.read_map_state("remember", BY_REST).to_arrow()
    assert {(r["key"], r["map_key"]): r["value"] for r in table.to_pylist()} == rows
    assert {(k, m): v for k, m, v in reader.read_map_state("remember", "by rest")} == {
        place: Row(**fields) for place, fields in rows.items()
    }


def test_reducing_state(reader: SavepointReader) -> None:
    """H5, D1: of a reducing state the folded value; without a name, that of a keyed reduce (found by its id)."""
    totals = {user: sum(e.number for e in events) for user, events in USERS.items()}
    assert dict(reader.read_reducing_state("remember", "total")) == totals
    (sums,) = [o for o in reader.operators if o.name == "sums"]
    assert sums.uid is None
    assert {key: value.number for key, value in reader.read_reducing_state(sums.operator_id)} == totals


def test_aggregating_state(reader: SavepointReader) -> None:
    """H5, D1: of an aggregating state the accumulator, or its result."""
    sums = {user: (len(events), sum(e.number for e in events)) for user, events in USERS.items()}
    assert dict(reader.read_aggregating_state("remember", "mean")) == sums
    assert dict(reader.read_aggregating_state("remember", "mean", Mean())) == {u: s / n for u, (n, s) in sums.items()}


def test_timers(reader: SavepointReader) -> None:
    """H5, B3: timers of both kinds, with key and time in ms."""
    table = reader.read_timers("remember").to_arrow()
    assert table.schema.names == ["time_domain", "timestamp_ms", "key"]
    expected = [("event", e.time_ms + HOUR_MS, e.user) for e in EVENTS]
    expected += [("processing", FAR_MS + e.number, e.user) for e in EVENTS]
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == sorted(expected)
    assert reader.read_timers("windows").to_arrow().num_rows == 0


def test_windows(reader: SavepointReader) -> None:
    """H5, C1: open windows with bounds and contents; those that have fired are gone."""
    expected: dict[Any, tuple[int, int]] = {}
    for e in EVENTS:
        start = e.time_ms // WINDOW_MS * WINDOW_MS
        if start + WINDOW_MS - 1 > WATERMARK_MS:
            count, total = expected.get((e.user, start), (0, 0))
            expected[e.user, start] = count + 1, total + e.number
    rows = reader.read_window_state("windows").to_arrow().to_pylist()
    assert {(r["key"], r["window_start"]): tuple(r["value"].values()) for r in rows} == expected
    assert {r["window_end"] - r["window_start"] for r in rows} == {WINDOW_MS}
    assert not any(r["fired"] for r in rows)


def test_sessions(reader: SavepointReader) -> None:
    """H5, C1: open sessions with bounds and contents."""
    rows = reader.read_window_state("sessions").to_arrow().to_pylist()
    assert {r["key"]: (r["window_start"], r["window_end"], r["value"]["number"]) for r in rows} == {
        user: (events[0].time_ms, events[-1].time_ms + GAP_MS, sum(e.number for e in events))
        for user, events in USERS.items()
    }


def test_splits_and_committables(reader: SavepointReader) -> None:
    """H5, G8, G9: where the source stands, and what the sink had prepared."""
    splits = reader.read_source_splits("source").to_arrow().to_pylist()
    assert all(row["value"]["position"] >= COUNT and row["value"]["stop"] is None for row in splits)
    assert reader.read_enumerator("source") is not None
    rows = []
    for _, _, committable in reader.read_sink_committables("sink"):
        rows += decode(committable.payload)
    assert len(rows) == COUNT
    with pytest.raises(StateError, match="'sink' has no split enumerator"):
        reader.read_enumerator("sink")


def test_what_is_not_there_is_answered_with_what_is(reader: SavepointReader, store_directory: Path) -> None:
    """H5: errors name the operators and states that exist, and how a state is to be read."""
    with pytest.raises(StateError, match=r"no operator with uid 'other'; there are: 'source', .*'remember', 'sink'"):
        reader.operator("other")
    with pytest.raises(StateError, match=r"'remember' has no keyed state 'other'; there are: .*'by rest' .keyed."):
        reader.read_value_state("remember", "other")
    with pytest.raises(StateError, match="map state: read it with read_map_state"):
        reader.read_list_state("remember", "by rest").to_arrow()
    with pytest.raises(StateError, match="also has entries by window or time: read it with read_keyed_state"):
        reader.read_value_state("windows", "_penstock_window").to_arrow()
    with pytest.raises(StateError, match="is a split state, not union: read it with read_list_state"):
        reader.read_union_state("source", "_penstock_splits")
    with pytest.raises(StateError, match=r"column 'value' of state 'visits' of 'remember' does not fit .* string"):
        reader.read_value_state("remember", "visits", value_type=str).to_arrow()
    with pytest.raises(CheckpointError, match="cannot be read"):
        SavepointReader.read(str(store_directory))


def test_a_moved_savepoint_and_its_metadata_file_serve(savepoint: Path, store_directory: Path) -> None:
    """H1, H5: a savepoint is read wherever it lies; damage is found."""
    moved = store_directory / "moved"
    copy_tree(savepoint, moved)
    reader = SavepointReader.read(str(moved / "_metadata"))
    assert reader.read_value_state("remember", "visits").count() == len(USERS)
    files = [path for path in moved.iterdir() if path.name != "_metadata"]
    for path in files:
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    if files:
        with pytest.raises(CheckpointError, match="damaged"):
            reader.read_value_state("remember", "visits").to_arrow()


def test_a_retained_checkpoint_is_read_like_a_savepoint(store_directory: Path) -> None:
    """H5, G7: a checkpoint's states are histories of files, and say what the job had."""
    env = environment(
        2,
        **{
            "execution.checkpointing.dir": store_directory,
            "execution.checkpointing.data-inline-threshold": 0,
            "execution.checkpointing.num-retained": 100,
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        },
    )
    env.enable_checkpointing(20)
    build(env, rate=2_000.0)
    job = env.execute_async("everything")
    try:
        deadline = time.monotonic() + PATIENCE_S
        while job.get_progress().result(PATIENCE_S).checkpoints_completed < 8:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        job.end()
    # The end of the job may leave files of a checkpoint that it interrupts.
    readers = [SavepointReader.read(str(path.parent)) for path in store_directory.glob("*/chk-*/_metadata")]
    assert len(readers) >= 8
    assert max(s.files for r in readers for s in r.operator("remember").states if s.name == "numbers") > 1
    for reader in readers:
        assert not reader.is_savepoint
        if not reader.operator("remember").states:
            continue
        numbers: dict[Any, list[int]] = defaultdict(list)
        for user, _, number in reader.read_list_state("remember", "numbers"):
            numbers[user].append(number)
        seen = 1 + max(number for some in numbers.values() for number in some)
        assert numbers == {u: n for u, events in USERS.items() if (n := [e.number for e in events if e.number < seen])}
        assert dict(reader.read_value_state("remember", "visits")) == {user: len(n) for user, n in numbers.items()}
        timers = sorted((t, key) for domain, t, key in reader.read_timers("remember") if domain == "event")
        assert timers == sorted((e.time_ms + HOUR_MS, e.user) for e in EVENTS[:seen])
