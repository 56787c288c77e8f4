"""`ChangelogMode`: which kinds of changes a changelog has."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.types import RowKind

__all__ = ["ChangelogMode"]


@dataclass(frozen=True, slots=True)
class ChangelogMode:
    """The kinds of rows that a changelog has. Made by `insert_only`, `upsert` and `all`."""

    kinds: frozenset[RowKind]

    @staticmethod
    def insert_only() -> ChangelogMode:
        """Rows are only added."""
        return ChangelogMode(frozenset({RowKind.INSERT}))

    @staticmethod
    def upsert() -> ChangelogMode:
        """Rows are added, replaced by their key, and deleted; the row before a change does not come."""
        return ChangelogMode(frozenset({RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE}))

    @staticmethod
    def all() -> ChangelogMode:
        """Rows are added, changed and deleted; both rows of a change come."""
        return ChangelogMode(frozenset(RowKind))

    def contains(self, kind: RowKind) -> bool:
        """Whether rows of this kind come."""
        return kind in self.kinds

    def contains_only(self, kind: RowKind) -> bool:
        """Whether only rows of this kind come."""
        return self.kinds == {kind}

    def __str__(self) -> str:
        return f"[{','.join(kind.name for kind in RowKind if kind in self.kinds)}]"
