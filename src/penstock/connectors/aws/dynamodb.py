"""Tables of DynamoDB: a sink of items (`DynamoDbSink`), a source that scans a table, and requests for items by key.

**Writing** is at least once: BatchWriteItem puts whole items and removes them by key, so sending a request again
changes nothing. Items that the service leaves unprocessed are sent again. A request must not name a key twice, so of
several waiting changes of a key only the last is sent. The changes of a key arrive in order within a subtask.

**Scanning** reads a table once in segments, side by side; a position is the key of the last item that was read.

`build_attribute` and `read_attribute` convert between Python and the typed values of DynamoDB.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock.base.errors import ConfigurationError, ContractError, OperationError, WrongValueError, short_repr
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, AsyncSinkWriter, RequestClient, RequestResult
from penstock.connectors.aws import client
from penstock.connectors.aws.client import AwsSettings
from penstock.connectors.aws.kinesis_sink import AwsSinkBuilder, ClientBase
from penstock.connectors.split_reader import PositionedReader, SplitQueue
from penstock.runtime import connector
from penstock.runtime.records import Batch

T = TypeVar("T")
Item = Mapping[str, Any]

#: The maximum number of operations in a request, by the rules of the service.
WRITES_MAX: Final = 25
READS_MAX: Final = 100
_DIGITS_MAX: Final = 38
_EXACT: Final = Context(prec=1_000)
#: Flink's limits.
SETTINGS: Final = AsyncSinkSettings(
    max_batch_size=WRITES_MAX, max_batch_size_in_bytes=16 * 1024 * 1024, max_record_size_in_bytes=400 * 1024
)
#: How often a request for items is sent, and the first delay (s), which doubles.
_READ_ATTEMPTS: Final = 10
_READ_DELAY_S: Final = 0.05
#: How long (ms) a scan waits after the service has throttled it or was away, and for how long it does.
_RETRY_MS: Final = 500
_PATIENCE_MS: Final = 60_000
#: The number of scan segments for each subtask, so that subtasks with smaller segments need not wait for the others.
_SEGMENTS_A_READER: Final = 4


def build_attribute(value: Any) -> dict[str, Any]:
    """Return the typed value of DynamoDB for a Python value.

    Raises:
        WrongValueError: for a value that DynamoDB does not store, such as NaN or a number with over 38 digits.
    """
    if isinstance(value, str):
        return {"S": value}
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int | float | Decimal):
        return {"N": format_number(value)}
    if isinstance(value, bytes | bytearray):
        return {"B": bytes(value)}
    if isinstance(value, list | tuple):
        return {"L": list(map(build_attribute, value))}
    if isinstance(value, Mapping):
        return {"M": {str(key): build_attribute(each) for key, each in value.items()}}
    if isinstance(value, set | frozenset) and value:
        kinds = {next(iter(build_attribute(each))) for each in value}
        if len(kinds) == 1 and (kind := kinds.pop()) in ("S", "N", "B"):
            return {f"{kind}S": sorted(build_attribute(each)[kind] for each in value)}
    raise WrongValueError(f"DynamoDB stores no {type(value).__name__} such as {short_repr(value)}")


def format_number(value: float | Decimal) -> str:
    """Return the text of a number. Raises `WrongValueError` for one that DynamoDB does not store."""
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        raise WrongValueError(f"DynamoDB stores no {value}")
    digits = len(number.normalize(_EXACT).as_tuple().digits)
    if digits > _DIGITS_MAX or (number and not -130 <= number.adjusted() <= 125):
        raise WrongValueError(f"DynamoDB stores numbers of 38 digits between 1E-130 and 1E+126, and not {value}")
    return str(number)


def read_attribute(attribute: Mapping[str, Any]) -> Any:
    """Return the Python value of a typed value; a number is an int, or a Decimal if it has a fraction."""
    ((kind, value),) = attribute.items()
    if kind == "N":
        return int(value) if value.lstrip("-").isdecimal() else Decimal(value)
    if kind == "NULL":
        return None
    if kind == "L":
        return list(map(read_attribute, value))
    if kind == "M":
        return {key: read_attribute(each) for key, each in value.items()}
    if kind in ("SS", "NS", "BS"):
        return {read_attribute({kind[0]: each}) for each in value}
    return bytes(value) if kind == "B" else value


def measure(attribute: Mapping[str, Any]) -> int:
    """Return about how many bytes a typed value takes."""
    ((kind, value),) = attribute.items()
    if kind == "S":
        return len(value.encode())
    if kind in ("N", "B"):
        return len(value)
    if kind == "L":
        return 3 + sum(1 + measure(each) for each in value)
    if kind == "M":
        return 3 + sum(1 + len(key.encode()) + measure(each) for key, each in value.items())
    return 3 + sum(map(len, value)) if kind in ("SS", "NS", "BS") else 1


class DynamoDbWriteRequest(NamedTuple):
    """A write operation on an item. Create it by one of the static methods; values are Python's.

    Attributes:
        item: the typed values of the item, or of its key.
        is_delete: whether the item is removed.

    Examples:
        >>> from penstock.datastream.connectors.dynamodb import DynamoDbWriteRequest
        >>> DynamoDbWriteRequest.put({"user": "ann", "visits": 3}).item
        {'user': {'S': 'ann'}, 'visits': {'N': '3'}}
    """

    item: Mapping[str, Any]
    is_delete: bool = False

    @staticmethod
    def put(item: Mapping[str, Any]) -> DynamoDbWriteRequest:
        """Put a whole item, in the place of the one with its key, if there is one."""
        return DynamoDbWriteRequest({name: build_attribute(value) for name, value in item.items()})

    @staticmethod
    def delete(key: Mapping[str, Any]) -> DynamoDbWriteRequest:
        """Remove the item with a key."""
        return DynamoDbWriteRequest({name: build_attribute(value) for name, value in key.items()}, True)


def read_key_names(settings: AwsSettings, table: str, user: str) -> tuple[str, ...]:
    """Return the names of the key attributes of a table: its partition key, and its sort key if it has one.

    Raises:
        OperationError: if the service does not say.
    """
    service = settings.connect("dynamodb", user)
    try:
        schema = _ask(lambda: service.describe_table(TableName=table))["Table"]["KeySchema"]
    except Exception as error:
        raise OperationError(f"{user}: table {table!r} cannot be described: {client.describe(error)}") from error
    finally:
        service.close()
    return tuple(each["AttributeName"] for each in sorted(schema, key=lambda each: str(each["KeyType"])))


def _ask(request: Callable[[], Any]) -> Any:
    """Return an answer, asking again while the service throttles or is away."""
    for attempt in range(_READ_ATTEMPTS):
        try:
            return request()
        except Exception as error:
            if not client.is_passing(error) or attempt == _READ_ATTEMPTS - 1:
                raise
        time.sleep(_READ_DELAY_S * 2**attempt)
    raise AssertionError("unreachable")


class DynamoDbSink(AsyncSinkBase[T, DynamoDbWriteRequest], Generic[T]):
    """Puts items into a table and removes them; created with `DynamoDbSink.builder()`. At least once.

    Examples:
        >>> from penstock.datastream.connectors.dynamodb import DynamoDbSink, DynamoDbWriteRequest
        >>> builder = DynamoDbSink.builder().set_dynamodb_properties({"aws.region": "us-east-1"})
        >>> builder = builder.set_element_converter(lambda visit: DynamoDbWriteRequest.put({"user": visit[0]}))
        >>> sink = builder.set_table_name("visits").build()
    """

    def __init__(
        self,
        aws: AwsSettings,
        table: str,
        convert: Callable[[T], DynamoDbWriteRequest],
        key: Sequence[str],
        fails_on_error: bool,
        settings: AsyncSinkSettings,
    ) -> None:
        super().__init__(settings)
        self.aws, self.table, self.fails_on_error = aws, table, fails_on_error
        self._convert = convert
        #: the names of the key attributes; empty until the service is asked
        self.key = tuple(key)

    @staticmethod
    def builder() -> DynamoDbSinkBuilder:
        """Return a builder."""
        return DynamoDbSinkBuilder()

    def create_writer(self, context: connector.SinkWriterContext) -> connector.SinkWriter[T, Any]:
        """See `Sink`."""
        self.find_key()
        return AsyncSinkWriter(self, context)

    def find_key(self) -> None:
        """Ask the service for the names of the key attributes, unless they are given."""
        if not self.key:
            self.key = read_key_names(self.aws, self.table, type(self).__name__)

    def create_client(self, context: connector.SinkWriterContext) -> RequestClient[DynamoDbWriteRequest]:
        """See `AsyncSinkBase`."""
        return _WriteClient(self)

    def convert(self, record: T, timestamp: int | None) -> DynamoDbWriteRequest:
        """See `AsyncSinkBase`."""
        request = self._convert(record)
        if not isinstance(request, DynamoDbWriteRequest):
            raise ContractError(
                f"the element converter of a DynamoDbSink must return a DynamoDbWriteRequest, not {short_repr(request)}"
            )
        missing = [name for name in self.key if name not in request.item]
        if missing:
            raise WrongValueError(f"an item of table {self.table!r} has no key {', '.join(missing)}")
        return request

    def get_size_in_bytes(self, entry: DynamoDbWriteRequest) -> int:
        """See `AsyncSinkBase`."""
        return sum(len(name) + measure(value) for name, value in entry.item.items())

    def get_ordering_key(self, entry: DynamoDbWriteRequest) -> Hashable:
        """See `AsyncSinkBase`."""
        return find_key_values(entry.item, self.key)

    def supersedes(self, later: DynamoDbWriteRequest, earlier: DynamoDbWriteRequest) -> bool:
        """See `AsyncSinkBase`: items are whole."""
        return True


def find_key_values(item: Item, key: Sequence[str]) -> tuple[Any, ...]:
    """Return the key of an item in a form that is equal for equal keys: numbers compare as numbers."""
    values: list[Any] = []
    for name in key:
        ((kind, value),) = item[name].items()
        values.append(Decimal(value) if kind == "N" else value)
    return tuple(values)


class _WriteClient(ClientBase):
    def __init__(self, sink: DynamoDbSink[Any]) -> None:
        requests = sink.settings.max_in_flight_requests
        super().__init__(sink.aws, "dynamodb", type(sink).__name__, requests, sink.fails_on_error)
        self._table, self._key = sink.table, sink.key

    def submit_request_entries(self, entries: Sequence[DynamoDbWriteRequest]) -> RequestResult:
        requests = [
            {"DeleteRequest": {"Key": {name: entry.item[name] for name in self._key}}}
            if entry.is_delete
            else {"PutRequest": {"Item": entry.item}}
            for entry in entries
        ]
        answer = self._client.batch_write_item(RequestItems={self._table: requests})
        left = [request for requests in answer.get("UnprocessedItems", {}).values() for request in requests]
        if not left:
            return RequestResult()
        numbers = {find_key_values(entry.item, self._key): number for number, entry in enumerate(entries)}
        again = [numbers[find_key_values(_read_item(request), self._key)] for request in left]
        return RequestResult(again=sorted(again), reason="the service leaves items unprocessed: its rate is exceeded")


def _read_item(request: Mapping[str, Any]) -> Item:
    item: Item = request["PutRequest"]["Item"] if "PutRequest" in request else request["DeleteRequest"]["Key"]
    return item


class DynamoDbSinkBuilder(AwsSinkBuilder[DynamoDbSink[Any]]):
    """Builder for `DynamoDbSink`.

    Examples:
        >>> from penstock.datastream.connectors.dynamodb import DynamoDbSink, DynamoDbWriteRequest
        >>> builder = DynamoDbSink.builder().set_element_converter(DynamoDbWriteRequest.put).set_table_name("visits")
        >>> sink = builder.set_overwrite_by_partition_keys(["user"]).set_max_in_flight_requests(4).build()
        >>> sink.key
        ('user',)
    """

    def __init__(self) -> None:
        super().__init__(SETTINGS, WRITES_MAX)
        self._table: str | None = None
        self._converter: Callable[[Any], DynamoDbWriteRequest] | None = None
        self._key: tuple[str, ...] = ()

    def set_table_name(self, table_name: str) -> DynamoDbSinkBuilder:
        """Set the table."""
        self._table = table_name
        return self

    def set_dynamodb_properties(self, dynamodb_properties: Mapping[str, Any]) -> DynamoDbSinkBuilder:
        """Set the properties of AWS, such as `aws.region`."""
        return self._set_properties(dynamodb_properties)

    def set_element_converter(self, element_converter: Callable[[Any], DynamoDbWriteRequest]) -> DynamoDbSinkBuilder:
        """Set the function that returns the `DynamoDbWriteRequest` of a record."""
        self._converter = element_converter
        return self

    def set_overwrite_by_partition_keys(self, partition_keys: Sequence[str]) -> DynamoDbSinkBuilder:
        """Set the key attributes; a request has each key once. Default: the key attributes of the table."""
        self._key = tuple(partition_keys)
        return self

    def build(self) -> DynamoDbSink[Any]:
        """Build the sink.

        Raises:
            ConfigurationError: if table or converter are missing, or a property or a limit is invalid.
        """
        if not self._table:
            raise ConfigurationError("a DynamoDB sink needs set_table_name")
        if self._converter is None:
            raise ConfigurationError("a DynamoDB sink needs set_element_converter")
        client.load_library("DynamoDbSink")
        aws, settings = AwsSettings(self._properties), self.read_limits()
        return DynamoDbSink(aws, self._table, self._converter, self._key, self._fails_on_error, settings)


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SegmentSplit:
    """A segment of a table after a position.

    Attributes:
        segment: its number.
        segments: how many segments the table is read in.
        after: the key of the last item that was read; None before the first.
        is_read: whether it was read to its end.
    """

    segment: int
    segments: int
    after: Item | None = None
    is_read: bool = False


class DynamoDbScanSource(connector.Source[Any, SegmentSplit]):
    """Reads the items of a table once, each in its state at that moment.

    Args:
        table_name: the table.
        properties: the properties of AWS, such as `aws.region`.
        deserialize: returns the record of an item, which is a dictionary with Python's values; by default the item.
        attributes: the names of the attributes to read; all of them by default.
        consistent: whether reads are strongly consistent, which costs twice as much.
        segments: in how many parts the table is read; by default four for each subtask.

    Examples:
        >>> from penstock.datastream.connectors.dynamodb import DynamoDbScanSource
        >>> source = DynamoDbScanSource("visits", {"aws.region": "us-east-1"}, deserialize=lambda item: item["user"])
        >>> source.boundedness.name
        'BOUNDED'
    """

    boundedness = connector.Boundedness.BOUNDED

    def __init__(
        self,
        table_name: str,
        properties: Mapping[str, Any],
        deserialize: Callable[[dict[str, Any]], Any] | None = None,
        attributes: Sequence[str] = (),
        consistent: bool = False,
        segments: int | None = None,
    ) -> None:
        client.load_library(type(self).__name__)
        if segments is not None and not 1 <= segments <= 1_000_000:
            raise ConfigurationError(f"a table is read in 1 to 1,000,000 segments, not in {segments}")
        self.aws = AwsSettings({key: str(value) for key, value in properties.items()})
        self.table, self.deserialize, self.segments = table_name, deserialize, segments
        self.request: dict[str, Any] = {"TableName": table_name, "ConsistentRead": consistent}
        self.request |= build_projection(attributes)

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[SegmentSplit], restored: Any | None
    ) -> connector.SplitEnumerator[SegmentSplit]:
        """See `Source`."""
        count = self.segments or _SEGMENTS_A_READER * context.parallelism
        return SplitQueue(context, [SegmentSplit(number, count) for number in range(count)], restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, SegmentSplit]:
        """See `Source`."""
        return SegmentReader(self, context)

    def build_batch(self, items: Sequence[Item]) -> Batch:
        """Return the records of items."""
        values: list[Any] = [{name: read_attribute(value) for name, value in item.items()} for item in items]
        if self.deserialize is not None:
            values = connector.call_each(self.deserialize, values, f"deserialize of {type(self).__name__}")
        return Batch(values)


def build_projection(attributes: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a request for some attributes; their names may be reserved words."""
    if not attributes:
        return {}
    names = {f"#a{number}": name for number, name in enumerate(attributes)}
    return {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}


class SegmentReader(PositionedReader[SegmentSplit]):
    """Reads segments page by page.

    Args:
        source: the source.
        context: the context of the task.
    """

    def __init__(self, source: DynamoDbScanSource, context: connector.SourceReaderContext) -> None:
        super().__init__(context)
        self._source = source
        self._client = source.aws.connect("dynamodb", type(source).__name__)
        self._due_ms = 0
        self._away_since_ms: int | None = None

    def read(self, split: SegmentSplit, max_records: int) -> tuple[Batch, SegmentSplit] | connector.InputStatus | None:
        """See `PositionedReader`."""
        now_ms = self._context.now_ms()
        if now_ms < self._due_ms:
            return connector.InputStatus.NOTHING_AVAILABLE
        while not split.is_read:
            start = {} if split.after is None else {"ExclusiveStartKey": split.after}
            part = {"Segment": split.segment, "TotalSegments": split.segments, "Limit": max_records}
            try:
                answer = self._client.scan(**self._source.request, **part, **start)
            except Exception as error:  # noqa: BLE001 - it is raised unless it passes
                self._wait(error, now_ms)
                return connector.InputStatus.NOTHING_AVAILABLE
            self._away_since_ms = None
            after = answer.get("LastEvaluatedKey")
            split = replace(split, after=after, is_read=not after)
            if answer["Items"]:
                return self._source.build_batch(answer["Items"]), split
            if after:
                self._splits[0] = split
                return connector.InputStatus.NOTHING_AVAILABLE
        return None

    def _wait(self, error: Exception, now_ms: int) -> None:
        """Note that a request failed; raise an error if it does not pass."""
        since_ms = self._away_since_ms = self._away_since_ms or now_ms
        is_throttled = client.is_throttled(error)
        if not client.is_passing(error) or (not is_throttled and now_ms - since_ms > _PATIENCE_MS):
            raise OperationError(
                f"table {self._source.table!r} of DynamoDB cannot be scanned: {client.describe(error)}"
            ) from error
        self._context.count("numThrottled" if is_throttled else "numConnectionFailures")
        self._due_ms = now_ms + _RETRY_MS

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def get_items(service: Any, table: str, keys: Sequence[Item], projection: Mapping[str, Any]) -> Iterator[Item]:
    """Yield the items that have these keys, which must differ, in any order.

    Raises:
        OperationError: if the service refuses, or leaves keys unprocessed for too long.
    """
    waiting = iter(keys)
    while some := list(islice(waiting, READS_MAX)):
        for attempt in range(_READ_ATTEMPTS):
            request = partial(service.batch_get_item, RequestItems={table: {"Keys": some, **projection}})
            try:
                answer = _ask(request)
            except Exception as error:
                raise OperationError(f"table {table!r} of DynamoDB cannot be read: {client.describe(error)}") from error
            yield from answer["Responses"].get(table, ())
            some = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
            if not some:
                break
            time.sleep(_READ_DELAY_S * 2**attempt)
        else:
            raise OperationError(f"table {table!r} of DynamoDB leaves {len(some)} keys unprocessed: raise its capacity")
