"""Functions of bitmaps: sets of unsigned 32-bit integers in the portable Roaring format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import UnsupportedError, write_install_command
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import ArrayType, BitmapType, DataType, IntType, NullType
from penstock.sql.functions import definition
from penstock.sql.functions.type_rules import can_cast_implicitly

#: the text of a bitmap is cut off with dots after this many characters
_TEXT_MAX: Final = 0x80000
_BITS: Final = 2**32
#: an array has fewer elements than this
_ARRAY_MAX: Final = 2**31


def bitmap_class() -> Any:
    """Return the class of Roaring bitmaps; raise `UnsupportedError` if its package is missing."""
    try:
        from pyroaring import BitMap
    except ImportError as error:
        raise UnsupportedError(f"bitmaps need the package pyroaring: {write_install_command('sql')}") from error
    return BitMap


def decode_bitmap(raw: object) -> Any:
    """Return a bitmap from its bytes in a column."""
    return bitmap_class().deserialize(raw)


def bitmap_bytes(bitmap: Any) -> bytes:
    """Return the bytes of a bitmap in a column: equal for equal numbers."""
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def bitmap_text(raw: object) -> str:
    """Return the text `{1,2,3}`, cut off if it is long."""
    parts: list[str] = []
    length = 1
    for number in decode_bitmap(raw):
        if length > _TEXT_MAX:
            parts.append("...")
            break
        parts.append(str(number))
        length += len(parts[-1]) + 1
    return f"{{{','.join(parts)}}}"


def bitmap_from_bytes(raw: object) -> bytes:
    """Return a bitmap from bytes in the Roaring format; raise `TableRuntimeError` for other bytes."""
    try:
        return bitmap_bytes(decode_bitmap(raw))
    except (ValueError, IndexError) as error:
        raise TableRuntimeError("Failed to deserialize bitmap from bytes.") from error


def _build(numbers: object) -> bytes:
    assert isinstance(numbers, list)
    return bitmap_bytes(bitmap_class()([number % _BITS for number in numbers if number is not None]))


def _to_array(raw: object) -> list[int]:
    bitmap = decode_bitmap(raw)
    if len(bitmap) >= _ARRAY_MAX:
        raise TableRuntimeError("Failed to convert bitmap to an array: it has too many numbers.")
    return [number - _BITS if number >= _BITS // 2 else number for number in bitmap]


def _combined(combine: Callable[[Any, Any], Any]) -> Callable[[object, object], object]:
    return lambda bitmap, other: bitmap_bytes(combine(decode_bitmap(bitmap), decode_bitmap(other)))


def _bitmap(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return BitmapType() if isinstance(data_type, NullType) else data_type if isinstance(data_type, BitmapType) else None


def _array_of_int(call: definition.Operands, index: int) -> DataType | None:
    data_type, target = call.types[index], ArrayType(IntType())
    if not can_cast_implicitly(data_type, target):
        return None
    return target.nullable() if data_type.is_nullable else target.not_null()


_BITMAP: Final = definition.where("bitmap <BITMAP>", _bitmap)
_PAIR: Final = (definition.where("bitmap1 <BITMAP>", _bitmap), definition.where("bitmap2 <BITMAP>", _bitmap))


def _define(
    name: str,
    operands: Any,
    result: DataType,
    function: Callable[..., object],
    usage: str,
    summary: str,
    **more: object,
) -> definition.ScalarFunction:
    kernel = definition.per_value(function)
    return definition.scalar(
        name, operands, definition.returns(result), kernel, summary, section="bitmap", usage=f"{name}({usage})", **more
    )


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    *(
        _define(name, definition.takes(*_PAIR), BitmapType(), _combined(combine), "bitmap1, bitmap2", summary)
        for name, combine, summary in (
            ("BITMAP_AND", lambda bitmap, other: bitmap & other, "Returns the values in both bitmaps."),
            (
                "BITMAP_ANDNOT",
                lambda bitmap, other: bitmap - other,
                "Returns the values in bitmap1 that are not in bitmap2.",
            ),
            (
                "BITMAP_OR",
                lambda bitmap, other: bitmap | other,
                "Returns the values in either bitmap.",
            ),
            ("BITMAP_XOR", lambda bitmap, other: bitmap ^ other, "Returns the values in exactly one of the bitmaps."),
        )
    ),
    _define(
        "BITMAP_BUILD",
        definition.takes(definition.where("array <ARRAY<INT>>", _array_of_int)),
        BitmapType(),
        _build,
        "array",
        "Creates a bitmap of the integers in an array; negative integers are stored as unsigned values from "
        "2147483648 on.",
    ),
    _define(
        "BITMAP_CARDINALITY",
        definition.takes(_BITMAP),
        definition.BIGINT,
        lambda raw: len(decode_bitmap(raw)),
        "bitmap",
        "Returns the number of values in the bitmap.",
    ),
    _define(
        "BITMAP_FROM_BYTES",
        definition.takes(definition.BINARY),
        BitmapType(),
        bitmap_from_bytes,
        "bytes",
        "Deserializes a bitmap from bytes in the 32-bit Roaring format.",
        can_fail=True,
    ),
    _define(
        "BITMAP_TO_BYTES",
        definition.takes(_BITMAP),
        definition.BYTES_TYPE,
        bytes,
        "bitmap",
        "Serializes the bitmap to bytes in the 32-bit Roaring format.",
    ),
    _define(
        "BITMAP_TO_ARRAY",
        definition.takes(_BITMAP),
        ArrayType(IntType()),
        _to_array,
        "bitmap",
        "Returns the values of the bitmap in ascending unsigned order; values from 2147483648 on are negative.",
        can_fail=True,
    ),
    _define(
        "BITMAP_TO_STRING",
        definition.takes(_BITMAP),
        definition.STRING,
        bitmap_text,
        "bitmap",
        "Returns the values of the bitmap as a string.",
    ),
)
