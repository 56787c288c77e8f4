"""Incremental snapshots: whatever happens between them, a history of changes says what a full snapshot would."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.runtime.operators.watermarks import TimerQueue
from penstock.runtime.protocol import ExecutionId
from penstock.runtime.task.checkpoints import HISTORY_FILES_MAX, SnapshotWriter, StateHistories, restore_operator
from penstock.state.backend import HeapKeyedStateBackend, StateTable
from penstock.state.keys import assign_key_group
from penstock.state.operator_state import OperatorStateBackend
from penstock.state.snapshot import KeyedCapture, merge_keyed, read_keyed
from penstock.state.states import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import KeyedStateHandle, OperatorSubtaskState

GROUPS = (0, 127)
SAVEPOINT = "memory://savepoint"
Tables = dict[str, dict[Any, dict[Any, Any]]]


def compact(tables: Tables) -> Tables:
    """Without namespaces and tables that hold nothing."""
    kept = {name: {n: entries for n, entries in table.items() if entries} for name, table in tables.items()}
    return {name: table for name, table in kept.items() if table}


class Subtask:
    """The keyed state of one subtask with its histories, as a stream task handles them."""

    def __init__(self, restored: OperatorSubtaskState | None = None, groups: tuple[int, int] = GROUPS) -> None:
        self.groups = groups
        self.backend = HeapKeyedStateBackend(128, "Op")
        self.histories = StateHistories()
        self.storage = FileCheckpointStore(None, "job", 0)
        if restored is not None:
            context: Any = SimpleNamespace(
                operator_id="op", keyed=self.backend, operator_state=OperatorStateBackend("Op")
            )
            restore_operator(restored, context, self.storage, groups, self.histories, lambda name, items: None)

    def savepoint(self, checkpoint_id: int, path: str) -> OperatorSubtaskState:
        captures = self.backend.capture(checkpoint_id)
        self.backend.take_back(checkpoint_id)
        writer = SnapshotWriter(self.storage, checkpoint_id, ExecutionId(0, 0, 0), self.groups, 128, path)
        return writer.store({"op": list(captures)}, self.histories.confirmed)["op"]

    def store(self, checkpoint_id: int, captures: list[KeyedCapture], confirmed: Any = None) -> OperatorSubtaskState:
        writer = SnapshotWriter(self.storage, checkpoint_id, ExecutionId(0, 0, 0), self.groups, 128)
        stored = writer.store({"op": list(captures)}, self.histories.confirmed if confirmed is None else confirmed)
        self.histories.on_stored(checkpoint_id, stored)
        return stored["op"]

    def snapshot(self, checkpoint_id: int) -> OperatorSubtaskState:
        return self.store(checkpoint_id, self.backend.capture(checkpoint_id))

    def complete(self, checkpoint_id: int) -> None:
        self.histories.on_complete(checkpoint_id)
        self.backend.confirm(checkpoint_id)

    def read(self, state: OperatorSubtaskState) -> Tables:
        tables: Tables = {}
        for name, (handle,) in state.keyed.items():
            tables[name] = read_keyed(map(self.storage.read, handle.files), *GROUPS)
        return compact(tables)

    @property
    def contents(self) -> Tables:
        return compact({name: table.panes for name, table in self.backend._tables.items()})


KEYS = ["a", "b", "c", 1, (2, "x")]
IN_LOWER_HALF = [key for key in KEYS if assign_key_group(key, 128) < 64]
TABLE = st.sampled_from(["one", "two"])
NAMESPACE = st.sampled_from([None, (0, 10), (10, 20)])
KEY = st.sampled_from(KEYS)
OPERATION = st.one_of(
    st.tuples(st.just("put"), TABLE, NAMESPACE, KEY, st.integers(0, 3)),
    st.tuples(st.just("append"), TABLE, NAMESPACE, KEY, st.integers(0, 3)),
    st.tuples(st.just("batch"), TABLE, NAMESPACE, KEY, st.lists(KEY, max_size=4)),
    st.tuples(st.just("remove"), TABLE, NAMESPACE, KEY),
    st.tuples(st.just("drop"), TABLE, st.sampled_from([(0, 10), (10, 20)])),
    st.tuples(st.just("capture"), st.booleans()),
    st.tuples(st.just("savepoint")),
    st.tuples(st.just("store")),
    st.tuples(st.just("complete"), st.booleans()),
    st.tuples(st.just("restore"), st.booleans()),
)


def apply(subtask: Subtask, model: Tables, operation: Any) -> None:
    """One change, to the real thing and to the model."""
    verb, name, namespace, *rest = operation
    table, entries_of = subtask.backend.table(name), model.setdefault(name, {})
    if verb == "drop":
        assert table.drop(namespace) == entries_of.pop(namespace, {})
        return
    key = rest[0]
    entries, wanted = table.entries(namespace), entries_of.setdefault(namespace, {})
    if verb == "batch":
        keys = [key, *rest[1]]
        for of_batch in keys:
            entries[of_batch] = [len(keys)]
            wanted[of_batch] = [len(keys)]
        table.mark(namespace, keys)
        return
    table.changed(namespace).add(key)
    if verb == "remove":
        entries.pop(key, None)
        wanted.pop(key, None)
    elif verb == "put" or key not in entries:
        entries[key] = [rest[1]]
        wanted[key] = [rest[1]]
    else:
        entries[key].append(rest[1])  # in place, as list state does
        wanted[key] = [*wanted[key], rest[1]]


#: From how many entries on a snapshot of much that has changed is written whole.
WHOLE_FROM = st.sampled_from([0, 1024])


def whole_from(test: Callable[[list], None]) -> Callable[[list, int], None]:
    """The test with another number of entries from which snapshots are written whole."""

    def patched(steps: list, least: int) -> None:
        with patch("penstock.state.backend._WHOLE_ENTRIES_MIN", least):
            test(steps)

    patched.__name__, patched.__qualname__, patched.__doc__ = test.__name__, test.__qualname__, test.__doc__
    return patched


@settings(deadline=None, max_examples=600)
@given(st.lists(OPERATION, max_size=40), WHOLE_FROM)
@whole_from
def test_histories_against_a_plain_dictionary(operations: list) -> None:
    """G7: whichever checkpoints complete, never answer or are stored late, whatever savepoints are taken, and wherever
    it recovers, at the same parallelism or at another, every stored history reads as what the state was when it was
    captured."""
    subtask = Subtask()
    model: Tables = {}
    checkpoint_id = 0
    waiting: dict[int, tuple[list[KeyedCapture], Any, Tables]] = {}  # captured, not stored yet
    stored: dict[int, tuple[OperatorSubtaskState, Tables]] = {}
    completed: tuple[OperatorSubtaskState, Tables] | None = None
    for operation in operations:
        verb = operation[0]
        if verb == "capture":
            checkpoint_id += 1
            # Aligned parts are written at once, unaligned ones when all that is in flight is known.
            confirmed = subtask.histories.confirmed if operation[1] else None
            waiting[checkpoint_id] = (subtask.backend.capture(checkpoint_id), confirmed, deepcopy(compact(model)))
        elif verb == "savepoint":
            checkpoint_id += 1
            assert subtask.read(subtask.savepoint(checkpoint_id, SAVEPOINT)) == compact(model)
        elif verb == "store" and waiting:
            stored_id = min(waiting)
            captures, confirmed, expected = waiting.pop(stored_id)
            state = subtask.store(stored_id, captures, confirmed)
            assert subtask.read(state) == expected
            stored[stored_id] = (state, expected)
        elif verb == "complete" and stored:
            # While one is on its way to be completed, newer ones may be captured and stored.
            completed_id = min(stored) if operation[1] else max(stored)
            completed = stored[completed_id]
            subtask.complete(completed_id)
            stored = {i: s for i, s in stored.items() if i > completed_id}
            waiting = {i: w for i, w in waiting.items() if i > completed_id}
        elif verb == "restore" and completed is not None:
            state, model = completed[0], deepcopy(completed[1])
            rescaled = operation[1]
            subtask = Subtask(state, (0, 63) if rescaled else GROUPS)
            if rescaled:
                for table in model.values():
                    for entries in table.values():
                        for key in [k for k in entries if k not in IN_LOWER_HALF]:
                            del entries[key]
            assert subtask.contents == compact(model)
            stored.clear()
            waiting.clear()
            state = subtask.snapshot(checkpoint_id := checkpoint_id + 1)
            assert subtask.read(state) == compact(model), "a snapshot right after the recovery says the same"
            subtask.complete(checkpoint_id)
            completed = (state, deepcopy(compact(model)))
        elif verb in ("put", "append", "batch", "remove", "drop") and (
            subtask.groups == GROUPS
            or verb == "drop"
            or (operation[3] in IN_LOWER_HALF and (verb != "batch" or set(operation[4]) <= set(IN_LOWER_HALF)))
        ):
            apply(subtask, model, operation)
            assert subtask.contents == compact(model)
    state = subtask.snapshot(checkpoint_id + 1)
    assert subtask.read(state) == compact(model)
    merged = {
        name: read_keyed([merge_keyed(map(subtask.storage.read, handle.files))], *GROUPS)
        for name, (handle,) in state.keyed.items()
    }
    assert compact(merged) == compact(model)


def test_what_was_captured_while_an_older_one_completes_is_still_to_be_confirmed() -> None:
    """G7: checkpoint 2 has captured a change and does not complete, so checkpoint 3, built on 1, holds it."""
    subtask = filled(10)
    subtask.snapshot(1)
    change(subtask, range(1), "of 2")
    subtask.snapshot(2)
    subtask.complete(1)
    change(subtask, range(1, 2), "of 3")
    state = subtask.read(subtask.snapshot(3))
    assert state["count"][None] == {0: "of 2", 1: "of 3", **{key: f"value {key}" for key in range(2, 10)}}


def test_later_changes_do_not_reach_the_snapshot() -> None:
    """G7: user code that changes a list, a map or a value right after the barrier cannot change the snapshot, though
    its bytes are made only later."""
    subtask = Subtask()
    backend = subtask.backend
    backend.current_key = "k"
    items = backend.list_state(ListStateDescriptor("list"))
    pairs = backend.map_state(MapStateDescriptor("map"))
    value = backend.value_state(ValueStateDescriptor("value"))
    mine = {"inner": [1]}
    items.add(mine)
    pairs.put("p", mine)
    value.update([mine])
    captures = backend.capture(1)
    mine["inner"].append(2)
    mine["more"] = []
    items.add("later")
    pairs.put("q", "later")
    pairs.remove("p")
    value.value().append("later")  # type: ignore[union-attr]
    backend.current_key = "other"
    value.update("later")
    state = subtask.store(1, captures)
    assert subtask.read(state) == {
        "list": {None: {"k": [{"inner": [1]}]}},
        "map": {None: {"k": {"p": {"inner": [1]}}}},
        "value": {None: {"k": [{"inner": [1]}]}},
    }
    subtask.complete(1)
    assert subtask.read(subtask.snapshot(2))["map"] == {None: {"k": {"q": "later"}}}


def filled(count: int) -> Subtask:
    subtask = Subtask()
    state = subtask.backend.value_state(ValueStateDescriptor("count"))
    for key in range(count):
        subtask.backend.current_key = key
        state.update(f"value {key}")
    return subtask


def change(subtask: Subtask, keys: range, value: str) -> None:
    state = subtask.backend.value_state(ValueStateDescriptor("count"))
    for key in keys:
        subtask.backend.current_key = key
        state.update(value)


def handle_of(state: OperatorSubtaskState) -> KeyedStateHandle:
    (handle,) = state.keyed["count"]
    return handle


@pytest.mark.parametrize("size", [2_000, 20_000])
def test_bytes_written_follow_the_change(size: int) -> None:
    """G7: after the first checkpoint only what has changed is written, however much there is."""
    subtask = filled(size)
    first = handle_of(subtask.snapshot(1))
    assert first.length > 30 * size
    subtask.complete(1)
    change(subtask, range(20), "new")
    second = handle_of(subtask.snapshot(2))
    assert second.files[0] == first.files[0]
    assert second.files[1].length < 4_000
    subtask.complete(2)
    third = handle_of(subtask.snapshot(3))
    assert third == second, "nothing has changed, so nothing is written"


def test_a_table_that_has_mostly_changed_is_written_whole_until_that_is_confirmed() -> None:
    """G7: keys are not marked any more then, and an entry that goes away after a failed snapshot is not left behind."""
    subtask = Subtask()
    table = subtask.backend.table("count")
    entries = table.entries(None)
    entries.update(dict.fromkeys(range(2_000), 1))
    table.mark(None, range(2_000))
    subtask.snapshot(1)
    subtask.complete(1)
    for key in range(1_000):
        entries[key] = 2
    table.mark(None, range(1_000))
    entries[1_999] = 3
    table.mark(None, [1_999])
    assert 1_999 not in table.changed(None)
    whole = subtask.snapshot(2)
    assert subtask.read(whole) == {"count": {None: entries}}
    assert len(handle_of(whole).files) == 1
    del entries[5]
    table.changed(None).add(5)
    entries.update(dict.fromkeys(range(2_000, 9_000), 4))
    table.changed(None).update(range(2_000, 3_000))
    for key in range(3_000, 9_000):
        del entries[key]
    again = subtask.snapshot(3)
    assert subtask.read(again) == {"count": {None: entries}}
    subtask.complete(3)
    entries[7] = 5
    table.mark(None, [7])
    state = subtask.snapshot(4)
    assert len(handle_of(state).files) == 2
    assert subtask.read(state) == {"count": {None: entries}}


def test_marking_one_of_many_namespaces_does_not_look_through_all_of_them() -> None:
    """G7: a record is in thousands of sliding windows, each a namespace."""
    subtask = Subtask()
    table = subtask.backend.table("windows")
    table.entries(0)["key"] = 1
    subtask.snapshot(1)
    subtask.complete(1)
    with patch.object(StateTable, "_is_mostly_changed", return_value=False) as look:
        for _ in range(5):
            for window in range(2_000):
                table.entries(window)["key"] = 1
                table.mark(window, ["key"])
    assert 0 < look.call_count < 20


def test_after_a_savepoint_a_snapshot_adds_to_the_checkpoint_before_it() -> None:
    """G7, H1: and writes what has changed since that checkpoint, before the savepoint or after it."""
    subtask = Subtask()
    table = subtask.backend.table("one")
    entries, changed = table.entries(None), table.changed(None)
    entries.update(a=1, b=1, c=1)
    table.entries((0, 10))["a"] = table.entries((10, 20))["a"] = 1
    subtask.snapshot(1)
    subtask.complete(1)
    entries["a"] = 2
    del entries["c"]
    changed.update("ac")
    table.drop((0, 10))
    savepoint = subtask.savepoint(2, SAVEPOINT)
    assert len(savepoint.keyed["one"][0].files) == 1
    assert subtask.read(savepoint) == {"one": {None: {"a": 2, "b": 1}, (10, 20): {"a": 1}}}
    entries["b"] = 2
    changed.add("b")
    checkpoint = subtask.snapshot(3)
    _, added = checkpoint.keyed["one"][0].files
    assert sorted(read_keyed([subtask.storage.read(added)], *GROUPS)[None]) == ["a", "b"]
    assert subtask.read(checkpoint) == {"one": {None: {"a": 2, "b": 2}, (10, 20): {"a": 1}}}


def test_what_was_not_confirmed_is_written_again() -> None:
    """G7: a checkpoint that was aborted, or never answered, is no base: its changes go into the next one."""
    subtask = filled(100)
    subtask.snapshot(1)
    subtask.complete(1)
    change(subtask, range(5), "lost")
    subtask.snapshot(2)  # aborted
    change(subtask, range(5, 10), "kept")
    state = subtask.snapshot(3)
    assert len(handle_of(state).files) == 2
    assert [subtask.read(state)["count"][None][k] for k in (0, 5, 10)] == ["lost", "kept", "value 10"]


def test_histories_are_merged() -> None:
    """G7: a history stays short, and what it takes is bounded by twice what a full snapshot would."""
    subtask = filled(200)
    full = handle_of(subtask.snapshot(1)).length
    subtask.complete(1)
    merged = 0
    for checkpoint_id in range(2, 80):
        change(subtask, range(checkpoint_id % 7, 30), f"round {checkpoint_id}")
        state = subtask.snapshot(checkpoint_id)
        subtask.complete(checkpoint_id)
        handle = handle_of(state)
        assert len(handle.files) <= HISTORY_FILES_MAX
        assert handle.length <= 2.2 * full
        merged += len(handle.files) == 1
    assert 2 <= merged < 40
    assert subtask.read(state) == subtask.contents


def test_merging_by_number_of_files() -> None:
    """G7: many tiny changes are merged too, long before they add up."""
    subtask = filled(5_000)
    lengths = []
    for checkpoint_id in range(1, 2 * HISTORY_FILES_MAX + 2):
        change(subtask, range(1), f"round {checkpoint_id}")
        state = subtask.snapshot(checkpoint_id)
        subtask.complete(checkpoint_id)
        lengths.append(len(handle_of(state).files))
    assert lengths == [*range(1, HISTORY_FILES_MAX + 1)] * 2 + [1]


def test_removed_and_dropped() -> None:
    """G7: what was removed, and what lay under a dropped namespace, does not come back, not even from older files."""
    subtask = Subtask()
    table = subtask.backend.table("windows")
    for window in ((0, 10), (10, 20)):
        for key in "ab":
            table.entries(window)[key] = [key]
            table.changed(window).add(key)
    subtask.snapshot(1)
    subtask.complete(1)
    table.drop((0, 10))
    del table.entries((10, 20))["a"]
    table.changed((10, 20)).add("a")
    state = subtask.snapshot(2)
    assert subtask.read(state) == {"windows": {(10, 20): {"b": ["b"]}}}
    assert len(state.keyed["windows"][0].files) == 2
    subtask.complete(2)
    table.entries((0, 10))["c"] = ["again"]
    table.changed((0, 10)).add("c")
    assert subtask.read(subtask.snapshot(3)) == {"windows": {(0, 10): {"c": ["again"]}, (10, 20): {"b": ["b"]}}}


TIMER_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["register", "delete"]), st.integers(0, 6), st.sampled_from("abc")),
        st.tuples(st.just("fire"), st.integers(0, 6)),
        st.tuples(st.sampled_from(["capture", "complete", "restore"])),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=300)
@given(TIMER_STEPS, WHOLE_FROM)
@whole_from
def test_timers_in_histories(steps: list) -> None:
    """A1, G7: timers set, deleted and fired between incremental snapshots are just those due after a recovery."""
    subtask, due = Subtask(), set[tuple[int, str]]()
    queue = TimerQueue(subtask.backend.table("timers"))
    checkpoint_id = 0
    stored: tuple[int, OperatorSubtaskState, set] | None = None
    completed: tuple[OperatorSubtaskState, set] | None = None
    for step in steps:
        if step[0] == "register":
            queue.register(*step[1:])
            due.add(step[1:])
        elif step[0] == "delete":
            queue.delete(*step[1:])
            due.discard(step[1:])
        elif step[0] == "fire":
            fired: list[tuple[int, Any]] = []
            queue.fire(step[1], lambda time, item, fired=fired: fired.append((time, item)))  # type: ignore[misc]
            assert sorted(fired) == sorted(t for t in due if t[0] <= step[1])
            due = {t for t in due if t[0] > step[1]}
        elif step[0] == "capture":
            checkpoint_id += 1
            stored = (checkpoint_id, subtask.snapshot(checkpoint_id), set(due))
        elif step[0] == "complete" and stored is not None:
            subtask.complete(stored[0])
            completed, stored = stored[1:], None
        elif step[0] == "restore" and completed is not None:
            subtask, due, stored = Subtask(completed[0]), set(completed[1]), None
            queue = TimerQueue(subtask.backend.table("timers"))
        assert len(queue) == len(due)
        assert queue.next_timestamp() == min((t for t, _ in due), default=None)


def test_when_half_has_changed_the_snapshot_stands_alone() -> None:
    """G7: one file, which says the same as the history would."""
    subtask = Subtask()
    table = subtask.backend.table("count")
    for key in range(2_000):
        table.entries(None)[key] = 0
        table.changed(None).add(key)
    subtask.snapshot(1)
    subtask.complete(1)
    for changed, files in ((900, 2), (1_001, 1)):
        for key in range(changed):
            table.entries(None)[key] = changed
            table.changed(None).add(key)
        del table.entries(None)[1_999 - (changed == 900)]
        table.changed(None).add(1_999 - (changed == 900))
        checkpoint_id = changed
        state = subtask.snapshot(checkpoint_id)
        subtask.complete(checkpoint_id)
        assert len(handle_of(state).files) == files
        assert subtask.read(state) == subtask.contents
