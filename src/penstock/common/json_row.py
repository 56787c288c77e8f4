"""Rows as JSON objects: one message, one object."""

from penstock.codecs.json_row import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

__all__ = [
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
]
