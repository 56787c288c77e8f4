"""Expired entries leave the RocksDB store without being read, and no others do (D1); on virtual time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.state.rocks import GROUPS, MEMORY, TINY, FolderRocks, Storage, exported, keyed
from tests.state.stateful import harness

from penstock.common import Time
from penstock.state.backend import KeyedStateBackend
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.state.rocksdb.table import ROWS_MAX
from penstock.state.snapshot import read_keyed
from penstock.state.states import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.ttl_config import StateTtlConfig
from penstock.state.views import open_list_state, open_map_state, open_reducing_state, open_value_state
from penstock.testing import operator_harness
from penstock.testing.operator_harness import VirtualClock

pytestmark = pytest.mark.slow

ALL = (0, GROUPS - 1)
TTL_MS = 1_000
KINDS = ["value", "list", "map", "reducing"]
BIG = RocksDBSettings()


def ttl() -> StateTtlConfig.Builder:
    return StateTtlConfig.new_builder(Time.milliseconds(TTL_MS))


class Kept:
    """A state with a time to live in RocksDB, and a clock. Numbers go in and are seen."""

    def __init__(
        self, kind: str, config: StateTtlConfig, path: Path, sizes: RocksDBSettings = TINY, clock: Any = None
    ) -> None:
        self.kind = kind
        self.config = config
        self.clock = clock or VirtualClock(10_000)
        self.backend = RocksDBKeyedStateBackend(GROUPS, path, "My Operator", ALL, sizes)
        self.backend.now_ms = self.clock.now_ms
        self.state: Any = None

    def open(self) -> Kept:
        self.state = opened(self.backend, self.kind, self.config)
        return self

    def write(self, key: Any, number: int) -> None:
        keyed(self.backend, key)
        if self.kind == "value":
            self.state.update(number)
        elif self.kind == "map":
            self.state.put(number % 3, number)
        else:
            self.state.add(number)

    def seen(self, key: Any) -> Any:
        """What is there to see: a list of numbers in a fixed order."""
        keyed(self.backend, key)
        if self.kind == "value":
            found = [self.state.value()]
        elif self.kind == "map":
            found = sorted(self.state.values())
        elif self.kind == "list":
            found = list(self.state.get())
        else:
            found = [self.state.get()]
        return [number for number in found if number is not None]

    def rows(self) -> int:
        """How many rows the store has, of all key groups."""
        return sum(1 for _ in self.backend._open().store.scan(b"\x00"))

    def settle(self, times: int = 1) -> None:
        for _ in range(times):
            self.backend.settle()


def opened(backend: KeyedStateBackend, kind: str, config: StateTtlConfig) -> Any:
    """The state of a kind."""
    descriptors: dict[str, Any] = {
        "value": ValueStateDescriptor,
        "list": ListStateDescriptor,
        "map": MapStateDescriptor,
        "reducing": lambda name: ReducingStateDescriptor(name, lambda a, b: a + b),
    }
    descriptor = descriptors[kind]("s")
    descriptor.enable_time_to_live(config)
    opening: Any = {
        "value": open_value_state,
        "list": open_list_state,
        "map": open_map_state,
        "reducing": open_reducing_state,
    }[kind]
    return opening(backend, descriptor)


@contextmanager
def kept(kind: str, config: StateTtlConfig, sizes: RocksDBSettings = TINY) -> Iterator[Kept]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        made = Kept(kind, config, Path(folder) / "state", sizes)
        try:
            yield made.open()
        finally:
            made.backend.close()


# --- that it happens --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_rows_fall_as_others_are_written(kind: str) -> None:
    """D1: by default, with the same number of keys written again and again, expired rows never outnumber the others."""
    with kept(kind, ttl().build()) as run:
        most = 0
        for number in range(20_000):
            run.write(number, number)  # each key once, and 1,000 of them a time to live
            run.clock.advance(1)
            if number % 50 == 0:
                run.settle()
                if number % 500 == 0:
                    most = max(most, run.rows())
        assert 1_000 <= most <= 3_500
        assert all(run.seen(number) == [number] for number in range(19_001, 20_000))


def test_rows_fall_under_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """D1, G7: with checkpoints and a restore in between, and keys of which none comes twice."""
    monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", FolderRocks)
    descriptor = ValueStateDescriptor("s")
    descriptor.enable_time_to_live(ttl().build())
    clock, snapshots, rows = VirtualClock(10_000), list[bytes](), []
    for part in range(3):
        with harness(descriptor, lambda state, value: state.update(value), *snapshots[-1:], clock=clock) as run:
            for number in range(part * 5_000, (part + 1) * 5_000, 100):
                run.process_batch([(key, key) for key in range(number, number + 100)])
                clock.advance(100)
                if number % 1_000 == 0:
                    snapshots.append(run.snapshot(1 + number))
                    run.notify_complete(1 + number)
            backend: Any = run.context.keyed
            rows.append(sum(1 for _ in backend._open().store.scan(b"\x00")))
    assert all(1_000 <= count <= 3_500 for count in rows), rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [TINY, BIG], ids=["nothing in memory", "all in memory"])
def test_rows_fall_when_nothing_is_written(kind: str, sizes: RocksDBSettings) -> None:
    """D1: within the periodic time all rows are looked at, by settling alone; also those whose entries are cached."""
    config = ttl().cleanup_in_rocksdb_compact_filter(100, Time.milliseconds(5_000)).build()
    with kept(kind, config, sizes) as run:
        for number in range(10_000):
            run.write(number, number)
        run.backend.capture(1)
        run.settle(3)
        assert run.rows() == 10_000
        run.clock.advance(4_999)
        run.settle(10)
        assert run.rows() == 10_000
        run.clock.advance(1)
        run.settle(1 + 10_000 // (ROWS_MAX - GROUPS))
        run.backend.capture(2)
        assert run.rows() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [TINY, BIG], ids=["nothing in memory", "all in memory"])
def test_rows_stay_to_the_last_millisecond(kind: str, sizes: RocksDBSettings) -> None:
    """D1: an entry is thrown out when its time to live is over, and no earlier."""
    with kept(kind, ttl().cleanup_in_rocksdb_compact_filter(10, Time.milliseconds(1)).build(), sizes) as run:
        run.write("k", 7)
        run.backend.capture(1)
        for _ in range(TTL_MS - 1):
            run.clock.advance(1)
            run.settle()
        run.backend.capture(2)
        assert run.rows() == 1
        run.clock.advance(1)
        run.settle()
        run.backend.capture(3)
        assert run.rows() == 0


def test_without_clean_up_in_the_background_rows_stay() -> None:
    """D1: then only a read removes an expired entry."""
    with kept("value", ttl().disable_cleanup_in_background().build()) as run:
        for number in range(5_000):
            run.write(number, number)
            run.settle()
        run.clock.advance(TTL_MS)
        run.settle(100)
        run.write("other", 1)
        run.backend.capture(1)
        assert run.rows() == 5_001
        assert run.seen(7) == []
        run.backend.capture(2)
        assert run.rows() == 5_000


@pytest.mark.parametrize("for_every_record", [False, True])
def test_incremental_clean_up_when_it_was_asked_for(for_every_record: bool) -> None:
    """D1: so many rows an access, or a record, are looked at at the next settling point."""
    config = ttl().disable_cleanup_in_background().cleanup_incrementally(10, for_every_record).build()
    with kept("value", config) as run:
        for number in range(1_000):
            run.write(number, number)
        run.backend.capture(1)
        run.clock.advance(TTL_MS)
        assert run.rows() == 1_000
        if for_every_record:
            run.backend.sweepers["s"].on_records(20)
        else:
            for _ in range(20):
                run.seen("nobody")
        run.backend.capture(2)
        assert 800 <= run.rows() < 950  # finding a key group counts as a row
        run.backend.sweepers["s"].on_records(200)
        run.backend.capture(3)
        assert run.rows() == 0 if for_every_record else run.rows() >= 800


def test_elements_of_lists_and_maps_expire_one_by_one() -> None:
    """D1: a segment of a list loses its expired items, a map its expired values."""
    config = ttl().cleanup_in_rocksdb_compact_filter(1, Time.milliseconds(1)).build()
    for kind in ("list", "map"):
        with kept(kind, config) as run:
            run.write("k", 1)
            run.clock.advance(TTL_MS - 1)
            run.write("k", 2)
            run.backend.capture(1)
            run.settle()
            run.clock.advance(1)
            run.settle()
            run.backend.capture(2)
            (stored,) = [read_keyed(files, *ALL)[None]["k"] for files in exported(run.backend).values()]
            pairs = stored if kind == "list" else list(stored.values())
            assert [number for number, _ in pairs] == [2]


def test_the_clock_is_read_once_in_so_many_rows() -> None:
    """D1: `query_time_after_num_entries` is the number of rows that one reading of the clock serves."""
    readings = []
    for entries in (10, 1_000):
        with kept("value", ttl().cleanup_in_rocksdb_compact_filter(entries).build()) as run:
            for number in range(1_000):
                run.write(number, number)
            run.backend.capture(1)
            count = 0

            def now_ms(run: Kept = run) -> int:
                nonlocal count
                count += 1
                return run.clock.now_ms()

            run.backend._sweepers[0]._now_ms = now_ms
            run.settle()
            readings.append(count)
    assert readings[0] > 100
    assert readings[1] < 10


def test_space_comes_back() -> None:
    """D1: what a sweeper deleted is not in the files any more once they are merged."""
    config = ttl().cleanup_in_rocksdb_compact_filter(1_000, Time.milliseconds(1)).build()
    with kept("value", config) as run:
        for number in range(20_000):
            run.write(number, number)
            run.settle()
        run.backend.capture(1)
        full = run.backend.sizes()["file_bytes"]
        run.clock.advance(TTL_MS)
        run.settle(20)
        run.backend.capture(2)
        run.backend._open().store._db.compact_range(None, None)
        assert run.backend.sizes()["file_bytes"] < full / 20


# --- snapshots --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asked", [True, False])
def test_savepoints_leave_expired_entries_out_when_asked(kind: str, asked: bool) -> None:
    """D1, H5: with `cleanup_full_snapshot` canonical files hold none that had expired when they were captured."""
    builder = ttl().disable_cleanup_in_background()
    config = (builder.cleanup_full_snapshot() if asked else builder).build()
    with kept(kind, config) as run:
        for number in range(100):
            run.write(number, number)
        run.clock.advance(TTL_MS - 1)
        for number in range(90, 110):
            run.write(number, 1)
        run.clock.advance(1)
        (capture,) = run.backend.capture(1)
        run.clock.advance(TTL_MS)
        (native, files) = ([], [])
        for name, data in capture.export(200):
            assert name == "s"
            files.append(data)
        with capture.opened() as store:
            native = list(store.scan(b"\x00"))
        stored = read_keyed(files, *ALL).get(None, {})
        assert sorted(stored) == (list(range(90, 110)) if asked else list(range(110)))
        assert len(native) >= 110


@pytest.mark.parametrize("kind", KINDS)
def test_what_had_expired_does_not_come_back(tmp_path: Path, kind: str) -> None:
    """D1, G7: a checkpoint from before the clean-up still has the rows; they are not seen, and are thrown out again."""
    config = ttl().cleanup_in_rocksdb_compact_filter(100, Time.milliseconds(1)).build()
    storage = Storage()
    with kept(kind, config) as run:
        for number in range(500):
            run.write(number, number)
        known = storage.checkpoint(run.backend, 1, {})
        run.clock.advance(TTL_MS)
        run.settle(5)
        run.backend.capture(2)
        assert run.rows() == 0
        other = Kept(kind, config, tmp_path / "after", TINY, run.clock)
    other.backend.restore_files([storage.fetch(known, tmp_path / "files", ALL)])
    other.open()
    assert other.rows() == 500
    assert other.seen(7) == []
    other.settle(5)
    other.clock.advance(1)
    other.settle(5)
    other.backend.capture(3)
    assert other.rows() == 0
    other.backend.close()


# --- and nothing else does --------------------------------------------------------------------------------------------

NUMBERS = st.integers(0, 9)
KEYS = st.sampled_from(["a", "b", 3, ("t", 1), 2.5])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), KEYS, NUMBERS),
        st.tuples(st.just("write"), KEYS, NUMBERS),
        st.tuples(st.just("read"), KEYS),
        st.tuples(st.just("clear"), KEYS),
        st.tuples(st.just("pass"), st.sampled_from([1, 300, TTL_MS - 1, TTL_MS])),
        st.tuples(st.just("settle")),
        st.tuples(st.just("checkpoint")),
        st.tuples(st.sampled_from(["restore", "from savepoint"])),
    ),
    max_size=50,
)


class Model:
    """What must be there: by key, the numbers with the times at which they were written."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.entries: dict[Any, list[tuple[int, int]]] = {}

    def write(self, key: Any, number: int, now: int) -> None:
        pairs = self.live(key, now)
        if self.kind == "value":
            pairs = []
        elif self.kind == "map":
            pairs = [pair for pair in pairs if pair[0] % 3 != number % 3]
        elif self.kind == "reducing" and pairs:
            number, pairs = number + pairs[0][0], []
        self.entries[key] = [*pairs, (number, now)]

    def live(self, key: Any, now: int) -> list[tuple[int, int]]:
        return [pair for pair in self.entries.get(key, []) if pair[1] + TTL_MS > now]

    def seen(self, key: Any, now: int) -> list[int]:
        numbers = [number for number, _ in self.live(key, now)]
        return sorted(numbers) if self.kind == "map" else numbers


@settings(deadline=None, max_examples=120)
@given(
    STEPS,
    st.sampled_from(KINDS),
    st.sampled_from([TINY, RocksDBSettings(cache_bytes=2_000), BIG]),
    st.sampled_from([1, 3, 1_000]),
    st.sampled_from([1, 700, 10**9]),
)
def test_nothing_unexpired_is_ever_lost(
    steps: list[tuple[Any, ...]], kind: str, sizes: RocksDBSettings, entries: int, period_ms: int
) -> None:
    """D1, G7: whatever the pace of the sweeper, reads see what they would without it, over checkpoints and restores;
    and when time has passed, the store has no row left."""
    config = ttl().cleanup_in_rocksdb_compact_filter(entries, Time.milliseconds(period_ms)).build()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        root, storage, known, clock = Path(folder), Storage(), dict[str, int](), VirtualClock(10_000)
        run, model = Kept(kind, config, root / "0", sizes, clock).open(), Model(kind)
        try:
            for number, (verb, *rest) in enumerate(steps):
                now = clock.now_ms()
                if verb == "write":
                    run.write(rest[0], rest[1])
                    model.write(rest[0], rest[1], now)
                elif verb == "read":
                    assert run.seen(rest[0]) == model.seen(rest[0], now)
                elif verb == "clear":
                    keyed(run.backend, rest[0])
                    run.state.clear()
                    model.entries.pop(rest[0], None)
                elif verb == "pass":
                    clock.advance(rest[0])
                elif verb == "settle":
                    run.settle()
                elif verb == "checkpoint":
                    known = storage.checkpoint(run.backend, number, known)
                else:
                    files, schema = exported(run.backend), run.backend.schema_text("s")
                    known = storage.checkpoint(run.backend, number, known)
                    run.backend.close()
                    run = Kept(kind, config, root / str(number), sizes, clock)
                    if verb == "restore":
                        run.backend.restore_files([storage.fetch(known, root / "fetched", ALL)])
                    else:
                        known = {}
                        for name, data in files.items():
                            run.backend.restore_canonical(name, data, ALL, False, schema)
                    run.open()
            for key in ("a", "b", 3, ("t", 1), 2.5):
                assert run.seen(key) == model.seen(key, clock.now_ms())
            run.backend.capture(1_000)
            run.settle()
            clock.advance(2 * 10**9)
            run.settle(2)
            run.backend.capture(1_001)
            assert run.rows() == 0
        finally:
            run.backend.close()
