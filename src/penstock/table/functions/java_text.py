"""Strings in UTF-16 code units, as in Java: a character beyond U+FFFF counts as two."""

from __future__ import annotations

import re
from typing import Final

_LONE: Final = re.compile("[\ud800-\udfff]")


def is_plain(text: str) -> bool:
    """Return whether each character is one code unit."""
    return text.isascii() or max(text) <= "\uffff"


def units(text: str) -> str:
    """Return a string with one character per code unit."""
    if is_plain(text):
        return text
    return "".join(map(chr, memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")))


def from_units(text: str) -> str:
    """Invert `units`. A lone surrogate becomes a question mark, as in Flink when it writes UTF-8."""
    if text.isascii():
        return text
    return without_halves(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))


def without_halves(text: str) -> str:
    """Replace surrogates with question marks."""
    return text if text.isascii() else _LONE.sub("?", text)


def unit_length(text: str) -> int:
    """Return the number of code units."""
    return len(text) if is_plain(text) else len(text) + sum(char > "\uffff" for char in text)
