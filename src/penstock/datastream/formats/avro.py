"""Avro: rows as messages under PyFlink's names."""

from penstock.common.avro_row import AvroRowDeserializationSchema, AvroRowSerializationSchema

__all__ = ["AvroRowDeserializationSchema", "AvroRowSerializationSchema"]
