"""Rows in Avro's binary encoding, one record per message, without a file header."""

from penstock.codecs.avro_row import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)

__all__ = [
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
]
