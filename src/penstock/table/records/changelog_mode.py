"""`ChangelogMode`: the kinds of changes in a changelog."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.types import RowKind

__all__ = ["ChangelogMode"]


@dataclass(frozen=True, slots=True)
class ChangelogMode:
    """The row kinds of a changelog. Created by `insert_only`, `upsert` and `all`."""

    kinds: frozenset[RowKind]

    @staticmethod
    def insert_only() -> ChangelogMode:
        """Return the mode of an append-only changelog."""
        return ChangelogMode(frozenset({RowKind.INSERT}))

    @staticmethod
    def upsert() -> ChangelogMode:
        """Return the mode with inserts, updates by key and deletes, without UPDATE_BEFORE rows."""
        return ChangelogMode(frozenset({RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE}))

    @staticmethod
    def all() -> ChangelogMode:
        """Return the mode with inserts, updates and deletes, including UPDATE_BEFORE rows."""
        return ChangelogMode(frozenset(RowKind))

    def contains(self, kind: RowKind) -> bool:
        """Return whether the changelog has rows of a kind."""
        return kind in self.kinds

    def contains_only(self, kind: RowKind) -> bool:
        """Return whether the changelog has only rows of a kind."""
        return self.kinds == {kind}

    def __str__(self) -> str:
        return f"[{','.join(kind.name for kind in RowKind if kind in self.kinds)}]"
