"""Derives a row type from a JSON schema.

Supported: `type` (also a list of types with "null"), `properties`, `items` (one schema, or a list for a tuple as a
row), `format` date, time and date-time, `contentEncoding` base64, and `$ref` within the document. All numbers,
including integers, become decimals, because JSON does not limit their size.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.base.errors import FormatError
from penstock.base.typeinfo import RowTypeInfo, TypeInformation, Types

__all__ = ["type_of_json_schema"]

_DEPTH_MAX = 64


def type_of_json_schema(text: str) -> RowTypeInfo:
    """Return the row type for the JSON schema of an object.

    Raises:
        FormatError: if the text is not such a schema, or is recursive.
    """
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise FormatError(f"the JSON schema is not valid JSON: {error}") from error
    result = _convert(schema, schema, "the schema", 0)
    if not isinstance(result, RowTypeInfo):
        raise FormatError(f"the JSON schema must describe an object, not {result}")
    return result


def _convert(schema: Any, root: Any, path: str, depth: int) -> TypeInformation:
    if not isinstance(schema, dict):
        raise FormatError(f"{path} is not a JSON schema: {schema!r}")
    if depth > _DEPTH_MAX:
        raise FormatError(f"{path} is nested more than {_DEPTH_MAX} levels deep, or refers to itself")
    if "$ref" in schema:
        return _convert(_resolve(schema["$ref"], root), root, path, depth + 1)
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else [kind for kind in kinds or [] if kind != "null"]
    if len(names) != 1:
        raise FormatError(f"{path} must have exactly one type besides null, not {kinds!r}")
    match names[0]:
        case "object":
            fields = schema.get("properties", {})
            types = [_convert(field, root, f"{path}.{name}", depth + 1) for name, field in fields.items()]
            return Types.ROW_NAMED(list(fields), types)
        case "array":
            items = schema.get("items")
            if isinstance(items, list):
                return Types.ROW([_convert(item, root, f"{path}[{i}]", depth + 1) for i, item in enumerate(items)])
            return Types.OBJECT_ARRAY(_convert(items, root, f"{path}[]", depth + 1))
        case "string":
            return _text_type(schema)
        case "number" | "integer":
            return Types.BIG_DEC()
        case "boolean":
            return Types.BOOLEAN()
        case other:
            raise FormatError(f"{path} has a type that is not supported: {other!r}")


def _text_type(schema: dict[str, Any]) -> TypeInformation:
    if schema.get("contentEncoding") == "base64":
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    formats = {"date": Types.SQL_DATE, "time": Types.SQL_TIME, "date-time": Types.SQL_TIMESTAMP}
    return formats.get(str(schema.get("format")), Types.STRING)()


def _resolve(reference: Any, root: Any) -> Any:
    """Return the part of the document that a reference such as `#/definitions/address` points to."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise FormatError(f"only references within the JSON schema are supported, not {reference!r}")
    node = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or name not in node:
            raise FormatError(f"nothing at {reference} in the JSON schema")
        node = node[name]
    return node
