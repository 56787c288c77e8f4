"""`MongoSink`: writes documents into a collection of MongoDB, by bulk requests.

At least once. After a failure writes are sent again, from the last checkpoint on. Writes that say what the document
with an `_id` is, or which values its fields have, have the same effect however often they are sent. Operators such as
`$inc` and `$push` count again. A document that is inserted without an `_id` gets one here, so that a request that is
repeated inserts it once; after a restart of the job it gets another one, and comes again.

**Order.** The writes of a request are unordered, and the server may execute them at the same time. So a request has one
write of an `_id`, and the next one waits until that is accepted: the writes of an `_id` arrive in order within a
subtask. A write of a whole document takes the place of one that still waits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Generic, TypeVar

import msgspec

from penstock.base.errors import ConfigurationError, ContractError, WrongTypeError, WrongValueError, short_repr
from penstock.base.secrets import hide
from penstock.base.types import Row
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, RequestClient, RequestResult
from penstock.connectors.base import DeliveryGuarantee
from penstock.connectors.mongodb.source import ID, MongoAddress, bson, is_passing, is_passing_code, load_library
from penstock.runtime.connector import SinkWriterContext

T = TypeVar("T")

_DUPLICATE_KEY: Final = 11000
_ERROR_CHARS_MAX: Final = 500
#: for no limit of a time
UNLIMITED: Final = 1 << 53
#: the most writes of a request whose number is unlimited, and the limits of a document and of a request in bytes
WRITES_MAX: Final = 100_000
DOCUMENT_BYTES_MAX: Final = 17 << 20
REQUEST_BYTES_MAX: Final = 40 << 20


def mongo_settings(
    batch_size: int = 1_000,
    interval_ms: int = 1_000,
    max_retries: int = 3,
    retry_ms: int = 1_000,
    max_in_flight: int = 2,
) -> AsyncSinkSettings:
    """Return the limits of a sink; for the number of writes and the interval, -1 stands for no limit."""
    size = batch_size if batch_size > 0 else WRITES_MAX
    if max_retries < 0:
        raise WrongValueError(f"the number of retries is {max_retries}; it must be 0 or above")
    return AsyncSinkSettings(
        max_batch_size=size,
        max_in_flight_requests=max_in_flight,
        max_buffered_requests=max(10_000, 2 * size),
        max_batch_size_in_bytes=REQUEST_BYTES_MAX,
        max_record_size_in_bytes=DOCUMENT_BYTES_MAX,
        max_time_in_buffer_ms=UNLIMITED if interval_ms < 0 else max(1, interval_ms),
        max_attempts=max_retries + 1,
        retry_delay_ms=max(1, retry_ms),
        retry_delay_max_ms=max(10_000, retry_ms),
    )


class MongoWrite(msgspec.Struct, frozen=True, gc=False):
    """The write for a record. Create it by one of the static methods.

    Attributes:
        name: which method created it.
        id: the `_id` of the document.
        document: the document, its fields or the update, as BSON; empty for a deletion.
        shard_keys: more fields that the document is found by, in a collection that is sharded by them.
        has_new_id: whether the `_id` was made up here.

    Examples:
        >>> from penstock.datastream.connectors.mongodb import MongoWrite
        >>> MongoWrite.replace(7, {"kind": "tea"})
        MongoWrite.replace(_id=7)
        >>> MongoWrite.update(7, {"$inc": {"sold": 1}})
        MongoWrite.update(_id=7)
    """

    name: str
    id: Any
    document: bytes = b""
    shard_keys: Mapping[str, Any] | None = None
    has_new_id: bool = False

    @staticmethod
    def insert(document: Mapping[str, Any] | Row) -> MongoWrite:
        """Insert a document. Without an `_id` it gets one, and may come again after a restart.

        With an `_id` that the collection has already, the write is rejected: use `replace`.
        """
        fields = _fields(document)
        has_id = ID in fields
        id = fields[ID] if has_id else bson("objectid.ObjectId")()
        return MongoWrite("insert", id, _encode(fields if has_id else {ID: id, **fields}), None, not has_id)

    @staticmethod
    def replace(id: Any, document: Mapping[str, Any] | Row) -> MongoWrite:
        """Write a whole document: in the place of the one with this `_id`, or as a new one."""
        fields = {ID: id, **_fields(document)}
        fields[ID] = id
        return MongoWrite("replace", id, _encode(fields))

    @staticmethod
    def set(id: Any, document: Mapping[str, Any] | Row, shard_keys: Mapping[str, Any] | None = None) -> MongoWrite:
        """Set fields of the document with this `_id`, and keep its others; without such a document, add one."""
        fields = {name: value for name, value in _fields(document).items() if name != ID}
        return MongoWrite("set", id, _encode({"$set": fields} if fields else {"$setOnInsert": {ID: id}}), shard_keys)

    @staticmethod
    def update(id: Any, update: Mapping[str, Any]) -> MongoWrite:
        """Update the document with this `_id` by operators; without such a document, add one.

        `$inc`, `$push` and the like may count again after a failure.
        """
        if not update or not all(name.startswith("$") for name in update):
            raise WrongValueError(f"an update consists of operators such as $set, not of {short_repr(update)}")
        return MongoWrite("update", id, _encode(update))

    @staticmethod
    def delete(id: Any) -> MongoWrite:
        """Delete the document with this `_id`, if there is one."""
        return MongoWrite("delete", id)

    def __repr__(self) -> str:
        return f"MongoWrite.{self.name}(_id={short_repr(self.id)})"

    def build_model(self) -> Any:
        """Return the write in the form of pymongo."""
        import pymongo

        if self.name == "delete":
            return pymongo.DeleteOne({ID: self.id})
        document = _raw_document()(self.document)
        if self.name == "insert":
            return pymongo.InsertOne(document)
        if self.name == "replace":
            return pymongo.ReplaceOne({ID: self.id}, document, upsert=True)
        return pymongo.UpdateOne({ID: self.id, **(self.shard_keys or {})}, document, upsert=True)


@cache
def _raw_document() -> Any:
    """Return the class of a document that is BSON already."""

    class RawDocument(bson("raw_bson.RawBSONDocument")):  # type: ignore[misc]
        """One that pymongo does not decode to find out whether it has fields."""

        def __bool__(self) -> bool:
            return True

    return RawDocument


def _fields(document: Mapping[str, Any] | Row) -> Mapping[str, Any]:
    if type(document) is dict:
        return document
    fields = document.as_dict() if isinstance(document, Row) else document
    if not isinstance(fields, Mapping):
        raise WrongTypeError(f"a document is a dict or a Row with names, not a {type(document).__name__}")
    return fields


def _encode(document: Mapping[str, Any]) -> bytes:
    """Return a document as BSON.

    Raises:
        TypeError: for a value without a form in BSON, such as a `date` or a `Decimal`.
        ValueError: for an integer of more than 64 bits, and for a name that BSON cannot have.
    """
    try:
        encoded: bytes = bson("encode")(document)
    except OverflowError as error:
        raise WrongValueError(f"a document has an integer of more than 64 bits: {short_repr(document)}") from error
    except bson("errors.BSONError") as error:
        raise WrongTypeError(f"the document {short_repr(document)} has no form in BSON: {error}") from error
    return encoded


_HASHABLE: Final = (int, str)


def find_ordering_key(id: Any) -> Hashable:
    """Return a value that is the same for all `_id`s that are equal for the server, and no others."""
    kind = type(id)
    if kind in _HASHABLE:
        return id  # type: ignore[no-any-return]
    if isinstance(id, bson("int64.Int64")):
        return int(id)
    if isinstance(id, bson("decimal128.Decimal128")) and id.to_decimal() % 1 == 0:
        return int(id.to_decimal())
    if isinstance(id, float) and id.is_integer():
        return int(id)
    encoded: bytes = bson("encode")({"": id})
    return encoded, None


class MongoSink(AsyncSinkBase[T, MongoWrite], Generic[T]):
    """Writes into a collection; built by `builder()`. At least once; see the module for what repeats.

    Args:
        address: the collection.
        to_write: returns the `MongoWrite` of a record.
        settings: the limits.
        bypasses_validation: whether documents may break the rules of the collection.

    Examples:
        >>> from penstock.datastream.connectors.mongodb import MongoSink, MongoWrite
        >>> sink = (
        ...     MongoSink.builder()
        ...     .set_uri("mongodb://localhost:27017")
        ...     .set_database("shop")
        ...     .set_collection("cups")
        ...     .set_serialization_schema(lambda cup: MongoWrite.replace(cup["id"], cup))
        ...     .build()
        ... )
        >>> sink.settings.max_batch_size
        1000
    """

    def __init__(
        self,
        address: MongoAddress,
        to_write: Callable[[T], MongoWrite],
        settings: AsyncSinkSettings | None = None,
        bypasses_validation: bool = False,
    ) -> None:
        super().__init__(settings or mongo_settings())
        load_library("a sink of MongoDB")
        self.address = address
        self._to_write = to_write
        self._bypasses_validation = bypasses_validation

    @staticmethod
    def builder() -> MongoSinkBuilder:
        """Return a builder."""
        return MongoSinkBuilder()

    def create_client(self, context: SinkWriterContext) -> RequestClient[MongoWrite]:
        """See `AsyncSinkBase`."""
        return MongoClient(self.address, self._bypasses_validation)

    def convert(self, record: T, timestamp: int | None) -> MongoWrite:
        """See `AsyncSinkBase`."""
        write = self._to_write(record)
        if not isinstance(write, MongoWrite):
            raise ContractError(f"the schema of a MongoSink must return a MongoWrite, not {short_repr(write)}")
        return write

    def get_size_in_bytes(self, entry: MongoWrite) -> int:
        """Return the size of the document."""
        return len(entry.document) + 1

    def get_ordering_key(self, entry: MongoWrite) -> Hashable | None:
        """Return the `_id`, unless it is new."""
        return None if entry.has_new_id else find_ordering_key(entry.id)

    def supersedes(self, later: MongoWrite, earlier: MongoWrite) -> bool:
        """Return whether the later write leaves nothing of the earlier one."""
        return later.name in ("replace", "delete") and earlier.name != "insert"


class MongoClient(RequestClient[MongoWrite]):
    """Sends bulk requests; threads share its connections.

    Args:
        address: the collection.
        bypasses_validation: see `MongoSink`.
    """

    def __init__(self, address: MongoAddress, bypasses_validation: bool = False) -> None:
        self._address = address
        self._more = {"bypass_document_validation": True} if bypasses_validation else {}
        self._client: Any = None
        self._collection: Any = None

    def open(self) -> None:
        """Create the client of the library."""
        self._client = self._address.connect()
        self._collection = self._address.open_collection(self._client)

    def submit_request_entries(self, entries: Sequence[MongoWrite]) -> RequestResult | None:
        """Send writes in one request."""
        from pymongo.errors import BulkWriteError

        try:
            self._collection.bulk_write([entry.build_model() for entry in entries], ordered=False, **self._more)
        except BulkWriteError as error:
            return read_errors(entries, error.details or {}, self._has)
        return None

    def _has(self, id: Any) -> bool:
        return self._collection.find_one({ID: id}, {ID: 1}) is not None

    def is_retryable(self, error: Exception) -> bool:
        """Return whether the server may accept the request later."""
        return is_passing(error)

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()


def read_errors(entries: Sequence[MongoWrite], details: Mapping[str, Any], has: Callable[[Any], bool]) -> RequestResult:
    """Return what became of the writes of a request, by the details of its error.

    `has` returns whether the collection has a document with an `_id`.
    """
    concerns = details.get("writeConcernErrors") or ()
    again = set(range(len(entries))) if concerns else set()
    reason = hide(str(concerns[0].get("errmsg", "")))[:_ERROR_CHARS_MAX] if concerns else ""
    rejected: dict[int, str] = {}
    for error in details.get("writeErrors") or ():
        number, code = error["index"], error.get("code")
        text = hide(f"{error.get('errmsg', '')} (code {code})")[:_ERROR_CHARS_MAX]
        entry = entries[number]
        if code == _DUPLICATE_KEY and entry.has_new_id and has(entry.id):
            again.discard(number)  # an earlier attempt has inserted it
        elif is_passing_code(code) or (code == _DUPLICATE_KEY and entry.name != "insert" and _is_about_id(error)):
            # Two upserts of an _id at the same time: next time the second one finds the document of the first.
            again.add(number)
            reason = text
        else:
            rejected[number] = text
    return RequestResult(sorted(again - rejected.keys()), rejected, reason=reason or "the service asks for it again")


def _is_about_id(error: Mapping[str, Any]) -> bool:
    """Return whether a duplicate key is that of `_id`, rather than of another unique index."""
    pattern = error.get("keyPattern")
    return list(pattern) == [ID] if isinstance(pattern, Mapping) else ID in str(error.get("errmsg", ""))


class MongoSinkBuilder:
    """Builds a `MongoSink`; URI, database, collection and schema are required. The methods are Flink's.

    Examples:
        >>> from penstock.datastream.connectors.mongodb import MongoSink, MongoWrite
        >>> builder = MongoSink.builder().set_uri("mongodb://localhost").set_database("shop").set_collection("cups")
        >>> builder = builder.set_serialization_schema(MongoWrite.insert).set_batch_size(200)
        >>> builder.build().settings.max_batch_size
        200
    """

    def __init__(self) -> None:
        self._address = {"uri": "", "database": "", "collection": ""}
        self._settings: dict[str, int] = {}
        self._to_write: Callable[[Any], MongoWrite] | None = None
        self._bypasses_validation = False

    def set_uri(self, uri: str) -> MongoSinkBuilder:
        """Set the URI of the server."""
        self._address["uri"] = uri
        return self

    def set_database(self, database: str) -> MongoSinkBuilder:
        """Set the name of the database."""
        self._address["database"] = database
        return self

    def set_collection(self, collection: str) -> MongoSinkBuilder:
        """Set the name of the collection."""
        self._address["collection"] = collection
        return self

    def set_serialization_schema(self, to_write: Callable[[Any], MongoWrite]) -> MongoSinkBuilder:
        """Set a function that returns the `MongoWrite` of a record."""
        self._to_write = to_write
        return self

    def set_batch_size(self, batch_size: int) -> MongoSinkBuilder:
        """Set the maximum number of writes in a request; -1 for no limit. Default: 1000."""
        self._settings["batch_size"] = batch_size
        return self

    def set_batch_interval_ms(self, batch_interval_ms: int) -> MongoSinkBuilder:
        """Set how long a write waits for others; -1 until a request is full or a checkpoint is taken. Default: 1 s."""
        self._settings["interval_ms"] = batch_interval_ms
        return self

    def set_max_retries(self, max_retries: int) -> MongoSinkBuilder:
        """Set how often a write is sent again before the job fails. Default: 3."""
        self._settings["max_retries"] = max_retries
        return self

    def set_retry_interval_ms(self, retry_interval_ms: int) -> MongoSinkBuilder:
        """Set the time until a write is sent again for the first time; it doubles each time. Default: 1 s."""
        self._settings["retry_ms"] = retry_interval_ms
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> MongoSinkBuilder:
        """Set the guarantee. A checkpoint waits for earlier writes in any case: at least once.

        Raises:
            ConfigurationError: for `EXACTLY_ONCE`.
        """
        if delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            raise ConfigurationError(
                "a MongoSink writes at least once: replace or set documents by _id, so that writing one again changes "
                "nothing"
            )
        return self

    def set_bypass_document_validation(self, bypass_document_validation: bool) -> MongoSinkBuilder:
        """Set whether documents may break the validation rules of the collection. Default: False."""
        self._bypasses_validation = bypass_document_validation
        return self

    def build(self) -> MongoSink[Any]:
        """Create the sink.

        Raises:
            ConfigurationError: without a URI, database, collection or schema, and if pymongo is not installed.
            ValueError: for limits that are not positive.
        """
        if self._to_write is None:
            raise ConfigurationError("set a schema, such as lambda cup: MongoWrite.replace(cup['id'], cup)")
        settings = mongo_settings(**self._settings)
        return MongoSink(MongoAddress(**self._address), self._to_write, settings, self._bypasses_validation)
