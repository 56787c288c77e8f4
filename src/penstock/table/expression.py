"""Expressions of the Table API, created by `col`, `lit` and their methods.

An expression wraps a node of SQL's syntax, so the Table API and SQL resolve names and calls in the same way. The
methods are in `penstock.table.methods`, one file per subject.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any, ClassVar

from penstock.sql.parser import syntax
from penstock.table.expression_methods import Aggregates, Bitmaps, Collections, Encodings, Json, Numbers, Texts, Times
from penstock.table.expression_operators import (
    JsonExistsOnError,
    JsonOnNull,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
    Operators,
    TimeIntervalUnit,
    TimePointUnit,
)

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
    """A column, a literal, or the result of functions and operators. Created by `penstock.table.expressions`.

    Methods accept expressions wherever they accept values. An attribute that is not a method is a field of a row:
    `col("place").city`.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.from_elements([("tea", 2), ("rum", 1)], ["drink", "cups"])
        >>> list(orders.select(col("drink").upper_case, col("cups") * 2 > 3).execute().collect())
        [<Row('TEA', True)>, <Row('RUM', False)>]
    """

    __class_getitem__: ClassVar[Any] = classmethod(GenericAlias)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(f"an expression has no attribute {name!r}; get({name!r}) is a field of a row")
        return self.get(name)

    def alias(self, name: str, *extra_names: str) -> Expression:
        """Name the expression and its column; a table function may have several names.

        Examples:
            >>> orders.select((col("cups") * 2).alias("doubled")).get_resolved_schema().get_column_names()
            ['doubled']
        """
        return Expression(self._node, (name, *extra_names), self._is_descending)

    @property
    def asc(self) -> Expression:
        """For `order_by`: in ascending order.

        Examples:
            >>> orders.order_by(col("cups").asc).fetch(1).to_pandas()["drink"].tolist()
            ['rum']
        """
        return Expression(self._node, self._names, False)

    @property
    def desc(self) -> Expression:
        """For `order_by`: in descending order.

        Examples:
            >>> orders.order_by(col("cups").desc).fetch(1).to_pandas()["drink"].tolist()
            ['tea']
        """
        return Expression(self._node, self._names, True)

    def as_argument(self, name: str) -> Expression:
        """Pass the expression as the function's argument with this name."""
        return Expression(syntax.NamedArgument(name, self._node))
