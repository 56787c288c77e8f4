"""Avro schemas for file formats: parsed once, and as Arrow types for Parquet."""

from __future__ import annotations

import functools
import json
import os
from typing import Any

import pyarrow as pa

from penstock.base.errors import FormatError
from penstock.codecs.avro_types import AvroType, parse_record

_PRIMITIVES: dict[str, Any] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: dict[str, Any] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms"),
    "timestamp-micros": pa.timestamp("us"),
}


class AvroSchema:
    """The Avro schema of a record. Create one with `parse_string` or `parse_file`.

    Attributes:
        text: the schema as JSON.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        parse_record(text)  # raises if it is not a record schema

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Parse the schema in a string.

        Raises:
            FormatError: if it does not describe a record.
        """
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str | os.PathLike[str]) -> AvroSchema:
        """Parse the schema in a file.

        Raises:
            FormatError: if it does not describe a record.
            OSError: if it cannot be read.
        """
        with open(file_path, encoding="utf-8") as file:
            return AvroSchema(file.read())

    @functools.cached_property
    def record(self) -> AvroType:
        """The schema as a tree."""
        return parse_record(self.text)

    @property
    def field_names(self) -> list[str]:
        """The names of the record's fields."""
        return [field["name"] for field in json.loads(self.text)["fields"]]

    def to_arrow(self) -> pa.Schema:
        """Convert to an Arrow schema.

        Raises:
            FormatError: if it has a union of more than null and one type, or refers to a type by its name.
        """
        fields = json.loads(self.text)["fields"]
        return pa.schema([pa.field(field["name"], *_arrow(field["type"])) for field in fields])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and json.loads(self.text) == json.loads(other.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text,)

    def __hash__(self) -> int:
        return hash(json.dumps(json.loads(self.text), sort_keys=True))

    def __repr__(self) -> str:
        return f"AvroSchema({self.text!r})"


def _arrow(schema: Any) -> tuple[pa.DataType, bool]:
    """Return the Arrow type, and whether it is nullable."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise FormatError(f"Parquet has no column for the union {schema}: only one of null and one type")
        return _arrow(branches[0])[0], len(branches) < len(schema)
    if isinstance(schema, str):
        if schema not in _PRIMITIVES:
            raise FormatError(f"the Avro type {schema!r} cannot be written to Parquet: define it where it is used")
        return _PRIMITIVES[schema], False
    kind, logical = schema["type"], schema.get("logicalType")
    if logical in _LOGICAL:
        return _LOGICAL[logical], False
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0)), False
    if kind == "record":
        return pa.struct([pa.field(field["name"], *_arrow(field["type"])) for field in schema["fields"]]), False
    if kind == "array":
        return pa.list_(pa.field("element", *_arrow(schema["items"]))), False
    if kind == "map":
        return pa.map_(pa.string(), pa.field("value", *_arrow(schema["values"]))), False
    if kind == "enum":
        return pa.string(), False
    if kind == "fixed":
        return pa.binary(schema["size"]), False
    return _arrow(kind)
