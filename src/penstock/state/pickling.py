"""Pickling of values that user code made.

Plain pickle refers to classes by name, which fails on a worker for those of the user's script: its `__main__` is
another one there. Such values are pickled with their classes instead.
"""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle


def dumps(value: Any) -> bytes:
    """Pickle a value, with its classes where these cannot be found by name. Raises whatever makes that impossible."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # noqa: BLE001 - pickling calls user code, which may raise anything
        data: bytes = cloudpickle.dumps(value, protocol=5)
        return data
