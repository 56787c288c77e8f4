"""The formats that come with Penstock."""

from __future__ import annotations

from penstock.table.connectors.formats.avro import AvroTableFormat
from penstock.table.connectors.formats.csv import CsvTableFormat
from penstock.table.connectors.formats.format import Formats
from penstock.table.connectors.formats.json import JsonTableFormat
from penstock.table.connectors.formats.parquet import ParquetTableFormat
from penstock.table.connectors.formats.raw import RawTableFormat


def built_in_formats() -> Formats:
    """All of them."""
    return Formats(AvroTableFormat(), CsvTableFormat(), JsonTableFormat(), ParquetTableFormat(), RawTableFormat())
