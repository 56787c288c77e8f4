"""Number text in messages. Python accepts more forms than Java, whose rules Flink's formats follow."""

from __future__ import annotations

import decimal

from penstock.base.errors import FormatError


def number_text(text: str) -> str:
    """Strip surrounding whitespace.

    Raises:
        FormatError: if the text contains an underscore, which Python accepts as a digit separator.
    """
    if "_" in text:
        raise FormatError(f"{text!r} is not a number")
    return text.strip()


def read_decimal(text: str) -> decimal.Decimal:
    """Parse a decimal number.

    Raises:
        FormatError: if it is NaN or infinite, which Java's `BigDecimal` cannot represent, or contains an underscore.
        ArithmeticError: if the text is not a number.
    """
    value = decimal.Decimal(number_text(text))
    if not value.is_finite():
        raise FormatError(f"{text!r} is not a decimal number")
    return value
