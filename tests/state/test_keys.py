"""What is one key, and what are two: on the heap, on RocksDB, after a restore and at any parallelism (D1, D4)."""

from __future__ import annotations

import copy
import dataclasses
import enum
import math
import pickle
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import numpy
import pandas
import pytest
from hypothesis import example, given, settings
from tests.state import keys as all_keys
from tests.state.keys import AT, KEYS, UTC, Color, Labelled, Point, counted, without_nan
from tests.state.rocks import GROUPS, FolderRocks, Storage, rocks

from penstock.base.errors import MisuseError
from penstock.base.types import Row
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.keyed.aggregates import KeyedReduceOperator
from penstock.runtime.records import Batch
from penstock.runtime.task.channels.result_partition import HashPartitioner
from penstock.state.backend import HeapKeyedStateBackend
from penstock.state.errors import StateError
from penstock.state.keys import (
    NAN,
    KeyGuard,
    RefusedKeyError,
    assign_key_group,
    assign_key_groups,
    decode_plain_key,
    is_plain,
    key_bytes,
    with_one_nan,
)
from penstock.state.rocksdb import pane as namespace_pane
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.cache import drop_keys_version
from penstock.state.rocksdb.snapshot import SourceFiles
from penstock.state.snapshot import PUT, KeyedRows
from penstock.state.states import ValueStateDescriptor
from penstock.testing import OneInputOperatorHarness, operator_harness

BACKENDS = {"heap": HeapKeyedStateBackend, "RocksDB": FolderRocks}


class Count:
    def reduce(self, one: Any, other: Any) -> Any:
        return one[0], one[1] + other[1]


def counting(backend: str) -> OneInputOperatorHarness:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_harness, "HeapKeyedStateBackend", BACKENDS[backend])
        return OneInputOperatorHarness(lambda: KeyedReduceOperator(Count(), lambda record: record[0]))


def is_one(one: Any, other: Any) -> bool:
    """Whether a dictionary has one entry for both."""
    return len({without_nan(one): 0, without_nan(other): 0}) == 1


@pytest.mark.slow
@settings(deadline=None, max_examples=1500)
@given(KEYS, KEYS)
@example(frozenset({"a", "b"}), frozenset({"asb"}))
@example(Decimal("1.00000000000000000000000000001"), Decimal("1.00000000000000000000000000002"))
@example(Row(a=1, b=2), Row(x=1, y=2))
@example(Labelled(1, "x"), Labelled(1, "y"))
@example(float("inf"), Decimal("Infinity"))
@example(AT.replace(tzinfo=UTC).timetz(), AT.replace(hour=13, tzinfo=all_keys.EAST).timetz())
@example(Color.RED, "red")
@example(float("nan"), Decimal("NaN"))
@example((1, float("nan")), (1.0, float("nan")))
def test_keys_have_the_same_bytes_just_when_they_are_one(one: Any, other: Any) -> None:
    """D1, D4: same key, same bytes, same group; other key, other bytes."""
    assert (key_bytes(one) == key_bytes(other)) == is_one(one, other)
    if is_one(one, other):
        assert assign_key_group(one, 128) == assign_key_group(other, 128)
    assert assign_key_groups([one, other], 128) == [assign_key_group(one, 128), assign_key_group(other, 128)]


def test_every_two_keys_of_the_list_have_the_same_bytes_just_when_they_are_one() -> None:
    """D1, D4: the same of all pairs of simple keys."""
    for one in all_keys.ONE:
        for other in all_keys.ONE:
            assert (key_bytes(one) == key_bytes(other)) == is_one(one, other), (one, other)


@settings(deadline=None, max_examples=300)
@given(KEYS)
def test_plain_keys_come_back_from_their_bytes(key: Any) -> None:
    """D1: type included."""
    if is_plain(key):
        assert decode_plain_key(key_bytes(key)) == key


@pytest.mark.parametrize("key", [10**5000, -(10**5000), (10**5000, "a")], ids=["large", "less", "in a tuple"])
def test_integers_of_more_digits_than_python_writes(key: Any) -> None:
    """D1: are keys like others."""
    assert decode_plain_key(key_bytes(key)) == key
    assert key_bytes(key) != key_bytes(1)
    assert assign_key_groups([key, 1], 128) == [assign_key_group(key, 128), assign_key_group(1, 128)]
    assert key_bytes(10**5000) == key_bytes(Decimal("1E+5000"))


@pytest.mark.parametrize("backend", BACKENDS)
@settings(deadline=None, max_examples=40)
@given(st.lists(KEYS, max_size=30), st.lists(KEYS, max_size=30))
def test_state_is_kept_by_key_through_a_restore(backend: str, before: list[Any], after: list[Any]) -> None:
    """D1, D3, G8: as many states as there are keys, each with what came under its key before and after."""
    first = counting(backend)
    with first:
        first.process_batch([(key, 1) for key in before])
        snapshot = first.snapshot(1)
    second = counting(backend)
    second.restore(snapshot)
    with second:
        second.process_batch([(key, 1) for key in [*after, *before]])
        last = {without_nan(key): count for (key, count) in second.values}
    keys = [*before, *after, *before]
    assert sorted(last.values()) == counted(keys)


@settings(deadline=None, max_examples=200)
@given(st.lists(KEYS, min_size=1, max_size=20))
def test_routes_send_a_key_to_one_subtask(keys: list[Any]) -> None:
    """D4, B3: whatever came before it."""
    partitioner = HashPartitioner(lambda record: record[0])
    partitioner.set_up(0, 5, 128)
    found: dict[Any, set[int]] = {}
    for channel, batch in partitioner.split(Batch([(key,) for key in keys])):
        for (key,) in batch.values:
            found.setdefault(without_nan(key), set()).add(channel)
    assert all(len(channels) == 1 for channels in found.values())


# --- NaN --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "make",
    [
        lambda: float("nan"),
        lambda: (1, float("nan")),
        lambda: Row(a=float("nan")),
        lambda: Point(float("nan"), 1),
        lambda: frozenset({float("nan")}),
        lambda: ("a", (Decimal("NaN"),)),
        lambda: numpy.float32("nan"),
    ],
)
def test_nan_is_one_key(backend: str, make: Callable[[], Any]) -> None:
    """D1: each record had a state of its own, for ever."""
    with counting(backend) as harness:
        harness.process_batch([(make(), 1), (make(), 1)])
        harness.process_batch([(make(), 1)])
        assert [count for _, count in harness.values] == [1, 2, 3]
        snapshot = harness.snapshot(1)
    again = counting(backend)
    again.restore(snapshot)
    with again:
        again.process_batch([(make(), 1)])
        assert [count for _, count in again.values] == [4]


def test_the_nan_of_keys_is_no_number_and_equals_itself_in_every_process() -> None:
    """D1: a pickle gives the very object back."""
    assert math.isnan(NAN)
    assert isinstance(NAN, float)
    assert pickle.loads(pickle.dumps(NAN)) is NAN
    assert with_one_nan((1, float("nan"))) == pickle.loads(pickle.dumps((1, NAN)))
    assert float("nan") != NAN


# --- what is refused --------------------------------------------------------------------------------------------------


class OwnEquality(str):
    def __eq__(self, other: object) -> bool:
        return self.lower() == str(other).lower()

    def __hash__(self) -> int:
        return hash(self.lower())


@dataclasses.dataclass(eq=False, frozen=True)
class Itself:
    x: int


@dataclasses.dataclass
class Mutable:
    x: int


@dataclasses.dataclass(frozen=True)
class OwnDataclass:
    x: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnDataclass) and abs(self.x) == abs(other.x)

    def __hash__(self) -> int:
        return hash(abs(self.x))


REFUSED = [
    (object(), "no stable value"),
    ([1], "type list"),
    ({"a": 1}, "type dict"),
    (("a", [1]), "type list"),
    (bytearray(b"a"), "type bytearray"),
    (1j, "type complex"),
    (numpy.datetime64("2024-01-01"), r"item\(\)"),
    (OwnEquality("a"), "compares differently from str"),
    (Itself(1), "eq=False"),
    (Mutable(1), "frozen=True"),
    (OwnDataclass(1), "its own __eq__"),
    (Decimal("sNaN"), "signaling NaN"),
    (Decimal("1E+300001"), "300000 digits"),
]


@pytest.mark.parametrize(("key", "words"), REFUSED, ids=[type(key).__name__ for key, _ in REFUSED])
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_cannot_be_told_is_refused_as_a_key(key: Any, words: str, backend: str) -> None:
    """D1, D4: on every backend and on the way to it, with the operator, the record and what to do instead."""
    with pytest.raises(StateError, match=words):
        key_bytes(key)
    with counting(backend) as harness, pytest.raises(UserCodeError) as raised:
        harness.process_batch([("a", 1), (key, 2)])
    assert raised.value.record == (key, 2)
    assert isinstance(raised.value.__cause__, MisuseError)
    assert "the key selector must return" in str(raised.value.__cause__)
    partitioner = HashPartitioner(lambda record: record[0])
    partitioner.set_up(0, 2, 128, "Counts")
    with pytest.raises(UserCodeError) as routed:
        partitioner.split(Batch([("b", 1), (key, 2)]))
    assert (routed.value.operator_name, routed.value.record) == ("Counts", (key, 2))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("key", [Point(pandas.NaT, 1), (Point(1, pandas.NaT), 2)], ids=["alone", "in a tuple"])
def test_dataclass_that_does_not_equal_a_copy_is_refused(key: Any, backend: str) -> None:
    """D1: as one with NaT since Python 3.13; each record would have a state of its own, without a word."""
    with counting(backend) as harness:
        if copy.deepcopy(key) == key:
            harness.process_batch([(key, 1), (copy.deepcopy(key), 2)])
            assert [count for _, count in harness.values] == [1, 3]
            return
        with pytest.raises(UserCodeError) as raised:
            harness.process_batch([("a", 1), (key, 2)])
    assert raised.value.record[0] is key
    assert "does not equal a copy of itself" in str(raised.value.__cause__)


def test_keys_of_two_classes_with_one_name_are_refused() -> None:
    """D1: bytes name a class without its module; one that replaces another is not taken for it in silence."""

    def make() -> Any:
        class Kind(enum.Enum):
            A = 1

        return Kind.A

    guard = KeyGuard()
    one, other = make(), make()
    assert guard.admit([one, (one, 1)]) == [one, (one, 1)]
    with pytest.raises(RefusedKeyError, match="two classes with the name") as raised:
        guard.admit([one, Row(other)])
    assert raised.value.index == 1


def test_good_keys_are_handed_on_as_they_are() -> None:
    """D1: the very list, however often it comes."""
    guard = KeyGuard()
    for keys in ([1, 2, True], ["a", "b"], [0.5, 2.0], [("a", 1), ("b", 2)], [()], [Point(1, 2)], [None, "a", 1]):
        guard.admit(keys)
        assert guard.admit(keys) is keys


def test_a_guard_that_has_seen_much_answers_as_a_new_one() -> None:
    """D1: whether keys recur or are all new, which decides whether they are remembered."""
    fresh_seed = random.SystemRandom().randrange(2**31)
    chance = random.Random(fresh_seed)
    guard = KeyGuard()
    for _ in range(300):
        numbers = chance.choice([range(5), range(1_000_000)])
        keys: list[Any] = [(f"k{chance.choice(numbers)}", chance.choice(numbers)) for _ in range(chance.randint(1, 30))]
        if chance.random() < 0.2:
            odd = chance.choice([("k", float("nan")), ("k", [1]), ("k", {}), 0.5, ("k", 1, 2), ["k"]])
            keys.insert(chance.randint(0, len(keys)), odd)
        answers = []
        for each in (guard, KeyGuard()):
            try:
                answers.append(each.admit(list(keys)))
            except RefusedKeyError as error:
                answers.append([error.index, str(error)])
        assert answers[0] == answers[1], f"seed {fresh_seed}: {keys}"


# --- state of older releases ------------------------------------------------------------------------------------------


def older_file(key: Any, group: int) -> bytes:
    """One entry, as a release wrote it that did not tell by which canonical bytes."""
    rows = KeyedRows()
    rows.add(group, PUT, pickle.dumps(key), pickle.dumps(None), pickle.dumps("v"))
    return rows.to_bytes({}, keys_version=None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("key", ["a", 1, ("a", 1), Point(1, 2), Color.RED.name, 0.5, float("nan"), Row(1, 2)])
def test_keys_whose_bytes_are_as_before_are_restored(backend: str, key: Any) -> None:
    """H4, D3: and found."""
    made = BACKENDS[backend](128)
    made.restore_canonical("state", [older_file(key, assign_key_group(key, 128))], (0, 127), True)
    state = made.value_state(ValueStateDescriptor("state"))
    (made.current_key,) = KeyGuard().admit([key])
    assert state.value() == "v"
    made.close()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("key", [frozenset({"a"}), Row(a=1)])
def test_keys_that_an_older_release_had_elsewhere_are_an_error(backend: str, key: Any) -> None:
    """H4: nothing is restored where it would not be found."""
    made = BACKENDS[backend](128, "My Operator")
    elsewhere = (assign_key_group(key, 128) + 1) % 128
    with pytest.raises(StateError, match=r"My Operator: state 'state': an older release of Penstock wrote it"):
        made.restore_canonical("state", [older_file(key, elsewhere)], (0, 127), True)
    made.close()


@pytest.mark.parametrize("key", ["a", (1, "b"), Point(1, 2)])
def test_rocksdbs_own_files_of_an_older_release_are_restored(key: Any) -> None:
    """H4, D3: where all keys have the bytes that they had."""
    with rocks() as older, rocks() as newer:
        state = older.value_state(ValueStateDescriptor("state"))
        older.current_key = key
        state.update("v")
        newer.restore_files([files_without_version(older)])
        newer.current_key = key
        assert newer.value_state(ValueStateDescriptor("state")).value() == "v"


def test_rocksdbs_own_files_with_keys_of_other_bytes_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """H4: rows that would not be found again."""
    with rocks() as older, rocks() as newer:
        state = older.value_state(ValueStateDescriptor("state"))
        older.current_key = frozenset({"a", "b"})
        with monkeypatch.context() as patch:
            patch.setattr(namespace_pane, "key_bytes", lambda key: b"Ssasb")
            state.update("v")
            files = files_without_version(older)
        with pytest.raises(StateError, match=r"state 'state': an older release of Penstock wrote it.*frozenset"):
            newer.restore_files([files])


@pytest.mark.parametrize("older_is_larger", [False, True])
def test_files_of_two_releases_in_one_store(older_is_larger: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """H4, D4: the store that takes them in asks for the keys of the older release, whichever files are the larger ones.

    After a partial restart subtasks of two releases may have written the files of one checkpoint."""
    older_groups, newer_groups = ((0, 79), (80, GROUPS - 1)) if older_is_larger else ((80, GROUPS - 1), (0, 79))
    descriptor, storage = ValueStateDescriptor("state"), Storage()
    with rocks(key_groups=older_groups) as older, rocks(key_groups=newer_groups) as newer, rocks() as both:
        state = older.value_state(descriptor)
        with monkeypatch.context() as patch:
            patch.setattr(namespace_pane, "key_bytes", lambda key: b"Ssasb")
            patch.setattr(namespace_pane, "key_group_of_bytes", lambda data, count: older_groups[0])
            older.current_key = frozenset({"a", "b"})
            state.update("v")
            files_of_older = files_without_version(older, older_groups)
        state = newer.value_state(descriptor)
        newer.current_key = next(key for key in range(100) if assign_key_group(key, GROUPS) >= newer_groups[0])
        state.update("v")
        files_of_newer = storage.fetch(storage.checkpoint(newer, 1, {}), newer.directory / "new", newer_groups)
        with pytest.raises(StateError, match=r"state 'state': an older release of Penstock wrote it.*frozenset"):
            both.restore_files([files_of_newer, files_of_older])


def files_without_version(
    backend: RocksDBKeyedStateBackend, key_groups: tuple[int, int] = (0, GROUPS - 1)
) -> SourceFiles:
    """What a store of an older release leaves in a checkpoint."""
    cache = backend._open()
    cache.flush()
    batch = cache.store.batch()
    drop_keys_version(batch)
    batch.write()
    storage = Storage()
    references = storage.checkpoint(backend, 1, {})
    return storage.fetch(references, backend.directory / "old", key_groups)
