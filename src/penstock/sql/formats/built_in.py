"""The formats that come with Penstock, and the classes that implement them."""

from __future__ import annotations

from functools import partial
from pkgutil import resolve_name
from typing import Any, Final

from penstock.sql.formats.format import Formats

#: the class of each format, below `penstock.sql.formats`
FORMATS: Final = {
    "avro": "avro:AvroTableFormat",
    "avro-confluent": "avro:AvroConfluentFormat",
    "canal-json": "changelog_json:CanalJsonFormat",
    "csv": "csv:CsvTableFormat",
    "debezium-avro-confluent": "avro:DebeziumAvroConfluentFormat",
    "debezium-json": "changelog_json:DebeziumJsonFormat",
    "json": "json:JsonTableFormat",
    "maxwell-json": "changelog_json:MaxwellJsonFormat",
    "ogg-json": "changelog_json:OggJsonFormat",
    "orc": "columnar_files:OrcTableFormat",
    "parquet": "columnar_files:ParquetTableFormat",
    "protobuf": "protobuf:ProtobufTableFormat",
    "raw": "text_columns:RawTableFormat",
}


def built_in_formats() -> Formats:
    """Return all built-in formats. The module of a format is imported when a table first uses it."""
    return Formats({name: partial(_create, place) for name, place in FORMATS.items()})


def _create(place: str) -> Any:
    return resolve_name(f"penstock.sql.formats.{place}")()
