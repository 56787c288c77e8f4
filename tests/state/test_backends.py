"""The heap backend and operator state: capture, bytes, restore, redistribution."""

import pickle
import threading
import types

import pytest

from penstock.state.backend import HeapKeyedStateBackend
from penstock.state.errors import StateError
from penstock.state.keys import assign_key_group, key_group_range
from penstock.state.operator_state import OperatorStateBackend
from penstock.state.snapshot import read_keyed, read_operator
from penstock.state.states import ListStateDescriptor, ValueStateDescriptor
from penstock.storage.metadata import (
    KeyedStateHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateFile,
    state_of_subtask,
)


def filled(value="v", name="counts"):
    backend = HeapKeyedStateBackend(128, "My Operator")
    state = backend.value_state(ValueStateDescriptor(name))
    for key in ("a", "b"):
        backend.current_key = key
        state.update(value)
    return backend


def test_round_trip():
    """D1, G7: what is captured comes back, key groups and all; empty states leave nothing."""
    backend = filled()
    backend.list_state(ListStateDescriptor("empty"))
    windows = backend.table("windows")
    windows.entries((0, 10))["a"] = [1]
    windows.changed((0, 10)).add("a")
    captures = {c.name: c for c in backend.capture(1)}
    assert set(captures) == {"counts", "windows"}
    assert read_keyed([captures["counts"].to_bytes(128)], 0, 127) == {None: {"a": "v", "b": "v"}}
    assert read_keyed([captures["windows"].to_bytes(128)], 0, 127) == {(0, 10): {"a": [1]}}
    group = assign_key_group("a", 128)
    assert read_keyed([captures["counts"].to_bytes(128)], group, group) == {None: {"a": "v"}}


def test_snapshots_are_readable_tables():
    """H5: a state file is an Arrow table that pandas can read."""
    import pyarrow as pa

    (capture,) = filled().capture(1)
    frame = pa.ipc.open_stream(capture.to_bytes(128)).read_all().to_pandas()
    assert list(frame.columns) == ["key_group", "operation", "key", "namespace", "value"]
    assert [pickle.loads(v) for v in frame["value"]] == ["v", "v"]


def test_later_changes_do_not_reach_the_capture():
    """G7: changing a captured value in place does not change what was captured."""
    value = [1]
    backend = filled(value)
    (capture,) = backend.capture(1)
    value.append(2)
    assert read_keyed([capture.to_bytes(128)], 0, 127) == {None: {"a": [1], "b": [1]}}


class Refuses:
    def __reduce__(self):
        raise RuntimeError("I stay here")


@pytest.mark.parametrize(
    "value",
    [threading.Lock(), {"k": [threading.Lock()]}, Refuses(), (n for n in "ab")],
    ids=["lock", "nested", "refuses", "generator"],
)
def test_unstorable_value_names_operator_and_state(value):
    """D1: whatever a value raises when it is pickled, the error names the operator and the state."""
    with pytest.raises(StateError, match=r"My Operator.*'counts'"):
        filled(value).capture(1)


def test_values_of_classes_of_the_users_script_can_be_stored():
    """D1: on a worker the user's script is not `__main__`, so its classes cannot be pickled by name: by value then,
    as records between workers are."""
    script_class = types.new_class("Visit", (), {}, lambda namespace: namespace.update(__module__="__main__"))
    (capture,) = filled(script_class()).capture(1)
    values = list(read_keyed([capture.to_bytes(128)], 0, 127)[None].values())
    assert [type(v).__name__ for v in values] == ["Visit", "Visit"]


def test_operator_state_of_classes_of_the_users_script():
    """D2: the same for operator state, such as a user's committables and splits."""
    script_class = types.new_class("Split", (), {}, lambda namespace: namespace.update(__module__="__main__"))
    backend = OperatorStateBackend()
    backend.list_state("splits").update([script_class()])
    (capture,) = backend.capture()
    assert type(read_operator(capture.to_bytes())[0]).__name__ == "Split"


def test_unstorable_operator_state_is_named():
    """D2: an item that cannot be pickled is an error that names the state."""
    backend = OperatorStateBackend()
    backend.list_state("splits").update([threading.Lock()])
    with pytest.raises(StateError, match="'splits'"):
        backend.capture()


@pytest.mark.parametrize("name", ["", None, "_penstock_mine"])
def test_bad_state_names(name):
    """D1: a state needs a name, and not one of the runtime's."""
    with pytest.raises(ValueError, match="name"):
        ValueStateDescriptor(name)


# --- redistribution -------------------------------------------------------------------------------------------------


def operator_state(mode, parallelism):
    subtasks = {}
    for subtask in range(parallelism):
        file = StateFile(1, 0, data=b"%d" % subtask)
        subtasks[subtask] = OperatorSubtaskState({}, {"items": (OperatorStateHandle(mode, 1, file),)})
    return OperatorState("id", None, "name", parallelism, 128, subtasks)


def dealt(mode, old, new):
    state = operator_state(mode, old)
    return [[h.file.data for h in state_of_subtask(state, i, new, 128).operator.get("items", ())] for i in range(new)]


@pytest.mark.parametrize("old", [1, 2, 3, 5])
@pytest.mark.parametrize("new", [1, 2, 3, 5])
def test_split_state_is_dealt_out(old, new):
    """D2, D4: every part of split state goes to exactly one subtask, evenly, and stays at home when nothing changed."""
    parts = dealt("split", old, new)
    assert sorted(p for part in parts for p in part) == [b"%d" % i for i in range(old)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    if old == new:
        assert parts == [[b"%d" % i] for i in range(old)]


@pytest.mark.parametrize("sizes", [[7], [3, 0, 5], [1, 1, 1, 1], [100, 1]])
@pytest.mark.parametrize("new", [1, 2, 3, 5])
def test_items_of_split_state_are_dealt_out_one_by_one(sizes, new):
    """D2, D4: at another parallelism each item goes to exactly one subtask, and all get about as many."""
    subtasks = {}
    for subtask, size in enumerate(sizes):
        handle = OperatorStateHandle("split", size, StateFile(1, 0, data=b"%d" % subtask))
        subtasks[subtask] = OperatorSubtaskState({}, {"items": (handle,)} if size else {})
    state = OperatorState("id", None, "name", len(sizes), 128, subtasks)
    got = []
    for i in range(new):
        handles = state_of_subtask(state, i, new, 128).operator.get("items", ())
        got.append([(h.file.data, item) for h in handles for item in list(range(h.items))[h.first :: h.step]])
    wanted = [(b"%d" % subtask, item) for subtask, size in enumerate(sizes) for item in range(size)]
    assert sorted(item for part in got for item in part) == sorted(wanted)
    if new != len(sizes):
        assert max(map(len, got)) - min(map(len, got)) <= 1


@pytest.mark.parametrize("new", [1, 3])
def test_union_state_goes_to_all(new):
    """D2, D4: every subtask gets the whole of union state."""
    assert dealt("union", 2, new) == [[b"0", b"1"]] * new


@pytest.mark.parametrize("new", [1, 2, 3])
def test_broadcast_state_goes_to_all_once(new):
    """D2, D4: broadcast state is the same in all subtasks: each new one gets one copy of it, not one of each."""
    assert [len(part) for part in dealt("broadcast", 2, new)] == [1] * new


@pytest.mark.parametrize(
    ("finished", "expected"),
    [((), [b"0", b"1", b"2"]), ((1,), [b"0", b"0", b"2"]), ((0, 1), [b"0", b"2", b"2"])],
)
def test_an_empty_broadcast_state_is_a_state(finished, expected):
    """D2, G5, G10: a subtask that the records had not reached yet takes its own empty copy, unless it had finished."""
    subtasks = {}
    for subtask, size in enumerate([2, 0, 3]):
        handle = OperatorStateHandle("broadcast", size, StateFile(1, 0, data=b"%d" % subtask))
        subtasks[subtask] = OperatorSubtaskState({}, {"rules": (handle,)})
    state = OperatorState("id", None, "name", 3, 128, subtasks, finished)
    assert [state_of_subtask(state, i, 3, 128).operator["rules"][0].file.data for i in range(3)] == expected


def test_keyed_state_handles_meet_their_ranges():
    """D4: a subtask is handed just the files whose key groups meet its own."""
    subtasks = {}
    for subtask in range(4):
        handle = KeyedStateHandle(*key_group_range(subtask, 128, 4), (StateFile(1, 0, data=b"%d" % subtask),))
        subtasks[subtask] = OperatorSubtaskState({"s": (handle,)}, {})
    state = OperatorState("id", None, "name", 4, 128, subtasks)
    handed = [[h.files[0].data for h in state_of_subtask(state, i, 2, 128).keyed["s"]] for i in range(2)]
    assert handed == [[b"0", b"1"], [b"2", b"3"]]
    handed = [[h.files[0].data for h in state_of_subtask(state, i, 3, 128).keyed["s"]] for i in range(3)]
    assert handed == [[b"0", b"1"], [b"1", b"2"], [b"2", b"3"]]
