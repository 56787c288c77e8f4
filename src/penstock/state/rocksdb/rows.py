"""How entries are stored as rows.

A row's key is the concatenation of:

    key group (2 bytes), name's length (2), name, layout (1), namespace's length (2), namespace,
    key's length (4), key, rest

Numbers are big-endian, so a range of key groups is a contiguous range of rows. Within a key group, the rows of a state
are contiguous, and so are those of a namespace. The name is UTF-8; namespace and key are canonical bytes
(`state.key_bytes`). The layout determines the rest and the value:

- WHOLE: no rest; one row holds the entry's value.
- MAP: the rest is the canonical bytes of a map key; the value is the value under that key.
- LIST: the rest is the number (8 bytes) of a segment of the list; the value is a list of items.

A row's value is pickled. A trailer follows, which unpickling ignores: it preserves the key types that the canonical
form loses. Canonical bytes of plain keys (str, int, bytes, None and tuples of these) can be decoded; other keys are
pickled into the trailer. Namespaces must be plain.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.state.errors import StateError
from penstock.state.key_bytes import decode_plain_key, is_plain, key_bytes

WHOLE: Final = b"\x00"
MAP: Final = b"\x01"
LIST: Final = b"\x02"

#: Rows with this prefix belong to no key group: there are at most 32,768 key groups.
META_PREFIX: Final = b"\xff\xff"
NAME_BYTES_MAX: Final = 0xFFFF
_PLAIN: Final = b"\x00"
_PICKLED: Final = b"\x01"


class Place(NamedTuple):
    """The decoded prefix of a row: a namespace of a state in one key group."""

    group: int
    name: str
    layout: bytes
    namespace: Any


def state_head(name: str, layout: bytes) -> bytes:
    """Return the bytes of a row between the key group and the namespace."""
    data = name.encode()
    if len(data) > NAME_BYTES_MAX:
        raise StateError(f"state name {name[:80]!r}... has {len(data)} bytes, at most {NAME_BYTES_MAX}: shorten it")
    return len(data).to_bytes(2, "big") + data + layout


def namespace_head(name: str, layout: bytes, namespace: Any) -> bytes:
    """Return the bytes of a row between the key group and the key."""
    if not is_plain(namespace):
        raise StateError(
            f"state {name!r}: namespace {namespace!r} is not made of str, int, bytes, None and tuples of these, so it "
            "cannot be kept in RocksDB"
        )
    data = key_bytes(namespace)
    if len(data) > NAME_BYTES_MAX:
        raise StateError(f"state {name!r}: a namespace has {len(data)} bytes, at most {NAME_BYTES_MAX}")
    return state_head(name, layout) + len(data).to_bytes(2, "big") + data


def decode_place(row: bytes) -> tuple[Place, int]:
    """Return the decoded prefix of a row, and the offset of its key, which begins with the key's length."""
    at = 4 + int.from_bytes(row[2:4], "big")
    end = at + 3 + int.from_bytes(row[at + 1 : at + 3], "big")
    namespace = decode_plain_key(row[at + 3 : end])
    return Place(int.from_bytes(row[:2], "big"), row[4:at].decode(), row[at : at + 1], namespace), end


def sized(key: bytes) -> bytes:
    """Return a key with its length prepended."""
    return len(key).to_bytes(4, "big") + key


def key_end(row: bytes, at: int) -> int:
    """Return the end of the key whose length begins at byte `at` of a row."""
    return at + 4 + int.from_bytes(row[at : at + 4], "big")


def after(prefix: bytes) -> bytes:
    """Return the smallest bytes greater than all that begin with `prefix`."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix), "big")


# --- values -----------------------------------------------------------------------------------------------------------


def encode(value: bytes, keys: tuple[Any, ...], pickle_keys: Callable[[Any], bytes]) -> bytes:
    """Encode a row's value: the pickled bytes, followed by the keys of the row unless all are plain."""
    for key in keys:
        if not is_plain(key):
            data = pickle_keys(keys)
            return value + data + len(data).to_bytes(4, "big") + _PICKLED
    return value + _PLAIN


def value_bytes(raw: bytes) -> bytes:
    """Return the pickled bytes in a row's value."""
    return raw[: -5 - int.from_bytes(raw[-5:-1], "big")] if raw[-1:] == _PICKLED else raw[:-1]


def pickled_keys(raw: bytes, loads: Callable[[bytes], Any] = pickle.loads) -> tuple[Any, ...] | None:
    """Return the keys in the trailer; None if they are plain."""
    if raw[-1:] != _PICKLED:
        return None
    length = int.from_bytes(raw[-5:-1], "big")
    keys: tuple[Any, ...] = loads(raw[-5 - length : -5])
    return keys
