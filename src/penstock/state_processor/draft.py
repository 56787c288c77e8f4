"""A savepoint under construction: the operators, the states that they keep, gain or change, and their files (H5).

The draft itself does no I/O. The files are written in this process and in Spark tasks. A file is closed when it reaches
`CHUNK_BYTES`, and the next one continues it: a history that only puts entries. So a writer never holds more than that,
whatever the size of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from penstock.codecs.pickling import dumps
from penstock.plan.stream_graph import operator_id_of_uid
from penstock.state.errors import StateError
from penstock.state.keys import key_bytes, key_group_of_bytes, with_one_nan
from penstock.state.loading import StateLoader
from penstock.state.snapshot import PUT, KeyedRows
from penstock.state_processor.layouts import NO_NAMESPACE, find_operator, live_rows, no_such_state, operator_name
from penstock.state_processor.rows import NOTHING, RowBlock, Shape
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import KeyedStateHandle, NativeStateHandle, OperatorState, OperatorStateHandle, StateFile

#: Maps (key, namespace, value) to a new value, or to None to drop the entry.
Transform: TypeAlias = Callable[[Any, Any, Any], Any]


@dataclass
class KeptKeyed:
    """A keyed state of the base savepoint, by subtask; each value passes through `functions`."""

    handles: dict[int, tuple[KeyedStateHandle, ...]]
    functions: tuple[Transform, ...] = ()


@dataclass
class NewKeyed:
    """A keyed state built from rows.

    Attributes:
        shape: how rows become entries.
        source: the rows.
        partitions: the number of files into which Spark splits the key groups.
        schema: the schema of a declared state, as JSON.
    """

    shape: Shape
    source: Any
    partitions: int | None = None
    schema: str = ""


@dataclass
class KeptItems:
    """An operator state of the base savepoint, by subtask."""

    handles: dict[int, tuple[OperatorStateHandle, ...]]


@dataclass
class NewItems:
    """An operator state with these items."""

    mode: str
    items: list[Any]


@dataclass
class OperatorDraft:
    """An operator; `head` has everything except its states."""

    head: OperatorState
    keyed: dict[str, KeptKeyed | NewKeyed] = field(default_factory=dict)
    items: dict[str, KeptItems | NewItems] = field(default_factory=dict)
    native: dict[int, tuple[NativeStateHandle, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, operator: OperatorState) -> OperatorDraft:
        """Return a draft of an existing operator, unchanged."""
        draft = cls(msgspec.structs.replace(operator, subtasks={}))
        for index, subtask in operator.subtasks.items():
            for name, keyed in subtask.keyed.items():
                state = draft.keyed.setdefault(name, KeptKeyed({}))
                assert isinstance(state, KeptKeyed)
                state.handles[index] = keyed
            for name, lists in subtask.operator.items():
                items = draft.items.setdefault(name, KeptItems({}))
                assert isinstance(items, KeptItems)
                items.handles[index] = lists
            if subtask.native:
                draft.native[index] = subtask.native
        return draft

    @property
    def title(self) -> str:
        """The operator's name in errors."""
        return operator_name(self.head)

    def add_keyed(self, name: str, state: NewKeyed) -> None:
        """Add a keyed state under a new name."""
        self._check_new(name)
        if self.native:
            raise StateError(
                f"the keyed state of {self.title} is in files that only its state backend reads: make the new "
                "savepoint from a savepoint, not from a checkpoint"
            )
        self.keyed[name] = state

    def add_items(self, name: str, state: NewItems) -> None:
        """Add an operator state under a new name."""
        self._check_new(name)
        self.items[name] = state

    def remove(self, name: str) -> None:
        """Remove a keyed or operator state; raise `StateError` if it does not exist."""
        if self.keyed.pop(name, None) is None and self.items.pop(name, None) is None:
            raise self._no_such_state(name)

    def transform(self, name: str, function: Transform) -> None:
        """Pass each value of a keyed state through a function."""
        state = self.keyed.get(name)
        if isinstance(state, NewKeyed):
            raise StateError(f"state {name!r} of {self.title} is new here: change its rows before you pass them in")
        if state is None and name in self.items:
            raise StateError(
                f"{name!r} of {self.title} is operator state: read its items, then call remove_state and "
                "with_operator_state"
            )
        if state is None:
            raise self._no_such_state(name)
        state.functions += (function,)

    def _check_new(self, name: str) -> None:
        if name in self.keyed or name in self.items:
            raise StateError(f"{self.title} already has a state {name!r}: use remove_state or transform_state instead")

    def _no_such_state(self, name: str) -> StateError:
        known = ", ".join(repr(n) for n in [*self.keyed, *self.items])
        if not known:
            return no_such_state(self.head, name, "keyed or operator")
        return StateError(f"operator {self.title} has no state {name!r}; there are: {known}")


class SavepointDraft:
    """The operators of a savepoint under construction."""

    def __init__(self, operators: Iterable[OperatorState], max_parallelism: int, parallelism: int) -> None:
        self.operators = [OperatorDraft.of(operator) for operator in operators]
        self._max_parallelism = max_parallelism
        self._parallelism = parallelism

    def find(self, uid: str) -> OperatorDraft:
        """Return the operator with this uid or operator id; raise `StateError` that lists the existing ones."""
        head = find_operator((draft.head for draft in self.operators), uid)
        return next(draft for draft in self.operators if draft.head is head)

    def find_or_add(self, uid: str) -> OperatorDraft:
        """Return the operator with this uid or operator id, adding it if missing."""
        for draft in self.operators:
            if uid in (draft.head.uid, draft.head.operator_id):
                return draft
        head = OperatorState(
            operator_id_of_uid(uid), uid, uid, min(self._parallelism, self._max_parallelism), self._max_parallelism, {}
        )
        self.operators.append(OperatorDraft(head))
        return self.operators[-1]

    def remove(self, uid: str) -> None:
        """Remove an operator with all its state."""
        self.operators.remove(self.find(uid))

    def rename(self, old: str, new: str) -> None:
        """Give an operator another uid."""
        draft, operator_id = self.find(old), operator_id_of_uid(new)
        if any(operator_id == other.head.operator_id for other in self.operators):
            raise StateError(f"an operator with uid {new!r} already exists: a uid must be unique within a job")
        draft.head = msgspec.structs.replace(draft.head, operator_id=operator_id, uid=new, has_placed_id=False)


CHUNK_BYTES: Final = 32 << 20
Entry = tuple[int, bytes, bytes, bytes]  # key group; key, namespace and value, pickled


@dataclass(frozen=True)
class Target:
    """The destination of a savepoint's files, which is sent to Spark tasks."""

    path: str
    checkpoint_id: int
    storage: FileCheckpointStore

    def write(self, name: str, data: bytes) -> StateFile:
        """Write one file, or keep it inline if it is small."""
        return self.storage.write(self.checkpoint_id, name, data, self.path)

    def write_entries(self, name: str, entries: Iterable[Entry]) -> tuple[StateFile, ...]:
        """Write the entries of some key groups as a history; no entry may occur twice."""
        files, rows, size = [], KeyedRows(), 0
        for group, key, namespace, value in entries:
            rows.add(group, PUT, key, namespace, value)
            size += len(key) + len(namespace) + len(value)
            if size >= CHUNK_BYTES:
                files.append(self.write(name, rows.to_bytes()))
                rows, size = KeyedRows(), 0
        if size:
            files.append(self.write(name, rows.to_bytes()))
        return tuple(files)


def keyed_rows(shape: Shape, blocks: Iterable[RowBlock], max_parallelism: int) -> Iterator[Any]:
    """Yield (key group, canonical bytes of key and namespace, key, namespace, item) for each row."""
    for block in blocks:
        for key, namespace, item in shape.rows(block):
            key = with_one_nan(key)
            data = key_bytes(key)
            entry_key = data if namespace is None else b"%d:" % len(data) + data + key_bytes(namespace)
            yield key_group_of_bytes(data, max_parallelism), entry_key, key, namespace, item


def entries_in_memory(shape: Shape, blocks: Iterable[RowBlock], max_parallelism: int) -> list[list[Entry]]:
    """Return the entries built from rows, by key group; holds all of them in memory."""
    numbers: dict[bytes, int] = {}
    first: list[tuple[int, Any, Any, Any]] = []
    others: dict[int, list[Any]] = {}  # the further items of entries with several rows
    for group, entry_key, key, namespace, item in keyed_rows(shape, blocks, max_parallelism):
        number = numbers.setdefault(entry_key, len(first))
        if number == len(first):
            first.append((group, key, namespace, item))
        else:
            others.setdefault(number, []).append(item)
    entries: list[list[Entry]] = [[] for _ in range(max_parallelism)]
    for number, (group, key, namespace, item) in enumerate(first):
        value = shape.combine(key, namespace, [item, *others.get(number, ())])
        if value is not NOTHING:
            namespace_data = NO_NAMESPACE if namespace is None else dumps(namespace)
            entries[group].append((group, dumps(key), namespace_data, dumps(value)))
    return entries


def transformed(
    storage: FileCheckpointStore,
    handle: KeyedStateHandle,
    key_groups: tuple[int, int],
    functions: tuple[Callable[[Any, Any, Any], Any], ...],
    loader: StateLoader,
) -> Iterator[Entry]:
    """Yield the entries of some key groups, with each value passed through functions of (key, namespace, value).

    An entry is dropped if a function returns None.
    """
    for rows in live_rows(storage, handle.files, *key_groups, loader):
        loads = rows.loads
        for group, key_data, namespace_data, value_data in zip(*rows[:4], strict=True):
            key, namespace, value = loads(key_data), loads(namespace_data), loads(value_data)
            for function in functions:
                value = function(key, namespace, value)
                if value is None:
                    break
            else:
                yield group, key_data, namespace_data, dumps(value)
