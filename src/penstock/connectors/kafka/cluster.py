"""`KafkaCluster`: a sink's requests about transactions to a real cluster, on a dedicated thread.

It implements `producer.Brokers`. The module also defines the Kafka protocol requests that the client libraries lack, in
the versions that the sink relies on.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

import aiokafka.errors as kafka_errors
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.conn import create_conn
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.fetch import FetchRequest_v4
from aiokafka.protocol.offset import OffsetRequest_v1
from aiokafka.protocol.transaction import EndTxnRequest_v0, InitProducerIdRequest_v0
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields
from aiokafka.record.control_record import ControlRecord
from aiokafka.record.memory_records import MemoryRecords

from penstock.base.errors import CallTimeoutError, ConfigurationError, OperationError, UnsupportedError
from penstock.connectors.kafka import producer
from penstock.connectors.kafka.client import limit_lines, refused

READ_UNCOMMITTED = 0
LATEST = -1

_TEXT = CompactString("utf-8")


class DescribeTransactionsResponse_v0(Response):
    """See the request."""

    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transaction_states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", _TEXT),
                ("transaction_state", _TEXT),
                ("transaction_timeout_ms", Int32),
                ("transaction_start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                (
                    "topics",
                    CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class DescribeTransactionsRequest_v0(RequestStruct):
    """Requests a coordinator's state of some transactional ids."""

    API_KEY = 65
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeTransactionsResponse_v0
    SCHEMA = Schema(("transactional_ids", CompactArray(_TEXT)), ("tags", TaggedFields))


class ListTransactionsResponse_v0(Response):
    """See the request."""

    API_KEY = 66
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_state_filters", CompactArray(_TEXT)),
        (
            "transaction_states",
            CompactArray(
                ("transactional_id", _TEXT),
                ("producer_id", Int64),
                ("transaction_state", _TEXT),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class ListTransactionsRequest_v0(RequestStruct):
    """Requests all transactional ids that a broker coordinates, by state."""

    API_KEY = 66
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListTransactionsResponse_v0
    SCHEMA = Schema(
        ("state_filters", CompactArray(_TEXT)), ("producer_id_filters", CompactArray(Int64)), ("tags", TaggedFields)
    )


class DescribeTransactions(Request[DescribeTransactionsRequest_v0]):
    """Asks for the state of some transactional ids."""

    API_KEY: ClassVar[int] = 65

    def __init__(self, transactional_ids: Sequence[str]) -> None:
        self._transactional_ids = list(transactional_ids)

    def build(self, request_struct_class: type[DescribeTransactionsRequest_v0]) -> DescribeTransactionsRequest_v0:
        """Return the request as a structure."""
        return request_struct_class(self._transactional_ids, {})


class ListTransactions(Request[ListTransactionsRequest_v0]):
    """Asks for all ids in some states; in any state if none is named."""

    API_KEY: ClassVar[int] = 66

    def __init__(self, states: Sequence[str]) -> None:
        self._states = list(states)

    def build(self, request_struct_class: type[ListTransactionsRequest_v0]) -> ListTransactionsRequest_v0:
        """Return the request as a structure."""
        return request_struct_class(self._states, [], {})


class EndTransaction(Request[EndTxnRequest_v0]):
    """Commits a transaction, in the protocol version that keeps the epoch."""

    API_KEY: ClassVar[int] = 26

    def __init__(self, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        self._key = transactional_id, producer_id, producer_epoch

    def build(self, request_struct_class: type[EndTxnRequest_v0]) -> EndTxnRequest_v0:
        """Return the request as a structure."""
        return request_struct_class(*self._key, True)


class InitProducerId(Request[InitProducerIdRequest_v0]):
    """Takes over a transactional id."""

    API_KEY: ClassVar[int] = 22

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self._id, self._timeout_ms = transactional_id, timeout_ms

    def build(self, request_struct_class: type[InitProducerIdRequest_v0]) -> InitProducerIdRequest_v0:
        """Return the request as a structure."""
        return request_struct_class(self._id, self._timeout_ms)


class EndOffset(Request[OffsetRequest_v1]):
    """Asks for the offset after the last record of a partition."""

    API_KEY: ClassVar[int] = 2

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition

    def build(self, request_struct_class: type[OffsetRequest_v1]) -> OffsetRequest_v1:
        """Return the request as a structure."""
        return request_struct_class(-1, [(self._topic, [(self._partition, LATEST)])])


class Fetch(Request[FetchRequest_v4]):
    """Reads the log of a partition unfiltered, including aborted records and markers."""

    API_KEY: ClassVar[int] = 1

    def __init__(self, topic: str, partition: int, offset: int, bytes_max: int, wait_ms: int) -> None:
        self._where = topic, partition, offset
        self._bytes_max, self._wait_ms = bytes_max, wait_ms

    def build(self, request_struct_class: type[FetchRequest_v4]) -> FetchRequest_v4:
        """Return the request as a structure."""
        topic, partition, offset = self._where
        topics = [(topic, [(partition, offset, self._bytes_max)])]
        return request_struct_class(-1, self._wait_ms, 1, self._bytes_max, READ_UNCOMMITTED, topics)


T = TypeVar("T")

_log = logging.getLogger("penstock.connectors.kafka")

#: How long (s) to wait for an answer, through elections and restarts of brokers.
PATIENCE_S: Final = 60.0
RETRY_S: Final = 0.05
RETRY_MAX_S: Final = 1.0
#: How long (s) without an answer before a line is logged, and between further lines.
REPORT_S: Final = 2.0
REPORT_AGAIN_S: Final = 10.0
REQUEST_MS: Final = 15_000
FETCH_BYTES: Final = 4 * 1024 * 1024
FETCH_WAIT_MS: Final = 200

_NOT_FOUND: Final = 105
#: Errors for a transaction that can no longer be committed, or was committed before: see `transactions`.
_REFUSED: Final = frozenset({47, 48, 49, 59, 90, _NOT_FOUND})
#: Errors for a coordinator or leader that is elsewhere, not available yet, or busy.
_LATER: Final = frozenset({3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 51, 56, 74, 75})
_OUT_OF_RANGE: Final = 1
_TYPE_COMMIT: Final = 1

#: The thread that sends requests, and the loggers that aiokafka uses there.
_THREAD: Final = "penstock-kafka-cluster"
_LOGGERS: Final = ("aiokafka", "aiokafka.client", "aiokafka.cluster", "aiokafka.conn")
#: The errors with which brokers reject credentials.
_REFUSALS: Final = (
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.AuthenticationFailedError,
    kafka_errors.AuthenticationMethodNotSupported,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)


class _Later(Exception):
    """A transient answer: ask again."""


def _check(code: int, activity: str) -> None:
    """Raise the exception for an error code, if any."""
    if code in _LATER:
        raise _Later(f"{activity}: {kafka_errors.for_code(code).__name__}")
    if code:
        error = kafka_errors.for_code(code)
        raise OperationError(
            f"{activity} is refused by the Kafka broker: {error.__name__} ({code}): {error.description}"
        )


class _Loop(asyncio.SelectorEventLoop):
    """Tracks its connections, because the client forgets rejected ones before they are closed."""

    def __init__(self) -> None:
        super().__init__()
        self._connections: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        """See `asyncio.AbstractEventLoop`."""
        transport, protocol = await super().create_connection(*args, **options)
        self._connections.add(transport)
        return transport, protocol

    async def end_connections(self) -> None:
        """Abort the remaining connections, without notifying the brokers."""
        for transport in list(self._connections):
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()
        await asyncio.sleep(0)  # transports close their sockets in the loop's next iteration


class KafkaCluster:
    """Sends requests to the brokers of a real cluster.

    Args:
        config: librdkafka's settings; only the connection settings are used.
        patience_s: how long to wait for an answer.
    """

    def __init__(self, config: Mapping[str, Any], patience_s: float = PATIENCE_S) -> None:
        self._settings = client_settings(config)
        self._patience_s = patience_s
        self._client: AIOKafkaClient | None = None
        self._loop = _Loop()
        limit_lines(_LOGGERS, _THREAD)
        self._thread = threading.Thread(target=self._loop.run_forever, name=_THREAD, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the connections."""
        if self._thread.is_alive():
            self._run(self._disconnect())
            self._run(self._loop.end_connections())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def list_transactions(self, prefix: str) -> dict[str, str]:
        """Return the state of each transactional id with this prefix that is open or may begin a transaction."""

        async def ask(client: AIOKafkaClient) -> dict[str, str]:
            await _refresh(client)
            transactions: dict[str, str] = {}
            for broker in client.cluster.brokers():
                answer = await client.send(broker.nodeId, ListTransactions([producer.ONGOING, producer.EMPTY]))
                _check(answer.error_code, "listing transactions")
                states = ((row[0], row[2]) for row in answer.transaction_states)
                transactions.update((name, state) for name, state in states if name.startswith(prefix))
            return transactions

        return self._try("listing transactions", ask)

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, producer.TransactionState]:
        """Return the coordinators' states of these ids, omitting unknown ones."""
        requested = list(transactional_ids)

        async def ask(client: AIOKafkaClient) -> dict[str, producer.TransactionState]:
            by_node: defaultdict[int, list[str]] = defaultdict(list)
            for name in requested:
                by_node[await client.coordinator_lookup(CoordinationType.TRANSACTION, name)].append(name)
            transactions: dict[str, producer.TransactionState] = {}
            for node, names in by_node.items():
                answer = await client.send(node, DescribeTransactions(names))
                for code, name, state, timeout_ms, _, producer_id, epoch, topics, _ in answer.transaction_states:
                    if code != _NOT_FOUND:
                        _check(code, f"describing the transaction {name}")
                        partitions = tuple((topic, p) for topic, numbers, _ in topics for p in numbers)
                        transactions[name] = producer.TransactionState(
                            state, producer_id, epoch, timeout_ms, partitions
                        )
            return transactions

        return self._try("describing transactions", ask) if requested else {}

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset after the last record of a partition."""

        async def ask(client: AIOKafkaClient) -> int:
            answer = await client.send(await _leader(client, topic, partition), EndOffset(topic, partition))
            _, code, _, offset = answer.topics[0][1][0]
            _check(code, f"asking for the end of {topic}-{partition}")
            return int(offset)

        return self._try(f"asking for the end of {topic}-{partition}", ask)

    def fence(self, transactional_id: str) -> None:
        """Abort the open transaction of an id, and fence its producer."""

        async def ask(client: AIOKafkaClient) -> None:
            node = await client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
            answer = await client.send(node, InitProducerId(transactional_id, producer.FENCED_TIMEOUT_MS))
            _check(answer.error_code, f"ending the transaction {transactional_id}")

        self._try(f"ending the transaction {transactional_id}", ask)

    def commit(self, key: producer.ProducerKey) -> bool:
        """Commit a transaction; return False if the coordinator refuses for good."""

        async def ask(client: AIOKafkaClient) -> bool:
            node = await client.coordinator_lookup(CoordinationType.TRANSACTION, key.transactional_id)
            answer = await client.send(node, EndTransaction(*key))
            if answer.error_code in _REFUSED:
                _log.info("%s cannot be committed now: %s", key, kafka_errors.for_code(answer.error_code).__name__)
                return False
            _check(answer.error_code, f"committing the transaction {key.transactional_id}")
            return True

        return self._try(f"committing the transaction {key.transactional_id}", ask)

    def find_marker(self, committable: producer.KafkaCommittable) -> bool | None:
        """Return whether the transaction's marker in the log is a commit; None if the log has no marker."""
        topic, partition = committable.topic, committable.partition
        position = committable.offset

        async def ask(client: AIOKafkaClient) -> bool | None:
            nonlocal position
            node = await _leader(client, topic, partition)
            while True:
                answer = await client.send(node, Fetch(topic, partition, position, FETCH_BYTES, FETCH_WAIT_MS))
                _, code, end, _, _, data = answer.topics[0][1][0]
                if code == _OUT_OF_RANGE:
                    return None
                _check(code, f"reading {topic}-{partition}")
                position, marker = _scan(data or b"", position, committable.key)
                if marker is not None:
                    return marker
                if position >= end:
                    if not (await self._fetch_transaction_state(client, committable.key)).startswith("Prepare"):
                        return None
                    raise _Later("its markers are being written")

        async def is_there(client: AIOKafkaClient) -> bool:
            await client.add_topic(topic)
            await _refresh(client)
            return topic in client.cluster.topics()

        try:
            return self._try(f"reading {topic}-{partition} for the end of a transaction", ask)
        except CallTimeoutError:
            if self._try(f"looking for the topic {topic}", is_there):
                raise
            return None

    async def _fetch_transaction_state(self, client: AIOKafkaClient, key: producer.ProducerKey) -> str:
        node = await client.coordinator_lookup(CoordinationType.TRANSACTION, key.transactional_id)
        answer = await client.send(node, DescribeTransactions([key.transactional_id]))
        code, _, state, *_ = answer.transaction_states[0]
        if code != _NOT_FOUND:
            _check(code, f"describing the transaction {key.transactional_id}")
        return str(state or "")

    # --- the client ---------------------------------------------------------------------------------------------------

    def _try(self, activity: str, ask: Callable[[AIOKafkaClient], Awaitable[T]]) -> T:
        return self._run(self._try_async(activity, ask))

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    async def _try_async(self, activity: str, ask: Callable[[AIOKafkaClient], Awaitable[T]]) -> T:
        begun, pause_s = time.monotonic(), RETRY_S
        deadline, report_at = begun + self._patience_s, begun + REPORT_S
        while True:
            try:
                return await ask(await self._connect())
            except kafka_errors.IncompatibleBrokerVersion as error:
                raise UnsupportedError(
                    f"{activity}: the Kafka broker is too old for DeliveryGuarantee.EXACTLY_ONCE, which needs 3.0 or "
                    "newer"
                ) from error
            except (_Later, kafka_errors.KafkaError, OSError, TimeoutError) as error:
                if isinstance(error, kafka_errors.BrokerResponseError) and error.errno in _FINAL:
                    raise OperationError(f"{activity} is refused by the Kafka broker: {error!r}") from error
                if time.monotonic() > deadline:
                    raise CallTimeoutError(
                        f"{activity} has failed for {self._patience_s:g} s, the last time by: {error!r}"
                    ) from error
                if time.monotonic() > report_at:
                    report_at = time.monotonic() + REPORT_AGAIN_S
                    _log.warning(
                        "%s: Kafka at %s does not answer yet (%r); asking again",
                        activity,
                        self._settings.get("bootstrap_servers"),
                        error,
                    )
                if not isinstance(error, _Later):
                    await self._disconnect()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_MAX_S)

    async def _connect(self) -> AIOKafkaClient:
        if self._client is None:
            client = AIOKafkaClient(loop=self._loop, request_timeout_ms=REQUEST_MS, **self._settings)
            try:
                await client.bootstrap()
            except kafka_errors.KafkaConnectionError:
                await client.close()
                await self._check_credentials()
                raise
            except BaseException:
                await client.close()
                raise
            self._client = client
        return self._client

    async def _check_credentials(self) -> None:
        """Raise if a broker refuses the connection: the client itself only reports that it could not connect."""
        settings = dict(self._settings)
        for server in settings.pop("bootstrap_servers"):
            host, _, port = server.strip().rpartition(":")
            try:
                connection = await create_conn(host.strip("[]"), int(port), request_timeout_ms=REQUEST_MS, **settings)
            except (*_REFUSALS, ssl.SSLCertVerificationError) as error:
                raise refused(server, str(error)) from error
            except (kafka_errors.KafkaError, OSError, TimeoutError, ValueError):
                continue  # the broker is down, or its address is invalid
            connection.close()

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


#: Authentication and authorization errors, which retrying does not resolve.
_FINAL: Final = frozenset({29, 30, 31, 33, 34, 53, 58})


async def _refresh(client: AIOKafkaClient) -> None:
    if not await client.force_metadata_update():
        raise _Later("no broker answers")


async def _leader(client: AIOKafkaClient, topic: str, partition: int) -> int:
    await client.add_topic(topic)
    leader = client.cluster.leader_for_partition(TopicPartition(topic, partition))
    if leader is None or leader < 0:
        await _refresh(client)
        raise _Later(f"{topic}-{partition} has no leader")
    return int(leader)


def _scan(data: bytes, position: int, key: producer.ProducerKey) -> tuple[int, bool | None]:
    """Return the end of the last batch, and whether the producer's first marker is a commit (None without a marker)."""
    records = MemoryRecords(data)
    while records.has_next():
        batch = records.next_batch()
        assert batch is not None
        if batch.next_offset <= position:
            continue
        position = batch.next_offset
        if getattr(batch, "is_control_batch", False) and batch.producer_id == key.producer_id:
            control = next(iter(batch))
            return position, ControlRecord.parse(control.key).type_ == _TYPE_COMMIT
    return position, None


def client_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of aiokafka's client for librdkafka's connection settings.

    Raises:
        ConfigurationError: if no broker is named.
        UnsupportedError: for unsupported authentication or TLS settings.
    """
    servers = config.get("bootstrap.servers") or config.get("metadata.broker.list")
    if not servers:
        raise ConfigurationError("a Kafka sink needs set_bootstrap_servers('host:port,...')")
    protocol = str(config.get("security.protocol", "PLAINTEXT")).upper()
    settings: dict[str, Any] = {"bootstrap_servers": str(servers).split(","), "security_protocol": protocol}
    if "client.id" in config:
        settings["client_id"] = config["client.id"]
    if protocol.endswith("SSL"):
        settings["ssl_context"] = _ssl_context(config)
    if protocol.startswith("SASL"):
        mechanism = str(config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "GSSAPI").upper()
        if mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            raise UnsupportedError(
                f"DeliveryGuarantee.EXACTLY_ONCE of a Kafka sink does not work with sasl.mechanism {mechanism}: use "
                "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or DeliveryGuarantee.AT_LEAST_ONCE"
            )
        settings["sasl_mechanism"] = mechanism
        settings["sasl_plain_username"] = config.get("sasl.username")
        settings["sasl_plain_password"] = config.get("sasl.password")
    return settings


def _ssl_context(config: Mapping[str, Any]) -> ssl.SSLContext:
    for name in ("ssl.keystore.location", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"):
        if name in config:
            raise UnsupportedError(
                f"DeliveryGuarantee.EXACTLY_ONCE of a Kafka sink does not know {name}: use ssl.ca.location, "
                "ssl.certificate.location and ssl.key.location"
            )
    context = ssl.create_default_context(cafile=config.get("ssl.ca.location"))
    if config.get("ssl.certificate.location"):
        context.load_cert_chain(
            config["ssl.certificate.location"], config.get("ssl.key.location"), config.get("ssl.key.password")
        )
    if str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    if str(config.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
