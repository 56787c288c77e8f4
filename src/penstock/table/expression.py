"""Expressions of the Table API: what `col`, `lit` and their methods make.

An expression holds a node of SQL's syntax. So the Table API and SQL share what gives names and calls their meaning. The
methods are in `penstock.table.methods`, in files by subject.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any, ClassVar

from penstock.table.methods.aggregates import Aggregates
from penstock.table.methods.bitmaps import Bitmaps
from penstock.table.methods.collections import Collections
from penstock.table.methods.encodings import Encodings
from penstock.table.methods.json import Json
from penstock.table.methods.numbers import Numbers
from penstock.table.methods.operators import Operators
from penstock.table.methods.texts import Texts
from penstock.table.methods.times import Times
from penstock.table.methods.units import (
    JsonExistsOnError,
    JsonOnNull,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
    TimeIntervalUnit,
    TimePointUnit,
)
from penstock.table.sql import syntax

__all__ = [
    "Expression",
    "JsonExistsOnError",
    "JsonOnNull",
    "JsonQueryOnEmptyOrError",
    "JsonQueryWrapper",
    "JsonType",
    "JsonValueOnEmptyOrError",
    "TimeIntervalUnit",
    "TimePointUnit",
]


class Expression(Operators, Aggregates, Numbers, Texts, Encodings, Times, Collections, Json, Bitmaps):
    """A column, a literal, or what functions and operators make of them. Made by `penstock.table.expressions`.

    Where a method takes a value, it takes another expression too. An attribute that is no method is a field of a row:
    `col("place").city`.
    """

    __class_getitem__: ClassVar[Any] = classmethod(GenericAlias)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(f"an expression has no attribute {name!r}; get({name!r}) is a field of a row")
        return self.get(name)

    def alias(self, name: str, *extra_names: str) -> Expression:
        """The expression under a name, which the column gets; a table function may take several."""
        return Expression(self._node, (name, *extra_names), self._is_descending)

    @property
    def asc(self) -> Expression:
        """For `order_by`: from the least to the greatest."""
        return Expression(self._node, self._names, False)

    @property
    def desc(self) -> Expression:
        """For `order_by`: from the greatest to the least."""
        return Expression(self._node, self._names, True)

    def as_argument(self, name: str) -> Expression:
        """The expression as an argument that a function knows by its name."""
        return Expression(syntax.NamedArgument(name, self._node))
