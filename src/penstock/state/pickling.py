"""Pickling of values that user code made.

Plain pickle refers to classes by name, which fails on a worker for those of the user's script: its `__main__` is
another one there. Such values are pickled with their classes instead.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import cloudpickle


def dumps(value: Any) -> bytes:
    """Pickle a value, with its classes where these cannot be found by name. Raises whatever makes that impossible."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # noqa: BLE001 - pickling calls user code, which may raise anything
        data: bytes = cloudpickle.dumps(value, protocol=5)
        return data


def dumps_all(values: Sequence[Any]) -> list[bytes]:
    """Pickle each value; raises as `dumps` does."""
    try:
        return list(map(pickle.dumps, values, repeat(5)))
    except Exception:  # noqa: BLE001 - as above
        return list(map(dumps, values))
