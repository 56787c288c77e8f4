"""Writing of Avro's binary encoding, with functions generated for a schema."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple, Protocol

from penstock.base.errors import FormatError
from penstock.base.types import Row, values_by_names
from penstock.codecs.avro_reading import AvroType

#: Errors that writing an invalid value may raise.
WRITE_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
    struct.error,
)
_VARINT_BYTES_MAX: Final = 10


def _always(value: Any) -> bool:
    return True


class Logical(NamedTuple):
    """How to write values of a logical type.

    Attributes:
        fits: whether a value is of the type.
        lower: converts a value to Avro's plain types.
        keeps: whether a valid value is written without loss, unlike microseconds as milliseconds.
    """

    fits: Callable[[Any], bool]
    lower: Callable[[Any], Any]
    keeps: Callable[[Any], bool] = _always


class Lowers(Protocol):
    """Conversion of values before encoding, which the schema does not define."""

    def lower(self, logical: AvroType) -> Logical | None:
        """Return how to write values of a logical type, or None if they are already plain."""
        ...

    def entries(self, value: Any) -> Iterable[tuple[Any, Any]] | None:
        """Return the entries of a map, or None if the value is not a map."""
        ...


class RecordWriter:
    """Writes records of a schema: rows, tuples, lists, or dicts by field name."""

    def __init__(self, schema: AvroType, lowers: Lowers) -> None:
        maker = _Maker(lowers)
        self._write = maker.codec(schema).write
        self._names = tuple(field.name for field in schema.fields)
        self._quick = _quick_writer([(field.type, maker.codec(field.type)) for field in schema.fields])

    def record(self, value: Any) -> bytes:
        """Return the bytes of a record.

        Raises one of `WRITE_ERRORS`, naming the field, if it does not fit the schema.
        """
        out = bytearray()
        try:
            self._quick(out, *_get_field_values(value, self._names))
        except WRITE_ERRORS:
            out.clear()
            self._write(out, value)  # raises an error that names the field
        return bytes(out)


def _get_field_values(record: Any, names: tuple[str, ...]) -> Any:
    """Return a record's field values: by name from dicts and rows with these names, by position from others."""
    if isinstance(record, dict):
        return [record[name] for name in names]
    return values_by_names(record, names) if isinstance(record, Row) else record


def _quick_writer(fields: Sequence[tuple[AvroType, _Codec]]) -> Callable[..., None]:
    """Generate a function that writes a record's field values, see `avro_reading`.

    It writes values of exactly the plain types itself and leaves others to their codec.
    """
    lines = [f"def write(out, {', '.join(f'v{position}' for position in range(len(fields)))}):"] if fields else []
    names: dict[str, Any] = {"write_long": write_long}
    for index, (kind, codec) in enumerate(fields):
        names[f"other{index}"] = codec.write
        lines += [f"    {line}" for line in _quick_lines(kind, f"v{index}", f"other{index}", names)]
    exec("\n".join(lines) or "def write(out): pass", names)
    writer: Callable[..., None] = names["write"]
    return writer


def _quick_lines(kind: AvroType, value: str, other: str, names: dict[str, Any]) -> list[str]:
    """Return the lines for one value."""
    if kind.kind == "union" and len(kind.parts) == 2 and kind.parts[0].kind == "null":
        inner = kind.parts[1]
        if (plain := _plain_lines(inner, value, names)) is not None:
            test, *lines = plain
            return [
                f"if {value} is None: out.append(0)",
                test.replace("if", "elif", 1),
                "    out.append(2)",
                *lines,
                f"else: {other}(out, {value})",
            ]
    elif (plain := _plain_lines(kind, value, names)) is not None:
        return [*plain, f"else: {other}(out, {value})"]
    return [f"{other}(out, {value})"]


def _plain_lines(kind: AvroType, value: str, names: dict[str, Any]) -> list[str] | None:
    """Return the lines for a value of exactly a plain type, the test first; None for other types."""
    if kind.logical is not None:
        return None
    match kind.kind:
        case "int" | "long":
            limit = 1 << (31 if kind.kind == "int" else 63)
            return [
                f"if type({value}) is int and {-limit} <= {value} < {limit}:",
                f"    if -64 <= {value} < 64: out.append({value} << 1 ^ {value} >> 63)",
                f"    else: write_long(out, {value})",
            ]
        case "string":
            return [
                f"if type({value}) is str:",
                f"    b = {value}.encode(); n = len(b)",
                "    if n < 64: out.append(n << 1)",
                "    else: write_long(out, n)",
                "    out += b",
            ]
        case "float" | "double":
            names[f"pack_{kind.kind}"] = struct.Struct("<f" if kind.kind == "float" else "<d").pack
            return [f"if type({value}) is float:", f"    out += pack_{kind.kind}({value})"]
        case "boolean":
            return [f"if type({value}) is bool:", f"    out.append({value})"]
        case _:
            return None


class _Codec:
    """How to recognize and write values of one type.

    Args:
        fits: whether a value is of the type.
        write: appends a value's bytes.
        keeps: whether a valid value is written without loss; by default always.
        is_float: whether numbers become floats.
    """

    __slots__ = ("fits", "is_float", "keeps", "write")

    def __init__(
        self,
        fits: Callable[[Any], bool],
        write: Callable[[bytearray, Any], None],
        keeps: Callable[[Any], bool] = _always,
        is_float: bool = False,
    ) -> None:
        self.fits = fits
        self.write = write
        self.keeps = keeps
        self.is_float = is_float

    def holds(self, value: Any) -> bool:
        """Return whether a value is of the type and is written without loss."""
        try:
            return self.fits(value) and self.keeps(value)
        except WRITE_ERRORS:
            return False


class _Maker:
    def __init__(self, lowers: Lowers) -> None:
        self._lowers = lowers
        self._records: dict[int, _Codec] = {}

    def codec(self, kind: AvroType) -> _Codec:
        """Return the codec for a type."""
        match kind.kind:
            case "union":
                branches = [self.codec(branch) for branch in kind.parts]
                kinds = [branch.kind for branch in kind.parts]
                if len(branches) == 2 and "null" in kinds:
                    return _optional(branches, kinds.index("null"))
                return _union(branches)
            case "record":
                return self._records.get(id(kind)) or self._record(kind)
            case "array":
                return _array(self.codec(kind.parts[0]))
            case "map":
                return self._map(self.codec(kind.parts[0]))
            case "enum":
                return _enum(kind.symbols)
            case "fixed":
                base = _fixed(kind.size)
            case _:
                base = _primitive(kind.kind)
        logical = self._lowers.lower(kind) if kind.logical else None
        return base if logical is None else _lowered(base, logical, str(kind.logical))

    def _record(self, kind: AvroType) -> _Codec:
        names = tuple(field.name for field in kind.fields)
        keys = set(names)
        codecs: list[_Codec] = []

        def fits(value: Any) -> bool:
            if isinstance(value, dict):
                return value.keys() == keys
            return isinstance(value, (Row, tuple, list)) and len(value) == len(names)

        def write(out: bytearray, value: Any) -> None:
            if not fits(value):
                raise FormatError(f"{value!r} is not of type {kind.name}")
            for codec, item in zip(codecs, _get_field_values(value, names), strict=True):
                codec.write(out, item)

        def keeps(value: Any) -> bool:
            values = _get_field_values(value, names)
            return all(codec.holds(item) for codec, item in zip(codecs, values, strict=True))

        self._records[id(kind)] = record_codec = _Codec(fits, write, keeps)  # before its fields, which may refer to it
        codecs.extend(_named(field.name, self.codec(field.type)) for field in kind.fields)
        return record_codec

    def _map(self, item: _Codec) -> _Codec:
        entries_of = self._lowers.entries
        text = _primitive("string")

        def fits(value: Any) -> bool:
            entries = entries_of(value)
            return entries is not None and all(isinstance(k, str) and item.fits(v) for k, v in entries)

        def write(out: bytearray, value: Any) -> None:
            entries = list(entries_of(value) or ())
            if entries:
                write_long(out, len(entries))
                for key, element in entries:
                    text.write(out, key)
                    item.write(out, element)
            out.append(0)

        def keeps(value: Any) -> bool:
            return all(item.holds(element) for _, element in entries_of(value) or ())

        return _Codec(fits, write, keeps)


def _named(name: str, codec: _Codec) -> _Codec:
    """Return the same codec, whose errors name the field."""
    inner = codec.write

    def write(out: bytearray, value: Any) -> None:
        try:
            inner(out, value)
        except WRITE_ERRORS as error:
            raise FormatError(f"field {name!r}: {error}") from error

    return _Codec(codec.fits, write, codec.keeps, codec.is_float)


def _optional(branches: Sequence[_Codec], null: int) -> _Codec:
    """Return the codec for a union of null and one other type, the usual case; `null` is the index of null."""
    other = branches[1 - null]

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(null << 1)
        elif other.fits(value):
            out.append(1 - null << 1)
            other.write(out, value)
        else:
            raise FormatError(f"{value!r} fits no branch of the union")

    return _Codec(
        lambda value: value is None or other.fits(value),
        write,
        lambda value: value is None or other.keeps(value),
        other.is_float,
    )


def _union(branches: Sequence[_Codec]) -> _Codec:
    def choose(value: Any) -> int:
        """Return the first branch without loss, preferring integer types for ints.

        Else the first that fits the value.
        """
        fitting = [index for index, branch in enumerate(branches) if branch.fits(value)]
        if len(fitting) > 1:
            holding = [index for index in fitting if branches[index].holds(value)]
            if isinstance(value, int):
                holding.sort(key=lambda index: branches[index].is_float)
            fitting = holding or fitting
        if not fitting:
            raise FormatError(f"{value!r} fits no branch of the union")
        return fitting[0]

    def write(out: bytearray, value: Any) -> None:
        index = choose(value)
        write_long(out, index)
        branches[index].write(out, value)

    return _Codec(
        lambda value: any(branch.fits(value) for branch in branches),
        write,
        lambda value: any(branch.holds(value) for branch in branches),
    )


def _array(item: _Codec) -> _Codec:
    def write(out: bytearray, value: Any) -> None:
        if len(value):
            write_long(out, len(value))
            for element in value:
                item.write(out, element)
        out.append(0)

    return _Codec(
        lambda value: isinstance(value, (list, tuple)) and all(map(item.fits, value)),
        write,
        lambda value: all(map(item.holds, value)),
    )


def _enum(symbols: Sequence[str]) -> _Codec:
    indices = {symbol: index for index, symbol in enumerate(symbols)}
    return _Codec(
        lambda value: isinstance(value, str) and value in indices,
        lambda out, value: write_long(out, indices[value]),
    )


def _fixed(size_bytes: int) -> _Codec:
    def write(out: bytearray, value: Any) -> None:
        if len(value) != size_bytes:
            raise FormatError(f"{len(value)} bytes instead of {size_bytes}")
        out.extend(value)

    return _Codec(lambda value: isinstance(value, (bytes, bytearray)) and len(value) == size_bytes, write)


def _primitive(kind: str) -> _Codec:
    match kind:
        case "null":
            return _checked(lambda value: value is None, lambda out, value: None, kind)
        case "boolean":
            return _checked(lambda v: isinstance(v, bool), lambda out, v: out.append(v), kind)
        case "int" | "long":
            high = 1 << (31 if kind == "int" else 63)
            return _checked(
                lambda v: isinstance(v, int) and not isinstance(v, bool) and -high <= v < high, write_long, kind
            )
        case "float" | "double":
            form = struct.Struct("<f" if kind == "float" else "<d")

            def keeps(value: float) -> bool:
                return bool(value != value or form.unpack(form.pack(value))[0] == value)

            def fits(value: Any) -> bool:
                return isinstance(value, float) or (type(value) is int and _is_kept(value, keeps))

            codec = _checked(fits, lambda out, v: out.extend(form.pack(v)), kind)
            return _Codec(codec.fits, codec.write, keeps, is_float=True)
        case "bytes":
            return _checked(lambda v: isinstance(v, (bytes, bytearray)), _write_bytes, kind)
        case _:
            return _checked(lambda v: isinstance(v, str), lambda out, v: _write_bytes(out, v.encode()), kind)


def _is_kept(value: int, keeps: Callable[[float], bool]) -> bool:
    try:
        return keeps(value)
    except (OverflowError, struct.error):
        return False


def _checked(fits: Callable[[Any], bool], put: Callable[[bytearray, Any], None], kind: str) -> _Codec:
    """Return a codec that refuses to write invalid values."""

    def write(out: bytearray, value: Any) -> None:
        if not fits(value):
            raise FormatError(f"{value!r} is not of type {kind}")
        put(out, value)

    return _Codec(fits, write)


def _lowered(base: _Codec, logical: Logical, name: str) -> _Codec:
    fits, lower, keeps = logical

    def write(out: bytearray, value: Any) -> None:
        if not fits(value):
            raise FormatError(f"{value!r} is not of the logical type {name}")
        base.write(out, lower(value))

    return _Codec(fits, write, lambda value: keeps(value) and base.fits(lower(value)))


def write_long(out: bytearray, value: int) -> None:
    """Write a number: zigzag, then seven bits per byte, lowest first."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def read_long(source: BytesIO) -> int:
    """Read a number written by `write_long`. Raises FormatError if it is cut off or too long."""
    result = 0
    for position in range(_VARINT_BYTES_MAX):
        data = source.read(1)
        if not data:
            raise FormatError("a number is cut off")
        result |= (data[0] & 0x7F) << (7 * position)
        if data[0] < 0x80:
            return (result >> 1) ^ -(result & 1)
    raise FormatError(f"a number of more than {_VARINT_BYTES_MAX} bytes")


def _write_bytes(out: bytearray, value: bytes) -> None:
    write_long(out, len(value))
    out.extend(value)
