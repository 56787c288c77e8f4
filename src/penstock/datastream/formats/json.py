"""JSON: rows as messages under PyFlink's names, and files of JSON lines."""

from penstock.codecs.json_row import JsonRowDeserializationSchema, JsonRowSerializationSchema
from penstock.formats.json import JsonLinesEncoder, JsonLinesFormat

__all__ = ["JsonLinesEncoder", "JsonLinesFormat", "JsonRowDeserializationSchema", "JsonRowSerializationSchema"]
