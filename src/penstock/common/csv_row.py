"""Rows as lines of comma-separated values: one message, one line."""

from penstock.codecs.csv_row import (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
)

__all__ = [
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
]
