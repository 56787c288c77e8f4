"""Pickles user objects for other processes and for checkpoints, all by one rule.

The rule is plain pickle, which refers to classes by name. Workers also find the classes of the user's script by name;
see `script`. Objects without an importable name (a class defined in a function, a lambda) are pickled by value with
cloudpickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from penstock.base.errors import PenstockError, shorten
from penstock.codecs import cloud


class PicklingError(PenstockError, ValueError):
    """Raised when a user object cannot be pickled or unpickled."""

    suppresses_restart = True


def dumps(value: Any) -> bytes:
    """Pickle a value, including any classes that cannot be found by name. Raises whatever error prevents pickling."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # noqa: BLE001 - pickling calls user code, which may raise anything
        data: bytes = cloud.dumps(value)
        return data


def dumps_in_parts(value: Any) -> tuple[bytes, list[memoryview]]:
    """Pickle a value with array contents out of band; `pickle.loads` takes the second item as `buffers`, uncopied."""
    parts: list[pickle.PickleBuffer] = []
    try:
        data = pickle.dumps(value, 5, buffer_callback=parts.append)
    except Exception:  # noqa: BLE001 - pickling calls user code, which may raise anything
        return dumps(value), []
    return data, [part.raw() for part in parts]


def dumps_all(values: Sequence[Any]) -> list[bytes]:
    """Pickle each value. Raises as `dumps` does."""
    try:
        return list(map(pickle.dumps, values, repeat(5)))
    except Exception:  # noqa: BLE001 - as above
        return list(map(dumps, values))


def dumps_named(value: Any, name: str) -> bytes:
    """Pickle a value.

    Raises:
        PicklingError: if the value cannot be pickled; `name` names it in the message.
    """
    try:
        return dumps(value)
    except Exception as error:
        raise PicklingError(
            f"{name} cannot be pickled: {shorten(str(error))}; it is {_described(value)}: keep only picklable values "
            "in it (names, positions, numbers), and create the rest where it is used"
        ) from error


def loads_named(data: bytes, name: str) -> Any:
    """Unpickle a value.

    Raises:
        PicklingError: if the value cannot be unpickled; `name` names it in the message.
    """
    try:
        return pickle.loads(data)
    except Exception as error:
        raise PicklingError(
            f"{name} cannot be unpickled here: {type(error).__name__}: {error}; define its class at the top level of "
            "the script, or of a module that can also be imported here"
        ) from error


def _described(value: Any) -> str:
    """Describe the class of a value, or of the items of a list or tuple."""
    items = value if isinstance(value, list | tuple) else [value]
    names = dict.fromkeys(f"{type(item).__module__}.{type(item).__qualname__}" for item in items)
    return f"of class {', '.join(names) or type(value).__qualname__}"
