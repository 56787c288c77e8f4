"""Python's operators, comparisons, logic, NULL and casts of Table API expressions, and enums.

The enums are arguments of expression methods: units of time, and options of JSON functions.
"""

from __future__ import annotations

from enum import Enum
from typing import Self

from penstock.base.errors import WrongTypeError
from penstock.sql.data.types import DataType
from penstock.sql.expressions.builder import Operand, Test, to_literal, to_node
from penstock.sql.parser import syntax


class Operators(Operand):
    """Python's operators, mapped to SQL's: `&` is AND, `|` is OR, `~` is NOT."""

    def _reversed(self, operator: str, left: object) -> Self:
        return self._new(syntax.Call(operator, (to_literal(left), self._node)))

    def __add__(self, other: object) -> Self:
        return self._operated("+", other)

    def __radd__(self, other: object) -> Self:
        return self._reversed("+", other)

    def __sub__(self, other: object) -> Self:
        return self._operated("-", other)

    def __rsub__(self, other: object) -> Self:
        return self._reversed("-", other)

    def __mul__(self, other: object) -> Self:
        return self._operated("*", other)

    def __rmul__(self, other: object) -> Self:
        return self._reversed("*", other)

    def __truediv__(self, other: object) -> Self:
        return self._operated("/", other)

    def __rtruediv__(self, other: object) -> Self:
        return self._reversed("/", other)

    def __mod__(self, other: object) -> Self:
        return self._operated("%", other)

    def __rmod__(self, other: object) -> Self:
        return self._reversed("%", other)

    def __pow__(self, other: object) -> Self:
        return self._called("POWER", other)

    def __rpow__(self, other: object) -> Self:
        return self._new(to_literal(other))._called("POWER", self)

    def __neg__(self) -> Self:
        return self._operated("MINUS_PREFIX")

    def __abs__(self) -> Self:
        return self._called("ABS")

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return self._operated("=", other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return self._operated("<>", other)

    def __lt__(self, other: object) -> Self:
        return self._operated("<", other)

    def __le__(self, other: object) -> Self:
        return self._operated("<=", other)

    def __gt__(self, other: object) -> Self:
        return self._operated(">", other)

    def __ge__(self, other: object) -> Self:
        return self._operated(">=", other)

    def __and__(self, other: object) -> Self:
        return self._chained("AND", other)

    def __rand__(self, other: object) -> Self:
        return self._reversed("AND", other)

    def __or__(self, other: object) -> Self:
        return self._chained("OR", other)

    def __ror__(self, other: object) -> Self:
        return self._reversed("OR", other)

    def __invert__(self) -> Self:
        return self._operated("NOT")

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise WrongTypeError(
            f"{self} has no value before the query runs: write & | ~ and if_then_else, not and, or, not and if; "
            "and put comparisons beside & and | in parentheses"
        )

    # --- NULL and truth ----------------------------------------------------------------------------------------------

    is_null = Test("IS NULL", "Whether the value is NULL.")
    is_not_null = Test("IS NOT NULL", "Whether the value is not NULL.")
    is_true = Test("IS TRUE", "Whether the value is true: neither false nor NULL.")
    is_false = Test("IS FALSE", "Whether the value is false: neither true nor NULL.")
    is_not_true = Test("IS NOT TRUE", "Whether the value is false or NULL.")
    is_not_false = Test("IS NOT FALSE", "Whether the value is true or NULL.")

    def if_null(self, null_replacement: object) -> Self:
        """Return the value, or a replacement if it is NULL.

        Examples:
            >>> list(orders.select(col("drink").if_null("nothing")).execute().collect())
            [<Row('tea')>, <Row('rum')>]
        """
        return self._called("IFNULL", null_replacement)

    def then(self, if_true: object, if_false: object) -> Self:
        """Return the first value if the condition is true, otherwise the second.

        Examples:
            >>> list(orders.select((col("cups") > 1).then("many", "few")).execute().collect())
            [<Row('many')>, <Row('few')>]
        """
        return self._new(syntax.Case(None, ((self._node, to_node(if_true)),), to_node(if_false)))

    # --- one of several ----------------------------------------------------------------------------------------------

    def between(self, lower_bound: object, upper_bound: object) -> Self:
        """Return whether the value is between two bounds (inclusive).

        Examples:
            >>> list(orders.where(col("cups").between(2, 5)).execute().collect())
            [<Row('tea', 2)>]
        """
        return self._new(syntax.Between(self._node, to_node(lower_bound), to_node(upper_bound)))

    def not_between(self, lower_bound: object, upper_bound: object) -> Self:
        """Return whether the value is less than the lower bound or greater than the upper one."""
        return self._new(syntax.Between(self._node, to_node(lower_bound), to_node(upper_bound), is_negated=True))

    def in_(self, first_element_or_table: object, *remaining_elements: object) -> Self:
        """Return whether the value is one of these elements, or in a table of one column.

        Examples:
            >>> list(orders.where(col("drink").in_("tea", "milk")).execute().collect())
            [<Row('tea', 2)>]
        """
        query = _to_query(first_element_or_table)
        if query is None:
            among = (first_element_or_table, *remaining_elements)
            return self._new(syntax.In(self._node, tuple(map(to_node, among))))
        if remaining_elements:
            raise WrongTypeError("in_ takes one table, or values, and not both")
        return self._new(syntax.In(self._node, query))

    # --- types -------------------------------------------------------------------------------------------------------

    def cast(self, data_type: DataType) -> Self:
        """Cast to another type. A value that cannot be cast fails the job.

        Examples:
            >>> from penstock.table import DataTypes
            >>> list(orders.select(col("cups").cast(DataTypes.STRING())).execute().collect())
            [<Row('2')>, <Row('1')>]
        """
        return self._new(syntax.Cast(self._node, data_type))

    def try_cast(self, data_type: DataType) -> Self:
        """Cast to another type, or to NULL if the value cannot be cast.

        Examples:
            >>> from penstock.table import DataTypes
            >>> list(orders.select(col("drink").try_cast(DataTypes.INT())).execute().collect())
            [<Row(None)>, <Row(None)>]
        """
        return self._new(syntax.Cast(self._node, data_type, is_try=True))


def _to_query(value: object) -> syntax.Query | None:
    """Return the query of a table, or None for other values."""
    make = getattr(type(value), "_query", None)
    return None if make is None else make(value)


class TimeIntervalUnit(Enum):
    """A unit of time, or a range of units from larger to smaller."""

    YEAR = "YEAR"
    YEAR_TO_MONTH = "YEAR_TO_MONTH"
    QUARTER = "QUARTER"
    MONTH = "MONTH"
    WEEK = "WEEK"
    DAY = "DAY"
    DAY_TO_HOUR = "DAY_TO_HOUR"
    DAY_TO_MINUTE = "DAY_TO_MINUTE"
    DAY_TO_SECOND = "DAY_TO_SECOND"
    HOUR = "HOUR"
    SECOND = "SECOND"
    HOUR_TO_MINUTE = "HOUR_TO_MINUTE"
    HOUR_TO_SECOND = "HOUR_TO_SECOND"
    MINUTE = "MINUTE"
    MINUTE_TO_SECOND = "MINUTE_TO_SECOND"


class TimePointUnit(Enum):
    """A unit of time for differences between temporal values."""

    YEAR = "YEAR"
    MONTH = "MONTH"
    DAY = "DAY"
    HOUR = "HOUR"
    MINUTE = "MINUTE"
    SECOND = "SECOND"
    QUARTER = "QUARTER"
    WEEK = "WEEK"
    MILLISECOND = "MILLISECOND"
    MICROSECOND = "MICROSECOND"


class JsonType(Enum):
    """A type of JSON text."""

    VALUE = "VALUE"
    SCALAR = "SCALAR"
    ARRAY = "ARRAY"
    OBJECT = "OBJECT"


class JsonExistsOnError(Enum):
    """The result of `json_exists` if the path fails."""

    TRUE = "TRUE"
    FALSE = "FALSE"
    UNKNOWN = "UNKNOWN"
    ERROR = "ERROR"


class JsonValueOnEmptyOrError(Enum):
    """The result of `json_value` if the path finds nothing or fails."""

    NULL = "NULL"
    ERROR = "ERROR"
    DEFAULT = "DEFAULT"


class JsonQueryWrapper(Enum):
    """When `json_query` wraps its result in an array."""

    WITHOUT_ARRAY = "WITHOUT WRAPPER"
    CONDITIONAL_ARRAY = "WITH CONDITIONAL WRAPPER"
    UNCONDITIONAL_ARRAY = "WITH UNCONDITIONAL WRAPPER"


class JsonQueryOnEmptyOrError(Enum):
    """The result of `json_query` if the path finds nothing or fails."""

    NULL = "NULL"
    EMPTY_ARRAY = "EMPTY ARRAY"
    EMPTY_OBJECT = "EMPTY OBJECT"
    ERROR = "ERROR"


class JsonOnNull(Enum):
    """How functions that construct JSON treat NULL: keep it or omit it."""

    NULL = "NULL"
    ABSENT = "ABSENT"
