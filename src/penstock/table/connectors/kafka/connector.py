"""`kafka`: rows in topics, read with the options of Flink's connector of this name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.base.errors import ConfigurationError
from penstock.connectors.kafka.source import KafkaSource
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.formats.format import Decoding, Formats
from penstock.table.connectors.kafka.options import (
    KEY_FIELDS,
    KEY_FORMAT,
    KEY_PREFIX,
    PROPERTIES,
    READ_OPTIONS,
    SERVERS,
    TOPIC,
    TOPIC_PATTERN,
    VALUE_FORMAT,
    VALUE_INCLUDES,
    consumer_properties,
    listed,
    starting,
    stopping,
)
from penstock.table.connectors.kafka.rows import METADATA, Part, TableRecords
from penstock.table.connectors.table_options import FORMAT, TableOptions, missing
from penstock.table.connectors.tables import TableReader
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType
from penstock.table.plan.changes import INSERTS
from penstock.table.plan.logical import Scan

_KEY = "key."
_VALUE = "value."


class KafkaConnector(TableConnector):
    """See the module's text. `formats`: those that the options `format` and the like may name."""

    name = "kafka"
    required_options = (SERVERS,)
    optional_options = READ_OPTIONS

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Those of the formats, and all properties."""
        found = [*self._formats.option_keys(options), *(key for key in options if key.startswith(PROPERTIES))]
        for prefix in (_KEY, _VALUE):
            found += [f"{prefix}{key}" for key in self._formats.option_keys(options.below(prefix))]
        return found

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Those of the record, and those of the value's format, as `value.` and their keys."""
        of_record = {key: one.type for key, one in METADATA.items()}
        found, below = self._formats.find(self._of_value(options))
        return {**{_VALUE + key: kind for key, kind in found.readable_metadata(below).items()}, **of_record}

    def _of_value(self, options: TableOptions) -> TableOptions:
        if VALUE_FORMAT.key() in options:
            return options.below(_VALUE)
        if FORMAT.key() not in options:
            raise missing(options.title, [FORMAT.key()])
        return options

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Raises `ValidationError` for options that contradict each other, or that Kafka does not know."""
        metadata = dict(scan.metadata)
        key_places = self._key_places(scan, options)
        value = self._value(scan, options, key_places)
        key = self._key(scan, options, key_places) if key_places else None
        about = {
            place: (name, arrow_type(scan.schema[place].type)) for place, name in metadata.items() if name in METADATA
        }
        changes = value.decoding.changes
        try:
            source = self._source(options, TableRecords(len(scan.schema), value, key, about))
        except ConfigurationError as error:
            raise ValidationError(f"Table {options.title} cannot be read: {error}") from error
        return TableReader(source, changes, has_before=changes != INSERTS)

    def _source(self, options: TableOptions, records: TableRecords) -> KafkaSource[object]:
        builder = KafkaSource.builder().set_properties(consumer_properties(options)).set_deserializer(records)
        topics, pattern = listed(options.read(TOPIC)), options.read(TOPIC_PATTERN)
        if bool(topics) == bool(pattern):
            raise ValidationError(f"Table {options.title} needs one of the options 'topic' and 'topic-pattern'")
        builder = builder.set_topics(*topics) if topics else builder.set_topic_pattern(str(pattern))
        builder.set_starting_offsets(starting(options))
        if (stop := stopping(options)) is not None:
            builder.set_bounded(stop)
        return builder.build()

    def _key_places(self, scan: Scan, options: TableOptions) -> tuple[int, ...]:
        names, prefix = listed(options.read(KEY_FIELDS)), options.read(KEY_PREFIX)
        if (KEY_FORMAT.key() in options) != bool(names):
            raise ValidationError(f"The options 'key.format' and 'key.fields' of table {options.title} need each other")
        columns = scan.schema.names
        unknown = [name for name in names if name not in columns or columns.index(name) in dict(scan.metadata)]
        if unknown:
            raise options.wrong(KEY_FIELDS.key(), f"the table has no columns {', '.join(unknown)}")
        wrong = [name for name in names if not name.startswith(prefix)]
        if wrong:
            raise options.wrong(KEY_PREFIX.key(), f"the names of {', '.join(wrong)} do not begin with {prefix!r}")
        return tuple(map(columns.index, names))

    def _value(self, scan: Scan, options: TableOptions, key_places: Sequence[int]) -> Part:
        includes = options.read(VALUE_INCLUDES)
        if includes not in ("ALL", "EXCEPT_KEY"):
            raise options.wrong(VALUE_INCLUDES.key(), f"it must be ALL or EXCEPT_KEY, not {includes!r}")
        if includes == "ALL" and options.read(KEY_PREFIX):
            raise options.wrong(KEY_PREFIX.key(), "it needs 'value.fields-include' = 'EXCEPT_KEY'")
        of_format = {place: key.removeprefix(_VALUE) for place, key in scan.metadata if key not in METADATA}
        about = {place for place, key in scan.metadata if key in METADATA}
        left_out = about | (set(key_places) if includes == "EXCEPT_KEY" else set())
        wanted = tuple(place for place in range(len(scan.schema)) if place not in left_out)
        found, below = self._formats.find(self._of_value(options))
        decoding = found.decoding_with_metadata(scan.schema, wanted, below, of_format)
        return Part(_with_messages(decoding, found.name, options), wanted)

    def _key(self, scan: Scan, options: TableOptions, places: tuple[int, ...]) -> Part:
        prefix = options.read(KEY_PREFIX)
        schema = scan.schema.renamed([name.removeprefix(prefix) for name in scan.schema.names])
        found, below = self._formats.find(options.below(_KEY))
        decoding = _with_messages(found.decoding(schema, places, below), found.name, options)
        if decoding.changes != INSERTS:
            raise options.wrong(KEY_FORMAT.key(), f"'{found.name}' describes changes, which a key has none of")
        return Part(replace(decoding, skips_bad=False), places)


def _with_messages(decoding: Decoding, name: str, options: TableOptions) -> Decoding:
    if decoding.messages is None:
        raise ValidationError(f"Format '{name}' has only files, and no messages: table {options.title}")
    return decoding
