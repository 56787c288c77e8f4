"""Syntax as SQL again. What is printed parses to what was printed, whatever names and texts hold.

Names are in backticks, and every operator is in parentheses. How each kind of node is printed is in
`expression_printing` and `query_printing`; the package imports both.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from penstock.base.errors import WrongTypeError
from penstock.table.data.logical_types import quoted
from penstock.table.sql.syntax import Expression


@singledispatch
def sql_of(node: object) -> str:
    """An expression, or a query without parentheses around it, as SQL."""
    raise WrongTypeError(f"{type(node).__name__} is no expression and no query")


def listed(expressions: Iterable[Expression]) -> str:
    """Expressions with commas in between."""
    return ", ".join(map(sql_of, expressions))


def path_of(path: Iterable[str]) -> str:
    """Names with dots in between."""
    return ".".join(map(quoted, path))


def spaced(*parts: str) -> str:
    """What is there, with spaces in between."""
    return " ".join(part for part in parts if part)
