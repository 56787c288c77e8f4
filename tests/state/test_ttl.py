"""State whose entries expire, on virtual time."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.state.stateful import harness, read, written

from penstock.common import Duration, Time
from penstock.datastream.functions import AggregateFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.task.failures import describe_failure
from penstock.state import views as states
from penstock.state.backend import HeapKeyedStateBackend
from penstock.state.errors import StateError
from penstock.state.snapshot import read_keyed
from penstock.testing.operator_harness import VirtualClock

TTL_MS = 100


class Total(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, one, other):
        return one + other


def config(reads=False, shows=False, background=False):
    builder = StateTtlConfig.new_builder(Time.milliseconds(TTL_MS))
    if reads:
        builder.update_ttl_on_read_and_write()
    if shows:
        builder.return_expired_if_not_cleaned_up()
    if not background:
        builder.disable_cleanup_in_background()
    return builder.build()


DESCRIPTORS = {
    "value": lambda: ValueStateDescriptor("s"),
    "list": lambda: ListStateDescriptor("s"),
    "map": lambda: MapStateDescriptor("s"),
    "reducing": lambda: ReducingStateDescriptor("s", lambda a, b: a + b),
    "aggregating": lambda: AggregatingStateDescriptor("s", Total()),
}
OPEN = {kind: getattr(states, f"open_{kind}_state") for kind in DESCRIPTORS}
#: how a number gets into a state, and what is seen of a state as numbers
WRITE = {
    "value": lambda state, n: state.update(n),
    "list": lambda state, n: state.add(n),
    "map": lambda state, n: state.put(n, n),
    "reducing": lambda state, n: state.add(n),
    "aggregating": lambda state, n: state.add(n),
}
SEEN = {
    "value": lambda state: [v for v in [state.value()] if v is not None],
    "list": lambda state: list(state.get()),
    "map": lambda state: list(state.values()),
    "reducing": lambda state: [v for v in [state.get()] if v is not None],
    "aggregating": lambda state: [v for v in [state.get()] if v is not None],
}


class Kept:
    """A state on the heap, under key "k", and a clock."""

    def __init__(self, kind, ttl):
        self.kind = kind
        self.clock = VirtualClock(1_000)
        self.backend = HeapKeyedStateBackend(128, "Op")
        self.backend.now_ms = self.clock.now_ms
        descriptor = DESCRIPTORS[kind]()
        descriptor.enable_time_to_live(ttl)
        self.state = OPEN[kind](self.backend, descriptor)
        self.backend.current_key = "k"

    def write(self, number):
        WRITE[self.kind](self.state, number)

    def seen(self):
        return SEEN[self.kind](self.state)

    def entries(self):
        return self.backend.table("s").entries(None)


@pytest.mark.parametrize("kind", DESCRIPTORS)
def test_a_value_is_there_until_its_time_is_over(kind):
    """D1: a value is seen for less than its time to live after it was written, and is removed when it is read later."""
    kept = Kept(kind, config())
    kept.write(7)
    kept.clock.advance(TTL_MS - 1)
    assert kept.seen() == [7]
    kept.clock.advance(1)
    assert kept.seen() == []
    assert kept.entries() == {}


@pytest.mark.parametrize("kind", DESCRIPTORS)
@pytest.mark.parametrize("reads", [False, True])
def test_reading_puts_expiry_off_only_when_it_counts(kind, reads):
    """D1: with OnReadAndWrite reading is an access, with OnCreateAndWrite it is not."""
    kept = Kept(kind, config(reads=reads))
    kept.write(7)
    kept.clock.advance(60)
    assert kept.seen() == [7]
    kept.clock.advance(60)
    assert kept.seen() == ([7] if reads else [])


@pytest.mark.parametrize("kind", DESCRIPTORS)
def test_an_expired_value_may_be_seen_once_more(kind):
    """D1: with ReturnExpiredIfNotCleanedUp whoever reads an expired value gets it, and cleans it up."""
    kept = Kept(kind, config(shows=True))
    kept.write(7)
    kept.clock.advance(TTL_MS)
    assert kept.seen() == [7]
    assert kept.seen() == []


@pytest.mark.parametrize("kind", ["value", "reducing", "aggregating"])
def test_writing_puts_expiry_off(kind):
    """D1: each write begins the time anew; what was folded before an expiry is forgotten."""
    kept = Kept(kind, config())
    kept.write(1)
    kept.clock.advance(60)
    kept.write(2)
    kept.clock.advance(60)
    assert kept.seen() == [2 if kind == "value" else 3]
    kept.clock.advance(TTL_MS)
    kept.write(5)
    assert kept.seen() == [5]


@pytest.mark.parametrize("kind", ["list", "map"])
def test_elements_expire_one_by_one(kind):
    """D1: each item of a list, and each value of a map, has its own time."""
    kept = Kept(kind, config())
    kept.write(1)
    kept.clock.advance(60)
    kept.write(2)
    kept.clock.advance(60)
    assert kept.seen() == [2]


@pytest.mark.parametrize("kind", DESCRIPTORS)
def test_clear(kind):
    """D1: clearing removes values with their times."""
    kept = Kept(kind, config())
    kept.write(1)
    kept.state.clear()
    assert kept.seen() == []
    assert kept.entries() == {}


@pytest.mark.parametrize("kind", DESCRIPTORS)
@pytest.mark.parametrize("background", [False, True])
def test_without_a_key_every_access_is_an_error(kind, background):
    """D1: state with a time to live can be used no more than any other while there is no current key."""
    descriptor = DESCRIPTORS[kind]()
    descriptor.enable_time_to_live(config(background=background))
    backend = HeapKeyedStateBackend(128, "Op")
    backend.now_ms = VirtualClock().now_ms
    state = OPEN[kind](backend, descriptor)
    for use in (lambda: WRITE[kind](state, 1), lambda: SEEN[kind](state), state.clear):
        with pytest.raises(StateError, match="no key is current"):
            use()


def test_map_operations_see_what_get_sees():
    """D1: every way of asking a map agrees on what has expired."""
    kept = Kept("map", config())
    state = kept.state
    state.put_all({"a": 1, "b": None})
    kept.clock.advance(60)
    state["c"] = 3
    assert "b" in state
    assert state["b"] is None
    kept.clock.advance(60)
    assert [list(state), list(state.keys()), list(state.values())] == [["c"], ["c"], [3]]
    assert list(state.items()) == [("c", 3)]
    assert not state.contains("a")
    assert len(state) == 1
    with pytest.raises(KeyError):
        state["a"]
    with pytest.raises(KeyError):
        del state["a"]
    del state["c"]
    assert state.is_empty()
    state.put("d", 4)
    assert not state.is_empty()
    kept.clock.advance(TTL_MS)
    assert state.is_empty()


def test_lists_keep_their_order():
    """D1: updating and adding several items gives all the present time."""
    kept = Kept("list", config(reads=True))
    kept.state.update([1, 2])
    kept.state.add_all([3])
    assert list(kept.state) == [1, 2, 3]
    kept.state.update([])
    assert kept.entries() == {}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("wait"), st.integers(1, 70)),
            st.tuples(st.sampled_from(["put", "remove", "get"]), st.integers(0, 3)),
        ),
        max_size=30,
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_a_map_against_a_model(steps, reads, shows, background):
    """D1: a map with a time to live is a dictionary of values and times; the background never changes what is seen."""
    kept = Kept("map", config(reads, shows, background and not shows))
    model = {}
    for step, number in steps:
        now = kept.clock.now_ms()
        if step == "wait":
            kept.clock.advance(number)
        elif step == "put":
            kept.state.put(number, number)
            model[number] = now
        elif step == "remove":
            kept.state.remove(number)
            model.pop(number, None)
        else:
            has_expired = number in model and model[number] + TTL_MS <= now
            expected = number if number in model and (shows or not has_expired) else None
            assert kept.state.get(number) == expected
            if has_expired:
                del model[number]
            elif number in model and reads:
                model[number] = now


# --- clean-up ---------------------------------------------------------------------------------------------------------


def fill(kept, count):
    for key in range(count):
        kept.backend.current_key = key
        kept.write(key)


@pytest.mark.parametrize("kind", DESCRIPTORS)
def test_the_background_looks_at_some_entries_with_each_access(kind):
    """D1: incremental clean-up looks at `cleanup_size` entries an access, so all are gone after a round."""
    ttl = StateTtlConfig.new_builder(Duration.of_millis(TTL_MS)).cleanup_incrementally(3, False).build()
    kept = Kept(kind, ttl)
    fill(kept, 10)
    kept.clock.advance(TTL_MS)
    kept.backend.current_key = "other"
    sizes = []
    for _ in range(5):
        kept.seen()
        sizes.append(len(kept.entries()))
    assert sizes[0] >= 7
    assert sorted(sizes, reverse=True) == sizes
    assert sizes[-1] == 0


def test_only_expired_elements_go():
    """D1: clean-up leaves the elements of a list that have time left."""
    kept = Kept("list", config(background=True))
    kept.write(1)
    kept.clock.advance(60)
    kept.write(2)
    kept.clock.advance(60)
    kept.backend.current_key = "other"
    kept.seen()
    assert kept.entries() == {"k": [(2, 1_060)]}


def test_a_state_that_is_asked_for_often_has_one_sweeper():
    """D1: asking for the state with every record does not begin the round again each time."""
    kept = Kept("value", StateTtlConfig.new_builder(TTL_MS).cleanup_incrementally(1, False).build())
    fill(kept, 5)
    kept.clock.advance(TTL_MS)
    for _ in range(5):
        descriptor = DESCRIPTORS["value"]()
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(TTL_MS).cleanup_incrementally(1, False).build())
        OPEN["value"](kept.backend, descriptor).value()
    assert kept.entries() == {}


def test_records_may_clean_up_too():
    """D1: with `run_cleanup_for_every_record` records count that do not touch the state."""
    ttl = StateTtlConfig.new_builder(TTL_MS).cleanup_incrementally(2, True).build()
    descriptor = DESCRIPTORS["value"]()
    descriptor.enable_time_to_live(ttl)
    with harness(descriptor, lambda state, n: None if n is None else state.update(n)) as run:
        run.process_batch([(key, key) for key in range(4)])
        run.advance_processing_time(TTL_MS)
        run.process_batch([("other", None)] * 2)
        assert run.context.keyed.table("s").entries(None) == {}


@pytest.mark.parametrize("kind", DESCRIPTORS)
def test_snapshots_leave_expired_entries_out(kind):
    """D1: with `cleanup_full_snapshot` nothing that has expired is written."""
    ttl = StateTtlConfig.new_builder(TTL_MS).disable_cleanup_in_background().cleanup_full_snapshot().build()
    kept = Kept(kind, ttl)
    fill(kept, 2)
    kept.clock.advance(60)
    kept.backend.current_key = 1
    kept.write(10)
    kept.clock.advance(60)
    (capture,) = kept.backend.capture(1)
    assert list(read_keyed([capture.to_bytes(128)], 0, 127)[None]) == [1]


# --- snapshots --------------------------------------------------------------------------------------------------------


def with_ttl(descriptor, ttl):
    if ttl is not None:
        descriptor.enable_time_to_live(ttl)
    return descriptor


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("kind", DESCRIPTORS)
def test_times_survive_a_restore(kind):
    """D1, G7: a value that was written before a failure expires when it would have expired without it."""
    make, write, see = DESCRIPTORS[kind], WRITE[kind], SEEN[kind]
    clock = VirtualClock()
    snapshot = written(with_ttl(make(), config()), write, [("k", 1)], clock=clock)
    clock.advance(60)
    assert read(with_ttl(make(), config()), lambda s, _: see(s), ["k"], snapshot, clock=clock) == [[1]]
    clock.advance(40)
    assert read(with_ttl(make(), config()), lambda s, _: see(s), ["k"], snapshot, clock=clock) == [[]]


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("kind", DESCRIPTORS)
def test_a_time_to_live_that_is_new_counts_from_the_restore(kind):
    """D1, H4: state written without times gets the time of the restore."""
    make, write, see = DESCRIPTORS[kind], WRITE[kind], SEEN[kind]
    clock = VirtualClock(5_000)
    snapshot = written(make(), write, [("k", 1)], clock=clock)
    with harness(with_ttl(make(), config()), lambda s, _: see(s), snapshot, clock=clock) as run:
        clock.advance(TTL_MS - 1)
        run.process(("k", None))
        clock.advance(1)
        run.process(("k", None))
    assert run.values == [[1], []]


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("kind", DESCRIPTORS)
def test_a_time_to_live_that_is_dropped(kind):
    """D1, H4: values that had not expired stay, those that had are gone."""
    make, write, see = DESCRIPTORS[kind], WRITE[kind], SEEN[kind]
    clock = VirtualClock()
    with harness(with_ttl(make(), config()), write, clock=clock) as run:
        run.process(("old", 1))
        clock.advance(60)
        run.process(("new", 2))
        clock.advance(60)
        snapshot = run.snapshot(1)
    assert read(make(), lambda s, _: see(s), ["old", "new"], snapshot, clock=clock) == [[], [2]]


@pytest.mark.usefixtures("each_backend")
def test_another_time_to_live_counts_from_the_last_access():
    """D1, H4: when only the length changes, the times stay."""
    clock = VirtualClock()
    snapshot = written(with_ttl(ValueStateDescriptor("s"), config()), WRITE["value"], [("k", 1)], clock=clock)
    clock.advance(150)
    longer = StateTtlConfig.new_builder(Time.milliseconds(200)).build()
    found = read(with_ttl(ValueStateDescriptor("s"), longer), lambda s, _: s.value(), ["k"], snapshot, clock=clock)
    assert found == [1]


# --- the configuration ------------------------------------------------------------------------------------------------


def test_configuration_as_in_pyflink():
    """D1: what a builder was told can be read back, under PyFlink's names."""
    made = (
        StateTtlConfig.new_builder(Time.seconds(1))
        .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
        .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
        .use_processing_time()
        .set_ttl(Time.seconds(2))
        .cleanup_full_snapshot()
        .cleanup_incrementally(10, True)
        .cleanup_in_rocksdb_compact_filter(
            query_time_after_num_entries=77, periodic_compaction_time=Duration.of_hours(1)
        )
        .build()
    )
    assert made.get_ttl() == Time.seconds(2)
    assert made.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
    assert made.get_state_visibility() is StateTtlConfig.StateVisibility.NeverReturnExpired
    assert made.get_ttl_time_characteristic() is StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    cleanup: Any = made.get_cleanup_strategies()
    assert cleanup.in_full_snapshot()
    assert cleanup.get_incremental_cleanup_strategy().get_cleanup_size() == 10
    compaction = cleanup.get_rocksdb_compact_filter_cleanup_strategy()
    assert compaction.get_query_time_after_num_entries() == 77
    assert compaction.get_periodic_compaction_time() == Time.hours(1)


def test_shortcuts_of_the_builder_are_settings():
    """D1: each short form is one value of one setting, and the last word counts."""
    update, visibility = StateTtlConfig.UpdateType, StateTtlConfig.StateVisibility
    default = StateTtlConfig.new_builder(Time.seconds(1)).build()
    assert (default.get_update_type(), default.get_state_visibility()) == (
        update.OnCreateAndWrite,
        visibility.NeverReturnExpired,
    )
    assert default.is_enabled()
    builder = StateTtlConfig.Builder(ttl=Time.seconds(1)).update_ttl_on_read_and_write()
    assert builder.build().get_update_type() is update.OnReadAndWrite
    assert builder.update_ttl_on_create_and_write().build().get_update_type() is update.OnCreateAndWrite
    shown = builder.return_expired_if_not_cleaned_up().build()
    assert shown.get_state_visibility() is visibility.ReturnExpiredIfNotCleanedUp
    assert builder.never_return_expired().build().get_state_visibility() is visibility.NeverReturnExpired


def test_what_never_returns_expired_values_and_what_reading_does_not_put_off():
    """D1: with the defaults written out a value is gone when its time is over, however often it was read."""
    written_out = StateTtlConfig.new_builder(TTL_MS).update_ttl_on_create_and_write().never_return_expired().build()
    kept = Kept("value", written_out)
    kept.write(1)
    for _ in range(3):
        kept.clock.advance(TTL_MS // 4)
        assert kept.seen() == [1]
    kept.clock.advance(TTL_MS - 3 * (TTL_MS // 4))
    assert kept.seen() == []


def test_clean_up_in_the_background_is_the_default():
    """D1: a backend cleans up by itself unless that was disabled."""
    on: Any = StateTtlConfig.new_builder(TTL_MS).build().get_cleanup_strategies()
    off = StateTtlConfig.new_builder(TTL_MS).disable_cleanup_in_background().build().get_cleanup_strategies()
    assert on.is_cleanup_in_background()
    assert on.get_incremental_cleanup_strategy().get_cleanup_size() == 5
    assert on.get_rocksdb_compact_filter_cleanup_strategy().get_periodic_compaction_time() == Time.days(30)
    assert off.get_incremental_cleanup_strategy() is None
    assert off.get_rocksdb_compact_filter_cleanup_strategy() is None


def test_a_disabled_time_to_live_is_none():
    """D1: with UpdateType.Disabled the state is one without expiry."""
    disabled = StateTtlConfig.new_builder(TTL_MS).set_update_type(StateTtlConfig.UpdateType.Disabled).build()
    descriptor = with_ttl(ValueStateDescriptor("s"), disabled)
    assert not disabled.is_enabled()
    assert descriptor.ttl_config is None


@pytest.mark.parametrize("ttl", [0, -1, Time.seconds(0)])
def test_a_time_to_live_is_positive(ttl):
    """D1: entries that expire at once, or before, are a mistake."""
    with pytest.raises(ValueError, match="positive"):
        StateTtlConfig.new_builder(ttl).build()


def test_what_is_no_configuration_is_refused():
    """D1: a time to live is enabled by a configuration."""
    with pytest.raises(TypeError, match="StateTtlConfig"):
        ValueStateDescriptor("s").enable_time_to_live(5)  # type: ignore[arg-type]


def test_two_declarations_of_one_state_must_agree_on_expiry():
    """D1: one state cannot expire and not expire; a job that tries fails at once."""
    backend = HeapKeyedStateBackend(128, "Op")
    states.open_value_state(backend, ValueStateDescriptor("s"))
    with pytest.raises(StateError, match=r"Op: state 's' was declared as .* and now as .*TTL 100 ms"):
        states.open_value_state(backend, with_ttl(ValueStateDescriptor("s"), config()))


def test_an_error_of_migration_stops_the_job_at_once():
    """H4: no restart can mend a state that does not fit."""
    snapshot = written(ValueStateDescriptor("s"), WRITE["value"], [("k", 1)])
    run = harness(ListStateDescriptor("s"), lambda s, _: None, snapshot)
    with pytest.raises(UserCodeError) as error:
        run.open()
    failure = describe_failure(error.value, "Operator")
    assert failure.suppresses_restart
    assert "value state cannot become list state" in failure.reason
