"""JSON as columns: by Arrow where all lines are as the columns say, else line by line."""

from __future__ import annotations

import decimal
import io
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.json

from penstock.base.errors import FormatError
from penstock.codecs.messages import BadMessage, Deserialized
from penstock.table.connectors.formats.format import MessageDecoder, decoded
from penstock.table.connectors.formats.json_rules import JsonRules
from penstock.table.connectors.formats.json_values import BAD, ReadValue, nullable, value_reader
from penstock.table.connectors.formats.text_columns import ReadColumn, TextRules, column_reader
from penstock.table.data import logical_types as types
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import column_of
from penstock.table.plan.row_schema import RowSchema

_TEXT_CHARS_MAX: Final = 40
_NUMBERS: Final = (types.IntegralType, types.FloatType, types.DoubleType)
_AS_TEXT: Final = (types.DateType, types.TimeType, types.TimestampType, types.LocalZonedTimestampType)
#: below this many lines, to ask Arrow takes longer
_FEW: Final = 16


class JsonMessageDecoder(MessageDecoder):
    """Reads messages of one object each."""

    def __init__(self, schema: RowSchema, rules: JsonRules) -> None:
        self._parts = schema, rules
        self._schema = schema
        self._rules = rules
        self._readers: list[ReadValue] = [
            nullable(value_reader(one.type, rules, f"column '{one.name}'"), rules) for one in schema
        ]
        # Numbers keep their digits where a column wants more than a float has.
        is_exact = any(_wants_digits(one) for one in schema.types)
        self._parse = msgspec.json.Decoder(float_hook=decimal.Decimal if is_exact else None).decode
        self._at_once = _AtOnce(schema, rules) if not rules.fails_on_missing and _is_plain(schema) else None

    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """See `MessageDecoder`."""
        columns = self._at_once.decode(messages) if self._at_once is not None and len(messages) >= _FEW else None
        return self._one_by_one(messages) if columns is None else decoded(columns, len(messages))

    def _one_by_one(self, messages: Sequence[bytes]) -> Deserialized:
        rows, bad = [], []
        for place, message in enumerate(messages):
            try:
                rows.append(self._row(message))
            except BAD as error:
                bad.append(BadMessage(place, str(error).partition("\n")[0]))
        values = list(zip(*rows, strict=True)) or [()] * len(self._schema)
        arrays = [column_of(column, kind) for column, kind in zip(values, self._schema.types, strict=True)]
        return decoded(pa.RecordBatch.from_arrays(arrays, self._schema.names), len(messages), bad)

    def _row(self, message: bytes) -> tuple[Any, ...]:
        try:
            found = self._parse(message)
        except msgspec.MsgspecError as error:
            raise FormatError(str(error)) from error
        if not isinstance(found, dict):
            raise FormatError("it is no object")
        values = []
        for name, read in zip(self._schema.names, self._readers, strict=True):
            if self._rules.fails_on_missing and name not in found:
                raise FormatError(f"Could not find field with name '{name}'.")
            value = found.get(name)
            try:
                values.append(read(value))
            except BAD as error:
                text = str(value)[:_TEXT_CHARS_MAX]
                raise FormatError(f"column '{name}': {text!r} cannot be read: {error}") from error
        return tuple(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class _AtOnce:
    """Reads many lines by Arrow, if the columns are such that Arrow takes nothing in another way."""

    def __init__(self, schema: RowSchema, rules: JsonRules) -> None:
        self._names = schema.names
        fields = [
            pa.field(one.name, pa.string() if isinstance(one.type, _AS_TEXT) else arrow_type(one.type))
            for one in schema
        ]
        self._options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")
        text = TextRules(is_iso=rules.is_iso)
        self._reads: list[ReadColumn | None] = [
            column_reader(one.type, text, one.name) if isinstance(one.type, _AS_TEXT) else None for one in schema
        ]

    def decode(self, lines: Sequence[bytes]) -> pa.RecordBatch | None:
        """The columns; None where the lines have to be looked at one by one."""
        block = b"\n".join(lines)
        try:
            options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
            table = pyarrow.json.read_json(io.BytesIO(block), options, self._options)
        except pa.ArrowException:
            return None
        if table.num_rows != len(lines):
            return None
        arrays = []
        for name, read in zip(self._names, self._reads, strict=True):
            column = table[name].combine_chunks()
            if read is not None:
                column, bad = read(column)
                if bad is not None:
                    return None
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, self._names)


def _wants_digits(kind: DataType) -> bool:
    if isinstance(kind, types.DecimalType | types.CharType | types.VarCharType):
        return True
    return any(map(_wants_digits, kind.children()))


def _is_plain(schema: RowSchema) -> bool:
    """Whether Arrow reads the same as line by line, or refuses."""
    # Flink's points on the time line need a Z, which is not checked for columns.
    return all(
        (isinstance(kind, _AS_TEXT) and not isinstance(kind, types.LocalZonedTimestampType)) or _is_simple(kind)
        for kind in schema.types
    )


def _is_simple(kind: DataType) -> bool:
    if isinstance(kind, types.RowType) or (isinstance(kind, types.ArrayType) and type(kind) is types.ArrayType):
        return bool(list(kind.children())) and all(map(_is_simple, kind.children()))
    return isinstance(kind, (types.BooleanType, types.CharType, types.VarCharType, *_NUMBERS))
