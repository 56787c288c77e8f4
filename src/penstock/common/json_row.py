"""Rows as JSON objects, one object per message."""

from penstock.codecs.json_row import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

__all__ = [
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
]
