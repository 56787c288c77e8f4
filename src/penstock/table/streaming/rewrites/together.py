"""What is used of parts of a plan that give the same rows, in whichever places, so that all of them stay the same."""

from __future__ import annotations

from typing import Generic, TypeVar

from penstock.table.plan.identity import Known, rows_text
from penstock.table.plan.logical import Node

PartT = TypeVar("PartT")


class Together(Generic[PartT]):
    """The union of what is used, by the rows that a part gives. Record all places before asking for any."""

    def __init__(self) -> None:
        self._used: dict[str, frozenset[PartT]] = {}
        self._texts: Known = {}

    def record(self, node: Node, used: frozenset[PartT]) -> frozenset[PartT]:
        """Note what is used in one place."""
        text = rows_text(node, self._texts)
        self._used[text] = self._used.get(text, frozenset()) | used
        return used

    def of(self, node: Node, used: frozenset[PartT]) -> frozenset[PartT]:
        """What is used in all places; `used` is what one of them uses."""
        return self._used[rows_text(node, self._texts)]
