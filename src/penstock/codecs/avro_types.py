"""Avro schemas as trees, with names resolved."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

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
