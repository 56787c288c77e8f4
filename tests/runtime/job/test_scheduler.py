"""Which worker a slot goes to, and which state a subtask gets (D4, E3, G8)."""

import pytest

from penstock.runtime.job.slots import assign_slots
from penstock.state.keys import key_group_range, subtask_of_key_group
from penstock.storage.metadata import (
    KeyedStateHandle,
    NativeStateHandle,
    OperatorState,
    OperatorSubtaskState,
    StateFile,
    state_of_subtask,
)


@pytest.mark.parametrize(
    ("workers", "former", "assigned"),
    [
        (["a", "b", "c"], [], ["a", "b", "c"]),
        (["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"]),
        (["b", "c", "d"], ["a", "b", "c"], ["d", "b", "c"]),
        (["c", "d", "e"], ["a", "b", "c"], ["d", "e", "c"]),
        (["d", "e", "f"], ["a", "b", "c"], ["d", "e", "f"]),
        (["a", "b", "c", "d"], ["a", "x", "c"], ["a", "b", "c"]),
    ],
)
def test_a_slot_stays_with_its_worker(workers: list[str], former: list[str], assigned: list[str]) -> None:
    """G8: what a task stored on its worker's disk is there when it comes back; only slots of lost workers move."""
    slots = [("default", i) for i in range(3)]
    assert list(assign_slots(slots, workers, dict(zip(slots, former, strict=False))).values()) == assigned


def test_a_slot_stays_with_its_worker_when_others_come_and_go() -> None:
    """E3: rescaling adds slots to a slot sharing group, or takes some away; the others keep their workers."""
    former = {("a", 0): "w1", ("a", 1): "w2", ("b", 0): "w3"}
    assert assign_slots([("a", 0), ("b", 0), ("b", 1)], ["w1", "w2", "w3"], former) == {
        ("a", 0): "w1",
        ("b", 0): "w3",
        ("b", 1): "w2",
    }


def keyed_state(parallelism: int, max_parallelism: int) -> OperatorState:
    """A keyed operator, each subtask with a history and with a backend's own files of its key groups."""
    subtasks = {}
    for subtask in range(parallelism):
        groups, file = key_group_range(subtask, max_parallelism, parallelism), StateFile(1, 0, path=str(subtask))
        keyed = KeyedStateHandle(*groups, (file,), "")
        native = NativeStateHandle("rocksdb", *groups, {"CURRENT": file}, {})
        subtasks[subtask] = OperatorSubtaskState({"count": (keyed,)}, {}, (native,))
    return OperatorState("op", None, "op", parallelism, max_parallelism, subtasks)


@pytest.mark.parametrize("max_parallelism", [1, 2, 3, 5, 7, 12])
def test_every_key_group_goes_to_the_subtask_that_owns_it(max_parallelism: int) -> None:
    """D4, G8: at every other parallelism a subtask gets what holds any key group of its own, the first and the last
    one included, and nothing else."""
    for before in range(1, max_parallelism + 1):
        state = keyed_state(before, max_parallelism)
        for after in range(1, max_parallelism + 1):
            for subtask in range(after):
                first, last = key_group_range(subtask, max_parallelism, after)
                owners = {
                    str(group_owner)
                    for group in range(first, last + 1)
                    for group_owner in [subtask_of_key_group(group, max_parallelism, before)]
                }
                mine = state_of_subtask(state, subtask, after, max_parallelism)
                assert {h.files[0].path for h in mine.keyed["count"]} == owners, (before, after, subtask)
                assert {h.files["CURRENT"].path for h in mine.native} == owners, (before, after, subtask)
