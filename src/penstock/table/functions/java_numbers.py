"""Numbers as Java prints them."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np


def double_text(value: float) -> str:
    """Return the shortest exact text of a DOUBLE: `1.5`, `1.0E10`, `NaN`, `Infinity`."""
    return _special(value) or _plain_or_scientific(Decimal(repr(value)), value)


def float_text(value: float) -> str:
    """Return the text of a FLOAT, which has fewer digits than a DOUBLE."""
    return _special(value) or _plain_or_scientific(Decimal(np.format_float_scientific(np.float32(value))), value)


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return ("-0.0" if math.copysign(1, value) < 0 else "0.0") if value == 0 else ""


def _plain_or_scientific(number: Decimal, value: float) -> str:
    sign, digits, _ = number.normalize().as_tuple()
    digit_text = "".join(map(str, digits))
    exponent = number.adjusted()
    prefix = "-" if sign else ""
    if not -3 <= exponent < 7:
        return f"{prefix}{digit_text[0]}.{digit_text[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{prefix}0.{'0' * (-exponent - 1)}{digit_text}"
    integer = digit_text[: exponent + 1].ljust(exponent + 1, "0")
    return f"{prefix}{integer}.{digit_text[exponent + 1 :] or '0'}"
