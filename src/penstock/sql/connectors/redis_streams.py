"""`redis-streams`: reads entries of streams of Redis or Valkey.

A row is an entry. Its columns are the entry's fields of the same names, as text in the form of the connector `redis`; a
missing field is NULL. METADATA columns describe the entry. Without `scan.group` a table reads by position, exactly
once; with it, as a member of a consumer group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa

from penstock.connectors.redis.group_source import CLAIM_IDLE_MS, RedisGroupSource, get_timestamp, refuse_trimmed
from penstock.connectors.redis.stream_source import RedisStreamEntry, RedisStreamSource
from penstock.connectors.subscriptions import MessageReading
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.connector import Source, SourceReaderContext
from penstock.sql.connectors import queue_tables as tables
from penstock.sql.connectors.queue_tables import TEXT, TEXTS, TIME, MetadataField
from penstock.sql.connectors.redis import PASSWORD, URL, USERNAME, check_types, parse_column, read_address
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import Scan
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.tables import TableReader, column_names

STREAMS: Final = tables.text_option("streams", "The keys of the streams, separated by `;`.")
GROUP: Final = tables.text_option(
    "scan.group", "The consumer group, which is created if it does not exist; without it, streams are read by position."
)
CONSUMER: Final = tables.default_option(
    "scan.consumer", "penstock", "The beginning of the names of consumers. Two jobs with a group need different ones."
)
CLAIM_IDLE: Final = tables.time_option(
    "scan.claim-idle", CLAIM_IDLE_MS, "After how long a pending entry of another consumer is claimed."
)
STARTUP: Final = tables.word_option(
    "scan.startup.mode", "earliest", ("earliest", "latest"), "Where streams are read from, unless the group exists."
)
BOUNDED: Final = tables.word_option(
    "scan.bounded.mode",
    "unbounded",
    ("unbounded", "latest"),
    "`latest` ends after the entries that a stream has when the job starts. Not with a group.",
)


def _show_fields(entry: RedisStreamEntry) -> dict[str, str]:
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in entry.fields.items()}


METADATA: Final = {
    "id": MetadataField(TEXT, lambda entry: entry.id),
    "stream": MetadataField(TEXT, lambda entry: entry.stream),
    "timestamp": MetadataField(TIME, get_timestamp),
    "fields": MetadataField(TEXTS, _show_fields),
}


class EntriesToColumns(MessageReading):
    """Makes columns of entries.

    Args:
        title: the table, for errors.
        fields: the name and the type of each column; None for METADATA columns.
        metadata: the METADATA columns: by position their field and Arrow type.
        group: the consumer group; empty without one.
    """

    def __init__(
        self,
        title: str,
        fields: Sequence[tuple[str, DataType] | None],
        metadata: Mapping[int, tuple[MetadataField, Any]],
        group: str,
    ) -> None:
        self._title, self._fields, self._metadata, self._group = title, tuple(fields), dict(metadata), group

    def read(self, messages: Sequence[Any], context: SourceReaderContext) -> ColumnBatch:
        """See `MessageReading`."""
        refuse_trimmed(messages, self._group)
        ids = [entry.id for entry in messages]
        arrays = []
        for position, about in enumerate(self._fields):
            if about is None:
                field, kind = self._metadata[position]
                arrays.append(field.build_column(messages, kind))
            else:
                name, data_type = about
                packed = name.encode()
                values = [entry.fields.get(packed) for entry in messages]
                arrays.append(parse_column(self._title, name, data_type, values, ids))
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, column_names(len(arrays))), None, None)


class RedisStreamsConnector(TableConnector):
    """See the module docstring."""

    name = "redis-streams"
    required_options = (URL, STREAMS)
    optional_options = (USERNAME, PASSWORD, GROUP, CONSUMER, CLAIM_IDLE, STARTUP, BOUNDED)
    options_up_to_now: ClassVar = {BOUNDED.key(): "latest"}

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return what entries have besides their fields."""
        return {key: field.type for key, field in METADATA.items()}

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader; raise `ValidationError` for contradictory or invalid options."""
        if scan.key:
            raise ValidationError(
                f"table {options.title} declares a PRIMARY KEY, but streams only grow, so rows of a key may repeat: "
                "leave it out"
            )
        about = dict(scan.metadata)
        schema, group = scan.schema, options.read(GROUP)
        positions = [position for position in range(len(schema)) if position not in about]
        check_types(schema, positions, "a field of a stream", options)
        metadata = {index: (METADATA[key], arrow_type(schema[index].type)) for index, key in about.items()}
        fields = [None if index in about else (schema[index].name, schema[index].type) for index in range(len(schema))]
        source = tables.build_connection(options, lambda: _create(options, group))
        source.reading = EntriesToColumns(options.title, fields, metadata, group or "")
        return TableReader(source)


def _create(options: TableOptions, group: str | None) -> Source[Any, Any]:
    url = read_address(options).url
    keys = [key.strip() for key in options.required(STREAMS).split(";") if key.strip()]
    bounded = options.read(BOUNDED) == "latest"
    if group is None:
        for option in (CONSUMER, CLAIM_IDLE):
            if option.key() in options:
                raise options.wrong(option.key(), f"only a table with '{GROUP.key()}' has consumers")
        return RedisStreamSource(url, *keys, starts_at=options.read(STARTUP), bounded=bounded)
    if bounded:
        raise options.wrong(BOUNDED.key(), f"a consumer group has no end: leave out '{GROUP.key()}'")
    return RedisGroupSource(
        url,
        *keys,
        group=group,
        consumer=options.read(CONSUMER),
        starts_at=options.read(STARTUP),
        claim_idle_ms=options.read(CLAIM_IDLE),
    )
