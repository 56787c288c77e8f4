"""What later checkpoints of a task build on: the last one that completed (G7)."""

from __future__ import annotations

from penstock.runtime.task.checkpoints import StateHistories
from penstock.storage.metadata import KeyedStateHandle, NativeStateHandle, OperatorSubtaskState, StateFile

GROUPS = (0, 7)


def stored(name: str) -> dict[str, OperatorSubtaskState]:
    file = StateFile(1, 0, path=name)
    keyed = KeyedStateHandle(*GROUPS, (file,), "")
    native = NativeStateHandle("rocksdb", *GROUPS, {"CURRENT": file}, {})
    return {"op": OperatorSubtaskState({"count": (keyed,)}, {}, (native,))}


def base(histories: StateHistories) -> tuple[str | None, str | None]:
    """The files that the next checkpoint builds on: of canonical state, and of a backend's own."""
    histories.validate(GROUPS)
    keyed, native = histories.confirmed.keyed.get(("op", "count")), histories.confirmed.native.get("op")
    return None if keyed is None else keyed.files[0].path, None if native is None else native.files["CURRENT"].path


def test_only_what_has_completed_is_built_on() -> None:
    """G7: the files of any other checkpoint may be deleted at any time."""
    histories = StateHistories()
    assert base(histories) == (None, None)
    histories.on_stored(1, stored("one"))
    assert base(histories) == (None, None)
    histories.on_complete(1)
    assert base(histories) == ("one", "one")


def test_a_newer_one_that_was_stored_meanwhile_is_built_on_when_it_completes() -> None:
    """G7: checkpoint 2 was stored before checkpoint 1 completed."""
    histories = StateHistories()
    histories.on_stored(1, stored("one"))
    histories.on_stored(2, stored("two"))
    histories.on_complete(1)
    assert base(histories) == ("one", "one")
    histories.on_complete(2)
    assert base(histories) == ("two", "two")


def test_an_older_one_that_was_subsumed_is_never_built_on() -> None:
    """G6, G7: its files go when a newer one completes; a word that comes late or twice changes nothing."""
    histories = StateHistories()
    histories.on_stored(1, stored("one"))
    histories.on_stored(2, stored("two"))
    histories.on_complete(2)
    histories.on_complete(1)
    histories.on_complete(2)
    assert base(histories) == ("two", "two")


def test_one_that_the_task_has_not_stored_changes_nothing() -> None:
    """G10: it completed without this task's part, or the task is of a later attempt."""
    histories = StateHistories()
    histories.on_stored(1, stored("one"))
    histories.on_complete(1)
    histories.on_complete(2)
    assert base(histories) == ("one", "one")
