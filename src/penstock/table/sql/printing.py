"""Prints syntax trees as SQL. The output parses back to the same tree, whatever characters names and strings contain.

Names are printed in backticks, and every operator in parentheses. `expression_printing` and `query_printing` register
the printer of each kind of node; the package imports both.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from penstock.base.errors import WrongTypeError
from penstock.table.data.logical_types import quoted
from penstock.table.sql.syntax import Expression


@singledispatch
def to_sql(node: object) -> str:
    """Print an expression or a query, without parentheses around a query."""
    raise WrongTypeError(f"{type(node).__name__} is no expression and no query")


def listed(expressions: Iterable[Expression]) -> str:
    """Print expressions separated by commas."""
    return ", ".join(map(to_sql, expressions))


def format_path(path: Iterable[str]) -> str:
    """Print a path: quoted names separated by dots."""
    return ".".join(map(quoted, path))


def spaced(*parts: str) -> str:
    """Join the parts that are not empty with spaces."""
    return " ".join(part for part in parts if part)
