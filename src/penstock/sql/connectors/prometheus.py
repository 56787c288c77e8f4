"""`prometheus`: writes rows as samples of time series, with the options of Flink's connector.

A row is a sample. `metric.name` names the column with the metric's name, `metric.label.keys` the columns with labels,
`metric.sample.key` the column with the value, and `metric.sample.timestamp` the column with the time. A label that is
NULL or empty is left out: for Prometheus it is not there. See `penstock.connectors.prometheus` for the guarantees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOption
from penstock.base.errors import ConfigurationError, UnsupportedError, WrongValueError
from penstock.codecs.column_data import ColumnData
from penstock.connectors import prometheus
from penstock.connectors.async_sink.sink import AsyncSinkWriter
from penstock.connectors.http import HttpService
from penstock.runtime.connector import SinkWriter, SinkWriterContext
from penstock.sql.connectors.http import number_option, text_option, time_option
from penstock.sql.connectors.opensearch import show_values
from penstock.sql.data import types
from penstock.sql.data.arrow import columns_of_changes, to_values
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.logical.nodes import RowSchema, Write
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.tables import TableWriter

_TIMES: Final = (types.TimestampType, types.LocalZonedTimestampType, types.BigIntType)
_TEXTS: Final = (types.CharType, types.VarCharType)
_LABELS: Final = (*_TEXTS, types.IntegralType, types.BooleanType)
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class SampleColumns:
    """Which columns samples are made of: their positions.

    Attributes:
        schema: the columns.
        name: the name of the metric.
        labels: the labels.
        value: the value.
        time: the time.
    """

    schema: RowSchema
    name: int
    labels: tuple[int, ...]
    value: int
    time: int

    def entries(self, columns: pa.RecordBatch) -> list[prometheus.SeriesEntry]:
        """Return an entry for each row."""
        names = columns.column(self.name).to_pylist()
        values = columns.column(self.value).cast(pa.float64(), safe=False).to_pylist()
        times = to_values(columns.column(self.time), self.schema[self.time].type)
        if not isinstance(self.schema[self.time].type, types.BigIntType):
            times = [None if time is None else time // _NS_PER_MS for time in times]
        keys = [self.schema[position].name for position in self.labels]
        nulls = [columns.column(position).is_null().to_pylist() for position in self.labels]
        texts = [show_values(columns.column(position), self.schema[position].type) for position in self.labels]
        entries = []
        for row, (name, value, time) in enumerate(zip(names, values, times, strict=True)):
            if not name or value is None or time is None:
                absent = self.name if not name else self.value if value is None else self.time
                raise TableRuntimeError(f"a sample has no value in column '{self.schema[absent].name}'")
            labels = [(key, text[row]) for key, text, null in zip(keys, texts, nulls, strict=True) if not null[row]]
            sample = prometheus.encode_sample(value, time)
            entries.append(prometheus.SeriesEntry(prometheus.encode_labels(name, labels), sample, 1))
        return entries


class PrometheusTableSink(prometheus.PrometheusSink):
    """Accepts rows as (kind, internal values), or columns."""

    def __init__(self, settings: prometheus.PrometheusSettings, columns: SampleColumns) -> None:
        super().__init__(settings)
        self.columns = columns

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        return _TableWriter(self, context)


class _TableWriter(AsyncSinkWriter[Any]):
    """Makes entries of columns."""

    def __init__(self, sink: PrometheusTableSink, context: SinkWriterContext) -> None:
        super().__init__(sink, context)
        self._table = sink

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if values:
            schema = self._table.columns.schema
            columns, _ = columns_of_changes(values, schema.names, schema.types)
            self.write_columns(ColumnData(columns), None)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        entries = self._table.columns.entries(data.columns)
        if entries:
            self.add_entries(entries)


URL: Final = text_option("metric.endpoint-url", "The URL of Remote Write, such as `http://HOST:9090/api/v1/write`.")
NAME: Final = text_option("metric.name", "The column with the name of the metric.")
LABELS: Final = text_option("metric.label.keys", "The columns that are labels, as `[site,device]`.")
VALUE: Final = text_option("metric.sample.key", "The column with the value, a number.")
TIME: Final = text_option("metric.sample.timestamp", "The column with the time, TIMESTAMP or BIGINT in ms.")
BATCH: Final = number_option("sink.batch.max-size", 500, "The maximum number of samples in a request.")
FLUSH: Final = time_option("sink.flush-buffer.timeout", 5_000, "How long a sample waits for others.")
TIMEOUT: Final = time_option("sink.request-timeout", 30_000, "How long a request may take.")
RETRIES: Final = number_option("sink.retry.max-count", 100, "How often a request is sent again.")
FIRST: Final = time_option("sink.retry.initial-delay", 30, "The first delay; each further one is twice as long.")
LONGEST: Final = time_option("sink.retry.max-delay", 5_000, "The longest delay.")
TOKEN: Final = text_option("metric.token", "A token that is sent as `Authorization: Bearer …`.")
SIGNER: Final = text_option("metric.request-signer", "Not supported: a signer is a function of the DataStream API.")


class PrometheusConnector(TableConnector):
    """See the module docstring."""

    name = "prometheus"
    required_options = (URL, NAME, LABELS, VALUE, TIME)
    optional_options = (
        BATCH,
        FLUSH,
        TIMEOUT,
        RETRIES,
        FIRST,
        LONGEST,
        TOKEN,
        SIGNER,
    )

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return the writer of append-only rows."""
        if write.overwrites:
            raise UnsupportedError(f"INSERT OVERWRITE into table {options.title} is not supported: samples are added")
        if SIGNER.key() in options:
            raise UnsupportedError(
                f"{SIGNER.key()} of table {options.title} is not supported: turn the table into a stream, and give a "
                "PrometheusSink set_request_signer"
            )
        columns = read_columns(write.schema, options)
        headers = dict(prometheus.HEADERS)
        if options.read(TOKEN) is not None:
            headers["Authorization"] = f"Bearer {options.read(TOKEN)}"
        try:
            settings = prometheus.PrometheusSettings(
                service=HttpService(options.required(URL), tuple(headers.items()), options.read(TIMEOUT)),
                max_batch_size_in_samples=options.read(BATCH),
                max_record_size_in_samples=1,
                max_time_in_buffer_ms=max(1, options.read(FLUSH)),
                retry=prometheus.RetryConfiguration(
                    initial_retry_delay_ms=max(1, options.read(FIRST)),
                    max_retry_delay_ms=max(1, options.read(LONGEST)),
                    max_retry_count=options.read(RETRIES),
                ),
            )
            sink = PrometheusTableSink(settings, columns)
        except (ConfigurationError, WrongValueError) as error:
            raise ValidationError(f"Invalid options of table {options.title}: {error}") from error
        return TableWriter(sink, takes_columns=True)


def read_columns(schema: RowSchema, options: TableOptions) -> SampleColumns:
    """Return which columns samples are made of. Raises `ValidationError` for names and types that do not fit."""

    def find(option: ConfigOption[str | None], name: str, kinds: Any, what: str) -> int:
        if name not in schema.names:
            raise options.wrong(option.key(), f"there is no column '{name}'")
        position = schema.names.index(name)
        if not isinstance(schema[position].type, kinds):
            raise options.wrong(option.key(), f"column '{name}' is {schema[position].type}, and not {what}")
        return position

    name = find(NAME, options.required(NAME), _TEXTS, "text")
    value = find(VALUE, options.required(VALUE), types.NumericType, "a number")
    time = find(TIME, options.required(TIME), _TIMES, "TIMESTAMP or BIGINT")
    keys = [key.strip() for key in options.required(LABELS).strip("[] ").replace(";", ",").split(",") if key.strip()]
    labels = tuple(find(LABELS, key, _LABELS, "text, a whole number or BOOLEAN") for key in keys)
    unused = [column.name for position, column in enumerate(schema) if position not in (name, value, time, *labels)]
    if unused:
        raise ValidationError(
            f"column '{unused[0]}' of table {options.title} is no part of samples: name it in '{LABELS.key()}', or "
            "leave it out"
        )
    return SampleColumns(schema, name, labels, value, time)
