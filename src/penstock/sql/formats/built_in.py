"""The formats that come with Penstock."""

from __future__ import annotations

from penstock.sql.formats.avro import AvroConfluentFormat, AvroTableFormat, DebeziumAvroConfluentFormat
from penstock.sql.formats.changelog_json import CanalJsonFormat, DebeziumJsonFormat, MaxwellJsonFormat, OggJsonFormat
from penstock.sql.formats.columnar_files import OrcTableFormat, ParquetTableFormat
from penstock.sql.formats.csv import CsvTableFormat
from penstock.sql.formats.format import Formats
from penstock.sql.formats.json import JsonTableFormat
from penstock.sql.formats.protobuf import ProtobufTableFormat
from penstock.sql.formats.text_columns import RawTableFormat


def built_in_formats() -> Formats:
    """Return all built-in formats."""
    return Formats(
        AvroTableFormat(),
        AvroConfluentFormat(),
        CanalJsonFormat(),
        CsvTableFormat(),
        DebeziumAvroConfluentFormat(),
        DebeziumJsonFormat(),
        JsonTableFormat(),
        MaxwellJsonFormat(),
        OggJsonFormat(),
        OrcTableFormat(),
        ParquetTableFormat(),
        ProtobufTableFormat(),
        RawTableFormat(),
    )
