"""A savepoint under construction: operators, and the states that they keep, gain or change (H5). No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from penstock.plan.stream_graph import operator_id_of_uid
from penstock.state.errors import StateError
from penstock.state_processor.listing import find_operator, no_such_state, operator_name
from penstock.state_processor.shapes import Shape
from penstock.storage.metadata import KeyedStateHandle, NativeStateHandle, OperatorState, OperatorStateHandle

#: Maps (key, namespace, value) to a new value, or to None to drop the entry.
Transform: TypeAlias = Callable[[Any, Any, Any], Any]


@dataclass
class KeptKeyed:
    """A keyed state of the base savepoint, by subtask; each value passes through `functions`."""

    handles: dict[int, tuple[KeyedStateHandle, ...]]
    functions: tuple[Transform, ...] = ()


@dataclass
class NewKeyed:
    """A keyed state built from rows; `partitions` is the number of files into which Spark splits its key groups."""

    shape: Shape
    source: Any
    partitions: int | None = None


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
