"""Numbers."""

from __future__ import annotations

from typing import Self

from penstock.table.methods.operand import Operand, Unary, to_node
from penstock.table.methods.units import TimeIntervalUnit
from penstock.table.sql import syntax


class Numbers(Operand):
    """Numeric methods."""

    abs = Unary("ABS", "The absolute value.")
    exp = Unary("EXP", "e raised to the power of the number.")
    ln = Unary("LN", "The natural logarithm.")
    log2 = Unary("LOG2", "The base-2 logarithm.")
    log10 = Unary("LOG10", "The base-10 logarithm.")
    sqrt = Unary("SQRT", "The square root.")
    sign = Unary("SIGN", "The sign of the number: -1, 0 or 1.")
    sin = Unary("SIN", "The sine of an angle in radians.")
    cos = Unary("COS", "The cosine of an angle in radians.")
    tan = Unary("TAN", "The tangent of an angle in radians.")
    cot = Unary("COT", "The cotangent of an angle in radians.")
    sinh = Unary("SINH", "The hyperbolic sine.")
    cosh = Unary("COSH", "The hyperbolic cosine.")
    tanh = Unary("TANH", "The hyperbolic tangent.")
    asin = Unary("ASIN", "The arc sine, in radians.")
    acos = Unary("ACOS", "The arc cosine, in radians.")
    atan = Unary("ATAN", "The arc tangent, in radians.")
    degrees = Unary("DEGREES", "The angle in degrees, converted from radians.")
    radians = Unary("RADIANS", "The angle in radians, converted from degrees.")
    bin = Unary("BIN", "The integer in binary digits.")
    hex = Unary("HEX", "The integer or string in hexadecimal digits.")
    unhex = Unary("UNHEX", "The bytes decoded from hexadecimal digits.")

    def log(self, base: object | None = None) -> Self:
        """Return the logarithm to a base, by default e."""
        return self._called("LOG") if base is None else self._new(to_node(base))._called("LOG", self)

    def round(self, places: object) -> Self:
        """Round to `places` decimal places."""
        return self._called("ROUND", places)

    def truncate(self, n: object = 0) -> Self:
        """Truncate to `n` decimal places."""
        return self._called("TRUNCATE", n)

    def floor(self, time_interval_unit: TimeIntervalUnit | None = None) -> Self:
        """Round down to an integer, or a temporal value to the start of its unit."""
        return self._called("FLOOR", _unit(time_interval_unit))

    def ceil(self, time_interval_unit: TimeIntervalUnit | None = None) -> Self:
        """Round up to an integer, or a temporal value to the end of its unit."""
        return self._called("CEIL", _unit(time_interval_unit))


def _unit(unit: TimeIntervalUnit | None) -> Operand | None:
    return None if unit is None else Operand(syntax.Unit(unit.value))
