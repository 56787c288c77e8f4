"""What became of classes whose instances lie in snapshots as pickles (H4).

A class that was moved or renamed is registered with the new class. One that was deleted, or changed beyond what the
loader can convert (see `penstock.state.loading`), is registered with a function that makes something else of it:

>>> class Visit:
...     pass
>>> register("old.module:Visit", Visit)

The loader calls the function with the old attributes as keyword arguments. Where the pickle holds arguments (a
NamedTuple's fields in order, those of a `__reduce__`), it calls the function with these. From attributes it makes an
instance of an ordinary class, one with a `__dict__`; from arguments, anything. The next checkpoint writes entries that
came through the registry again, so a registration is needed for one run only.

What is registered when the program is executed goes to the workers with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import WrongTypeError, WrongValueError

_PATH: Final = re.compile(r"[^\W\d]\w*(\.\w+)*:[^\W\d]\w*(\.(\w+|<locals>))*\Z")
_registered: dict[str, Callable[..., Any]] = {}


def register(path: str, successor: Callable[..., Any]) -> None:
    """Let the class that pickles name `path`, as `module:qualified name`, be another class, or made by a function.

    Registering a path again replaces what it was registered with.

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
    """Forget a registration, when there is one."""
    _registered.pop(path, None)


def registered() -> dict[str, Callable[..., Any]]:
    """All registrations, by path; a copy."""
    return dict(_registered)
