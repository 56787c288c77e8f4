"""The default text form of decimals in text formats."""

from __future__ import annotations

import decimal
from typing import Final

_EXACT: Final = decimal.Context(prec=100)


def shortest(value: decimal.Decimal) -> decimal.Decimal:
    """Return the number without trailing zeros, as Flink writes it: 12.5 for 12.50, 1E+5 for 100000."""
    return value.normalize(_EXACT)
