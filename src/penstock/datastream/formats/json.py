"""JSON: rows as messages under PyFlink's names, and JSON Lines files."""

from penstock.codecs.json_row import JsonRowDeserializationSchema, JsonRowSerializationSchema
from penstock.formats.json import JsonLinesEncoder, JsonLinesFormat

__all__ = ["JsonLinesEncoder", "JsonLinesFormat", "JsonRowDeserializationSchema", "JsonRowSerializationSchema"]
