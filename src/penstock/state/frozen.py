"""What has changed in a keyed state, kept as it was when a snapshot was taken (G7).

User code goes on meanwhile and may change these very objects, so they are pickled at once, in a single call. Numbers,
text, bytes and tuples of these cannot change: they are kept as they are, and pickled in the background.

An operator may hold values in another form than snapshots have, such as the numbers of rows that it keeps in columns.
Its table then has a `Pack`, which takes what those values are made of now, and makes the values in the background.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Protocol, TypeAlias

from penstock.codecs.pickling import dumps
from penstock.state.shapes import Shapes, loads_with_shapes

#: A namespace, keys of it with their values, and keys that were removed.
Contents: TypeAlias = tuple[Any, list[Any], list[Any], list[Any]]
#: Dropped namespaces, and what was put and removed.
Changes: TypeAlias = tuple[list[Any], list[Contents]]


class Packed(Protocol):
    """Values as of a snapshot, in a form that nothing changes any more."""

    def unpack(self) -> list[Any]:
        """The values as snapshots have them, which nobody else has; called once, in the background."""


#: Takes values as an operator holds them.
Pack: TypeAlias = Callable[[list[Any]], Packed]


@dataclass
class PackedChanges:
    """Changes whose values are packed."""

    dropped: list[Any]
    written: list[tuple[Any, list[Any], Packed, list[Any]]]

    @classmethod
    def of(cls, changes: Changes, pack: Pack) -> PackedChanges:
        """The changes, of which this owns the lists."""
        dropped, written = changes
        return cls(dropped, [(namespace, keys, pack(values), removed) for namespace, keys, values, removed in written])

    def unpack(self) -> Changes:
        """The changes as snapshots have them."""
        written = [(namespace, keys, values.unpack(), removed) for namespace, keys, values, removed in self.written]
        return self.dropped, written


Frozen: TypeAlias = bytes | Changes | PackedChanges

_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})
_PLAIN_OR_TUPLE: Final = _PLAIN | {tuple}


def freeze(changes: Changes) -> Frozen:
    """The changes, safe from later changes to their objects; the result owns the lists. Raises what pickling raises."""
    dropped, written = changes
    namespaces = [*dropped, *(namespace for namespace, _, _, _ in written)]
    lists = chain.from_iterable((keys, values, removed) for _, keys, values, removed in written)
    return changes if _are_plain(namespaces) and all(map(_are_plain, lists)) else dumps(changes)


def thaw(frozen: Frozen) -> tuple[Changes, Shapes]:
    """The changes, and the shapes of the classes in them."""
    if isinstance(frozen, PackedChanges):
        return frozen.unpack(), {}
    if isinstance(frozen, tuple):
        return frozen, {}
    return loads_with_shapes(frozen)


def _are_plain(values: list[Any]) -> bool:
    """Whether each value is plain, or a tuple of what is plain."""
    kinds = set(map(type, values))
    if not kinds <= _PLAIN_OR_TUPLE:
        return False
    if tuple not in kinds:
        return True
    tuples = values if kinds == {tuple} else [value for value in values if type(value) is tuple]
    return set(map(type, chain.from_iterable(tuples))) <= _PLAIN
