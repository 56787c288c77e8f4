"""Pickling of what user code made, for other processes and for checkpoints: one rule for all of it.

The rule is plain pickle, which refers to classes by name. Every worker finds the classes of the user's script by name
too; see `script`. What has no name (a class made in a function, a lambda) is pickled by cloudpickle, in full.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from penstock.base.errors import PenstockError, shorten
from penstock.codecs import cloud


class PicklingError(PenstockError, ValueError):
    """An object of user code cannot be turned into bytes, or its bytes into an object."""

    suppresses_restart = True


def dumps(value: Any) -> bytes:
    """Pickle a value, with its classes where these cannot be found by name. Raises whatever makes that impossible."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # noqa: BLE001 - pickling calls user code, which may raise anything
        data: bytes = cloud.dumps(value)
        return data


def dumps_in_parts(value: Any) -> tuple[bytes, list[memoryview]]:
    """The same, with the contents of arrays apart: what `pickle.loads` takes as `buffers`, which is not copied."""
    parts: list[pickle.PickleBuffer] = []
    try:
        data = pickle.dumps(value, 5, buffer_callback=parts.append)
    except Exception:  # noqa: BLE001 - pickling calls user code, which may raise anything
        return dumps(value), []
    return data, [part.raw() for part in parts]


def dumps_all(values: Sequence[Any]) -> list[bytes]:
    """Pickle each value; raises as `dumps` does."""
    try:
        return list(map(pickle.dumps, values, repeat(5)))
    except Exception:  # noqa: BLE001 - as above
        return list(map(dumps, values))


def dumps_named(value: Any, what: str) -> bytes:
    """Pickle a value.

    Raises:
        PicklingError: if it cannot be; `what` says what it is.
    """
    try:
        return dumps(value)
    except Exception as error:
        raise PicklingError(
            f"{what} cannot be pickled: {shorten(str(error))}; it is {_described(value)}: keep only picklable values "
            "in it (names, positions, numbers), and create the rest where it is used"
        ) from error


def loads_named(data: bytes, what: str) -> Any:
    """Unpickle a value.

    Raises:
        PicklingError: if it cannot be; `what` says what it is.
    """
    try:
        return pickle.loads(data)
    except Exception as error:
        raise PicklingError(
            f"{what} cannot be unpickled here: {type(error).__name__}: {error}; define its class at the top level of "
            "the script, or of a module that can also be imported here"
        ) from error


def _described(value: Any) -> str:
    """The classes of a value and of what is in it, if it is a list."""
    items = value if isinstance(value, list | tuple) else [value]
    names = dict.fromkeys(f"{type(item).__module__}.{type(item).__qualname__}" for item in items)
    return f"of class {', '.join(names) or type(value).__qualname__}"
