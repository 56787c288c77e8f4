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
    """Creates Avro file writers for `FileSink.for_bulk_format`.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import BucketAssigner, FileSink
        >>> from penstock.datastream.formats.avro import AvroBulkWriters, AvroSchema
        >>> schema = AvroSchema.parse_string(
        ...     '{"type": "record", "name": "Cup", "fields": [{"name": "drink", "type": "string"}]}'
        ... )
        >>> files = FileSink.for_bulk_format("orders", AvroBulkWriters.for_generic_record(schema))
        >>> files = files.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements({"drink": "tea"}).sink_to(files.build())
        >>> result = env.execute()
        >>> (path,) = Path("orders").glob("part-*")
        >>> path.read_bytes()[:3]
        b'Obj'
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> AvroWriterFactory:
        """Return a factory for writers of records (dicts, rows or tuples) with the given schema."""
        return AvroWriterFactory(schema)
