"""Documents in OpenSearch and Elasticsearch: bulk requests, and `OpensearchSink` with its builders and emitters.

**Documents.** A document is written as a whole. Writing it again changes nothing, so an index whose documents have ids
equals the stream once the stream has been written, however often it was written. Numbers keep all their digits.

**Versions.** With external versions a document is only replaced by one of the same or a greater version, so a replay
never goes back to an older one. Deletes also have versions; the service keeps those for `index.gc_deletes`, a minute.

**Failures.** Each action of a bulk request succeeds or fails by itself. Actions that the service refuses for now
(status 429 or 5xx) are sent again, as are all if the service cannot be reached. An older version than the document's
(409) and the deletion of a missing document (404) count as accepted. Any other action is rejected, with the service's
reason.

Actions on the same document arrive in order (`get_ordering_key`).
"""

from __future__ import annotations

import logging
import ssl
from base64 import b64encode
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from penstock.base.errors import ConfigurationError, WrongTypeError, WrongValueError
from penstock.base.secrets import hide, remember
from penstock.base.types import Row
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, RequestClient, RequestError, RequestResult
from penstock.connectors.base import DeliveryGuarantee
from penstock.connectors.http_client import HttpClient, Response
from penstock.runtime.connector import SinkWriterContext

_LOG: Final = logging.getLogger(__name__)

_OK: Final = range(200, 300)
_NOT_FOUND, _CONFLICT, _TOO_LARGE, _SERVER_ERROR = 404, 409, 413, 500
_FOR_NOW: Final = frozenset({408, 429})
_TEXT_CHARS_MAX: Final = 500
#: the requested parts of a response
_BULK: Final = "/_bulk?filter_path=errors,items.*.status,items.*.error"
#: the limits of a bulk request whose number or size of actions is unlimited; servers accept 100 MiB
ACTIONS_MAX: Final = 10_000
SIZE_MAX: Final = 64 << 20
#: Stands for no limit of a time or of attempts.
UNLIMITED: Final = 1 << 53

encode_json: Final = msgspec.json.Encoder().encode


def _to_json(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict()
    raise WrongTypeError(f"a document has a value of type {type(value).__name__}, which has no form in JSON")


_encode_document: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=_to_json).encode


def encode_document(document: Mapping[str, Any] | Row) -> bytes:
    """Return a document in JSON: decimals as numbers with all digits, dates and times in ISO 8601, bytes in base64.

    Raises:
        TypeError: for a value without a form in JSON.
        ValueError: for a number that is not finite.
    """
    text = _encode_document(document)
    if b"null" in text:
        _check_finite(document)
    return text


def _check_finite(value: Any) -> None:
    """Raise for NaN and infinity, which the encoder would write as null."""
    if isinstance(value, float | Decimal) and not isfinite(value):
        raise WrongValueError(f"a document has the number {value}, which has no form in JSON")
    if isinstance(value, Row):
        value = value.as_dict()
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        for part in value:
            _check_finite(part)


class BulkAction(msgspec.Struct, frozen=True):
    """An action on a document.

    Attributes:
        index: the name of the index.
        id: the id of the document; None for one that the service chooses.
        lines: the action in the form of bulk requests.
        version: the external version; None without one.
        is_part: whether the action writes some fields of a document only.

    Examples:
        >>> from penstock.datastream.connectors.elasticsearch import BulkAction
        >>> BulkAction.write("orders", "7", {"price": 5}, version=3).lines.decode().splitlines()[1]
        '{"price":5}'
        >>> BulkAction.delete("orders", "7")
        document '7' of index 'orders'
    """

    index: str
    id: str | None
    lines: bytes
    version: int | None = None
    is_part: bool = False

    @staticmethod
    def write(index: str, id: str | None, document: Any, version: int | None = None) -> BulkAction:
        """Return an action that writes a whole document; without an id, a new one.

        Args:
            index: the name of the index.
            id: the id of the document; None for a new one.
            document: a dict, a `Row` with names, or bytes with a JSON object.
            version: the external version.
        """
        text = document if isinstance(document, bytes) else encode_document(document)
        name = "create" if id is None else "index"
        return BulkAction(index, id, head(name, index, id, version) + text + b"\n", version)

    @staticmethod
    def merge(index: str, id: str, document: Any) -> BulkAction:
        """Return an action that replaces these fields of a document and keeps its others, or creates the document."""
        text = document if isinstance(document, bytes) else encode_document(document)
        line = b'{"doc_as_upsert":true,"doc":' + text + b"}\n"
        return BulkAction(index, id, head("update", index, id, None) + line, is_part=True)

    @staticmethod
    def delete(index: str, id: str, version: int | None = None) -> BulkAction:
        """Return an action that deletes a document, unless it has a greater version."""
        return BulkAction(index, id, head("delete", index, id, version), version)

    def __repr__(self) -> str:
        return f"{'a new document' if self.id is None else f'document {self.id!r}'} of index {self.index!r}"


def head(name: str, index: str, id: str | None, version: int | None) -> bytes:
    """Return the first line of an action, with its name and its document."""
    about: dict[str, Any] = {"_index": index}
    if id is not None:
        about["_id"] = id
    if version is not None:
        about |= {"version": version, "version_type": "external_gte"}
    return encode_json({name: about}) + b"\n"


@dataclass(frozen=True, slots=True)
class Service:
    """Where the service is, and how it is called. Its printed form does not include the password.

    Attributes:
        hosts: the URLs of the nodes, such as `https://search-1:9200`; they take turns.
        user: the user name; None without a login.
        password: the password.
        path_prefix: a prefix of the paths of all requests.
        timeout_ms: how long a response may take.
        connect_timeout_ms: how long it may take to connect.

    Raises:
        ConfigurationError: for no hosts, or another kind of URL, and for a user without a password.
    """

    hosts: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    path_prefix: str = ""
    timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        remember({"password": self.password or "", "basic-auth": f"{self.user}:{self.password or ''}"})
        if not self.hosts:
            raise ConfigurationError("give at least one host, such as https://search-1:9200")
        if (self.user is None) != (self.password is None):
            raise ConfigurationError("a user name and a password are given together")
        for host in self.hosts:
            parts = urlsplit(host)
            if "@" in parts.netloc or parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigurationError(
                    "a host is a URL such as https://search-1:9200, without user and password, which are settings of "
                    "their own"
                )

    def clients(self, content_type: str = "application/x-ndjson") -> list[HttpClient]:
        """Return a client for each host, which sends contents of a type."""
        headers = {"Content-Type": content_type, "Accept": "application/json", "User-Agent": "penstock"}
        if self.user is not None:
            login = b64encode(f"{self.user}:{self.password}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        prefix = f"/{self.path_prefix.strip('/')}" if self.path_prefix.strip("/") else ""
        return [
            HttpClient(host.rstrip("/") + prefix, headers, self.timeout_ms, self.connect_timeout_ms)
            for host in self.hosts
        ]


class _Item(msgspec.Struct):
    status: int
    error: Any = None


class _Summary(msgspec.Struct):
    errors: bool


class _Items(msgspec.Struct):
    items: list[dict[str, _Item]]


_read_summary: Final = msgspec.json.Decoder(_Summary).decode
_read_items: Final = msgspec.json.Decoder(_Items).decode


class BulkClient(RequestClient[BulkAction]):
    """Sends bulk requests. The hosts take turns; one that cannot be reached is passed over.

    Args:
        service: the service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._clients: list[HttpClient] = []
        self._turn = 0

    async def open(self) -> None:
        """Create the clients."""
        self._clients = self._service.clients()

    async def submit_request_entries(self, entries: Sequence[BulkAction]) -> RequestResult | None:
        """Send actions in one request."""
        response = await self._send(b"".join([action.lines for action in entries]))
        if response.status in _OK:
            return read_result(entries, response.body)
        text = hide(response.body[:_TEXT_CHARS_MAX].decode("utf-8", "replace"))
        reason = f"status {response.status}: {text}"
        if response.status in _FOR_NOW or response.status >= _SERVER_ERROR:
            return RequestResult(again=range(len(entries)), delay_ms=_read_delay(response), reason=reason)
        if response.status == _TOO_LARGE:
            if len(entries) == 1:
                return RequestResult(rejected={0: reason})
            reason += f" (the request has {len(entries)} actions: lower the size of bulk requests)"
        raise RequestError(f"the service refuses a bulk request: {reason}")

    async def _send(self, body: bytes) -> Response:
        count = len(self._clients)
        self._turn = (self._turn + 1) % count
        for attempt in range(count):
            try:
                return await self._clients[(self._turn + attempt) % count].request("POST", _BULK, body)
            except OSError as error:
                if attempt + 1 == count or isinstance(error, ssl.SSLCertVerificationError):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def is_retryable(self, error: Exception) -> bool:
        """Return whether the service cannot be reached; a certificate that is not valid stays so."""
        return isinstance(error, OSError) and not isinstance(error, ssl.SSLCertVerificationError)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()


def _read_delay(response: Response) -> float:
    seconds = response.headers.get("retry-after", "")
    return float(seconds) * 1_000 if seconds.isdigit() else 0.0


def read_result(entries: Sequence[BulkAction], body: bytes) -> RequestResult | None:
    """Return what became of the actions of a request, by the response.

    Raises:
        RequestError: for a response of another form.
    """
    try:
        if not _read_summary(body).errors:
            return None
        items = [next(iter(item.items())) for item in _read_items(body).items]
        if len(items) != len(entries):
            raise WrongValueError(f"it has {len(items)} results for {len(entries)} actions")
    except (msgspec.DecodeError, ValueError, StopIteration) as error:
        text = hide(body[:_TEXT_CHARS_MAX].decode("utf-8", "replace"))
        raise RequestError(f"the response to a bulk request has another form ({error}): {text}") from error
    again: list[int] = []
    rejected: dict[int, str] = {}
    for number, ((name, item), action) in enumerate(zip(items, entries, strict=True)):
        if item.status in _OK or (name == "delete" and item.status == _NOT_FOUND):
            continue
        if item.status == _CONFLICT:
            # A newer version is there, or another writer was faster than an update.
            if action.version is None:
                again.append(number)
        elif item.status in _FOR_NOW or item.status >= _SERVER_ERROR:
            again.append(number)
        else:
            rejected[number] = _reason(item)
    reason = _reason(items[again[0]][1]) if again else ""
    return RequestResult(again=again, rejected=rejected, reason=reason)


def _reason(item: _Item) -> str:
    error, parts = item.error, []
    while isinstance(error, dict):
        parts.append(f"{error.get('type')}: {error.get('reason')}")
        error = error.get("caused_by")
    return hide(f"status {item.status}: {', caused by '.join(parts) or item.error}")


class FlushBackoffType(Enum):
    """How long a sink waits before it sends actions again: as long each time, twice as long, or it fails at once."""

    CONSTANT = 0
    EXPONENTIAL = 1
    NONE = 2


class FailureHandler(Enum):
    """How a sink treats actions that the service rejects, and how often it repeats refused ones."""

    #: the job fails, for a refused action after the last attempt
    FAIL = 0
    #: a rejected action is left out, with a warning
    IGNORE = 1
    #: as `FAIL`, but refused actions are sent until they are accepted
    RETRY_REJECTED = 2


def bulk_settings(
    max_actions: int = 1000,
    max_size: int = 2 << 20,
    interval_ms: int = 1_000,
    backoff: FlushBackoffType = FlushBackoffType.EXPONENTIAL,
    max_retries: int = 8,
    delay_ms: int = 50,
    max_in_flight: int = 4,
    timeout_ms: int = 60_000,
) -> AsyncSinkSettings:
    """Return the settings of a sink. 0 or a negative number stands for no limit."""
    actions = max_actions if max_actions > 0 else ACTIONS_MAX
    size = max_size if max_size > 0 else SIZE_MAX
    return AsyncSinkSettings(
        max_batch_size=actions,
        max_in_flight_requests=max_in_flight,
        max_buffered_requests=max(10_000, 2 * actions),
        max_batch_size_in_bytes=size,
        max_time_in_buffer_ms=interval_ms if interval_ms > 0 else UNLIMITED,
        max_record_size_in_bytes=size,
        # The client ends a request that takes longer.
        request_timeout_ms=2 * timeout_ms,
        max_attempts=1 if backoff is FlushBackoffType.NONE else 1 + max_retries,
        retry_delay_ms=max(1, delay_ms),
        retry_delay_max_ms=max(1, delay_ms if backoff is FlushBackoffType.CONSTANT else 10_000, delay_ms),
    )


class BulkSink(AsyncSinkBase[Any, BulkAction]):
    """A sink of bulk requests; a subclass makes actions of records.

    Args:
        service: the service.
        settings: the limits.
        failures: what happens to actions that the service rejects or refuses.
    """

    def __init__(
        self, service: Service, settings: AsyncSinkSettings, failures: FailureHandler = FailureHandler.FAIL
    ) -> None:
        if failures is FailureHandler.RETRY_REJECTED:
            settings = replace(settings, max_attempts=UNLIMITED)
        super().__init__(settings)
        self._service = service
        self._failures = failures

    def create_client(self, context: SinkWriterContext) -> BulkClient:
        """See `AsyncSinkBase`."""
        return BulkClient(self._service)

    def get_size_in_bytes(self, entry: BulkAction) -> int:
        """Return the size; at most that of a request, which has a larger document alone."""
        return min(len(entry.lines), self.settings.max_batch_size_in_bytes)

    def get_ordering_key(self, entry: BulkAction) -> Hashable | None:
        """Return the document, unless the service chooses its id."""
        return None if entry.id is None else (entry.index, entry.id)

    def supersedes(self, later: BulkAction, earlier: BulkAction) -> bool:
        """Return whether the later action writes or deletes the whole document, and not in an older version."""
        if later.is_part or (later.version is None) != (earlier.version is None):
            return False
        return later.version is None or earlier.version is None or later.version >= earlier.version

    def handle_rejected(self, entry: BulkAction, reason: str) -> None:
        """Raise `RequestError`, or log a warning, as the failure handler says."""
        text = f"{type(self).__name__}: the service rejects {entry!r}: {reason}"
        if self._failures is not FailureHandler.IGNORE:
            raise RequestError(text)
        _LOG.warning("%s; it is left out", text)


class ElasticsearchEmitter:
    """Makes actions of elements, which are dicts or rows with names: the element is the document.

    For other elements, for deletes and for indexes of your own choice, derive a class and write `emit`.

    Args:
        index: the name of the index, or of the field with this name.
        key_field: the field that has the id; None for new documents.
        is_dynamic: whether `index` is a field.
        version_field: the field that has the external version.

    Examples:
        >>> from penstock.datastream.connectors.elasticsearch import ElasticsearchEmitter
        >>> ElasticsearchEmitter.static_index("orders", "id").emit({"id": 7, "price": 5}, None)
        document '7' of index 'orders'
    """

    def __init__(
        self, index: str, key_field: str | None = None, is_dynamic: bool = False, version_field: str | None = None
    ) -> None:
        self._index = index
        self._key_field = key_field
        self._is_dynamic = is_dynamic
        self._version_field = version_field

    @staticmethod
    def static_index(
        index: str, key_field: str | None = None, doc_type: str | None = None, version_field: str | None = None
    ) -> ElasticsearchEmitter:
        """Return an emitter for one index. `doc_type` is ignored: types of documents ended with Elasticsearch 6."""
        return ElasticsearchEmitter(index, key_field, False, version_field)

    @staticmethod
    def dynamic_index(
        index_field: str, key_field: str | None = None, doc_type: str | None = None, version_field: str | None = None
    ) -> ElasticsearchEmitter:
        """Return an emitter for the index that a field names. `doc_type` is ignored."""
        return ElasticsearchEmitter(index_field, key_field, True, version_field)

    def emit(self, element: Any, timestamp: int | None) -> BulkAction:
        """Return the action for an element; `timestamp` is its event time (ms), if it has one."""
        document = element.as_dict() if isinstance(element, Row) else element
        if not isinstance(document, Mapping):
            raise WrongTypeError(f"an element is a dict or a Row with names, not a {type(element).__name__}")
        index = str(_field(document, self._index)) if self._is_dynamic else self._index
        id = None if self._key_field is None else str(_field(document, self._key_field))
        version = None if self._version_field is None else int(_field(document, self._version_field))
        return BulkAction.write(index, id, document, version)


def _field(document: Mapping[str, Any], name: str) -> Any:
    value = document.get(name)
    if value is None:
        raise WrongValueError(f"the element has no field {name!r}")
    return value


class OpensearchSink(BulkSink):
    """Writes elements into an index. At least once; exactly once in effect for documents with ids.

    Examples:
        >>> from penstock.datastream.connectors.elasticsearch import Elasticsearch7SinkBuilder, ElasticsearchEmitter
        >>> sink = (
        ...     Elasticsearch7SinkBuilder()
        ...     .set_hosts("localhost:9200")
        ...     .set_emitter(ElasticsearchEmitter.static_index("orders", "id"))
        ...     .build()
        ... )
        >>> sink.settings.max_batch_size
        1000
    """

    def __init__(
        self,
        service: Service,
        emitter: ElasticsearchEmitter,
        settings: AsyncSinkSettings | None = None,
        failures: FailureHandler = FailureHandler.FAIL,
    ) -> None:
        super().__init__(service, settings or bulk_settings(), failures)
        self._emitter = emitter

    def convert(self, record: Any, timestamp: int | None) -> BulkAction:
        """See `AsyncSinkBase`."""
        return self._emitter.emit(record, timestamp)


class OpensearchSinkBuilder:
    """Builds an `OpensearchSink`. Only hosts and emitter are required; the other settings have Flink's defaults.

    Refused actions are sent again up to 8 times after growing delays, while Flink by default sends none again.

    Examples:
        >>> from penstock.datastream.connectors.elasticsearch import ElasticsearchEmitter, OpensearchSinkBuilder
        >>> builder = OpensearchSinkBuilder().set_hosts(["http://one:9200", "http://two:9200"])
        >>> builder = builder.set_emitter(ElasticsearchEmitter.static_index("orders")).set_bulk_flush_max_actions(100)
        >>> builder.build().settings.max_batch_size
        100
    """

    def __init__(self) -> None:
        self._emitter: ElasticsearchEmitter | None = None
        self._service: dict[str, Any] = {"hosts": ()}
        self._settings: dict[str, Any] = {}
        self._failures = FailureHandler.FAIL

    def set_emitter(self, emitter: ElasticsearchEmitter) -> OpensearchSinkBuilder:
        """Set what makes actions of elements."""
        self._emitter = emitter
        return self

    def set_hosts(self, hosts: str | Sequence[str]) -> OpensearchSinkBuilder:
        """Set the URLs of the nodes. `host:port` stands for `http://host:port`."""
        urls = [hosts] if isinstance(hosts, str) else hosts
        self._service["hosts"] = tuple(url if "://" in url else f"http://{url}" for url in urls)
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> OpensearchSinkBuilder:
        """Set the guarantee. A checkpoint waits for earlier actions in any case: at least once.

        Raises:
            ConfigurationError: for `EXACTLY_ONCE`, which the service does not have.
        """
        if delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            raise ConfigurationError(
                "a sink of bulk requests writes at least once: give documents ids, so that writing one again changes "
                "nothing"
            )
        return self

    def set_bulk_flush_max_actions(self, num_max_actions: int) -> OpensearchSinkBuilder:
        """Set the maximum number of actions in a request; -1 for no limit. Default: 1000."""
        self._settings["max_actions"] = num_max_actions
        return self

    def set_bulk_flush_max_size_mb(self, max_size_mb: int) -> OpensearchSinkBuilder:
        """Set the maximum size of a request in MiB; -1 for no limit. Default: 2."""
        self._settings["max_size"] = max_size_mb << 20
        return self

    def set_bulk_flush_interval(self, interval_millis: int) -> OpensearchSinkBuilder:
        """Set how long actions wait for others; -1 for no limit. Default: 1 s."""
        self._settings["interval_ms"] = interval_millis
        return self

    def set_bulk_flush_backoff_strategy(
        self, flush_backoff_type: FlushBackoffType, max_retries: int, delay_millis: int
    ) -> OpensearchSinkBuilder:
        """Set how often, and after which delays, refused actions are sent again."""
        self._settings |= {"backoff": flush_backoff_type, "max_retries": max_retries, "delay_ms": delay_millis}
        return self

    def set_failure_handler(self, failure_handler: FailureHandler) -> OpensearchSinkBuilder:
        """Set what happens to actions that the service rejects or refuses. By default the job fails."""
        self._failures = failure_handler
        return self

    def set_max_in_flight_requests(self, max_in_flight_requests: int) -> OpensearchSinkBuilder:
        """Set how many requests of a subtask are sent at the same time. Default: 4."""
        self._settings["max_in_flight"] = max_in_flight_requests
        return self

    def set_connection_username(self, username: str) -> OpensearchSinkBuilder:
        """Set the user name."""
        self._service["user"] = username
        return self

    def set_connection_password(self, password: str) -> OpensearchSinkBuilder:
        """Set the password."""
        self._service["password"] = password
        return self

    def set_connection_path_prefix(self, prefix: str) -> OpensearchSinkBuilder:
        """Set a prefix of the paths of all requests."""
        self._service["path_prefix"] = prefix
        return self

    def set_connection_request_timeout(self, timeout: int) -> OpensearchSinkBuilder:
        """Do nothing: a request never waits for a connection of a pool."""
        return self

    def set_connection_timeout(self, timeout: int) -> OpensearchSinkBuilder:
        """Set how long it may take to connect, in ms. Default: 10 s."""
        self._service["connect_timeout_ms"] = timeout
        return self

    def set_socket_timeout(self, timeout: int) -> OpensearchSinkBuilder:
        """Set how long a response may take, in ms. Default: 60 s."""
        self._service["timeout_ms"] = timeout
        return self

    def build(self) -> OpensearchSink:
        """Create the sink.

        Raises:
            ConfigurationError: without an emitter, and for hosts or a login that are not valid.
        """
        if self._emitter is None:
            raise ConfigurationError("set an emitter, such as ElasticsearchEmitter.static_index('orders', 'id')")
        service = Service(**self._service)
        settings = bulk_settings(**self._settings, timeout_ms=service.timeout_ms)
        return OpensearchSink(service, self._emitter, settings, self._failures)


class Elasticsearch7SinkBuilder(OpensearchSinkBuilder):
    """PyFlink's name of `OpensearchSinkBuilder`, for Elasticsearch 7 and newer."""
