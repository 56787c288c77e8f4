"""Character sets and string lengths as in Java.

A character set consists of ranges; `named` returns the named character classes of Java's regular expressions. `units`
splits a string into UTF-16 code units: a character beyond U+FFFF counts as two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from penstock.base.errors import UnsupportedError

#: the first and last code point of each range, sorted and disjoint
Ranges: TypeAlias = "tuple[tuple[int, int], ...]"

LAST: Final = 0x10FFFF


def union(parts: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges and merge overlapping and adjacent ones."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(parts):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """Return all other characters."""
    gaps: list[tuple[int, int]] = []
    begin = 0
    for low, high in ranges:
        if begin < low:
            gaps.append((begin, low - 1))
        begin = high + 1
    return (*gaps, (begin, LAST)) if begin <= LAST else tuple(gaps)


def intersection(ranges: Ranges, other: Ranges) -> Ranges:
    """Return the characters in both sets."""
    return complement(union((*complement(ranges), *complement(other))))


def of(text: str) -> Ranges:
    """Return the characters of a string. `a-z` denotes a range."""
    parts: list[tuple[int, int]] = []
    at = 0
    while at < len(text):
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            parts.append((ord(text[at]), ord(text[at + 2])))
            at += 3
        else:
            parts.append((ord(text[at]), ord(text[at])))
            at += 1
    return union(parts)


LINE_ENDS: Final = of("\n\r\x85\u2028\u2029")
#: the sets that a backslash and one letter denote
SHORT: Final[dict[str, Ranges]] = {
    "d": of("0-9"),
    "w": of("a-zA-Z_0-9"),
    "s": of("\t-\r "),
    "h": of(" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"),
    "v": of("\n-\r\x85\u2028\u2029"),
}
SHORT.update({letter.upper(): complement(ranges) for letter, ranges in list(SHORT.items())})

_PUNCTUATION: Final = of("!-/:-@[-`{-~")
_POSIX: Final[dict[str, Ranges]] = {
    "Lower": of("a-z"),
    "Upper": of("A-Z"),
    "ASCII": of("\0-\x7f"),
    "Alpha": of("a-zA-Z"),
    "Digit": of("0-9"),
    "Alnum": of("a-zA-Z0-9"),
    "Punct": _PUNCTUATION,
    "Graph": of("!-~"),
    "Print": of(" -~"),
    "Blank": of(" \t"),
    "Cntrl": of("\0-\x1f\x7f"),
    "XDigit": of("0-9a-fA-F"),
    "Space": of("\t-\r "),
}
_PROPERTIES: Final[dict[str, Callable[[str], bool]]] = {
    "alphabetic": lambda char: char.isalpha() or unicodedata.category(char) == "Nl",
    "letter": str.isalpha,
    "lowercase": str.islower,
    "uppercase": str.isupper,
    "titlecase": lambda char: unicodedata.category(char) == "Lt",
    "digit": str.isdecimal,
    "punctuation": lambda char: unicodedata.category(char).startswith("P"),
    "control": lambda char: unicodedata.category(char) == "Cc",
    "white_space": lambda char: char.isspace() and char not in "\x1c\x1d\x1e\x1f",
    "whitespace": lambda char: char.isspace() and char not in "\x1c\x1d\x1e\x1f",
    "ideographic": lambda char: unicodedata.name(char, "").startswith("CJK UNIFIED"),
    "assigned": lambda char: unicodedata.category(char) != "Cn",
    "hex_digit": lambda char: char in "0123456789abcdefABCDEF",
    "javalowercase": str.islower,
    "javauppercase": str.isupper,
    "javawhitespace": lambda char: char.isspace() and char not in "\x85\xa0\u2007\u202f",
    "javaletter": str.isalpha,
    "javaletterordigit": lambda char: char.isalpha() or char.isdecimal(),
    "javaalphabetic": str.isalpha,
    "javadigit": str.isdecimal,
    "javamirrored": lambda char: unicodedata.mirrored(char) == 1,
}
_NAMED_SCRIPTS: Final = (
    *("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "HEBREW", "ARABIC", "DEVANAGARI", "BENGALI", "TAMIL", "TELUGU"),
    *("THAI", "GEORGIAN", "HANGUL", "HIRAGANA", "KATAKANA", "ETHIOPIC", "KHMER", "MONGOLIAN", "TIBETAN"),
)
#: prefixes of the Unicode names of each script's characters
_SCRIPTS: Final = {
    "han": ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI", "IDEOGRAPHIC ITERATION"),
    **{name.lower(): (f"{name} ",) for name in _NAMED_SCRIPTS},
}
_BLOCKS: Final[dict[str, Ranges]] = {
    "basiclatin": of("\0-\x7f"),
    "latin1supplement": of("\x80-\xff"),
    "latinextendeda": of("\u0100-\u017f"),
    "latinextendedb": of("\u0180-\u024f"),
    "greek": of("\u0370-\u03ff"),
    "greekandcoptic": of("\u0370-\u03ff"),
    "cyrillic": of("\u0400-\u04ff"),
    "armenian": of("\u0530-\u058f"),
    "hebrew": of("\u0590-\u05ff"),
    "arabic": of("\u0600-\u06ff"),
    "devanagari": of("\u0900-\u097f"),
    "thai": of("\u0e00-\u0e7f"),
    "generalpunctuation": of("\u2000-\u206f"),
    "currencysymbols": of("\u20a0-\u20cf"),
    "arrows": of("\u2190-\u21ff"),
    "mathematicaloperators": of("\u2200-\u22ff"),
    "hiragana": of("\u3040-\u309f"),
    "katakana": of("\u30a0-\u30ff"),
    "cjkunifiedideographs": of("\u4e00-\u9fff"),
    "hangulsyllables": of("\uac00-\ud7af"),
    "emoticons": of("\U0001f600-\U0001f64f"),
}


@lru_cache(maxsize=64)
def named(name: str) -> Ranges:
    """Return the characters of the class `p{name}`. Raises `UnsupportedError` for unknown names."""
    if name in _POSIX:
        return _POSIX[name]
    kind, has_value, value = name.partition("=")
    if has_value:
        kind = {"general_category": "gc", "script": "sc", "block": "blk"}.get(kind.lower(), kind.lower())
        name = {"gc": value, "sc": f"Is{value}", "blk": f"In{value}"}.get(kind, name)
    short = name.removeprefix("Is")
    if name.startswith("In"):
        block = name[2:].lower().replace("_", "").replace(" ", "").replace("-", "")
        if block in _BLOCKS:
            return _BLOCKS[block]
    elif name.lower().startswith("java") or name.startswith("Is"):
        check = _PROPERTIES.get(short.lower())
        if check is not None:
            return _those(check)
        starts = _SCRIPTS.get(short.lower())
        if starts is not None:
            return _those(lambda char: unicodedata.name(char, "").startswith(starts))
    if short == "LC":
        return _those(lambda char: unicodedata.category(char) in ("Lu", "Ll", "Lt"))
    if 1 <= len(short) <= 2 and short[0] in "LMNPSZC":
        ranges = _those(lambda char: unicodedata.category(char).startswith(short))
        if ranges:
            return ranges
    raise UnsupportedError(f"regular expressions know no class of characters \\p{{{name}}}")


def _those(check: Callable[[str], bool]) -> Ranges:
    return union(_runs([code for code in range(LAST + 1) if check(chr(code))]))


def _runs(codes: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for code in codes:
        if runs and runs[-1][1] == code - 1:
            runs[-1] = (runs[-1][0], code)
        else:
            runs.append((code, code))
    return runs


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
