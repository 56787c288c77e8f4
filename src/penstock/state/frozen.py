"""The changes of a keyed state, frozen when a snapshot is taken (G7).

User code continues meanwhile and may change the objects, so they are pickled at once, in a single call. Numbers, text,
bytes and tuples of these are immutable: they are kept, and pickled in the background.

An operator may hold values in a form that snapshots do not use, such as the numbers of rows that it keeps in columns.
Its table then has a `Pack`, which takes the current data of these values, and builds the values in the background.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Protocol, TypeAlias

from penstock.codecs.pickling import dumps
from penstock.state.shapes import Shapes, loads_with_shapes

#: A namespace, the keys written in it with their values, and the keys removed from it.
Contents: TypeAlias = tuple[Any, list[Any], list[Any], list[Any]]
#: Dropped namespaces, and the contents written and removed.
Changes: TypeAlias = tuple[list[Any], list[Contents]]


class Packed(Protocol):
    """Values as of a snapshot, in an immutable form."""

    def unpack(self) -> list[Any]:
        """Return the values in the form of snapshots, as new objects; called once, in the background."""


#: Packs values in the form that an operator holds.
Pack: TypeAlias = Callable[[list[Any]], Packed]


@dataclass
class PackedChanges:
    """Changes whose values are packed."""

    dropped: list[Any]
    written: list[tuple[Any, list[Any], Packed, list[Any]]]

    @classmethod
    def of(cls, changes: Changes, pack: Pack) -> PackedChanges:
        """Pack the changes; the result owns their lists."""
        dropped, written = changes
        return cls(dropped, [(namespace, keys, pack(values), removed) for namespace, keys, values, removed in written])

    def unpack(self) -> Changes:
        """Return the changes in the form of snapshots."""
        written = [(namespace, keys, values.unpack(), removed) for namespace, keys, values, removed in self.written]
        return self.dropped, written


Frozen: TypeAlias = bytes | Changes | PackedChanges

_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})
_PLAIN_OR_TUPLE: Final = _PLAIN | {tuple}


def freeze(changes: Changes) -> Frozen:
    """Protect the changes from later changes to their objects; the result owns the lists. Raises pickling errors."""
    dropped, written = changes
    namespaces = [*dropped, *(namespace for namespace, _, _, _ in written)]
    lists = chain.from_iterable((keys, values, removed) for _, keys, values, removed in written)
    return changes if _are_plain(namespaces) and all(map(_are_plain, lists)) else dumps(changes)


def thaw(frozen: Frozen) -> tuple[Changes, Shapes]:
    """Return the changes, and the shapes of the classes in them."""
    if isinstance(frozen, PackedChanges):
        return frozen.unpack(), {}
    if isinstance(frozen, tuple):
        return frozen, {}
    return loads_with_shapes(frozen)


def _are_plain(values: list[Any]) -> bool:
    """Return whether each value is plain, or a tuple of plain values."""
    kinds = set(map(type, values))
    if not kinds <= _PLAIN_OR_TUPLE:
        return False
    if tuple not in kinds:
        return True
    tuples = values if kinds == {tuple} else [value for value in values if type(value) is tuple]
    return set(map(type, chain.from_iterable(tuples))) <= _PLAIN
