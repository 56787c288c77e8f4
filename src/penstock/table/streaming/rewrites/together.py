"""Collects the columns or fields that are used of equal parts of a plan, so that the parts stay equal."""

from __future__ import annotations

from typing import Generic, TypeVar

from penstock.table.plan.identity import Known, rows_text
from penstock.table.plan.logical import Node

PartT = TypeVar("PartT")


class Together(Generic[PartT]):
    """The union of all uses, by the rows that a part produces. Record all places before reading any."""

    def __init__(self) -> None:
        self._used: dict[str, frozenset[PartT]] = {}
        self._texts: Known = {}

    def record(self, node: Node, used: frozenset[PartT]) -> frozenset[PartT]:
        """Record the uses in one place, and return them."""
        text = rows_text(node, self._texts)
        self._used[text] = self._used.get(text, frozenset()) | used
        return used

    def of(self, node: Node, used: frozenset[PartT]) -> frozenset[PartT]:
        """Return the uses in all places. `used`: the uses in one of them."""
        return self._used[rows_text(node, self._texts)]
