"""The changes that a plan may produce, and whether updates include the previous row."""

from __future__ import annotations

from enum import Flag, auto
from typing import Final


class Changes(Flag):
    """The kinds of changes: inserts, updates and deletes."""

    INSERT = auto()
    UPDATE = auto()
    DELETE = auto()

    def __str__(self) -> str:
        return ",".join(letter for flag, letter in zip(Changes, "IUD", strict=True) if flag in self)


INSERTS: Final = Changes.INSERT
ALL: Final = Changes.INSERT | Changes.UPDATE | Changes.DELETE

#: the byte of each row kind in a batch
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3
SHORT: Final = ("+I", "-U", "+U", "-D")
NAMES: Final = ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE")


def shown(changes: Changes, with_before: bool) -> str:
    """Return the changes as EXPLAIN shows them: `[I,UB,UA,D]`."""
    parts = ["I"] if Changes.INSERT in changes else []
    if Changes.UPDATE in changes:
        parts += ["UB", "UA"] if with_before else ["UA"]
    return f"[{','.join([*parts, *(['D'] if Changes.DELETE in changes else [])])}]"
