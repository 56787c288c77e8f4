"""The formats that come with Penstock."""

from __future__ import annotations

from penstock.table.connectors.formats.avro import AvroTableFormat
from penstock.table.connectors.formats.avro_confluent import AvroConfluentFormat, DebeziumAvroConfluentFormat
from penstock.table.connectors.formats.canal_json import CanalJsonFormat
from penstock.table.connectors.formats.csv import CsvTableFormat
from penstock.table.connectors.formats.debezium_json import DebeziumJsonFormat
from penstock.table.connectors.formats.format import Formats
from penstock.table.connectors.formats.json import JsonTableFormat
from penstock.table.connectors.formats.maxwell_json import MaxwellJsonFormat
from penstock.table.connectors.formats.ogg_json import OggJsonFormat
from penstock.table.connectors.formats.orc import OrcTableFormat
from penstock.table.connectors.formats.parquet import ParquetTableFormat
from penstock.table.connectors.formats.protobuf import ProtobufTableFormat
from penstock.table.connectors.formats.raw import RawTableFormat


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
