"""Operator state: lists of items that belong to a subtask rather than to a key (D2).

`split` lists are dealt out evenly when the parallelism changes, `union` lists go whole to every subtask, `broadcast`
lists are the same everywhere. `committable` lists are dealt out like `split` ones; they hold what a sink has prepared,
so nothing of them is left once a subtask has finished and its last checkpoint is complete.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.state.errors import StateError
from penstock.state.pickling import dumps
from penstock.state.snapshot import OperatorCapture

COMMITTABLE_MODE: Final = "committable"


class OperatorListState:
    """A list of picklable items, replaced as a whole at each snapshot."""

    def __init__(self, name: str, mode: str) -> None:
        self.name = name
        self.mode = mode
        self.items: list[Any] = []

    def get(self) -> list[Any]:
        """The items."""
        return list(self.items)

    def update(self, items: list[Any]) -> None:
        """Replace the items."""
        self.items = list(items)


class OperatorStateBackend:
    """The operator state of one operator in one subtask."""

    def __init__(self, owner: str = "operator") -> None:
        self._owner = owner
        self._states: dict[str, OperatorListState] = {}
        self.is_restored = False

    def list_state(self, name: str, mode: str = "split") -> OperatorListState:
        """The list of that name, made when it is new; `mode` is split, union, broadcast or committable."""
        state = self._states.get(name)
        if state is None:
            state = self._states[name] = OperatorListState(name, mode)
        return state

    def restore(self, name: str, mode: str, items: list[Any]) -> None:
        """Add items of a snapshot."""
        self.list_state(name, mode).items.extend(items)

    def capture(self) -> list[OperatorCapture]:
        """All lists as they are now."""
        return [self._capture(state) for state in self._states.values() if state.items]

    def _capture(self, state: OperatorListState) -> OperatorCapture:
        try:
            return OperatorCapture(state.name, state.mode, [dumps(item) for item in state.items])
        except Exception as error:
            raise StateError(f"{self._owner}: an item of state {state.name!r} cannot be pickled: {error}") from error
