"""Migrations of classes whose instances are pickled in snapshots (H4).

Register a moved or renamed class with the new class. Register a class that was deleted, or changed beyond what the
loader can convert (see `penstock.state.loading`), with a function that builds a replacement:

>>> class Visit:
...     pass
>>> register("old.module:Visit", Visit)

The loader calls the function with the old attributes as keyword arguments. If the pickle holds arguments (a
NamedTuple's fields in order, or the arguments of a `__reduce__`), it calls the function with these. From attributes,
the function builds an instance of an ordinary class, one with a `__dict__`; from arguments, anything. The next
checkpoint writes migrated entries again, so a registration is needed for one run only.

Registrations made before the program is executed are sent to the workers with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import WrongTypeError, WrongValueError

_PATH: Final = re.compile(r"[^\W\d]\w*(\.\w+)*:[^\W\d]\w*(\.(\w+|<locals>))*\Z")
_registered: dict[str, Callable[..., Any]] = {}


def register(path: str, successor: Callable[..., Any]) -> None:
    """Register the successor of the class that pickles name `path` (`module:qualified name`): a class or a function.

    Registering a path again replaces its successor.

    Raises:
        ValueError: if the path has another form.
        TypeError: if the successor cannot be called.
    """
    if not _PATH.match(path):
        raise WrongValueError(f"a class must be named as 'module:qualified name', not {path!r}")
    if not callable(successor):
        raise WrongTypeError(f"{path} can become a class or a function, not {successor!r}")
    _registered[path] = successor


def unregister(path: str) -> None:
    """Remove a registration, if there is one."""
    _registered.pop(path, None)


def registered() -> dict[str, Callable[..., Any]]:
    """Return a copy of all registrations, by path."""
    return dict(_registered)
