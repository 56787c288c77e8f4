"""Calls that nest deeper than Python allows by default.

Expressions and plans are trees, and the code that walks them recurses one or a few calls per level. Python's limit of
1,000 calls guards against endless recursion, but a sum of 200 terms reaches it. A process that meets such a tree raises
its limit once and keeps it. Calls of Python code use no C stack; code that does (hashes, comparisons, pickles) stays
far below a stack of 8 MB at this limit. Deeper trees are rejected when they are created.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from penstock.base.errors import UnsupportedError

P = ParamSpec("P")
R = TypeVar("R")

#: the recursion limit of a process that has met a deep tree
DEEP_CALLS_MAX: Final = 12_000
#: how many levels a statement may nest, and how many operators may follow one another at one level
NESTING_MAX: Final = 500
#: trees of up to this many levels fit Python's default limit
SHALLOW_LEVELS: Final = 25


def allow_deep_calls() -> None:
    """Raise the process's recursion limit to at least `DEEP_CALLS_MAX`."""
    if sys.getrecursionlimit() < DEEP_CALLS_MAX:
        sys.setrecursionlimit(DEEP_CALLS_MAX)


def repeats_if_deep(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function without side effects to retry with deep calls allowed after a RecursionError.

    Raises `UnsupportedError` if deep calls were already allowed and are not enough.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except RecursionError as error:
            if sys.getrecursionlimit() >= DEEP_CALLS_MAX:
                raise _too_deep() from error
        allow_deep_calls()
        try:
            return function(*args, **kwargs)
        except RecursionError as error:
            raise _too_deep() from error

    return call


def _too_deep() -> UnsupportedError:
    return UnsupportedError("the query nests too deep: write a part of it into a table, and read this")
