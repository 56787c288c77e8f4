"""What `KeyedStateBackend.validate` looks at: a few keys of each table, and whether they are the subtask's own."""

from __future__ import annotations

from collections.abc import Iterable, Reversible
from itertools import islice
from typing import Any, Final

from penstock.state.key_groups import key_groups_of

#: The oldest and the newest so many of a dictionary: what came last is what went wrong last.
_SAMPLE_MAX: Final = 3


def ends_of(keys: Reversible[Any]) -> list[Any]:
    """Some of the first keys of a dictionary, and some of the last."""
    return list(dict.fromkeys([*islice(keys, _SAMPLE_MAX), *islice(reversed(keys), _SAMPLE_MAX)]))


def check_key_groups(name: str, keys: Iterable[Any], max_parallelism: int, key_groups: tuple[int, int]) -> None:
    """Assert that keys are of these key groups, both ends included."""
    first, last = key_groups
    sample = list(keys)
    for key, group in zip(sample, key_groups_of(sample, max_parallelism), strict=True):
        assert first <= group <= last, f"state {name!r}: key {key!r} is of group {group}, not of {first} to {last}"
