"""Numbers in other bases and bytes as hexadecimal digits: BIN, HEX and UNHEX."""

from __future__ import annotations

from typing import Final

from penstock.table.functions.definition import ScalarFunction, scalar
from penstock.table.functions.kernels import per_value
from penstock.table.functions.signatures import BYTES_TYPE, INTEGER, STRING, TEXT, returns, returns_nullable, takes

_BITS: Final = (1 << 64) - 1
_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


def _binary(number: int) -> str:
    """Return binary digits: for negative numbers, all 64 digits of the two's complement."""
    return format(number & _BITS, "b")


def _hexadecimal(value: int | str) -> str:
    return value.encode().hex().upper() if isinstance(value, str) else format(value & _BITS, "X")


def _bytes(digits: str) -> bytes | None:
    """Decode hexadecimal digits. If their count is odd, the first digit counts as 0, as in Flink."""
    if not _DIGITS.issuperset(digits):
        return None
    return bytes.fromhex(f"00{digits[1:]}" if len(digits) % 2 else digits)


FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "BIN",
        takes(INTEGER),
        returns(STRING),
        per_value(_binary),
        "Returns the integer in binary format.",
        python_name="bin",
        usage="BIN(integer)",
        section="arithmetic",
    ),
    scalar(
        "HEX",
        (takes(INTEGER), takes(TEXT)),
        returns(STRING),
        per_value(_hexadecimal),
        "Returns an integer, or the UTF-8 bytes of a string, in hexadecimal format.",
        python_name="hex",
        usage="HEX(value)",
        section="arithmetic",
    ),
    scalar(
        "UNHEX",
        takes(TEXT),
        returns_nullable(BYTES_TYPE),
        per_value(_bytes),
        "Decodes hexadecimal digits to bytes; returns NULL if the string has other characters.",
        python_name="unhex",
        usage="UNHEX(string)",
        section="arithmetic",
    ),
)
