"""Calls that nest deeper than Python allows by default.

Expressions and plans are trees, and the code that walks them calls itself once or a few times for each level. Python's
limit of 1,000 calls is meant for endless recursion, and a sum of 200 terms reaches it. A process that meets such a tree
raises its limit once and keeps it. Python code needs no stack of C for its calls; what does (hashes, comparisons,
pickles) stays far below a stack of 8 MB at this limit. Trees that are deeper are refused where they are made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from penstock.base.errors import UnsupportedError

P = ParamSpec("P")
R = TypeVar("R")

#: how many calls may be open at a time in a process that has met a deep tree
DEEP_CALLS_MAX: Final = 12_000
#: how many levels a statement may nest, and how many operators may follow one another at one level of it
NESTING_MAX: Final = 500
#: trees of up to this many levels need no higher limit than Python's own
SHALLOW_LEVELS: Final = 25


def allow_deep_calls() -> None:
    """Raise the process's limit of open calls to `DEEP_CALLS_MAX`, unless it is as high already."""
    if sys.getrecursionlimit() < DEEP_CALLS_MAX:
        sys.setrecursionlimit(DEEP_CALLS_MAX)


def repeats_if_deep(function: Callable[P, R]) -> Callable[P, R]:
    """A function that changes nothing before it returns, called again with deep calls allowed where it needs them.

    Raises `UnsupportedError` where even these are not enough.
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
