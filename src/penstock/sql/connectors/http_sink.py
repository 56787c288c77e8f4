"""`http-async-sink` and `http-sink` send rows to a URL; `http-webhook` reads what other systems send by POST.

The sink has the options of Flink's HTTP connector. `penstock.connectors.http` defines the requests and the handling of
answers; `penstock.connectors.webhook` defines the guarantees of the webhook.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions, choice
from penstock.base.errors import ConfigurationError, UnsupportedError, WrongValueError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.serialization import Deserialized
from penstock.connectors import http, webhook
from penstock.connectors.async_sink.sink import AsyncSinkWriter
from penstock.runtime.connector import SinkWriter, SinkWriterContext
from penstock.sql.connectors.http import (
    SECURITY,
    URL,
    HttpConnector,
    build_service,
    common_options,
    number_option,
    switch_option,
    text_option,
    texts_option,
    time_option,
    with_present_names,
)
from penstock.sql.data.arrow import columns_of_changes
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.formats.format import MessageDecoder, MessageEncoder
from penstock.sql.logical.nodes import ALL, DELETE, INSERTS, UPDATE_BEFORE, RowSchema, Scan, Write
from penstock.sql.tables.connector import FORMAT, TableOptions
from penstock.sql.tables.tables import TableReader, TableWriter, column_names

_SINK: Final = "sink"
INSERT_METHOD: Final = ConfigOption("insert-method", choice("POST", "PUT"), "POST").with_description(
    "The method of requests."
)
DELETE_METHOD: Final = ConfigOption[str | None](
    "delete-method", choice("DELETE", "POST", "PUT"), None
).with_description(
    "The method of requests with deleted rows. With it a table with a primary key takes updates, whose new rows are "
    "sent, and deletions; without it the table is append-only, unless the format has changes."
)
BATCH: Final = number_option("sink.batch.max-size", 500, "The maximum number of rows in a request.")
IN_FLIGHT: Final = number_option("sink.requests.max-inflight", 50, "How many requests of a subtask are in flight.")
BUFFERED: Final = number_option(
    "sink.requests.max-buffered", 10_000, "The number of waiting rows that stops the input."
)
BYTES: Final = number_option("sink.flush-buffer.size", 5 << 20, "The maximum size of a request in bytes.")
FLUSH: Final = number_option("sink.flush-buffer.timeout", 5_000, "How long a row waits for others, in ms.")
ATTEMPTS: Final = number_option("sink.max-attempts", 10, "How often a row is sent before the job fails.")
SINK_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    INSERT_METHOD,
    DELETE_METHOD,
    BATCH,
    IN_FLIGHT,
    BUFFERED,
    BYTES,
    FLUSH,
    ATTEMPTS,
    texts_option(
        "http.sink.writer.request.mode", "batch", "`batch`: a JSON array of rows; `single`: a request for each row."
    ),
    text_option("http.sink.request.batch.size", "The maximum number of rows in a request, if it is less."),
    texts_option("http.sink.error.code", "4XX,5XX", "The statuses of failed requests."),
    text_option("http.sink.error.code.exclude", "Statuses of `http.sink.error.code` that count as successes."),
    texts_option(
        "http.sink.retry-codes", "408,429,500,502,503,504", "The error statuses after which rows are sent again."
    ),
    texts_option(
        "http.sink.failure-handler", "fail", "`ignore` leaves rejected rows out, with a warning and a metric."
    ),
    number_option("http.sink.writer.thread-pool.size", 1, "Has no effect: requests have no threads."),
    *common_options(_SINK),
    *SECURITY,
)


class HttpTableSink(http.HttpSink[Any]):
    """Accepts rows as (kind, internal values), or columns.

    Args:
        service: the service.
        settings: the limits of requests.
        options: how requests are sent.
        method: the method of requests.
        delete_method: the method of requests with deleted rows; None for a changelog format or an append-only table.
        schema: the columns.
        key: the positions of the primary key columns, which order the rows.
        encoder: makes messages of rows.
        has_changes: whether messages have changes.
    """

    def __init__(
        self,
        service: http.HttpService,
        settings: Any,
        options: http.HttpSinkOptions,
        method: str,
        delete_method: str | None,
        schema: RowSchema,
        key: tuple[int, ...],
        encoder: MessageEncoder,
        has_changes: bool,
    ) -> None:
        super().__init__(service, None, settings, options)
        self.method, self.schema, self.key = method, schema, key
        self.encoder, self.has_changes, self.delete_method = encoder, has_changes, delete_method

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        return _TableWriter(self, context)


class _TableWriter(AsyncSinkWriter[Any]):
    """Makes entries of columns."""

    def __init__(self, sink: HttpTableSink, context: SinkWriterContext) -> None:
        super().__init__(sink, context)
        self._table = sink

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if values:
            schema = self._table.schema
            self._write(*columns_of_changes(values, schema.names, schema.types))

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, None)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, kinds)

    def _write(self, columns: pa.RecordBatch, kinds: bytes | None) -> None:
        table = self._table
        if not columns.num_rows:
            return
        columns = columns.rename_columns(list(table.schema.names))
        keys: list[Any] = [None] * columns.num_rows
        if table.key:
            texts = [columns.column(position).cast(pa.string()).to_pylist() for position in table.key]
            keys = list(zip(*texts, strict=True))
        methods = [table.method] * len(keys)
        if table.has_changes:
            messages = table.encoder.encode_changes(columns, kinds or bytes(len(keys)))
        elif table.delete_method is None or kinds is None:
            messages = table.encoder.encode(columns)
        else:
            # The new row of an update replaces the old one: the deletion is only sent for a row that goes.
            rows = _find_last(keys)
            messages = table.encoder.encode(columns.take(pa.array(rows, pa.int64())))
            methods = [table.delete_method if kinds[row] in (DELETE, UPDATE_BEFORE) else table.method for row in rows]
            keys = [keys[row] for row in rows]
        entries = list(map(http.HttpSinkRequestEntry, methods, messages, keys))
        self.add(entries, list(map(len, messages)), keys)


def _find_last(keys: Sequence[Any]) -> list[int]:
    """Return the positions of the last changes of each key."""
    last = {key: row for row, key in enumerate(keys)}
    return sorted(last.values())


class HttpSinkConnector(HttpConnector):
    """See the module docstring."""

    name = "http-async-sink"
    required_options = (URL, FORMAT)
    optional_options = SINK_OPTIONS

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return the writer."""
        options = with_present_names(options)
        if write.overwrites:
            raise UnsupportedError(f"INSERT OVERWRITE into table {options.title} is not supported: rows are only sent")
        table_format, below = self._formats.find(options)
        encoding = table_format.encoding(write.schema, below)
        if encoding.messages is None:
            raise options.wrong(FORMAT.key(), f"'{table_format.name}' has only files, and no messages")
        try:
            sink_options = http.HttpSinkOptions.of(options)
            settings = http.build_settings(
                {
                    "max_batch_size": options.read(BATCH),
                    "max_in_flight_requests": options.read(IN_FLIGHT),
                    "max_buffered_requests": options.read(BUFFERED),
                    "max_batch_size_in_bytes": options.read(BYTES),
                    "max_record_size_in_bytes": min(1 << 20, options.read(BYTES)),
                    "max_time_in_buffer_ms": options.read(FLUSH),
                    "max_attempts": options.read(ATTEMPTS),
                },
                options,
            )
        except (WrongValueError, ConfigurationError) as error:
            raise ValidationError(f"Invalid options of table {options.title}: {error}") from error
        is_json = table_format.name == "json" or table_format.name.endswith("-json")
        if sink_options.is_batch and not is_json:
            raise options.wrong(
                "http.sink.writer.request.mode", f"format '{table_format.name}' is no JSON, so set it to single"
            )
        accepts, key, delete_method = encoding.accepts, tuple(write.key), options.read(DELETE_METHOD)
        has_changes = accepts != INSERTS
        if delete_method is not None:
            if not key:
                raise options.wrong(DELETE_METHOD.key(), "only a table with a primary key has updates and deletions")
            if has_changes:
                raise options.wrong(DELETE_METHOD.key(), f"format '{table_format.name}' tells of deletions itself")
            accepts = ALL
        headers = {"Content-Type": "application/json" if is_json else "application/octet-stream"}
        service = build_service(options, _SINK, headers, options.required(URL))
        sink = HttpTableSink(
            service,
            settings,
            sink_options,
            options.read(INSERT_METHOD),
            delete_method,
            write.schema,
            key,
            encoding.messages,
            has_changes,
        )
        return TableWriter(sink, accepts, wants_before=has_changes, takes_columns=True)


class FormerHttpSinkConnector(HttpSinkConnector):
    """The same under the name that the connector had before."""

    name = "http-sink"


# --- the webhook -----------------------------------------------------------------------------------------------------

PORT: Final = text_option("port", "The port, or several such as `8090-8093`; each subtask takes one.")
PATH: Final = texts_option("path", "/", "The path of requests.")
ADDRESS: Final = texts_option(
    "bind-address", "127.0.0.1", "The address to listen on; others than loopback need a token and a certificate."
)
MODE: Final = ConfigOption("request.mode", choice("single", "lines", "batch"), "single").with_description(
    "A request has one message (`single`), one a line (`lines`), or a JSON array of them (`batch`)."
)
ACKNOWLEDGE: Final = ConfigOption("acknowledge", choice("checkpoint", "receipt"), "checkpoint").with_description(
    "When senders are answered: when a checkpoint has their messages (at least once), or at once (at most once)."
)
TOKEN: Final = text_option("token", "What senders send as `Authorization: Bearer …`.")
CERTIFICATE: Final = text_option("ssl.certificate", "The server's certificate, in PEM.")
KEY: Final = text_option("ssl.key", "The private key of the certificate.")
KEY_PASSWORD: Final = text_option("ssl.key-password", "The password of the key.")
INSECURE: Final = switch_option("insecure", "Whether another address than loopback may do without a certificate.")
BODY_BYTES: Final = (
    ConfigOptions.key("request.max-size")
    .memory_type()
    .default_value(1 << 20)
    .with_description("The maximum size of a request.")
)
WAITING: Final = number_option(
    "max-buffered", 10_000, "The number of waiting messages above which senders must come back."
)
RESPONSE: Final = time_option("response.timeout", 60_000, "How long a sender waits for a checkpoint.")


class _WebhookTableSource(webhook.WebhookSource[Any]):
    """A webhook whose records are columns named c0, c1 and so on."""

    def __init__(self, settings: webhook.WebhookSettings, decoder: MessageDecoder, skips_bad: bool) -> None:
        self.settings = settings
        self._decoder = decoder
        self.decode = self.decode_columns
        self.skips_bad = skips_bad
        self.replayable = settings.acknowledge == "checkpoint"

    def decode_columns(self, messages: Sequence[bytes]) -> Deserialized:
        """Return the rows of messages."""
        decoded = self._decoder.decode(messages)
        columns = decoded.columns
        return decoded._replace(values=ColumnData(columns.rename_columns(column_names(columns.num_columns))))


class WebhookConnector(HttpConnector):
    """See the module docstring."""

    name = "http-webhook"
    required_options = (PORT, FORMAT)
    optional_options = (
        PATH,
        ADDRESS,
        MODE,
        ACKNOWLEDGE,
        TOKEN,
        CERTIFICATE,
        KEY,
        KEY_PASSWORD,
        INSECURE,
        BODY_BYTES,
        WAITING,
        RESPONSE,
    )

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader."""
        table_format, of_format = self._formats.find(options)
        decoding = table_format.decoding_with_metadata(
            scan.schema, range(len(scan.schema)), of_format, dict(scan.metadata)
        )
        if decoding.messages is None:
            raise options.wrong(FORMAT.key(), f"'{table_format.name}' has only files, and no messages")
        try:
            settings = webhook.WebhookSettings(
                options.required(PORT),
                options.read(PATH),
                options.read(ADDRESS),
                options.read(MODE),
                options.read(ACKNOWLEDGE),
                options.read(TOKEN),
                options.read(CERTIFICATE),
                options.read(KEY),
                options.read(KEY_PASSWORD),
                options.read(INSECURE),
                options.read(BODY_BYTES),
                options.read(WAITING),
                options.read(RESPONSE),
            )
        except ConfigurationError as error:
            raise ValidationError(f"Invalid options of table {options.title}: {error}") from error
        source = _WebhookTableSource(settings, decoding.messages, decoding.skips_bad)
        return TableReader(source, decoding.changes, has_before=decoding.changes != INSERTS)

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the metadata of the format."""
        table_format, of_format = self._formats.find(options)
        return table_format.readable_metadata(of_format)
