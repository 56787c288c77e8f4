"""Decimals as formats of text write them unless told otherwise."""

from __future__ import annotations

import decimal
from typing import Final

_EXACT: Final = decimal.Context(prec=100)


def shortest(value: decimal.Decimal) -> decimal.Decimal:
    """The same number without zeros at its end, as Flink writes it: 12.5 for 12.50, 1E+5 for 100000."""
    return value.normalize(_EXACT)
