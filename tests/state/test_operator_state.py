"""Operator state: lists, union lists, broadcast maps, and what each refuses."""

import threading

import pytest

from penstock.state.errors import StateError
from penstock.state.operator_state import BroadcastState, OperatorStateBackend, OperatorStateStore
from penstock.state.snapshot import read_operator
from penstock.state.states import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor


def captured(backend):
    return {c.name: (c.mode, c.count, read_operator(c.to_bytes())) for c in backend.capture()}


def test_list_state():
    """D2: a list is added to, replaced, cleared, and gives copies."""
    state = OperatorStateStore(OperatorStateBackend()).get_list_state(ListStateDescriptor("list"))
    state.add(1)
    state.add_all([2, 3])
    state.get().append(4)
    assert state.get() == list(state) == [1, 2, 3]
    state.update(iter([5]))
    assert state.get() == [5]
    state.clear()
    assert state.get() == []


def test_broadcast_state():
    """D2: a broadcast state is a map."""
    state = BroadcastState[str, int]("rules")
    assert state.is_empty()
    state.put("a", 1)
    state.put_all({"b": 2, "c": 3})
    state["d"] = 4
    state.remove("c")
    state.remove("never there")
    assert "a" in state
    assert state.contains("d")
    assert (state.get("b"), state.get("c"), state["d"], len(state)) == (2, None, 4, 3)
    for key in state:
        del state[key]
    assert [*state.items(), *state.keys(), *state.values()] == []
    with pytest.raises(KeyError):
        state["a"]
    with pytest.raises(KeyError):
        del state["a"]
    state.put("a", 1)
    state.clear()
    assert state.is_empty()


WRITES = {
    "put": lambda view: view.put("a", 2),
    "put_all": lambda view: view.put_all({"a": 2}),
    "remove": lambda view: view.remove("a"),
    "clear": lambda view: view.clear(),
    "set": lambda view: view.__setitem__("a", 2),
    "delete": lambda view: view.__delitem__("a"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_read_only_view_reads_and_refuses_to_write(write):
    """D2: the other side sees what the broadcast side wrote, and each way to write it is an error."""
    state = BroadcastState[str, int]("rules")
    view = state.read_only()
    state.put("a", 1)
    with pytest.raises(StateError, match=r"'rules'.*process_broadcast_element"):
        write(view)
    assert (view.get("a"), view["a"], "a" in view, view.contains("b"), len(view)) == (1, 1, True, False, 1)
    assert [list(view), list(view.keys()), list(view.values()), list(view.items())] == [["a"], ["a"], [1], [("a", 1)]]
    assert not view.is_empty()
    assert repr(view) == "ReadOnlyBroadcastState('rules', 1 entries)"


def test_put_copies():
    """D2: a record that reached several subtasks by reference becomes the state of each."""
    record = {"limit": 1}
    one, other = BroadcastState[str, dict]("rules"), BroadcastState[str, dict]("rules")
    one.put("r", record)
    other.put("r", record)
    one["r"]["limit"] += 1
    assert (one.get("r"), other.get("r"), record) == ({"limit": 2}, {"limit": 1}, {"limit": 1})


def test_what_cannot_be_stored_is_named():
    """D2: a value that cannot be copied, and one that cannot be pickled, are errors that name the state."""
    backend = OperatorStateBackend("enrich")
    state = backend.broadcast_state("rules")
    with pytest.raises(StateError, match=r"'rules': a .*lock cannot be stored"):
        state.put("lock", threading.Lock())
    state.put("generator", test_broadcast_state)
    state.put("list", [])
    state["list"].append(threading.Lock())
    with pytest.raises(StateError, match="enrich: an entry of state 'rules' cannot be pickled"):
        backend.capture()


def test_capture_and_restore():
    """D2, G7: what is captured is the state of that moment; empty lists are left out, empty maps are not."""
    backend = OperatorStateBackend()
    store = OperatorStateStore(backend)
    rules = store.get_broadcast_state(MapStateDescriptor("rules"))
    store.get_broadcast_state(MapStateDescriptor("none"))
    store.get_list_state(ListStateDescriptor("empty"))
    store.get_list_state(ListStateDescriptor("split")).add(1)
    store.get_union_list_state(ListStateDescriptor("union")).add(2)
    rules.put("a", [1])
    captures = backend.capture()
    rules["a"].append(2)
    rules.put("b", 3)
    states = {c.name: (c.mode, c.count, read_operator(c.to_bytes())) for c in captures}
    assert states == {
        "split": ("split", 1, [1]),
        "union": ("union", 1, [2]),
        "rules": ("broadcast", 1, [("a", [1])]),
        "none": ("broadcast", 0, []),
    }
    other = OperatorStateBackend()
    for name, (mode, _, items) in states.items():
        other.restore(name, mode, items)
    assert captured(other) == states  # also while nobody has asked for them
    assert OperatorStateStore(other).get_broadcast_state(MapStateDescriptor("rules"))["a"] == [1]


def test_one_name_is_one_state():
    """D2: a name asked for in another mode is an error that says both; the same mode gives the same state."""
    store = OperatorStateStore(OperatorStateBackend("enrich"))
    items = store.get_list_state(ListStateDescriptor("s"))
    assert store.get_list_state(ListStateDescriptor("s")) is items
    with pytest.raises(StateError, match=r"enrich: operator state 's' .* a split state.*union"):
        store.get_union_list_state(ListStateDescriptor("s"))
    with pytest.raises(StateError, match=r"'s' .* a split state.*broadcast"):
        store.get_broadcast_state(MapStateDescriptor("s"))
    store.get_broadcast_state(MapStateDescriptor("m"))
    with pytest.raises(StateError, match=r"'m' .* a broadcast state.*split"):
        store.get_list_state(ListStateDescriptor("m"))


def test_descriptors_of_another_kind_are_refused():
    """D2: each state has its kind of descriptor."""
    store = OperatorStateStore(OperatorStateBackend())
    with pytest.raises(TypeError, match="ListStateDescriptor is needed, not ValueStateDescriptor"):
        store.get_list_state(ValueStateDescriptor("v"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="MapStateDescriptor is needed"):
        store.get_broadcast_state(ListStateDescriptor("v"))  # type: ignore[arg-type]
