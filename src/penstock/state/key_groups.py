"""Assigns keys to subtasks: a stable hash of the key's canonical bytes, key groups, and their ranges (D4).

Keys are hashed by value (`key_bytes`), never by Python's own `hash` (which differs between processes). The key group is
`xxh3_64(bytes) modulo max_parallelism`; subtask i of p owns the contiguous range [ceil(i*max/p), ceil((i+1)*max/p)), as
in Flink.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import xxhash

from penstock.state.key_bytes import key_bytes


def assign_key_group(key: Any, max_parallelism: int) -> int:
    """Return the key group of a key, from 0 to `max_parallelism` - 1."""
    return xxhash.xxh3_64_intdigest(key_bytes(key)) % max_parallelism


def assign_key_groups(keys: Sequence[Any], max_parallelism: int) -> list[int]:
    """Return the key groups of many keys; integers and text need no call for each key."""
    digest, kinds = xxhash.xxh3_64_intdigest, set(map(type, keys))
    if kinds == {int}:
        try:
            return [digest(b"i%d" % key) % max_parallelism for key in keys]
        except ValueError:  # one of them has more digits than Python converts to text
            pass
    if kinds == {str}:
        return [digest(b"s" + key.encode("utf-8", "surrogatepass")) % max_parallelism for key in keys]
    return [assign_key_group(key, max_parallelism) for key in keys]


def key_group_of_bytes(data: bytes, max_parallelism: int) -> int:
    """Return the key group of the key with these canonical bytes."""
    return xxhash.xxh3_64_intdigest(data) % max_parallelism


def subtask_of_key_group(key_group: int, max_parallelism: int, parallelism: int) -> int:
    """Return the subtask that owns a key group."""
    return key_group * parallelism // max_parallelism


def key_group_range(subtask_index: int, max_parallelism: int, parallelism: int) -> tuple[int, int]:
    """Return the first and the last key group of a subtask, both included."""
    first = (subtask_index * max_parallelism + parallelism - 1) // parallelism
    last = ((subtask_index + 1) * max_parallelism - 1) // parallelism
    return first, last
