"""Rows as lines of comma-separated values, one line per message."""

from penstock.codecs.csv_row import (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
)

__all__ = [
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
]
