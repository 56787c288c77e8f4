"""Memory sizes in Flink's text format: `64 mb`, `20kb`, `1 g`. All units are powers of 1,024."""

from __future__ import annotations

import re

from penstock.base.errors import WrongValueError

__all__ = ["format_bytes", "parse_bytes"]

_UNIT_BYTES = {
    **dict.fromkeys(("", "b", "byte", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}
_FORM = re.compile(r"([0-9]+)\s*([a-zA-Z]*)\Z")


def parse_bytes(text: str) -> int:
    """Parse a size such as `64 mb` into bytes. A bare number is in bytes; case does not matter.

    Raises:
        ValueError: if the text is not a size.
    """
    match = _FORM.match(text.strip())
    if match is None or match[2].lower() not in _UNIT_BYTES:
        raise WrongValueError(f"not a memory size: {text!r}; write a whole number and a unit: b, kb, mb, gb or tb")
    return int(match[1]) * _UNIT_BYTES[match[2].lower()]


def format_bytes(size_bytes: int) -> str:
    """Format a size in the largest unit that is exact; `parse_bytes` reads it back.

    Raises:
        ValueError: if the size is negative.
    """
    if size_bytes < 0:
        raise WrongValueError(f"a memory size cannot be negative: {size_bytes}")
    for label in ("tb", "gb", "mb", "kb"):
        if size_bytes and size_bytes % _UNIT_BYTES[label] == 0:
            return f"{size_bytes // _UNIT_BYTES[label]} {label}"
    return f"{size_bytes} bytes"
