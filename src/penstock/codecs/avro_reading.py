"""Reading of Avro's binary encoding, with functions generated for a schema.

`AvroType` is a schema as a tree, with names resolved.

`RecordReader` generates the source of a Python function for each pair of a writer's and a reader's schema. All
decisions that depend only on the schemas are made in advance: which fields to skip, which to convert to another type,
and which get their default. A message then costs only the work for its own bytes: 22 ms for 10,000 rows of 160 bytes
and eight fields, compared to 54 ms for functions that call each other, and 30 ms for fastavro, which is compiled C.

The source contains no text from a schema: names and values are passed in as globals. Each line is associated with the
field that it reads, so an error's traceback identifies the bad field.
"""

from __future__ import annotations

import itertools
import json
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock.base.errors import FormatError

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record. `default` is a JSON value, valid only if `has_default`."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


@dataclass(eq=False, slots=True)
class AvroType:
    """An Avro type; a record may contain itself.

    Attributes:
        kind: Avro's name: a primitive, or record, enum, fixed, array, map or union.
        name: the full name of a record, enum or fixed.
        logical: the name of the logical type, if any.
        scale: of a decimal.
        size: of a fixed, in bytes.
        symbols: of an enum.
        default: an enum's replacement for unknown symbols; None without one.
        fields: of a record.
        parts: the branches of a union, the items of an array, the values of a map.
    """

    kind: str
    name: str = ""
    logical: str | None = None
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    default: str | None = None
    fields: list[AvroField] = field(default_factory=list)
    parts: list[AvroType] = field(default_factory=list)

    def __str__(self) -> str:
        if self.kind == "union":
            return f"[{', '.join(map(str, self.parts))}]"
        return self.name or self.kind


def parse_record(text: str) -> AvroType:
    """Parse the JSON schema of a record.

    Raises:
        FormatError: if the text is not the schema of a record.
    """
    try:
        parsed = _parse(json.loads(text), {}, "")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise FormatError(f"not an Avro schema: {error!r}") from error
    if parsed.kind != "record":
        raise FormatError(f"not an Avro schema of a record but of {parsed}")
    return parsed


def _parse(schema: Any, named: dict[str, AvroType], namespace: str) -> AvroType:
    """Return the type for a schema; `named` holds the types defined so far, by full name."""
    if isinstance(schema, list):
        return AvroType("union", parts=[_parse(branch, named, namespace) for branch in schema])
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return AvroType(schema)
        return named[schema if "." in schema or not namespace else f"{namespace}.{schema}"]
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in ("record", "error", "enum", "fixed", "array", "map"):
        return _with_logical(_parse(kind, named, namespace), schema)
    if kind in ("array", "map"):
        return AvroType(kind, parts=[_parse(schema["items" if kind == "array" else "values"], named, namespace)])
    name = schema["name"]
    space = name.rpartition(".")[0] or schema.get("namespace", namespace)
    full_name = name if "." in name or not space else f"{space}.{name}"
    avro_type = named[full_name] = AvroType("record" if kind == "error" else kind, full_name)
    if kind == "enum":
        avro_type.symbols, avro_type.default = tuple(schema["symbols"]), schema.get("default")
    elif kind == "fixed":
        avro_type.size = schema["size"]
        named[full_name] = avro_type = _with_logical(avro_type, schema)
    else:
        # the record is registered before its fields, which may refer to it
        avro_type.fields.extend(
            AvroField(
                field_schema["name"],
                _parse(field_schema["type"], named, space),
                tuple(field_schema.get("aliases", ())),
                "default" in field_schema,
                field_schema.get("default"),
            )
            for field_schema in schema["fields"]
        )
    return avro_type


def _with_logical(base: AvroType, schema: dict[str, Any]) -> AvroType:
    logical = schema.get("logicalType")
    if not isinstance(logical, str) or base.kind not in ("int", "long", "bytes", "string", "fixed"):
        return base
    return AvroType(base.kind, base.name, logical, schema.get("scale", 0), base.size)


#: Errors that reading malformed records may raise.
READ_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
    struct.error,
)
_FILE: Final = "<Avro>"
_VARINT_BITS_MAX: Final = 63
_ITEMS_MAX: Final = 65_536  # how many items without bytes (nulls) a block may hold
_PROMOTIONS: Final = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("enum", "string"),  # not a promotion in Avro itself, but tables need it
    ("string", "bytes"),
    ("bytes", "string"),
    ("fixed", "bytes"),
}
#: conversions to a narrower type, if each value fits; Avro itself rejects such schemas
_NARROWINGS: Final = {("long", "int"), ("double", "float")}
_UUID_BYTES: Final = 16
_FORMS: Final = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}


class Values(Protocol):
    """Conversion of decoded values, which the schema does not define."""

    def lift(self, logical: AvroType) -> Callable[[Any], Any] | None:
        """Return the function that converts a plain value to a logical type, or None to keep it unchanged."""
        ...

    def record(self, fields: Sequence[str]) -> Callable[[list[Any]], Any]:
        """Return the function that creates a nested record from its field values."""
        ...

    def mapping(self, entries: dict[str, Any]) -> Any:
        """Convert a map."""
        ...


class RecordReader:
    """Reads records of a schema.

    Args:
        writer: the schema with which the records were written.
        reader: the schema as which to read them.
        values: the conversion of decoded values.
        narrows: whether to read a long as an int and a double as a float if each value fits. Avro rejects such schemas.

    Raises:
        FormatError: if records of one schema can never be read as the other; names the field.
    """

    def __init__(self, writer: AvroType, reader: AvroType, values: Values, narrows: bool = False) -> None:
        maker = _Maker(values, narrows)
        try:
            top = maker.function(writer, reader, is_inner=False)
        except _UnfitError as error:
            raise FormatError(_with_path(error.path, error.reason)) from None
        self._paths = [path for _, path in maker.finished]
        source = "\n".join(line for line, _ in maker.finished)
        exec(compile(source, _FILE, "exec"), maker.names)
        self._read: Callable[[bytes, int, int], tuple[list[Any], int]] = maker.names[top]

    def values(self, message: bytes, start: int = 0) -> list[Any]:
        """Return the field values of the single record from `start` on.

        Raises one of `READ_ERRORS` if it is malformed.
        """
        size = len(message)
        values, end = self._read(message, start, size)
        if end != size:
            raise FormatError("bytes are left after the record")
        return values

    def many(self, messages: Sequence[bytes], start: int = 0) -> list[list[Any]]:
        """Return the result of `values` for each message."""
        read = self._read
        records = []
        for message in messages:
            size = len(message)
            values, end = read(message, start, size)
            if end != size:
                raise FormatError("bytes are left after the record")
            records.append(values)
        return records

    def block(self, data: bytes, count: int) -> list[list[Any]]:
        """Return the field values of `count` consecutive records. Raises ValueError, naming the first bad one."""
        read, size, at = self._read, len(data), 0
        records: list[list[Any]] = []
        try:
            for _ in range(count):
                values, at = read(data, at, size)
                records.append(values)
        except READ_ERRORS as error:
            raise FormatError(f"record {len(records) + 1} of {count}: {self.reason(error)}") from error
        if at != size:
            raise FormatError(f"bytes are left after {count} records")
        return records

    def reason(self, error: BaseException) -> str:
        """Return why a record could not be read, with the field."""
        text = "it ends too early" if isinstance(error, IndexError | EOFError) else str(error) or type(error).__name__
        path: list[str] = []
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == _FILE:
                path += self._paths[trace.tb_lineno - 1]
            trace = trace.tb_next
        return _with_path(path, text)


class _UnfitError(Exception):
    """A type cannot be read as another; `path` is the path to the field within the function being generated."""

    def __init__(self, path: list[str], reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason


def _with_path(path: Sequence[str], reason: str) -> str:
    return f"field {'.'.join(path)!r}: {reason}" if path else reason


class _Maker:
    """Generates the source of functions.

    `finished` holds the lines of all functions, each with the path to its field.
    """

    def __init__(self, values: Values, narrows: bool, outer: _Maker | None = None) -> None:
        self._values = values
        self._narrows = narrows
        self.finished: list[tuple[str, list[str]]] = [] if outer is None else outer.finished
        self.names: dict[str, Any] = {} if outer is None else outer.names
        self._functions: dict[tuple[int, int, bool], str] = {} if outer is None else outer._functions
        self._path: list[str] = []
        self._numbers: Iterator[int] = itertools.count() if outer is None else outer._numbers
        self._lines: list[tuple[str, list[str]]] = []
        self._depth = 0

    def function(self, writer: AvroType, reader: AvroType, is_inner: bool) -> str:
        """Return the name of the function that reads a record: from bytes, position and size to value and position."""
        key = id(writer), id(reader), is_inner
        if key in self._functions:
            return self._functions[key]
        name = self._functions[key] = self._new("read_")
        inner = _Maker(self._values, self._narrows, self)
        try:
            inner._body(name, writer, reader, is_inner)
        except _UnfitError as error:
            del self._functions[key]
            raise _UnfitError([*self._path, *error.path], error.reason) from None
        self.finished += inner._lines
        return name

    def _body(self, name: str, writer: AvroType, reader: AvroType, is_inner: bool) -> None:
        self._line(f"def {name}(m, p, size):")
        self._depth = 1
        reader_fields = {alias: reader_field for reader_field in reader.fields for alias in reader_field.aliases}
        reader_fields |= {reader_field.name: reader_field for reader_field in reader.fields}
        variables: dict[str, str] = {}
        for writer_field in writer.fields:
            self._path.append(writer_field.name)
            target = reader_fields.get(writer_field.name)
            if target is None or target.name in variables:
                self._skip(writer_field.type)
            else:
                variables[target.name] = self._new("v")
                self._read(writer_field.type, target.type, variables[target.name])
            self._path.pop()
        values = [variables.get(reader_field.name) or self._default(reader_field) for reader_field in reader.fields]
        result = f"[{', '.join(values)}]"
        if is_inner:
            result = (
                f"{self._hold(self._values.record([reader_field.name for reader_field in reader.fields]))}({result})"
            )
        self._line(f"return {result}, p")

    def _default(self, field: AvroField) -> str:
        self._path.append(field.name)
        if not field.has_default:
            raise self._error("the data has no such field, and the schema no default for it")
        value = self._default_value(field.type, field.default)
        self._path.pop()
        if field.type.kind in ("record", "array", "map"):
            # Mutable values must be created for each record.
            return f"{self._hold(lambda: self._default_value(field.type, field.default))}()"
        return self._hold(value)

    def _default_value(self, kind: AvroType, value: Any) -> Any:
        match kind.kind:
            case "union":
                return self._default_value(kind.parts[0], value)
            case "record":
                fields = [
                    self._default_value(field.type, value.get(field.name, field.default)) for field in kind.fields
                ]
                return self._values.record([field.name for field in kind.fields])(fields)
            case "array":
                return [self._default_value(kind.parts[0], item) for item in value]
            case "map":
                entries = {key: self._default_value(kind.parts[0], item) for key, item in value.items()}
                return self._values.mapping(entries)
            case "bytes" | "fixed":
                value = value.encode("latin-1")
            case "float" | "double":
                value = float(value)
        lift = self._values.lift(kind) if kind.logical else None
        return value if lift is None or value is None else lift(value)

    def _read(self, writer: AvroType, reader: AvroType, target: str) -> None:
        """Emit lines that read a value of type `writer` as type `reader` into a variable."""
        if writer.kind == "union":
            self._branches(writer, lambda branch: self._read_branch(branch, reader, target))
            return
        if reader.kind == "union":
            fitting = _find_branch(writer, reader, self._narrows)
            if fitting is None:
                raise self._error(f"{writer} cannot be read as {reader}")
            reader = fitting
        if not _fits(writer, reader, self._narrows):
            raise self._error(f"{writer} cannot be read as {reader}")
        match writer.kind:
            case "record":
                self._line(f"{target}, p = {self.function(writer, reader, is_inner=True)}(m, p, size)")
                return
            case "array":
                item = self._new("v")
                self._line(f"{target} = []")

                def element() -> None:
                    self._read(writer.parts[0], reader.parts[0], item)
                    self._line(f"{target}.append({item})")

                self._items(element)
                return
            case "map":
                key, item = self._new("k"), self._new("v")
                self._line(f"{target} = {{}}")

                def entry() -> None:
                    self._bytes(key, ".decode()")
                    self._read(writer.parts[0], reader.parts[0], item)
                    self._line(f"{target}[{key}] = {item}")

                self._items(entry)
                self._line(f"{target} = {self._hold(self._values.mapping)}({target})")
                return
            case "enum":
                self._enum(writer, reader if reader.kind == "enum" else writer, target)
                return
        self._plain(writer, reader, target)
        if _is_uuid(writer) and reader.kind == "string":
            self._line(f"{target} = {self._hold(_uuid_text)}({target})")
        # If the reader's schema has no logical type, it gets the plain value.
        logical = writer if writer.logical and reader.logical else reader
        if logical.logical and (lift := self._values.lift(logical)) is not None:
            self._line(f"{target} = {self._hold(lift)}({target})")

    def _plain(self, writer: AvroType, reader: AvroType, target: str) -> None:
        match writer.kind:
            case "null":
                self._line(f"{target} = None")
            case "boolean":
                self._line(f"{target} = m[p] != 0")
                self._line("p += 1")
            case "int" | "long":
                self._long(target)
                if reader.kind in _FORMS:
                    self._line(f"{target} = float({target})")
                elif (writer.kind, reader.kind) == ("long", "int") and not _are_times(writer, reader):
                    self._line(f"if not {-(1 << 31)} <= {target} < {1 << 31}: {_raise(target, 'INT')}")
            case "float" | "double":
                form = _FORMS[writer.kind]
                self._line(f"{target} = {self._hold(form.unpack_from)}(m, p)[0]")
                self._line(f"p += {form.size}")
                if (writer.kind, reader.kind) == ("double", "float"):
                    self._line(f"if not {self._hold(_is_single)}({target}): {_raise(target, 'FLOAT')}")
            case "fixed":
                self._line(f"{target} = m[p:p + {writer.size}]")
                self._line(f"p += {writer.size}")
                self._line("if p > size: raise EOFError")
            case _:
                self._bytes(target, ".decode()" if reader.kind == "string" else "")

    def _read_branch(self, branch: AvroType, reader: AvroType, target: str) -> None:
        before, depth = len(self._lines), self._depth
        try:
            self._read(branch, reader, target)
        except _UnfitError as error:
            # Fail only for data with this branch.
            del self._lines[before:]
            self._depth = depth
            self._line(f"raise ValueError({self._hold(error.reason)})", error.path)

    def _branches(self, union: AvroType, emit: Callable[[AvroType], object]) -> None:
        index = self._new("n")
        self._long(index)
        for position, branch in enumerate(union.parts):
            self._line(f"{'el' if position else ''}if {index} == {position}:")
            self._depth += 1
            self._line("pass")
            emit(branch)
            self._depth -= 1
        self._line(f"else: raise ValueError(f'branch {{{index}}} of {len(union.parts)}')")

    def _enum(self, writer: AvroType, reader: AvroType, target: str) -> None:
        known = set(reader.symbols)
        symbols = [symbol if symbol in known else reader.default for symbol in writer.symbols]
        self._long(target)
        self._line(f"if not 0 <= {target} < {len(symbols)}: raise ValueError(f'symbol {{{target}}} of {len(symbols)}')")
        self._line(f"{target} = {self._hold(symbols)}[{target}]")
        if None in symbols:
            self._line(f"if {target} is None: raise ValueError('the schema has no such symbol, and no default')")

    def _skip(self, kind: AvroType) -> None:
        """Emit lines that skip a value."""
        match kind.kind:
            case "string" | "bytes":
                self._bytes(None)
            case "float" | "double":
                self._line(f"p += {_FORMS[kind.kind].size}")
            case "null":
                pass
            case "union":
                self._branches(kind, self._skip)
            case _:
                self._read(kind, kind, self._new("v"))

    def _items(self, emit: Callable[[], object]) -> None:
        """Emit lines for each item in the blocks of an array or map.

        A negative count is followed by the block's size.
        """
        count, item = self._new("n"), self._new("i")
        self._long(count)
        self._line(f"while {count}:")
        self._depth += 1
        self._line(f"if {count} < 0:")
        self._depth += 1
        self._long(self._new("n"))
        self._depth -= 1
        self._line(
            f"if abs({count}) > size + {_ITEMS_MAX}: "
            f"raise ValueError(f'{{abs({count})}} items in a message of {{size}} bytes')"
        )
        self._line(f"for {item} in range(abs({count})):")
        self._depth += 1
        emit()
        self._depth -= 1
        self._long(count)
        self._depth -= 1

    def _bytes(self, target: str | None, then: str = "") -> None:
        size, end = self._new("n"), self._new("e")
        self._long(size)
        self._line(f"{end} = p + {size}")
        self._line(f"if {size} < 0 or {end} > size: raise EOFError")
        if target is not None:
            self._line(f"{target} = m[p:{end}]{then}")
        self._line(f"p = {end}")

    def _long(self, target: str) -> None:
        """Emit lines that read a number: seven bits per byte, lowest first, with the sign in the lowest bit."""
        self._line(f"{target} = m[p]; p += 1")
        self._line(f"if {target} > 127:")
        self._line(f"    {target} &= 127; s = 7")
        self._line("    while True:")
        self._line(f"        b = m[p]; p += 1; {target} |= (b & 127) << s; s += 7")
        self._line("        if b < 128: break")
        self._line(f"        if s > {_VARINT_BITS_MAX}: raise ValueError('a number of more than 10 bytes')")
        self._line(f"{target} = ({target} >> 1) ^ -({target} & 1)")

    def _line(self, text: str, path: list[str] | None = None) -> None:
        self._lines.append(("    " * self._depth + text, list(self._path) if path is None else path))

    def _new(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    def _hold(self, value: Any) -> str:
        name = self._new("g")
        self.names[name] = value
        return name

    def _error(self, reason: str) -> _UnfitError:
        return _UnfitError(list(self._path), reason)


def _raise(target: str, kind: str) -> str:
    return f"raise ValueError(f'{{{target}}} does not fit into {kind}')"


def _is_single(value: float) -> bool:
    form = _FORMS["float"]
    return value != value or abs(value) == float("inf") or _round_trip(form, value) == value


def _round_trip(form: struct.Struct, value: float) -> float | None:
    try:
        packed: float = form.unpack(form.pack(value))[0]
    except OverflowError:
        return None
    return packed


def _is_uuid(kind: AvroType) -> bool:
    return kind.kind == "fixed" and kind.logical == "uuid" and kind.size == _UUID_BYTES


def _uuid_text(data: bytes) -> str:
    return str(uuid.UUID(bytes=data))


def _are_times(writer: AvroType, reader: AvroType) -> bool:
    """Return whether both are times of day, whose values do not depend on the unit."""
    return writer.logical == "time-micros" and reader.logical == "time-millis"


def _fits(writer: AvroType, reader: AvroType, narrows: bool) -> bool:
    kinds = writer.kind, reader.kind
    if kinds == ("fixed", "string"):
        return _is_uuid(writer)
    if writer.kind != reader.kind:
        return kinds in _PROMOTIONS or (narrows and kinds in _NARROWINGS)
    if writer.kind == "fixed":
        return writer.size == reader.size
    return True


def _find_branch(writer: AvroType, union: AvroType, narrows: bool) -> AvroType | None:
    """Return the branch to read a type as: one of the same kind and name, else of the same kind, else a wider one."""
    same = [branch for branch in union.parts if branch.kind == writer.kind]
    named = [branch for branch in same if branch.name.rpartition(".")[2] == writer.name.rpartition(".")[2]]
    fitting = [branch for branch in union.parts if _fits(writer, branch, narrows)]
    fitting.sort(key=lambda branch: (writer.kind, branch.kind) in _NARROWINGS)
    return next(iter([*named, *same, *fitting]), None)
