"""The English names in patterns: months, days, quarters, eras, AM and PM."""

from __future__ import annotations

from typing import Final

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
#: Monday first
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
HALVES: Final = ("AM", "PM")
QUARTERS: Final = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
ERAS: Final = (("BC", "AD"), ("Before Christ", "Anno Domini"), ("B", "A"))
