"""Avro: rows as messages, and Avro files."""

from __future__ import annotations

from penstock.codecs.avro_row import AvroRowDeserializationSchema, AvroRowSerializationSchema
from penstock.formats.avro import AvroSchema, AvroWriterFactory
from penstock.formats.avro_confluent import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)

__all__ = [
    "AvroBulkWriters",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "AvroWriterFactory",
    "ConfluentRegistryAvroDeserializationSchema",
    "ConfluentRegistryAvroSerializationSchema",
]


class AvroBulkWriters:
    """Creates Avro file writers for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> AvroWriterFactory:
        """Return a factory for writers of records (dicts, rows or tuples) with the given schema."""
        return AvroWriterFactory(schema)
