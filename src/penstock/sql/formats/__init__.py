"""Table formats: how rows are encoded as bytes, in files and in messages, for every connector of either.

A decoder takes many messages and returns columns, the message and the kind of each row, and the messages that
are invalid (`penstock.codecs.serialization.Deserialized`), like the schemas of streams. Files of lines are read
by the same decoders. `FORMATS` names the class of each format that comes with Penstock.
"""

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
    "json-confluent": "registered:JsonConfluentFormat",
    "maxwell-json": "changelog_json:MaxwellJsonFormat",
    "ogg-json": "changelog_json:OggJsonFormat",
    "orc": "columnar_files:OrcTableFormat",
    "parquet": "columnar_files:ParquetTableFormat",
    "protobuf": "protobuf:ProtobufTableFormat",
    "protobuf-confluent": "registered:ProtobufConfluentFormat",
    "raw": "text_columns:RawTableFormat",
}


def built_in_formats() -> Formats:
    """Return all built-in formats. The module of a format is imported when a table first uses it."""
    return Formats({name: partial(_create, path) for name, path in FORMATS.items()})


def _create(path: str) -> Any:
    return resolve_name(f"penstock.sql.formats.{path}")()
