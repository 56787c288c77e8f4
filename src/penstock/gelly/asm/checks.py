"""Checks of the arguments of algorithms."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import WrongTypeError, WrongValueError


def whole(owner: Any, name: str, value: Any, at_least: int) -> int:
    """Return an integer after checking its type and its minimum.

    Raises:
        TypeError: if it is not an integer.
        ValueError: if it is too small.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongTypeError(f"{_name(owner)}: {name} must be a whole number, not {value!r}")
    if value < at_least:
        raise WrongValueError(f"{_name(owner)}: {name} must be {at_least} or more, not {value}")
    return value


def number(owner: Any, name: str, value: Any, above: float | None = None, at_least: float | None = None) -> float:
    """Return a number after checking its type and its lower bounds.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is too small, or NaN.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise WrongTypeError(f"{_name(owner)}: {name} must be a number, not {value!r}")
    if above is not None and not value > above:
        raise WrongValueError(f"{_name(owner)}: {name} must be greater than {above:g}, not {value}")
    if at_least is not None and not value >= at_least:
        raise WrongValueError(f"{_name(owner)}: {name} must be {at_least:g} or more, not {value}")
    return value


def flag(owner: Any, name: str, value: Any) -> bool:
    """Return a boolean after checking its type.

    Raises:
        TypeError: if it is anything else.
    """
    if not isinstance(value, bool):
        raise WrongTypeError(f"{_name(owner)}: {name} takes True or False, not {value!r}")
    return value


def _name(owner: Any) -> str:
    return owner if isinstance(owner, str) else type(owner).__name__
