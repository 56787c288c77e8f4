"""`PrometheusSink`: writes samples of time series to Prometheus by Remote Write 1.0.

**Requests.** A request has up to 500 samples, in the order of arrival, as a snappy-compressed message of Protocol
Buffers. A subtask has one request in flight, so that the samples of a series arrive in order: Prometheus refuses older
ones. All samples of a series should come from one subtask, which `key_by` ensures
(`PrometheusTimeSeriesLabelsAndMetricNameKeySelector`).

**Failures.** If the service cannot be reached, or answers 429 or 5xx, a request is sent again after growing delays. Any
other 4xx means that samples of the request are malformed, out of order, or repeated with other values. The protocol
forbids to send it again, so it is discarded, with a warning, and counted. Statuses 401, 403 and 404 fail the job:
nothing can be written there.

**Guarantee.** At least once, apart from discarded samples. After a failure samples since the last checkpoint are sent
again. Prometheus has the last of them already, and answers 400 to older ones, so discarded samples right after a
recovery are most often not lost; with an out-of-order window (`storage.tsdb.out_of_order_time_window`) it takes all.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from penstock.base.errors import ConfigurationError, ContractError, UnsupportedError, WrongValueError, short_repr
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, RequestClient, RequestError, RequestResult
from penstock.connectors.base import require
from penstock.connectors.http import HttpCaller, HttpService, describe, is_passing, read_delay_ms
from penstock.runtime.connector import SinkWriterContext

_LOG: Final = logging.getLogger(__name__)
_FATAL: Final = frozenset({401, 403, 404})
_OK: Final = range(200, 300)
_THROTTLED, _SERVER_ERROR = 429, 500
_NAME: Final = "__name__"
_INT64: Final = 1 << 64
#: the headers that the protocol asks for
HEADERS: Final = (
    ("Content-Type", "application/x-protobuf"),
    ("Content-Encoding", "snappy"),
    ("X-Prometheus-Remote-Write-Version", "0.1.0"),
    ("User-Agent", "penstock"),
)


class Sample(NamedTuple):
    """A measurement: its value, and its time in ms since the epoch.

    Examples:
        >>> from penstock.datastream.connectors.prometheus import Sample
        >>> Sample(21.5, 1_700_000_000_000).value
        21.5
    """

    value: float
    timestamp: int


@dataclass(frozen=True, slots=True)
class PrometheusTimeSeries:
    """Samples of a time series, which its metric name and its labels identify. Create it by `builder`.

    Attributes:
        metric_name: the name of the metric.
        labels: the labels, as pairs of name and value.
        samples: the samples, oldest first.

    Examples:
        >>> from penstock.datastream.connectors.prometheus import PrometheusTimeSeries
        >>> builder = PrometheusTimeSeries.builder().with_metric_name("temperature").add_label("room", "7")
        >>> builder.add_sample(21.5, 1_700_000_000_000).build().samples
        (Sample(value=21.5, timestamp=1700000000000),)
    """

    metric_name: str
    labels: tuple[tuple[str, str], ...]
    samples: tuple[Sample, ...]

    @staticmethod
    def builder() -> PrometheusTimeSeriesBuilder:
        """Return a builder."""
        return PrometheusTimeSeriesBuilder()


class PrometheusTimeSeriesBuilder:
    """Builds a `PrometheusTimeSeries`; see there."""

    def __init__(self) -> None:
        self._name = ""
        self._labels: list[tuple[str, str]] = []
        self._samples: list[Sample] = []

    def with_metric_name(self, metric_name: str) -> PrometheusTimeSeriesBuilder:
        """Set the name of the metric."""
        self._name = metric_name
        return self

    def add_label(self, label_name: str, label_value: str) -> PrometheusTimeSeriesBuilder:
        """Add a label."""
        self._labels.append((label_name, label_value))
        return self

    def add_sample(self, value: float, timestamp: int) -> PrometheusTimeSeriesBuilder:
        """Add a sample; `timestamp` is in ms since the epoch."""
        self._samples.append(Sample(value, timestamp))
        return self

    def build(self) -> PrometheusTimeSeries:
        """Return the time series.

        Raises:
            ValueError: without a metric name or a sample, for a label twice, and for a reserved name.
        """
        names = [name for name, _ in self._labels]
        if not self._name:
            raise WrongValueError("a time series needs a metric name")
        if not self._samples:
            raise WrongValueError(f"time series {self._name!r} has no sample")
        if len(set(names)) < len(names) or _NAME in names:
            raise WrongValueError(f"time series {self._name!r} has a label twice, or {_NAME} among them: {names}")
        return PrometheusTimeSeries(self._name, tuple(self._labels), tuple(self._samples))


class PrometheusTimeSeriesLabelsAndMetricNameKeySelector:
    """A function for `key_by`, so that all samples of a series have the same subtask.

    Examples:
        >>> from penstock.datastream.connectors.prometheus import (
        ...     PrometheusTimeSeries,
        ...     PrometheusTimeSeriesLabelsAndMetricNameKeySelector,
        ... )
        >>> series = PrometheusTimeSeries.builder().with_metric_name("up").add_label("b", "2").add_label("a", "1")
        >>> PrometheusTimeSeriesLabelsAndMetricNameKeySelector()(series.add_sample(1, 0).build())
        ('up', 'a', '1', 'b', '2')
    """

    def __call__(self, series: PrometheusTimeSeries) -> tuple[str, ...]:
        """Return the key."""
        return (series.metric_name, *(text for label in sorted(series.labels) for text in label))


# --- the message of Remote Write 1.0 ----------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _nested(tag: int, content: bytes) -> bytes:
    """Return a field of a nested message, a text or bytes."""
    return bytes((tag,)) + _varint(len(content)) + content


def encode_labels(metric_name: str, labels: Iterable[tuple[str, str]]) -> bytes:
    """Return the labels of a series in the form of its message: sorted by name, the metric name among them.

    Labels without a value are left out: for Prometheus they are not there.
    """
    pairs = sorted([(_NAME, metric_name), *(label for label in labels if label[1])])
    return b"".join(
        _nested(0x0A, _nested(0x0A, name.encode()) + _nested(0x12, value.encode())) for name, value in pairs
    )


def encode_sample(value: float, timestamp: int) -> bytes:
    """Return a sample in the form of the message of a series."""
    return _nested(0x12, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(timestamp % _INT64))


class SeriesEntry(NamedTuple):
    """A record in wire form.

    Attributes:
        labels: the encoded labels, which identify the series.
        samples: the encoded samples.
        sample_count: how many samples it has.
    """

    labels: bytes
    samples: bytes
    sample_count: int

    def encode(self) -> bytes:
        """Return the field of a write request."""
        return _nested(0x0A, self.labels + self.samples)

    def __repr__(self) -> str:
        return f"{self.sample_count} samples of {self.labels!r}"


# --- the sink ---------------------------------------------------------------------------------------------------------


class OnErrorBehavior(Enum):
    """How a sink handles a request that fails permanently.

    Examples:
        >>> from penstock.datastream.connectors.prometheus import OnErrorBehavior
        >>> [behavior.name for behavior in OnErrorBehavior]
        ['FAIL', 'DISCARD_AND_CONTINUE']
    """

    FAIL = 0
    DISCARD_AND_CONTINUE = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryConfiguration:
    """When a request is sent again. The defaults are Flink's.

    Attributes:
        initial_retry_delay_ms: the first delay; each further one is twice as long.
        max_retry_delay_ms: the longest delay.
        max_retry_count: how often a request is sent again.

    Examples:
        >>> from penstock.datastream.connectors.prometheus import RetryConfiguration
        >>> RetryConfiguration(max_retry_count=10).initial_retry_delay_ms
        30
    """

    initial_retry_delay_ms: int = 30
    max_retry_delay_ms: int = 5_000
    max_retry_count: int = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkWriterErrorHandlingBehaviorConfiguration:
    """How a sink handles requests that fail permanently.

    Attributes:
        on_max_retry_exceeded: after the last attempt.
        on_prometheus_non_retriable_error: when samples are refused; only `DISCARD_AND_CONTINUE`, as in Flink.

    Raises:
        UnsupportedError: for another value of the second.

    Examples:
        >>> from penstock.datastream.connectors.prometheus import SinkWriterErrorHandlingBehaviorConfiguration
        >>> SinkWriterErrorHandlingBehaviorConfiguration().on_max_retry_exceeded.name
        'FAIL'
    """

    on_max_retry_exceeded: OnErrorBehavior = OnErrorBehavior.FAIL
    on_prometheus_non_retriable_error: OnErrorBehavior = OnErrorBehavior.DISCARD_AND_CONTINUE

    def __post_init__(self) -> None:
        if self.on_prometheus_non_retriable_error is not OnErrorBehavior.DISCARD_AND_CONTINUE:
            raise UnsupportedError(
                "on_prometheus_non_retriable_error can only be DISCARD_AND_CONTINUE: after a recovery the samples of "
                "before are refused, and the job would fail for ever"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class PrometheusSettings:
    """How a sink writes.

    Attributes:
        service: the service.
        max_batch_size_in_samples: the maximum number of samples in a request.
        max_record_size_in_samples: the maximum number of samples in a record.
        max_time_in_buffer_ms: how long samples wait for others.
        retry: when a request is sent again.
        errors: what happens to requests that fail for good.
        signer: adds headers for a request, given its headers and its body; None for no more headers.
    """

    service: HttpService
    max_batch_size_in_samples: int = 500
    max_record_size_in_samples: int = 500
    max_time_in_buffer_ms: int = 5_000
    retry: RetryConfiguration = field(default_factory=RetryConfiguration)
    errors: SinkWriterErrorHandlingBehaviorConfiguration = field(
        default_factory=SinkWriterErrorHandlingBehaviorConfiguration
    )
    signer: Callable[[dict[str, str], bytes], None] | None = None

    def limits(self) -> AsyncSinkSettings:
        """Return the limits of requests. Raises `ValueError` for contradictory limits."""
        if not 0 < self.max_record_size_in_samples <= self.max_batch_size_in_samples:
            raise WrongValueError(
                f"a record may have from 1 to max_batch_size_in_samples ({self.max_batch_size_in_samples}) samples, "
                f"not {self.max_record_size_in_samples}"
            )
        return AsyncSinkSettings(
            max_batch_size=self.max_batch_size_in_samples,
            max_in_flight_requests=1,
            max_buffered_requests=max(10_000, 2 * self.max_batch_size_in_samples),
            max_batch_size_in_bytes=16 << 20,
            max_record_size_in_bytes=16 << 20,
            max_time_in_buffer_ms=self.max_time_in_buffer_ms,
            max_attempts=(1 << 53) if self.discards_after_retries else 1 + self.retry.max_retry_count,
            retry_delay_ms=self.retry.initial_retry_delay_ms,
            retry_delay_max_ms=self.retry.max_retry_delay_ms,
        )

    @property
    def discards_after_retries(self) -> bool:
        """Whether a request is discarded after the last attempt."""
        return self.errors.on_max_retry_exceeded is OnErrorBehavior.DISCARD_AND_CONTINUE


class PrometheusSink(AsyncSinkBase[PrometheusTimeSeries, SeriesEntry]):
    """Writes time series to Prometheus. Create it with `builder`.

    Args:
        settings: how it writes.

    Raises:
        ConfigurationError: if the package cramjam is not installed.

    Examples:
        >>> from penstock.datastream.connectors.prometheus import PrometheusSink
        >>> sink = PrometheusSink.builder().set_prometheus_remote_write_url("http://localhost:9090/api/v1/write").build()
        >>> sink.settings.max_in_flight_requests
        1
    """

    keeps_order_in_request = True

    def __init__(self, settings: PrometheusSettings) -> None:
        require("cramjam", "PrometheusSink", "cramjam", "prometheus-remote-write")
        super().__init__(settings.limits())
        self.writing = settings

    @staticmethod
    def builder() -> PrometheusSinkBuilder:
        """Return a builder."""
        return PrometheusSinkBuilder()

    def create_client(self, context: SinkWriterContext) -> _WriteClient:
        """See `AsyncSinkBase`."""
        return _WriteClient(self.writing)

    def convert(self, record: PrometheusTimeSeries, timestamp: int | None) -> SeriesEntry:
        """See `AsyncSinkBase`."""
        if not isinstance(record, PrometheusTimeSeries):
            raise ContractError(f"a PrometheusSink takes PrometheusTimeSeries, not {short_repr(record)}")
        count, largest = len(record.samples), self.writing.max_record_size_in_samples
        if count > largest:
            raise WrongValueError(f"the record has {count} samples, max_record_size_in_samples is {largest}")
        samples = b"".join([encode_sample(value, time_ms) for value, time_ms in record.samples])
        return SeriesEntry(encode_labels(record.metric_name, record.labels), samples, count)

    def get_size_in_bytes(self, entry: SeriesEntry) -> int:
        """Return the size."""
        return len(entry.labels) + len(entry.samples)

    def get_ordering_key(self, entry: SeriesEntry) -> Hashable | None:
        """Return the series."""
        return entry.labels

    def handle_rejected(self, entry: SeriesEntry, reason: str) -> None:
        """Do nothing: the request was discarded with a warning."""


class _WriteClient(RequestClient[SeriesEntry]):
    """Sends write requests; see the module docstring."""

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._caller: HttpCaller | None = None
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        #: how often an entry was to be sent again, if requests are discarded after the last attempt
        self._attempts: dict[int, int] = {}

    async def open(self) -> None:
        """Read the certificates."""
        from cramjam import snappy  # the extra is needed by those who use it

        self._compress = snappy.compress_raw
        self._caller = HttpCaller(self._settings.service)

    async def submit_request_entries(self, entries: Sequence[SeriesEntry]) -> RequestResult | None:
        """Send entries in order, in as many requests as their samples need."""
        rejected: dict[int, str] = {}
        for start, stop in _find_parts(entries, self._settings.max_batch_size_in_samples):
            again = await self._submit(entries[start:stop], start, rejected)
            if again is not None:
                return RequestResult(range(start, len(entries)), rejected, again.delay_ms, again.reason)
        return RequestResult(rejected=rejected) if rejected else None

    async def _submit(
        self, entries: Sequence[SeriesEntry], start: int, rejected: dict[int, str]
    ) -> RequestResult | None:
        assert self._caller is not None
        body = bytes(self._compress(b"".join([entry.encode() for entry in entries])))
        headers: dict[str, str] = {}
        if self._settings.signer is not None:
            headers = dict(self._settings.service.headers)
            self._settings.signer(headers, body)
            usual = set(self._settings.service.headers)
            headers = {name: value for name, value in headers.items() if (name, value) not in usual}
        try:
            response = await self._caller.call("POST", self._settings.service.target, body, list(headers.items()))
        except OSError as error:
            if not is_passing(error):
                raise
            result = RequestResult(again=(0,), reason=f"{type(error).__name__}: {error}")
        else:
            if response.status in _OK:
                self._count(numWriteRequestsOut=1, numSamplesOut=_count_samples(entries))
                self._forget(entries)
                return None
            reason = describe(response)
            if response.status in _FATAL:
                raise RequestError(f"PrometheusSink: the service refuses to be written to: {reason}")
            if response.status != _THROTTLED and response.status < _SERVER_ERROR:
                self._discard(entries, start, rejected, reason, "numSamplesNonRetryableDropped")
                return None
            result = RequestResult(again=(0,), delay_ms=read_delay_ms(response), reason=reason)
        if self._is_last_attempt(entries[0]):
            self._discard(entries, start, rejected, result.reason, "numSamplesRetryLimitDropped")
            return None
        self._count(numWriteRequestsRetries=1)
        return result

    def _is_last_attempt(self, entry: SeriesEntry) -> bool:
        if not self._settings.discards_after_retries:
            return False
        self._attempts[id(entry)] = attempts = self._attempts.get(id(entry), 0) + 1
        return attempts > self._settings.retry.max_retry_count

    def _forget(self, entries: Sequence[SeriesEntry]) -> None:
        if self._attempts:
            for entry in entries:
                self._attempts.pop(id(entry), None)

    def _discard(
        self, entries: Sequence[SeriesEntry], start: int, rejected: dict[int, str], reason: str, counter: str
    ) -> None:
        samples = _count_samples(entries)
        _LOG.warning("PrometheusSink: a request with %d samples is discarded: %s", samples, reason)
        self._count(**{"numWriteRequestsPermanentlyFailed": 1, "numSamplesDropped": samples, counter: samples})
        self._forget(entries)
        rejected.update(dict.fromkeys(range(start, start + len(entries)), reason))

    def _count(self, **numbers: int) -> None:
        with self._lock:
            self._counts.update(numbers)

    def take_counts(self) -> Mapping[str, int]:
        """See `RequestClient`."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return counts

    async def close(self) -> None:
        """Close the connections."""
        if self._caller is not None:
            self._caller.close()
            await asyncio.sleep(0)  # connections end in the next turn of the loop


def _count_samples(entries: Sequence[SeriesEntry]) -> int:
    return sum(entry.sample_count for entry in entries)


def _find_parts(entries: Sequence[SeriesEntry], samples_max: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of parts with at most `samples_max` samples."""
    start = samples = 0
    for number, entry in enumerate(entries):
        if samples + entry.sample_count > samples_max and number > start:
            yield start, number
            start, samples = number, 0
        samples += entry.sample_count
    if entries:
        yield start, len(entries)


class PrometheusSinkBuilder:
    """Builds a `PrometheusSink`; only the URL is required.

    Examples:
        >>> from penstock.datastream.connectors.prometheus import PrometheusSink, RetryConfiguration
        >>> builder = PrometheusSink.builder().set_prometheus_remote_write_url("http://localhost:9090/api/v1/write")
        >>> builder = builder.set_retry_configuration(RetryConfiguration(max_retry_count=10))
        >>> builder.set_max_batch_size_in_samples(1_000).build().settings.max_attempts
        11
    """

    def __init__(self) -> None:
        self._url: str | None = None
        self._headers = dict(HEADERS)
        self._timeout_ms = 30_000
        self._settings: dict[str, Any] = {}

    def set_prometheus_remote_write_url(self, prometheus_remote_write_url: str) -> PrometheusSinkBuilder:
        """Set the URL, such as `http://localhost:9090/api/v1/write`."""
        self._url = prometheus_remote_write_url
        return self

    def set_max_batch_size_in_samples(self, max_batch_size_in_samples: int) -> PrometheusSinkBuilder:
        """Set the maximum number of samples in a request. Default: 500."""
        self._settings["max_batch_size_in_samples"] = max_batch_size_in_samples
        return self

    def set_max_record_size_in_samples(self, max_record_size_in_samples: int) -> PrometheusSinkBuilder:
        """Set the maximum number of samples in a record. Default: 500, or the maximum of a request if that is less."""
        self._settings["max_record_size_in_samples"] = max_record_size_in_samples
        return self

    def set_max_time_in_buffer_ms(self, max_time_in_buffer_ms: int) -> PrometheusSinkBuilder:
        """Set how long samples wait for others. Default: 5 s."""
        self._settings["max_time_in_buffer_ms"] = max_time_in_buffer_ms
        return self

    def set_retry_configuration(self, retry_configuration: RetryConfiguration) -> PrometheusSinkBuilder:
        """Set when a request is sent again."""
        self._settings["retry"] = retry_configuration
        return self

    def set_error_handling_behavior_configuration(
        self, configuration: SinkWriterErrorHandlingBehaviorConfiguration
    ) -> PrometheusSinkBuilder:
        """Set what happens to requests that fail for good."""
        self._settings["errors"] = configuration
        return self

    def set_request_signer(self, request_signer: Callable[[dict[str, str], bytes], None]) -> PrometheusSinkBuilder:
        """Set a function that adds headers to a request; it gets the headers and the body."""
        self._settings["signer"] = request_signer
        return self

    def set_header(self, name: str, value: str) -> PrometheusSinkBuilder:
        """Set a header of each request, such as `Authorization` or `X-Scope-OrgID`."""
        self._headers[name] = value
        return self

    def set_socket_timeout_ms(self, socket_timeout_ms: int) -> PrometheusSinkBuilder:
        """Set how long a request takes at most. Default: 30 s."""
        self._timeout_ms = socket_timeout_ms
        return self

    def build(self) -> PrometheusSink:
        """Create the sink.

        Raises:
            ConfigurationError: without a URL, and without the package cramjam.
            ValueError: for limits that contradict each other.
        """
        if self._url is None:
            raise ConfigurationError("set the URL of Prometheus: http://HOST:9090/api/v1/write")
        service = HttpService(self._url, tuple(self._headers.items()), self._timeout_ms)
        batch = self._settings.get("max_batch_size_in_samples", 500)
        self._settings.setdefault("max_record_size_in_samples", min(500, batch))
        return PrometheusSink(PrometheusSettings(service=service, **self._settings))
