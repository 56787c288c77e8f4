"""Kafka protocol requests that the client libraries lack, in the versions that the sink relies on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.fetch import FetchRequest_v4
from aiokafka.protocol.offset import OffsetRequest_v1
from aiokafka.protocol.transaction import EndTxnRequest_v0, InitProducerIdRequest_v0
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

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
