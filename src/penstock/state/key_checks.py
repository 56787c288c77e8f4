"""The checks of `KeyedStateBackend.validate`: whether a few keys of each table belong to the subtask."""

from __future__ import annotations

from collections.abc import Iterable, Reversible
from itertools import islice
from typing import Any, Final

from penstock.state.key_groups import assign_key_groups

#: How many of a dictionary's oldest and newest keys are checked: recent errors are in the newest keys.
_SAMPLE_MAX: Final = 3


def sample_keys(keys: Reversible[Any]) -> list[Any]:
    """Return some of the first and some of the last keys of a dictionary."""
    return list(dict.fromkeys([*islice(keys, _SAMPLE_MAX), *islice(reversed(keys), _SAMPLE_MAX)]))


def check_key_groups(name: str, keys: Iterable[Any], max_parallelism: int, key_groups: tuple[int, int]) -> None:
    """Assert that keys belong to these key groups, both ends included."""
    first, last = key_groups
    sample = list(keys)
    for key, group in zip(sample, assign_key_groups(sample, max_parallelism), strict=True):
        assert first <= group <= last, f"state {name!r}: key {key!r} is of group {group}, not of {first} to {last}"
