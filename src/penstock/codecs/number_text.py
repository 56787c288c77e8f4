"""Texts of numbers in messages. Python reads more of them than Java, whose rules Flink's formats follow."""

from __future__ import annotations

import decimal

from penstock.base.errors import FormatError


def number_text(text: str) -> str:
    """The same text without blanks around it.

    Raises:
        FormatError: if it has an underscore, which Python takes for a separator of digits.
    """
    if "_" in text:
        raise FormatError(f"{text!r} is not a number")
    return text.strip()


def read_decimal(text: str) -> decimal.Decimal:
    """A decimal number.

    Raises:
        FormatError: if it is NaN or infinite, which Java's `BigDecimal` cannot be, or has an underscore.
        ArithmeticError: if the text is not a number.
    """
    value = decimal.Decimal(number_text(text))
    if not value.is_finite():
        raise FormatError(f"{text!r} is not a decimal number")
    return value
