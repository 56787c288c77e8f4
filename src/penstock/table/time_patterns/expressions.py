"""Regular expressions that parse text by the parts of a pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.table.time_patterns.names import DAYS, ERAS, HALVES, MONTHS, QUARTERS
from penstock.table.time_patterns.tokens import Choice, Dialect, Letters, Part, Text

_NUMBERS: Final = "yuYDMLdQqwWecFhKkHmsSAnN"
_NAMED: Final = {"M": MONTHS, "L": MONTHS, "E": DAYS, "e": DAYS, "c": DAYS, "Q": QUARTERS, "q": QUARTERS}
_OFFSETS: Final = {
    1: r"[+-]\d\d(?:\d\d)?",
    2: r"[+-]\d{4}",
    3: r"[+-]\d\d:\d\d",
    4: r"[+-]\d{4}(?:\d\d)?",
    5: r"[+-]\d\d:\d\d(?::\d\d)?",
}
_ZONE_NAME: Final = r"[A-Za-z][\w+\-/~:]*|[+-]\d\d:?\d\d"
_BLANKS: Final = r"[ \t]*"


def compiled(parts: Sequence[Part], dialect: Dialect) -> tuple[re.Pattern[str], list[Letters]]:
    """Compile parts to a regular expression; also return the pattern letters of each of its groups."""
    letters: list[Letters] = []
    build = _modern if dialect is Dialect.MODERN else _simple
    text = build(parts, letters)
    flags = re.IGNORECASE if dialect is Dialect.SIMPLE else re.NOFLAG
    return re.compile(text, flags | re.ASCII), letters


def is_number(part: Part | None) -> bool:
    """Return whether a part is written in digits."""
    if not isinstance(part, Letters) or part.letter not in _NUMBERS:
        return False
    return part.letter not in _NAMED or part.count < 3


def _group(part: Letters, text: str, letters: list[Letters]) -> str:
    letters.append(part)
    return f"({text})"


# --- DateTimeFormatter -----------------------------------------------------------------------------------------------


def _modern(parts: Sequence[Part], letters: list[Letters]) -> str:
    regex = ""
    for index, part in enumerate(parts):
        following = parts[index + 1] if index + 1 < len(parts) else None
        if isinstance(part, Text):
            regex += re.escape(part.text)
        elif isinstance(part, Choice):
            regex += f"(?:{_modern(part.parts, letters)})?"
        elif is_number(part):
            regex += (" *" if part.width else "") + _group(part, _digits(part, is_number(following)), letters)
        else:
            regex += _group(part, _words(part), letters)
    return regex


def _digits(part: Letters, is_followed: bool) -> str:
    """Return the expression for a number. If the next part is a number as well, enough digits are left for it."""
    letter, count = part.letter, part.count
    longest = "" if is_followed else "+"
    if letter in "yuY":
        if count == 2:
            return r"\d{2}"
        sign = "-?" if letter == "u" else ""
        return rf"{sign}\d{{{count},19}}{longest}" if count < 4 else rf"{sign}\d{{{count}}}|\+\d{{{count + 1},19}}"
    if letter == "D":
        return [rf"\d{{1,19}}{longest}", rf"\d{{2,3}}{longest}", r"\d{3}"][count - 1]
    if letter == "S":
        return rf"\d{{{count}}}"
    if letter in "AnN":
        return rf"\d{{{count},19}}{longest}"
    return r"\d{2}" if count == 2 else rf"\d{{1,19}}{longest}"


def _words(part: Letters) -> str:
    letter, count = part.letter, part.count
    if letter == "a":
        return "|".join(HALVES)
    if letter == "G":
        return "|".join(ERAS[{4: 1, 5: 2}.get(count, 0)])
    if letter in "Qq":
        return "|".join(QUARTERS) if count == 4 else r"Q[1-4]"
    if letter in _NAMED:
        size = None if count == 4 else 1 if count == 5 else 3
        return "|".join(name[:size] for name in _NAMED[letter])
    if letter == "X":
        return f"Z|{_OFFSETS[count]}"
    if letter == "x":
        return _OFFSETS[count]
    if letter == "Z":
        return r"GMT(?:[+-]\d\d:\d\d)?" if count == 4 else rf"Z|{_OFFSETS[5]}" if count == 5 else _OFFSETS[2]
    if letter == "O":
        return r"GMT(?:[+-]\d{1,2}(?::\d\d)?)?"
    if letter in "Vvz":
        return _ZONE_NAME
    raise UnsupportedError(f"texts cannot be read by patterns with the letter {letter}")


# --- SimpleDateFormat ------------------------------------------------------------------------------------------------


def _simple(parts: Sequence[Part], letters: list[Letters]) -> str:
    regex = ""
    for index, part in enumerate(parts):
        following = parts[index + 1] if index + 1 < len(parts) else None
        if isinstance(part, Text):
            regex += re.escape(part.text)
        elif isinstance(part, Letters):
            regex += _BLANKS + _group(part, _any_of_simple(part, isinstance(following, Letters)), letters)
    return regex


def _any_of_simple(part: Letters, obeys_count: bool) -> str:
    """Return the expression for a part. A number takes all digits, or at most its letter count if letters follow."""
    letter, count = part.letter, part.count
    if letter in "ML" and count > 2:
        return "|".join([*MONTHS, *(name[:3] for name in MONTHS)])
    if letter == "E":
        return "|".join([*DAYS, *(name[:3] for name in DAYS)])
    if letter == "a":
        return "|".join(HALVES)
    if letter == "G":
        return "|".join(ERAS[0])
    if letter == "X":
        return (r"Z|[+-]\d\d", r"Z|[+-]\d{4}", r"Z|[+-]\d\d:\d\d")[min(count, 3) - 1]
    if letter in "zZ":
        return r"GMT[+-]\d{1,2}:?\d\d|[+-]\d{1,2}:?\d\d|[A-Za-z]+(?:/[\w/+-]+)?"
    return rf"\d{{1,{count}}}" if obeys_count else r"-?\d+"
