"""Texts as Java counts them: in units of UTF-16, where a character beyond U+FFFF is two."""

from __future__ import annotations

import re
from typing import Final

_LONE: Final = re.compile("[\ud800-\udfff]")


def is_plain(text: str) -> bool:
    """Whether each of its characters is one unit."""
    return text.isascii() or max(text) <= "\uffff"


def units(text: str) -> str:
    """A text with a character for each unit."""
    if is_plain(text):
        return text
    return "".join(map(chr, memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")))


def from_units(text: str) -> str:
    """What `units` gave, as a text. Half a character becomes a question mark, as when Flink writes it in UTF-8."""
    if text.isascii():
        return text
    return without_halves(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))


def without_halves(text: str) -> str:
    """A text in which halves of characters are question marks."""
    return text if text.isascii() else _LONE.sub("?", text)


def unit_length(text: str) -> int:
    """The number of units."""
    return len(text) if is_plain(text) else len(text) + sum(char > "\uffff" for char in text)
