"""Checks for functions that need a key on streams without one."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import MisuseError


def check_needs_no_key(function: Any, keyed_class: type, plain_class: type, remedy: str) -> None:
    """Check that a function for keyed streams is not applied to a stream without a key.

    Raises:
        MisuseError: if the function is of `keyed_class` but not also of `plain_class`; the message names the remedy.
    """
    if isinstance(function, keyed_class) and not isinstance(function, plain_class):
        raise MisuseError(
            f"{type(function).__name__} is a {keyed_class.__name__}, but this stream has no key: partition it first, "
            f"for example with {remedy}"
        )
