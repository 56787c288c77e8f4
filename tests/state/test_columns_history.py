"""State in columns over many checkpoints: a history of files says which rows an operator keeps (G7, D4)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from hypothesis import given, settings

from penstock.runtime.protocol import ExecutionId
from penstock.runtime.task import checkpoints
from penstock.runtime.task.checkpoints import COLUMNS_FILES_MERGED, SnapshotWriter, StateHistories
from penstock.state.key_columns import ROW_NUMBER, ColumnsCapture, ColumnStates, read_columns, read_history
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import KeyedStateHandle

GROUPS = (0, 127)


class Subtask:
    """Numbered rows, and the model of them: number -> value."""

    def __init__(self, storage: FileCheckpointStore, handle: KeyedStateHandle | None = None) -> None:
        self.storage = storage
        self.histories = StateHistories()
        self.states = ColumnStates()
        self.base = self.end = 0
        self.rows: dict[int, int] = {}
        if handle is not None:
            self.states.restore("rows", map(storage.read, handle.files), GROUPS, GROUPS, 128, True)
            self.histories.confirmed.keyed["op", "rows"] = handle
            restored = self.states.take("rows", "rows")
            assert restored is not None
            values = restored.column("key").to_pylist()
            self.base = self.states.first_number("rows", len(values))
            self.add(values)

    def add(self, values: list[int]) -> None:
        first = max(self.end, self.base)
        self.rows.update(enumerate(values, first))
        self.end = first + len(values)

    def renumber(self) -> None:
        """Give the rows new numbers, as an operator does that discards the released ones."""
        values, self.base, self.rows = list(self.rows.values()), self.end, {}
        self.add(values)

    def capture(self, checkpoint_id: int, name: str = "rows") -> ColumnsCapture:
        first = self.states.start_capture(name, self.end, checkpoint_id, self.base)
        numbers = [number for number in self.rows if number >= first]
        table = pa.table({"key": pa.array([self.rows[number] for number in numbers], pa.int64())})
        if numbers != list(range(first, self.end)):
            table = table.append_column(ROW_NUMBER, pa.array(numbers, pa.int64()))
        return ColumnsCapture(name, table, ("key",), "rows", first, self.end, first > self.base)

    def store(self, checkpoint_id: int, capture: ColumnsCapture, savepoint: str | None = None) -> KeyedStateHandle:
        writer = SnapshotWriter(self.storage, checkpoint_id, ExecutionId(0, 0, 0), GROUPS, 128, savepoint)
        stored = writer.store({"op": [capture]}, self.histories.confirmed)
        if savepoint is None:
            self.histories.on_stored(checkpoint_id, stored)
        return stored["op"].keyed["rows"][0]

    def complete(self, checkpoint_id: int) -> None:
        self.histories.on_complete(checkpoint_id)
        self.states.confirm(checkpoint_id)

    def read(self, handle: KeyedStateHandle) -> list[int]:
        values: list[int] = read_columns(map(self.storage.read, handle.files)).column("key").to_pylist()
        return values


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 40)),
        st.tuples(st.just("release"), st.integers(0, 9)),
        st.tuples(st.just("renumber")),
        st.tuples(st.just("checkpoint"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("savepoint")),
        st.tuples(st.just("restore")),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=300)
@given(OPERATIONS)
def test_a_history_has_the_rows(operations: list[Any]) -> None:
    """Rows that were released since an earlier file may still be there; all others are, once and in their order."""
    storage = FileCheckpointStore(None, "job", 0)
    subtask, complete, value, released = Subtask(storage), None, 0, set[int]()
    waiting: list[tuple[int, int, KeyedStateHandle, list[int]]] = []
    with patch.object(checkpoints, "COLUMNS_FILES_MERGED", 2), patch.object(checkpoints, "COLUMNS_FILE_BYTES", 4096):
        for checkpoint_id, (verb, *arguments) in enumerate(operations, 1):
            if verb == "add":
                subtask.add(list(range(value, value + arguments[0])))
                value += arguments[0]
            elif verb == "release":
                for number in [number for number in subtask.rows if number % 10 == arguments[0]]:
                    released.add(subtask.rows.pop(number))
            elif verb == "renumber":
                subtask.renumber()
            elif verb == "savepoint":
                handle = subtask.store(checkpoint_id, subtask.capture(checkpoint_id), "memory://savepoint")
                subtask.states.take_back(checkpoint_id)
                assert [v for v in subtask.read(handle) if v not in released] == list(subtask.rows.values())
            elif verb == "checkpoint":
                capture, kept = subtask.capture(checkpoint_id), list(subtask.rows.values())
                if arguments[1] and waiting:
                    complete = complete_first(subtask, waiting, complete)
                waiting.append((checkpoint_id, arguments[0], subtask.store(checkpoint_id, capture), kept))
                while waiting and waiting[0][1] == 0:
                    complete = complete_first(subtask, waiting, complete)
            elif complete is not None:
                handle, kept = complete
                values = subtask.read(handle)
                assert [v for v in values if v in set(kept)] == kept
                assert set(values) - set(kept) <= released
                subtask, waiting = Subtask(storage, handle), []
                released -= set(kept)
                # What an operator keeps follows from all rows: those that were released before are superseded again.
                subtask.rows = {number: v for number, v in subtask.rows.items() if v not in released}
    assert read_once(subtask)


def complete_first(subtask: Subtask, waiting: list[Any], complete: Any) -> Any:
    checkpoint_id, _, handle, kept = waiting.pop(0)
    subtask.complete(checkpoint_id)
    return handle, kept


def read_once(subtask: Subtask) -> bool:
    values = list(subtask.rows.values())
    return len(values) == len(set(values))


def test_files_of_similar_size_are_merged() -> None:
    """G7: a history has few files, and what is written for it grows with the logarithm of its length."""
    subtask, written = Subtask(FileCheckpointStore(None, "job", 0)), 0
    for checkpoint_id in range(1, 301):
        subtask.add([checkpoint_id] * 100)
        former = set(subtask.histories.confirmed.keyed.get(("op", "rows"), KeyedStateHandle(0, 127, ())).files)
        handle = subtask.store(checkpoint_id, subtask.capture(checkpoint_id))
        written += sum(file.length for file in handle.files if file not in former)
        subtask.complete(checkpoint_id)
        assert len(handle.files) <= 4 * (COLUMNS_FILES_MERGED + 1)
    assert len(subtask.read(handle)) == 30_000
    assert written < 5 * sum(file.length for file in handle.files)


def test_a_savepoint_is_in_files_of_limited_size() -> None:
    """H5: no more than one of them is in memory at a time."""
    subtask = Subtask(FileCheckpointStore(None, "job", 0))
    with patch.object(checkpoints, "COLUMNS_FILE_BYTES", 20_000):
        for checkpoint_id in range(1, 11):
            subtask.add([checkpoint_id] * 1_000)
            subtask.store(checkpoint_id, subtask.capture(checkpoint_id))
            subtask.complete(checkpoint_id)
        handle = subtask.store(11, subtask.capture(11), "memory://savepoint")
    lengths = [file.length for file in handle.files]
    assert len(lengths) > 3
    assert max(lengths) <= 20_000
    assert subtask.read(handle) == [value for value in range(1, 11) for _ in range(1_000)]


def test_numbers_of_rows() -> None:
    """Rows that were left out leave gaps, also in a merged file."""
    subtask = Subtask(FileCheckpointStore(None, "job", 0))
    subtask.add([1, 2, 3, 4])
    del subtask.rows[1]
    handle = subtask.store(1, subtask.capture(1))
    history = read_history(map(subtask.storage.read, handle.files))
    assert (history.first, history.end, history.numbers.tolist()) == (0, 4, [0, 2, 3])
    assert history.cut(3).list_numbers().tolist() == [0, 2]
    assert np.array_equal(history.cut(9).list_numbers(), [0, 2, 3])
