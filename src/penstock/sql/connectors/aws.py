"""The shared part of the AWS table connectors: their options, and a sink that encodes rows as messages.

`read_aws` returns where a service is, `read_limits` the limits of a sink. `MessagesSink` encodes rows by a format and
hands them to an asynchronous sink of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError, UnsupportedError, WrongValueError
from penstock.codecs.column_data import ColumnData
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, AsyncSinkWriter
from penstock.connectors.aws import client
from penstock.connectors.aws.client import AwsSettings
from penstock.runtime.connector import Sink, SinkWriter, SinkWriterContext
from penstock.sql.data.arrow import columns_of_changes
from penstock.sql.data.errors import ValidationError
from penstock.sql.formats.format import Formats, MessageEncoder
from penstock.sql.logical.nodes import Changes, RowSchema, Write
from penstock.sql.tables.connector import TableOptions


def text_option(key: str, description: str) -> ConfigOption[str | None]:
    """Return an option that is text without a default value."""
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def number_option(key: str, default: int, description: str) -> ConfigOption[int]:
    """Return an option that is an integer."""
    return ConfigOptions.key(key).int_type().default_value(default).with_description(description)


REGION: Final = text_option(client.REGION, "The region of the service.")
ENDPOINT: Final = text_option(client.ENDPOINT, "The address of the service, if it is not that of the region.")
TRUST_ALL: Final = (
    ConfigOptions.key(client.TRUST_ALL)
    .boolean_type()
    .default_value(False)
    .with_description("Whether any certificate of the service is accepted; for tests.")
)
PROVIDER: Final = (
    ConfigOptions.key(client.PROVIDER)
    .string_type()
    .default_value("AUTO")
    .with_description(
        "Where credentials come from: `AUTO` (the usual chain, or the keys below), `BASIC`, `ENV_VAR`, `PROFILE`, "
        "`ASSUME_ROLE`, `WEB_IDENTITY_TOKEN`."
    )
)
#: The options of every connector of AWS but `aws.region`.
AWS_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    ENDPOINT,
    TRUST_ALL,
    PROVIDER,
    text_option(client.ACCESS_KEY, "The access key of `BASIC`."),
    text_option(client.SECRET_KEY, "The secret key of `BASIC`."),
    text_option(client.PROFILE_PATH, "The file of `PROFILE`."),
    text_option(client.PROFILE_NAME, "The profile of `PROFILE`."),
    text_option(client.ROLE_ARN, "The role of `ASSUME_ROLE` and `WEB_IDENTITY_TOKEN`."),
    text_option(client.ROLE_SESSION, "The name of the session of that role."),
    text_option(client.ROLE_EXTERNAL_ID, "The external id of `ASSUME_ROLE`."),
    text_option(client.ROLE_STS_ENDPOINT, "The address of the service that assumes roles."),
    text_option(client.ROLE_PROVIDER, "Where the credentials come from that assume the role."),
    text_option(client.TOKEN_FILE, "The file of the token of `WEB_IDENTITY_TOKEN`."),
)

IN_FLIGHT: Final = number_option("sink.requests.max-inflight", 50, "The maximum number of requests at the same time.")
BUFFERED: Final = number_option(
    "sink.requests.max-buffered", 10_000, "The number of waiting rows at which the sink stops its input."
)
FLUSH_MS: Final = number_option("sink.flush-buffer.timeout", 5_000, "The maximum time in ms that rows wait for others.")
FAIL_ON_ERROR: Final = (
    ConfigOptions.key("sink.fail-on-error")
    .boolean_type()
    .default_value(False)
    .with_description("Whether the first refused row fails the job; otherwise it is sent again.")
)


def size_option(default: int) -> ConfigOption[int]:
    """Return the option for the size of requests (bytes)."""
    return number_option("sink.flush-buffer.size", default, "The maximum size of a request in bytes.")


def batch_option(default: int) -> ConfigOption[int]:
    """Return the option for the number of rows in a request."""
    return number_option("sink.batch.max-size", default, "The maximum number of rows in a request.")


#: The options of a sink besides those for the size of requests.
SINK_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (IN_FLIGHT, BUFFERED, FLUSH_MS, FAIL_ON_ERROR)


def read_aws(options: TableOptions) -> AwsSettings:
    """Return where the service is, and as whom it is used. Raises `ValidationError` for invalid options."""
    client.load_library(f"table {options.title}")
    try:
        return AwsSettings({key: options[key] for key in options if key in client.PROPERTIES})
    except ConfigurationError as error:
        raise ValidationError(f"Invalid options of table {options.title}: {error}") from error


def read_limits(options: TableOptions, defaults: AsyncSinkSettings, entries_max: int) -> AsyncSinkSettings:
    """Return the limits of a sink. Raises `ValidationError` for limits that the sink or the service does not allow."""
    batch, size = batch_option(defaults.max_batch_size), size_option(defaults.max_batch_size_in_bytes)
    if options.read(batch) > entries_max:
        raise options.wrong(batch.key(), f"the service takes at most {entries_max} rows in a request")
    bytes_max = options.read(size)
    try:
        return replace(
            defaults,
            max_batch_size=options.read(batch),
            max_batch_size_in_bytes=bytes_max,
            max_record_size_in_bytes=min(defaults.max_record_size_in_bytes, bytes_max),
            max_time_in_buffer_ms=options.read(FLUSH_MS),
            max_in_flight_requests=options.read(IN_FLIGHT),
            max_buffered_requests=options.read(BUFFERED),
        )
    except WrongValueError as error:
        raise ValidationError(f"Invalid options of table {options.title}: {error}") from error


#: Makes entries of rows, from their columns and their row kinds (None for inserts).
EntriesOf = Callable[[pa.RecordBatch, bytes | None], Sequence[Any]]


class MessagesSink(Sink[Any]):
    """Accepts rows as (kind, internal values), or columns.

    Args:
        inner: the sink of entries.
        schema: the columns of the table.
        entries_of: makes entries of rows; pickled with the job.
    """

    def __init__(self, inner: AsyncSinkBase[Any, Any], schema: RowSchema, entries_of: EntriesOf) -> None:
        self._inner, self._schema, self._entries_of = inner, schema, entries_of

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        return _EntriesWriter(self._inner, context, self._schema, self._entries_of)


class _EntriesWriter(AsyncSinkWriter[Any]):
    """Makes entries of columns."""

    def __init__(
        self, sink: AsyncSinkBase[Any, Any], context: SinkWriterContext, schema: RowSchema, entries_of: EntriesOf
    ) -> None:
        super().__init__(sink, context)
        self._base, self._schema, self._entries_of = sink, schema, entries_of

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if values:
            self._write(*columns_of_changes(values, self._schema.names, self._schema.types))

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, None)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, kinds)

    def _write(self, columns: pa.RecordBatch, kinds: bytes | None) -> None:
        if columns.num_rows:
            entries = self._entries_of(columns, kinds if kinds is not None and any(kinds) else None)
            super().write_batch(list(entries), None)


def build_encoder(write: Write, options: TableOptions, formats: Formats) -> tuple[MessageEncoder, Changes]:
    """Return the encoder of a table's format, and the changes that it can encode.

    Raises:
        UnsupportedError: for INSERT OVERWRITE.
        ValidationError: for a format that has files only.
    """
    if write.overwrites:
        raise UnsupportedError(f"INSERT OVERWRITE into table {options.title} is not supported: messages are only added")
    table_format, below = formats.find(options)
    encoding = table_format.encoding(write.schema, below)
    if encoding.messages is None:
        raise ValidationError(f"Format '{table_format.name}' has only files, and no messages: table {options.title}")
    return encoding.messages, encoding.accepts


def encode_rows(encoder: MessageEncoder, names: Sequence[str], columns: pa.RecordBatch, kinds: bytes | None) -> Any:
    """Return the message of each row."""
    named = pa.RecordBatch.from_arrays(columns.columns, list(names))
    return encoder.encode(named) if kinds is None else encoder.encode_changes(named, kinds)
