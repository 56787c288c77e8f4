"""HTTP services: how they are called, which answers are errors, and `HttpSink`, which sends records to a URL.

**Calls.** `HttpService` has the URL, headers, times and certificates; its options are those of Flink's HTTP connector
(`http.sink.…`, `http.source.lookup.…`, `http.security.…`). `StatusCodes` are lists such as `2XX,404,!203`.

**Requests of the sink.** In mode `batch` a request has a JSON array of records, in mode `single` one record. A request
that fails for now (no connection, or a status of `http.sink.retry-codes`) is sent again: at least once. A request whose
content the service rejects (400, 413, 422) is halved until the rejected records are known, so that one bad record does
not take others with it. Any other error rejects all records of the request.

**Order.** Records with the same key arrive in order; see `AsyncSinkBase`. The records of a request are in order in its
array, which the service should handle in order.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.client import responses
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from penstock.base.errors import ConfigurationError, ContractError, OperationError, UnsupportedError, short_repr
from penstock.base.lineage import LineageDataset
from penstock.base.secrets import hide, remember
from penstock.base.time import parse_duration
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, RequestClient, RequestError, RequestResult
from penstock.connectors.http_client import HttpClient, Response
from penstock.runtime.connector import SinkWriterContext

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
_TEXT_CHARS_MAX: Final = 500
_UNLIMITED_MS: Final = 1 << 40
#: statuses by which a service rejects the content of a request
_ABOUT_CONTENT: Final = frozenset({400, 413, 422})
_CODE: Final = re.compile(r"(!?)(?:([1-5])XX|([1-5]\d\d))", re.IGNORECASE)
#: why options of Flink's connector are not supported
_REFUSED: Final = {
    "proxy.host": "there is no way through a proxy: name the service itself",
    "proxy.port": "there is no way through a proxy: name the service itself",
    "proxy.username": "there is no way through a proxy: name the service itself",
    "proxy.password": "there is no way through a proxy: name the service itself",
    "request-callback": "classes of Java are not called: the log and the metrics tell of failures",
}


def parse_codes(text: str) -> frozenset[int]:
    """Return the status codes of a list such as `2XX,404,!203`: groups and codes, without those after `!`.

    Raises:
        ConfigurationError: for anything else, such as a group after `!`.
    """
    codes: set[int] = set()
    excluded: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _CODE.fullmatch(part)
        if match is None or (match[1] and match[2]):
            raise ConfigurationError(f"{part!r} is no status code: write 404, 4XX for a group, or !404 to exclude one")
        (excluded if match[1] else codes).update(
            range(int(match[2]) * 100, int(match[2]) * 100 + 100) if match[2] else {int(match[3])}
        )
    return frozenset(codes - excluded)


def parse_time_ms(text: str) -> int:
    """Return a time in ms. A number alone is in seconds, as in Flink's HTTP connector."""
    return int(text) * 1_000 if text.strip().isdecimal() else parse_duration(text).to_millis()


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """Where tokens come from (OpenID Connect).

    Attributes:
        url: the token endpoint.
        request: the body of the request for a token, form encoded; it has the client's secret.
        reduction_ms: how long before its end a token is replaced.
    """

    url: str
    request: str = field(repr=False)
    reduction_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class HttpService:
    """A service, and how it is called. Its printed form does not have the headers.

    Attributes:
        url: the URL. It may have a query.
        headers: the headers of each request.
        timeout_ms: how long a request takes at most.
        connect_timeout_ms: how long it takes at most to connect; by default as long as a request.
        trusted: files of trusted certificates, in PEM, besides the system's certificates.
        certificate: the client's certificate, in PEM.
        key: its private key.
        trusts_all: whether any certificate is accepted.
        oidc: where tokens come from; None without them.

    Raises:
        ConfigurationError: for another kind of URL.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_ms: int = 30_000
    connect_timeout_ms: int | None = None
    trusted: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None
    trusts_all: bool = False
    oidc: OidcSettings | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ConfigurationError(
                f"a URL is such as https://host/path, without user and password, not {hide(self.url)!r}; a header "
                "Authorization has credentials"
            )
        secrets = {f"header.{name}": value for name, value in self.headers}
        remember(secrets | ({"token.request": self.oidc.request} if self.oidc else {}))

    @property
    def origin(self) -> str:
        """The URL without its path."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def target(self) -> str:
        """The path and the query."""
        parts = urlsplit(self.url)
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def build_tls(self) -> ssl.SSLContext | None:
        """Return how TLS is spoken. Raises `ConfigurationError` for files that cannot be read."""
        if not (self.trusted or self.certificate or self.trusts_all):
            return None
        try:
            context = ssl.create_default_context()
            for path in self.trusted:
                context.load_verify_locations(path)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"the certificates of http.security cannot be read: {error}") from error
        if self.trusts_all:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def with_properties(self, properties: Mapping[str, str], side: str) -> HttpService:
        """Return the service with the settings of Flink's options, such as `http.sink.header.Accept`.

        Args:
            properties: the options.
            side: `sink` or `source.lookup`.

        Raises:
            ConfigurationError: for a value that is not valid.
            UnsupportedError: for an option that is not supported.
        """
        about = f"http.{side}."
        for name, reason in _REFUSED.items():
            if about + name in properties:
                raise UnsupportedError(f"{about}{name} is not supported: {reason}")
        if properties.get(f"{about}http-version", "HTTP_1_1") != "HTTP_1_1":
            raise UnsupportedError(f"{about}http-version: only HTTP_1_1 is supported")
        is_raw = properties.get(f"{about}use-raw-authorization-header", "false").lower() == "true"
        headers = dict(self.headers)
        for key, value in properties.items():
            if key.startswith(f"{about}header."):
                name = key.removeprefix(f"{about}header.")
                headers[name] = value if is_raw or name.lower() != "authorization" else _login(value)
        security = {
            key.removeprefix("http.security."): value
            for key, value in properties.items()
            if key.startswith("http.security.")
        }
        connect = properties.get(f"{about}connection.timeout")
        try:
            timeout_ms = parse_time_ms(properties.get(f"{about}request.timeout", "30"))
            connect_ms = None if connect is None else parse_time_ms(connect)
        except ValueError as error:
            raise ConfigurationError(f"{about}request.timeout, {about}connection.timeout: {error}") from error
        return replace(
            self,
            headers=tuple(headers.items()),
            timeout_ms=timeout_ms,
            connect_timeout_ms=connect_ms,
            trusted=tuple(filter(None, security.get("cert.server", "").split(","))),
            certificate=security.get("cert.client"),
            key=security.get("key.client"),
            trusts_all=security.get("cert.server.allowSelfSigned", "false").lower() == "true",
            oidc=_read_oidc(security),
        )


def _login(value: str) -> str:
    """Return the header for a login `user:password`; a value with a scheme stays as it is."""
    if re.match(r"[A-Za-z][\w-]* +\S", value):
        return value
    return f"Basic {b64encode(value.encode()).decode()}"


def _read_oidc(security: Mapping[str, str]) -> OidcSettings | None:
    url, request = security.get("oidc.token.endpoint.url"), security.get("oidc.token.request")
    if url is None and request is None:
        return None
    if url is None or request is None:
        raise ConfigurationError(
            "http.security.oidc.token.endpoint.url and http.security.oidc.token.request go together: set both"
        )
    return OidcSettings(url, request, parse_time_ms(security.get("oidc.token.expiry.reduction", "1")))


class HttpCaller:
    """Calls a service. Used by one event loop."""

    def __init__(self, service: HttpService) -> None:
        self._service = service
        tls = service.build_tls()
        headers = dict(service.headers)
        headers.setdefault("User-Agent", "penstock")
        if service.oidc is not None:
            headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        self._client = HttpClient(service.origin, headers, service.timeout_ms, service.connect_timeout_ms, tls)
        self._tokens: HttpClient | None = None
        if service.oidc is not None:
            form = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
            self._tokens = HttpClient(service.oidc.url, form, service.timeout_ms, tls=tls)
        self._token, self._token_until = "", 0.0

    async def call(
        self, method: str, target: str, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()
    ) -> Response:
        """Send a request, with more headers, and return the response.

        Raises:
            OSError: if the service cannot be reached, or takes too long.
            OperationError: if the token is missing.
        """
        if self._tokens is None:
            return await self._client.request(method, target, body, headers)
        bearer = ("Authorization", f"Bearer {await self._bearer()}")
        return await self._client.request(method, target, body, [*headers, bearer])

    async def _bearer(self) -> str:
        oidc = self._service.oidc
        assert oidc is not None
        assert self._tokens is not None
        if time.monotonic() >= self._token_until:
            response = await self._tokens.post(oidc.request.encode())
            try:
                answer = json.loads(response.body)
                token, seconds = str(answer["access_token"]), float(answer.get("expires_in", 60))
            except (ValueError, KeyError, TypeError) as error:
                raise OperationError(f"the token endpoint gives no token: {describe(response)}") from error
            remember({"token": token})
            self._token, self._token_until = token, time.monotonic() + seconds - oidc.reduction_ms / 1_000
        return self._token

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        if self._tokens is not None:
            self._tokens.close()


def describe(response: Response) -> str:
    """Return the status of a response and the beginning of its body, without secrets."""
    text = hide(response.body[:_TEXT_CHARS_MAX].decode("utf-8", "replace"))
    return f"status {response.status} {responses.get(response.status, '')}: {text}".rstrip(": ")


def is_passing(error: BaseException) -> bool:
    """Return whether a service may be reached later; a certificate that is not valid stays so."""
    return isinstance(error, OSError) and not isinstance(error, ssl.SSLCertVerificationError)


def read_delay_ms(response: Response) -> float:
    """Return how long the service wants to be left alone (Retry-After, in seconds)."""
    seconds = response.headers.get("retry-after", "")
    return float(seconds) * 1_000 if seconds.isdecimal() else 0.0


class HttpSinkRequestEntry(NamedTuple):
    """A record in wire form.

    Attributes:
        method: POST or PUT.
        element: the record; JSON, if requests have several of them.
        key: a key whose records must arrive in order; None if their order does not matter.

    Examples:
        >>> from penstock.datastream.connectors.http import HttpSinkRequestEntry
        >>> HttpSinkRequestEntry("POST", b'{"id": 7}').element
        b'{"id": 7}'
    """

    method: str
    element: bytes
    key: Hashable | None = None


@dataclass(frozen=True, slots=True)
class HttpSinkOptions:
    """How a sink sends requests and handles answers.

    Attributes:
        is_batch: whether a request has an array of records, or one record.
        errors: the statuses of failed requests; all others are successes.
        retried: the failed statuses after which a request is sent again.
        ignores_rejected: whether rejected records are left out, with a warning and a metric; otherwise the job fails.
    """

    is_batch: bool = True
    errors: frozenset[int] = parse_codes("4XX,5XX")
    retried: frozenset[int] = parse_codes("408,429,500,502,503,504")
    ignores_rejected: bool = False

    @staticmethod
    def of(properties: Mapping[str, str]) -> HttpSinkOptions:
        """Return the settings of Flink's options. Raises `ConfigurationError` for a value that is not valid."""
        mode = properties.get("http.sink.writer.request.mode", "batch").lower()
        if mode not in ("batch", "single"):
            raise ConfigurationError(f"http.sink.writer.request.mode is 'batch' or 'single', not {mode!r}")
        handler = properties.get("http.sink.failure-handler", "fail").lower()
        if handler not in ("fail", "ignore"):
            raise ConfigurationError(f"http.sink.failure-handler is 'fail' or 'ignore', not {handler!r}")
        errors = parse_codes(properties.get("http.sink.error.code", "4XX,5XX"))
        retried = parse_codes(properties.get("http.sink.retry-codes", "408,429,500,502,503,504"))
        excluded = parse_codes(properties.get("http.sink.error.code.exclude", ""))
        return HttpSinkOptions(mode == "batch", errors - excluded, retried - excluded, handler == "ignore")


class HttpSink(AsyncSinkBase[T, HttpSinkRequestEntry]):
    """Sends records to a URL. At least once: after a failure records are sent again. Create it with `builder`.

    Args:
        service: the service.
        converter: returns the `HttpSinkRequestEntry` of a record; by default a record is one.
        settings: the limits of requests.
        options: how requests are sent.

    Examples:
        >>> import json
        >>> from penstock.datastream.connectors.http import HttpSink, HttpSinkRequestEntry
        >>> builder = HttpSink.builder().set_endpoint_url("https://shop.example/orders")
        >>> builder = builder.set_element_converter(
        ...     lambda order: HttpSinkRequestEntry("POST", json.dumps(order).encode(), key=order["id"])
        ... )
        >>> builder = builder.set_property("http.sink.header.Authorization", "Bearer 123456")
        >>> builder.build().settings.max_batch_size
        500
    """

    keeps_order_in_request = True

    def __init__(
        self,
        service: HttpService,
        converter: Callable[[T], HttpSinkRequestEntry] | None = None,
        settings: AsyncSinkSettings | None = None,
        options: HttpSinkOptions | None = None,
    ) -> None:
        self.options = options or HttpSinkOptions()
        settings = settings or AsyncSinkSettings()
        if not self.options.is_batch:
            settings = replace(settings, max_batch_size=1)
        super().__init__(replace(settings, request_timeout_ms=_UNLIMITED_MS))  # the client ends requests
        self.service = service
        self._converter = converter

    @staticmethod
    def builder() -> HttpSinkBuilder:
        """Return a builder."""
        return HttpSinkBuilder()

    def describe_lineage(self) -> tuple[LineageDataset, ...]:
        """Return the URL."""
        return self.lineage or (LineageDataset(self.service.origin, self.service.target.partition("?")[0]),)

    def create_client(self, context: SinkWriterContext) -> RequestClient[HttpSinkRequestEntry]:
        """See `AsyncSinkBase`."""
        return _SinkClient(self.service, self.options, context)

    def convert(self, record: T, timestamp: int | None) -> HttpSinkRequestEntry:
        """See `AsyncSinkBase`."""
        entry = record if self._converter is None else self._converter(record)
        if not isinstance(entry, HttpSinkRequestEntry):
            raise ContractError(f"the converter of an HttpSink returns HttpSinkRequestEntry, not {short_repr(entry)}")
        return entry

    def get_size_in_bytes(self, entry: HttpSinkRequestEntry) -> int:
        """Return the size of the record."""
        return len(entry.element)

    def get_ordering_key(self, entry: HttpSinkRequestEntry) -> Hashable | None:
        """Return the key."""
        return entry.key

    def handle_rejected(self, entry: HttpSinkRequestEntry, reason: str) -> None:
        """Raise `RequestError`, or log a warning, as the failure handler says."""
        if not self.options.ignores_rejected:
            super().handle_rejected(entry, reason)
        _LOG.warning("%s: a record is left out, which the service rejects: %s", type(self).__name__, reason)


class _SinkClient(RequestClient[HttpSinkRequestEntry]):
    """Sends entries in requests; see the module docstring."""

    def __init__(self, service: HttpService, options: HttpSinkOptions, context: SinkWriterContext) -> None:
        self._service, self._options, self._context = service, options, context
        self._caller: HttpCaller | None = None

    async def open(self) -> None:
        """Read the certificates."""
        self._caller = HttpCaller(self._service)

    async def submit_request_entries(self, entries: Sequence[HttpSinkRequestEntry]) -> RequestResult | None:
        """Send entries; consecutive entries with the same method share a request."""
        rejected: dict[int, str] = {}
        for start, stop in _find_runs(entries):
            again = await self._submit(entries, start, stop, rejected)
            if again is not None:
                return replace(again, again=range(again.again[0], len(entries)), rejected=rejected)
        return RequestResult(rejected=rejected) if rejected else None

    async def _submit(
        self, entries: Sequence[HttpSinkRequestEntry], start: int, stop: int, rejected: dict[int, str]
    ) -> RequestResult | None:
        """Send some entries; return which to send again, if any."""
        assert self._caller is not None
        body = entries[start].element
        if self._options.is_batch:
            body = b"[" + b",".join([entry.element for entry in entries[start:stop]]) + b"]"
        response = await self._caller.call(entries[start].method, self._service.target, body)
        if response.status not in self._options.errors:
            return None
        if response.status in self._options.retried:
            return RequestResult(again=range(start, stop), delay_ms=read_delay_ms(response), reason=describe(response))
        if stop - start > 1 and response.status in _ABOUT_CONTENT:
            middle = (start + stop) // 2
            again = await self._submit(entries, start, middle, rejected)
            return again or await self._submit(entries, middle, stop, rejected)
        rejected.update(dict.fromkeys(range(start, stop), describe(response)))
        return None

    def is_retryable(self, error: Exception) -> bool:
        """See `RequestClient`."""
        return is_passing(error)

    async def close(self) -> None:
        """Close the connections."""
        if self._caller is not None:
            self._caller.close()
            await asyncio.sleep(0)  # connections end in the next turn of the loop


def _find_runs(entries: Sequence[HttpSinkRequestEntry]) -> Iterable[tuple[int, int]]:
    if len({entry.method for entry in entries}) == 1:
        yield 0, len(entries)
        return
    start = 0
    for number in range(1, len(entries) + 1):
        if number == len(entries) or entries[number].method != entries[start].method:
            yield start, number
            start = number


class HttpSinkBuilder:
    """Builds an `HttpSink`; only the URL is required.

    Examples:
        >>> from penstock.datastream.connectors.http import HttpSink
        >>> builder = HttpSink.builder().set_endpoint_url("http://localhost:8080/rows").set_max_batch_size(10)
        >>> builder.set_property("http.sink.writer.request.mode", "single").build().settings.max_batch_size
        1
    """

    def __init__(self) -> None:
        self._url: str | None = None
        self._converter: Callable[[Any], HttpSinkRequestEntry] | None = None
        self._settings: dict[str, Any] = {}
        self._properties: dict[str, str] = {}

    def set_endpoint_url(self, endpoint_url: str) -> HttpSinkBuilder:
        """Set the URL."""
        self._url = endpoint_url
        return self

    def set_element_converter(self, element_converter: Callable[[Any], HttpSinkRequestEntry]) -> HttpSinkBuilder:
        """Set what returns the `HttpSinkRequestEntry` of a record. Default: records are entries."""
        self._converter = element_converter
        return self

    def set_max_batch_size(self, max_batch_size: int) -> HttpSinkBuilder:
        """Set the maximum number of records in a request. Default: 500."""
        self._settings["max_batch_size"] = max_batch_size
        return self

    def set_max_in_flight_requests(self, max_in_flight_requests: int) -> HttpSinkBuilder:
        """Set how many requests a subtask sends at the same time. Default: 50."""
        self._settings["max_in_flight_requests"] = max_in_flight_requests
        return self

    def set_max_buffered_requests(self, max_buffered_requests: int) -> HttpSinkBuilder:
        """Set the number of waiting records that stops the input. Default: 10,000."""
        self._settings["max_buffered_requests"] = max_buffered_requests
        return self

    def set_max_batch_size_in_bytes(self, max_batch_size_in_bytes: int) -> HttpSinkBuilder:
        """Set the maximum size of a request. Default: 5 MiB."""
        self._settings["max_batch_size_in_bytes"] = max_batch_size_in_bytes
        return self

    def set_max_time_in_buffer_ms(self, max_time_in_buffer_ms: int) -> HttpSinkBuilder:
        """Set how long a record waits for others. Default: 5 s."""
        self._settings["max_time_in_buffer_ms"] = max_time_in_buffer_ms
        return self

    def set_max_record_size_in_bytes(self, max_record_size_in_bytes: int) -> HttpSinkBuilder:
        """Set the maximum size of a record. Default: 1 MiB."""
        self._settings["max_record_size_in_bytes"] = max_record_size_in_bytes
        return self

    def set_max_attempts(self, max_attempts: int) -> HttpSinkBuilder:
        """Set how often a record is sent before the job fails. Default: 10."""
        self._settings["max_attempts"] = max_attempts
        return self

    def set_property(self, name: str, value: str) -> HttpSinkBuilder:
        """Set an option of Flink's HTTP connector, such as `http.sink.header.Accept`.

        Raises:
            ConfigurationError: for an option of another beginning.
        """
        if not name.startswith(("http.sink.", "http.security.")):
            raise ConfigurationError(
                f"properties of an HttpSink begin with http.sink. or http.security., unlike {name!r}"
            )
        self._properties[name] = value
        return self

    def build(self) -> HttpSink[Any]:
        """Create the sink.

        Raises:
            ConfigurationError: without a URL, and for settings that are not valid.
        """
        if self._url is None:
            raise ConfigurationError("set the URL of the service: set_endpoint_url('https://host/path')")
        settings = build_settings(self._settings, self._properties)
        options = HttpSinkOptions.of(self._properties)
        service = HttpService(self._url, (("Content-Type", "application/json"),))
        return HttpSink(service.with_properties(self._properties, "sink"), self._converter, settings, options)


def build_settings(given: Mapping[str, Any], properties: Mapping[str, str]) -> AsyncSinkSettings:
    """Return the limits of requests; `http.sink.request.batch.size` limits records once more.

    Raises:
        ValueError: for a number that is not positive, or limits that contradict each other.
    """
    settings = AsyncSinkSettings(**given)
    size = properties.get("http.sink.request.batch.size")
    if size is None:
        return settings
    if not size.isdecimal() or int(size) < 1:
        raise ConfigurationError(f"http.sink.request.batch.size is a positive number, not {size!r}")
    return replace(settings, max_batch_size=min(settings.max_batch_size, int(size)))


@dataclass(frozen=True, slots=True)
class RetryStrategy:
    """The delays before a call is repeated.

    Attributes:
        retries: how often it is repeated.
        delay_ms: the first delay.
        max_delay_ms: the longest.
        multiplier: how much longer each is than the one before.
    """

    retries: int = 3
    delay_ms: float = 1_000
    max_delay_ms: float = 60_000
    multiplier: float = 1.0

    def delay(self, attempt: int) -> float:
        """Return the delay (ms) after an attempt; the first one is 1."""
        return min(self.max_delay_ms, self.delay_ms * self.multiplier ** (attempt - 1))


__all__ = [
    "HttpCaller",
    "HttpService",
    "HttpSink",
    "HttpSinkBuilder",
    "HttpSinkOptions",
    "HttpSinkRequestEntry",
    "OidcSettings",
    "RequestError",
    "RetryStrategy",
]
