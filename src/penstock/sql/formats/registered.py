"""`json-confluent` and `protobuf-confluent`: messages whose schemas are in a registry, in Confluent's format.

A message is a zero byte, the id of its schema, and a message of `json` or `protobuf`; one of the latter has the path of
its type in the schema before it. Rows are read by the table's columns, as in these formats: the registry only says of
which kind a schema is. Writing registers a schema under the subject. That of JSON is derived from the table's columns;
that of Protocol Buffers from the message's descriptor, if the option `schema` has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import FormatError, UnsupportedError
from penstock.codecs.serialization import BadMessage, Deserialized
from penstock.formats.avro_confluent import (
    HEADER_BYTES,
    RegistrySettings,
    decode_schema_id,
    encode_schema_id,
    get_registry,
)
from penstock.sql.data import types
from penstock.sql.data.types import DataType
from penstock.sql.formats import avro, format
from penstock.sql.formats.json import JsonTableFormat
from penstock.sql.formats.protobuf import ProtobufTableFormat, find_message
from penstock.sql.logical.nodes import RowSchema
from penstock.sql.tables.connector import TableOptions

JSON, PROTOBUF = "JSON", "PROTOBUF"
_REGISTRY_OPTIONS: Final = tuple(option for option in avro.OPTIONS if option.key() != avro.IGNORE_ERRORS.key())


class RegisteredDecoder(format.MessageDecoder):
    """Reads messages behind their headers.

    Args:
        settings: the registry.
        kind: the kind that their schemas must have.
        inner: reads what is behind the header.
    """

    def __init__(self, settings: RegistrySettings, kind: str, inner: format.MessageDecoder) -> None:
        self._settings, self._kind, self._inner = settings, kind, inner

    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """See `MessageDecoder`."""
        bodies: list[bytes] = []
        positions: list[int] = []
        bad: list[BadMessage] = []
        for position, message in enumerate(messages):
            try:
                bodies.append(self._find_body(message))
                positions.append(position)
            except FormatError as error:
                bad.append(BadMessage(position, str(error), error))
        decoded = self._inner.decode(bodies)
        if not bad:
            return decoded
        bad += [BadMessage(positions[it.place], it.reason, it.cause) for it in decoded.bad]
        kept = range(len(bodies)) if decoded.places is None else decoded.places
        bad.sort(key=lambda it: it.place)
        return decoded._replace(places=[positions[row] for row in kept], bad=bad)

    def _find_body(self, message: bytes) -> bytes:
        schema_id = decode_schema_id(message)
        get_registry(self._settings).schema(schema_id, self._kind)
        return message[HEADER_BYTES:] if self._kind == JSON else message[_skip_path(message) :]


def _skip_path(message: bytes) -> int:
    """Return where the message begins behind the path of its type. Raises `FormatError` for a path that is none."""
    position = HEADER_BYTES
    try:
        count, position = _read_zigzag(message, position)
        for _ in range(count):
            _, position = _read_zigzag(message, position)
    except IndexError as error:
        raise FormatError("the path of the message's type ends too early") from error
    return position


def _read_zigzag(message: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        if shift > 35:
            raise FormatError("the path of the message's type has a number that is too large")


class RegisteredEncoder(format.MessageEncoder):
    """Writes messages behind headers, and registers the schema with the first of them.

    Args:
        settings: the registry.
        subject: the subject of the schema.
        schema: the schema.
        kind: its kind.
        path: the encoded path of the message's type; empty for JSON.
        inner: writes messages.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        subject: str,
        schema: str,
        kind: str,
        path: bytes,
        inner: format.MessageEncoder,
    ) -> None:
        self._settings, self._subject, self._schema, self._kind = settings, subject, schema, kind
        self._path, self._inner = path, inner

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        messages = self._inner.encode(columns)
        if not messages:
            return messages
        schema_id = get_registry(self._settings).register(self._subject, self._schema, self._kind)
        header = encode_schema_id(schema_id) + self._path
        return [header + message for message in messages]


class JsonConfluentFormat(format.TableFormat):
    """See the module docstring."""

    name = "json-confluent"
    options = (*_REGISTRY_OPTIONS, *JsonTableFormat.options)
    has_named_fields = True

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> format.Decoding:
        """See `TableFormat`."""
        inner = JsonTableFormat().decoding(schema, wanted, options)
        assert inner.messages is not None
        decoder = RegisteredDecoder(avro.read_settings(options), JSON, inner.messages)
        return format.Decoding(None, decoder, inner.skips_bad)

    def encoding(self, schema: RowSchema, options: TableOptions) -> format.Encoding:
        """See `TableFormat`."""
        inner = JsonTableFormat().encoding(schema, options).messages
        assert inner is not None
        text = options.read(avro.SCHEMA) or json.dumps(json_schema(schema))
        settings, subject = avro.read_settings(options), avro.read_subject(options)
        return format.Encoding(None, RegisteredEncoder(settings, subject, text, JSON, b"", inner))


class ProtobufConfluentFormat(format.TableFormat):
    """See the module docstring."""

    name = "protobuf-confluent"
    options = (*_REGISTRY_OPTIONS, *ProtobufTableFormat.options)

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> format.Decoding:
        """See `TableFormat`."""
        inner = ProtobufTableFormat().decoding(schema, wanted, options)
        assert inner.messages is not None
        decoder = RegisteredDecoder(avro.read_settings(options), PROTOBUF, inner.messages)
        return format.Decoding(None, decoder, inner.skips_bad)

    def encoding(self, schema: RowSchema, options: TableOptions) -> format.Encoding:
        """See `TableFormat`."""
        inner = ProtobufTableFormat().encoding(schema, options).messages
        assert inner is not None
        descriptor = find_message(options).descriptor
        text = options.read(avro.SCHEMA) or proto_schema(descriptor.file)
        settings, subject = avro.read_settings(options), avro.read_subject(options)
        encoder = RegisteredEncoder(settings, subject, text, PROTOBUF, encode_path(descriptor), inner)
        return format.Encoding(None, encoder)


# --- schemas ---------------------------------------------------------------------------------------------------------


def json_schema(schema: RowSchema) -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of rows as the format `json` writes them."""
    fields = {column.name: column.type for column in schema}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_object_schema(fields)}


def _object_schema(fields: dict[str, DataType]) -> dict[str, Any]:
    required = [name for name, kind in fields.items() if not kind.is_nullable]
    properties = {name: _value_schema(kind) for name, kind in fields.items()}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _value_schema(kind: DataType) -> dict[str, Any]:
    schema = _type_schema(kind)
    return {"oneOf": [{"type": "null"}, schema]} if kind.is_nullable else schema


def _type_schema(kind: DataType) -> dict[str, Any]:
    match kind:
        case types.BooleanType():
            return {"type": "boolean"}
        case types.IntegralType():
            return {"type": "integer"}
        case types.NumericType():
            return {"type": "number"}
        case types.BinaryType() | types.VarBinaryType():
            return {"type": "string", "contentEncoding": "base64"}
        case types.DateType():
            return {"type": "string", "format": "date"}
        case types.MultisetType():
            return {"type": "object", "additionalProperties": {"type": "integer"}}
        case types.ArrayType():
            return {"type": "array", "items": _value_schema(kind.element_type)}
        case types.MapType():
            return {"type": "object", "additionalProperties": _value_schema(kind.value_type)}
        case types.RowType():
            return _object_schema({field.name: field.data_type for field in kind.fields})
        case _:
            return {"type": "string"}


def encode_path(descriptor: Any) -> bytes:
    """Return the path of a message type in its file, as messages have it: positions, from the outermost type on."""
    path: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        siblings = parent.nested_types if parent is not None else list(descriptor.file.message_types_by_name.values())
        path.insert(0, [it.full_name for it in siblings].index(descriptor.full_name))
        descriptor = parent
    if path == [0]:
        return b"\0"  # the short form of the first type
    return b"".join(map(_zigzag, [len(path), *path]))


def _zigzag(number: int) -> bytes:
    number <<= 1
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def proto_schema(file: Any) -> str:
    """Return the source of a file of message types, given its descriptor.

    Raises:
        UnsupportedError: for what a source cannot be made of here: other files, groups, extensions, editions.
    """
    from google.protobuf import descriptor_pb2

    content = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(content)
    syntax = content.syntax or "proto2"
    others = [name for name in content.dependency if not name.startswith("google/protobuf/")]
    if others or syntax not in ("proto2", "proto3") or content.extension:
        reason = f"it needs {others[0]}" if others else "it has extensions or an edition"
        raise UnsupportedError(
            f"the schema of {content.name} cannot be derived from its descriptor, since {reason}: give the source in "
            f"the option '{avro.SCHEMA.key()}'"
        )
    lines = [f'syntax = "{syntax}";']
    if content.package:
        lines.append(f"package {content.package};")
    lines += [f'import "{name}";' for name in content.dependency]
    for enum in content.enum_type:
        lines += _enum_lines(enum, "")
    for message in content.message_type:
        lines += _message_lines(message, syntax, "")
    return "\n".join(lines) + "\n"


def _enum_lines(enum: Any, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    if enum.options.allow_alias:
        yield f"{indent}  option allow_alias = true;"
    for value in enum.value:
        yield f"{indent}  {value.name} = {value.number};"
    yield f"{indent}}}"


def _message_lines(message: Any, syntax: str, indent: str) -> Iterator[str]:
    if message.extension or message.extension_range:
        raise UnsupportedError(f"message {message.name} has extensions: give the source in '{avro.SCHEMA.key()}'")
    inner = indent + "  "
    entries = {f".{it.name}": it for it in message.nested_type if it.options.map_entry}
    yield f"{indent}message {message.name} {{"
    for enum in message.enum_type:
        yield from _enum_lines(enum, inner)
    for nested in message.nested_type:
        if not nested.options.map_entry:
            yield from _message_lines(nested, syntax, inner)
    groups: dict[int, list[str]] = {}
    for field in message.field:
        entry = next((it for end, it in entries.items() if field.type_name.endswith(end)), None)
        if entry is not None:
            key, value = (_type_name(part) for part in entry.field)
            yield f"{inner}map<{key}, {value}> {field.name} = {field.number};"
        elif field.HasField("oneof_index") and not field.proto3_optional:
            groups.setdefault(field.oneof_index, []).append(f"{_type_name(field)} {field.name} = {field.number};")
        else:
            yield f"{inner}{_label(field, syntax)}{_type_name(field)} {field.name} = {field.number};"
    for index, fields in groups.items():
        yield f"{inner}oneof {message.oneof_decl[index].name} {{"
        for line in fields:
            yield f"{inner}  {line}"
        yield f"{inner}}}"
    yield f"{indent}}}"


def _label(field: Any, syntax: str) -> str:
    if field.label == field.LABEL_REPEATED:
        return "repeated "
    if field.label == field.LABEL_REQUIRED:
        return "required "
    return "optional " if syntax == "proto2" or field.proto3_optional else ""


def _type_name(field: Any) -> str:
    if field.type == field.TYPE_GROUP:
        raise UnsupportedError(f"field {field.name} is a group: give the source in '{avro.SCHEMA.key()}'")
    if field.type_name:
        return str(field.type_name)
    return str(field.Type.Name(field.type)).removeprefix("TYPE_").lower()
