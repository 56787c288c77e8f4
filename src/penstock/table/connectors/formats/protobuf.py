"""`protobuf`: each row is a Protocol Buffers message, with the options of Flink's format of this name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOptions
from penstock.base.errors import ConfigurationError, FormatError
from penstock.codecs.messages import Deserialized
from penstock.formats.protobuf import parser
from penstock.formats.protobuf_types import ProtobufType, is_map, is_repeated
from penstock.formats.protobuf_values import PLAIN, MessageReader, MessageWriter, Wanted, get_field_descriptor
from penstock.table.connectors.formats.format import Decoding, Encoding, MessageDecoder, MessageEncoder, TableFormat
from penstock.table.connectors.formats.held_rows import decode_rows, rows_of_columns
from penstock.table.connectors.formats.json_options import switch
from penstock.table.connectors.table_options import TableOptions
from penstock.table.data import logical_types as types
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType
from penstock.table.plan.row_schema import RowSchema

MESSAGE: Final = (
    ConfigOptions.key("message-class-name")
    .string_type()
    .no_default_value()
    .with_description(
        "the class that `protoc` made, by its module and name, as in `shop.orders_pb2:Order`; with a file of "
        "descriptors the full name of the message, as in `shop.Order`. It has to be set"
    )
)
DESCRIPTORS: Final = (
    ConfigOptions.key("descriptor-file")
    .string_type()
    .no_default_value()
    .with_description(
        "a file that `protoc --include_imports --descriptor_set_out` wrote; no class is needed then. Flink has no such "
        "option"
    )
)
IGNORE_ERRORS: Final = switch("ignore-parse-errors", "whether messages that are no rows are left out and counted")
READ_DEFAULTS: Final = switch(
    "read-default-values",
    "whether what is not there is the default of its type; else it is NULL, unless the field cannot tell, as most "
    "fields of proto3",
)
NULL_TEXT: Final = (
    ConfigOptions.key("write-null-string-literal")
    .string_type()
    .default_value("")
    .with_description("stands for NULL in arrays and maps of texts; there NULL of another type is the type's default")
)
_TEXTS: Final = (types.CharType, types.VarCharType)


class ProtobufTableFormat(TableFormat):
    """See the module docstring. Columns are found by name; the fields of a oneof are ordinary columns."""

    name = "protobuf"
    options = (MESSAGE, DESCRIPTORS, IGNORE_ERRORS, READ_DEFAULTS, NULL_TEXT)

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        message = _message(options)
        columns = RowSchema(tuple(schema[index] for index in wanted))
        _match_fields(message, schema, options)  # also raises for columns that are not read
        decoder = ProtobufDecoder(
            message, columns, _match_fields(message, columns, options), options.read(READ_DEFAULTS)
        )
        return Decoding(None, decoder, options.read(IGNORE_ERRORS))

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        message = _message(options)
        return Encoding(
            None, ProtobufEncoder(message, schema, _match_fields(message, schema, options), options.read(NULL_TEXT))
        )


class HeldShapes:
    """Represents nested messages as tuples, and maps as lists of pairs."""

    def record(self, names: Sequence[str]) -> Callable[[list[Any]], Any]:
        """See `Shapes`."""
        return tuple

    def fields(self, record: Any, names: Sequence[str]) -> Sequence[Any]:
        """See `Shapes`."""
        values: Sequence[Any] = record
        return values

    def mapping(self, entries: Iterable[tuple[Any, Any]]) -> Any:
        """See `Shapes`."""
        return list(entries)

    def entries(self, mapping: Any) -> Iterable[tuple[Any, Any]]:
        """See `Shapes`."""
        pairs: Iterable[tuple[Any, Any]] = mapping
        return pairs


class ProtobufDecoder(MessageDecoder):
    """Reads messages of one type. `wanted`: the fields that are columns."""

    def __init__(
        self, message: ProtobufType, schema: RowSchema, wanted: Mapping[str, Wanted], reads_defaults: bool
    ) -> None:
        self._parts = message, schema, wanted, reads_defaults
        self._schema = schema
        self._parse = parser(message)
        self._reader = MessageReader(message.descriptor, wanted, HeldShapes(), reads_defaults)

    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """See `MessageDecoder`."""
        parse, values = self._parse, self._reader.values
        return decode_rows(messages, lambda message: values(parse(message)), self._schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class ProtobufEncoder(MessageEncoder):
    """Writes messages of one type. NULL columns are left out."""

    def __init__(self, message: ProtobufType, schema: RowSchema, wanted: Mapping[str, Wanted], null_text: str) -> None:
        self._parts = message, schema, wanted, null_text
        self._schema = schema
        self._make = message.message_class
        self._writer = MessageWriter(message.descriptor, wanted, HeldShapes(), null_text)

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        make, fill = self._make, self._writer.fill
        messages = []
        for row in rows_of_columns(columns, self._schema):
            message = make()
            fill(message, row)
            messages.append(message.SerializeToString())
        return messages

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


def _message(options: TableOptions) -> ProtobufType:
    name = options.required(MESSAGE)
    path = options.read(DESCRIPTORS)
    try:
        return ProtobufType(name) if path is None else ProtobufType.of_file(name, path)
    except ConfigurationError as error:
        key = MESSAGE.key() if path is None else DESCRIPTORS.key()
        raise options.wrong(key, str(error)) from error


def _match_fields(message: ProtobufType, schema: RowSchema, options: TableOptions) -> dict[str, Wanted]:
    try:
        return {
            column.name: _wanted(get_field_descriptor(message.descriptor, column.name), column.type)
            for column in schema
        }
    except FormatError as error:
        raise ValidationError(f"table {options.title} does not fit its messages: {error}") from error


def _wanted(field: Any, kind: DataType) -> Wanted:
    """Return how to read a field as a column of a type. Raises FormatError if they are incompatible."""
    if is_map(field):
        if not isinstance(kind, types.MapType):
            raise _unfit(field, kind, "a map")
        parts = field.message_type.fields_by_name
        _element(parts["key"], kind.key_type)
        return _element(parts["value"], kind.value_type)
    if is_repeated(field):
        if not isinstance(kind, types.ArrayType) or isinstance(kind, types.MultisetType):
            raise _unfit(field, kind, "an array")
        return _element(field, kind.element_type)
    return _element(field, kind)


def _element(field: Any, kind: DataType) -> Wanted:
    if field.message_type is not None:
        if not isinstance(kind, types.RowType):
            raise _unfit(field, kind, "a row")
        return Wanted(
            {
                row_field.name: _wanted(get_field_descriptor(field.message_type, row_field.name), row_field.data_type)
                for row_field in kind.fields
            }
        )
    if field.enum_type is not None:
        if isinstance(kind, _TEXTS):
            return PLAIN
        if isinstance(kind, types.IntegralType):
            return Wanted(is_number=True)
        raise _unfit(field, kind, "a text or a whole number")
    fitting = _fitting(field)
    if not isinstance(kind, fitting):
        raise _unfit(field, kind, " or ".join(data_type.__name__.removesuffix("Type") for data_type in fitting))
    return PLAIN


def _fitting(field: Any) -> tuple[type[DataType], ...]:
    """Return the column types for a field. A value that does not fit its column makes the message malformed."""
    if field.type == field.TYPE_BYTES:
        return types.BinaryType, types.VarBinaryType
    by_kind: dict[int, tuple[type[DataType], ...]] = {
        field.CPPTYPE_STRING: _TEXTS,
        field.CPPTYPE_BOOL: (types.BooleanType,),
        field.CPPTYPE_INT32: (types.IntType, types.BigIntType),
        field.CPPTYPE_UINT32: (types.BigIntType, types.IntType),
        field.CPPTYPE_INT64: (types.BigIntType,),
        field.CPPTYPE_UINT64: (types.BigIntType,),
        field.CPPTYPE_FLOAT: (types.FloatType, types.DoubleType),
        field.CPPTYPE_DOUBLE: (types.DoubleType,),
    }
    return by_kind[field.cpp_type]


def _unfit(field: Any, kind: DataType, fitting: str) -> FormatError:
    return FormatError(f"field {field.full_name} cannot be a column of type {kind}: it is {fitting}")
