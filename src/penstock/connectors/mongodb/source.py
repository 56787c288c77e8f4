"""`MongoSource`: reads a collection of MongoDB once; and the addresses of collections.

A collection is cut into ranges of `_id`, which are the splits. A split is read in the order of `_id`, so its position
is the `_id` of the last document: after a restore no document comes twice. There is no snapshot; a document that is
inserted, changed or removed meanwhile is read in its current state, or is not read. A cursor that the server
has closed, because it was idle for too long, is opened again at the position.

A comparison in a query of MongoDB matches values of one type only, such as numbers or strings. If a collection has
`_id`s of several types, ranges also name the types after their bounds (`build_range`).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, Final

from penstock.base.errors import ConfigurationError, OperationError
from penstock.base.secrets import hide, remember
from penstock.connectors.base import require
from penstock.connectors.split_reader import Background, DiscoveredSplits, ReadAheadReader
from penstock.runtime import connector
from penstock.runtime.records import Batch

FETCH_SIZE: Final = 2_048
PARTITION_BYTES: Final = 64 << 20
SAMPLES: Final = 10
ID: Final = "_id"
#: the longest time (ms) for a server to be found, and for an answer, unless the URI says otherwise
_SELECTION_MS: Final = 10_000
_SOCKET_MS: Final = 60_000
#: codes of errors that pass: elections, shutdowns, write conflicts, and time limits
_PASSING: Final = frozenset({6, 7, 24, 50, 89, 91, 112, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436})
_CURSOR_NOT_FOUND, _COMMAND_NOT_FOUND, _UNAUTHORIZED, _VIEW = 43, 59, 13, 166
#: the types of values, in their sort order
_KINDS: Final = ("minKey", "null", "number", "string", "object", "array", "binData", "objectId", "bool", "date",
                 "timestamp", "regex", "maxKey")  # fmt: skip


def load_library(user: str) -> None:
    """Import pymongo. Raises `ConfigurationError`, naming the user, if it is not installed."""
    require("pymongo", user, "pymongo", "mongodb")


@cache
def bson(name: str) -> Any:
    """Return a name of the module `bson`, such as `objectid.ObjectId`."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"bson.{module}" if module else "bson"), attribute)


@dataclass(frozen=True, slots=True)
class MongoAddress:
    """The address of a collection. Its printed form does not include the password.

    Attributes:
        uri: `mongodb://USER:PASSWORD@HOST:PORT/?OPTIONS`, or `mongodb+srv://…`; the options are pymongo's, such
            as `tls`, `replicaSet`, `w` and `socketTimeoutMS`.
        database: the name of the database.
        collection: the name of the collection.

    Raises:
        ConfigurationError: for another kind of URI, and for an empty name.
    """

    uri: str
    database: str
    collection: str

    def __post_init__(self) -> None:
        remember({"uri": self.uri})
        if not self.uri.startswith(("mongodb://", "mongodb+srv://")):
            raise ConfigurationError(f"{hide(self.uri)!r} is no address of MongoDB: it begins with mongodb://")
        if not self.database or not self.collection:
            raise ConfigurationError("give the names of a database and of a collection")

    def __repr__(self) -> str:
        return f"MongoAddress({self.title!r})"

    @property
    def title(self) -> str:
        """The collection with its database, for errors."""
        return f"{self.database}.{self.collection}"

    def connect(self) -> Any:
        """Return a client, which connects when it is used.

        Raises:
            ConfigurationError: for a URI with options that are not valid.
        """
        import pymongo
        from pymongo.errors import PyMongoError

        given = self.uri.lower()
        limits = {"serverSelectionTimeoutMS": _SELECTION_MS, "socketTimeoutMS": _SOCKET_MS}
        unset: dict[str, Any] = {name: value for name, value in limits.items() if f"{name.lower()}=" not in given}
        try:
            return pymongo.MongoClient(self.uri, appname="penstock", **unset)
        except (PyMongoError, ValueError) as error:
            raise ConfigurationError(f"the URI of {self.title} is not valid: {hide(str(error))}") from error

    def open_collection(self, client: Any) -> Any:
        """Return the collection. Its dates are `datetime`s, or `DatetimeMS` where those have no such year."""
        options = bson("codec_options.CodecOptions")(
            datetime_conversion=bson("codec_options.DatetimeConversion").DATETIME_AUTO
        )
        return client.get_database(self.database, codec_options=options).get_collection(self.collection)


def is_passing(error: Exception) -> bool:
    """Return whether the same request may succeed later."""
    from pymongo import errors

    if isinstance(error, errors.OperationFailure):
        return is_passing_code(error.code) or error.has_error_label("RetryableWriteError")
    return isinstance(error, errors.ConnectionFailure | OSError)


def is_passing_code(code: int | None) -> bool:
    """Return whether the server may accept the request of this error later."""
    return code in _PASSING


def fail(address: MongoAddress, error: Exception) -> OperationError:
    """Return the error for a request that failed."""
    return OperationError(f"MongoDB cannot read {address.title}: {type(error).__name__}: {hide(str(error))[:500]}")


class PartitionStrategy(Enum):
    """How a collection is cut into parts, which are read in parallel. The names are Flink's.

    Examples:
        >>> from penstock.datastream.connectors.mongodb import PartitionStrategy
        >>> PartitionStrategy("split-vector").name
        'SPLIT_VECTOR'
    """

    SINGLE = "single"
    """One part."""

    SAMPLE = "sample"
    """Parts of about the same number of documents, by a random sample."""

    SPLIT_VECTOR = "split-vector"
    """Parts of about the same size, which the server computes. Needs the privilege for `splitVector`."""

    SHARDED = "sharded"
    """The chunks of a sharded collection, which `config.chunks` lists."""

    PAGINATION = "pagination"
    """Parts of the same number of documents, by a walk along the index of `_id`."""

    DEFAULT = "default"
    """`SHARDED` for a collection that is sharded by `_id`; otherwise `SPLIT_VECTOR`, and `PAGINATION` where the server
    or the user has no `splitVector`. A view is one part."""


@dataclass(frozen=True, slots=True)
class MongoSplit:
    """The documents of a range of `_id`, from a position on. An `_id` is held as BSON, which keeps its type.

    Attributes:
        number: the number of the split.
        lower: its least `_id`; None for no bound.
        upper: the exclusive upper bound; None for no bound.
        last_kind: the kind of the collection's greatest `_id`, if it has `_id`s of several kinds; otherwise None.
        after: the last `_id` that was read; None at the beginning.
        count: how many documents were read.
    """

    number: int
    lower: bytes | None = None
    upper: bytes | None = None
    last_kind: int | None = None
    after: bytes | None = None
    count: int = 0


def pack_id(value: Any) -> bytes:
    """Return an `_id` as BSON."""
    packed: bytes = bson("encode")({"": value})
    return packed


def unpack_id(packed: bytes) -> Any:
    """Return the `_id` that BSON holds, with exact dates."""
    dates = bson("codec_options.DatetimeConversion").DATETIME_MS
    return bson("decode")(packed, bson("codec_options.CodecOptions")(datetime_conversion=dates))[""]


_BSON_TYPES: Final = {0x01: 2, 0x10: 2, 0x12: 2, 0x13: 2, 0x02: 3, 0x0E: 3, 0x03: 4, 0x04: 5, 0x05: 6, 0x07: 7,
                      0x08: 8, 0x09: 9, 0x11: 10, 0x0B: 11, 0x7F: 12, 0xFF: 0, 0x0A: 1}  # fmt: skip


def find_kind(packed: bytes) -> int:
    """Return the position of an `_id`'s kind in the order of kinds."""
    return _BSON_TYPES[packed[4]]


def _is_nan(value: Any) -> bool:
    if isinstance(value, bson("decimal128.Decimal128")):
        value = value.to_decimal()
    return isinstance(value, float | Decimal) and math.isnan(value)


def build_range(split: MongoSplit) -> dict[str, Any]:
    """Return the condition for the documents of a split after its position."""
    start, operator = (split.lower, "$gte") if split.after is None else (split.after, "$gt")
    if split.last_kind is None:
        bounds: dict[str, Any] = {}
        if start is not None:
            bounds[operator] = unpack_id(start)
        if split.upper is not None:
            bounds["$lt"] = unpack_id(split.upper)
        return {ID: bounds} if bounds else {}
    conditions = []
    if start is not None:
        conditions.append({"$or": _list_above(start, split.last_kind, split.after is not None)})
    if split.upper is not None:
        conditions.append({"$nor": _list_above(split.upper, split.last_kind, False)})
    return {"$and": conditions} if conditions else {}


def _list_above(packed: bytes, last_kind: int, is_exclusive: bool) -> list[dict[str, Any]]:
    """Return conditions for an `_id` that is greater than another, or equal to it; one of them must hold."""
    value = unpack_id(packed)
    later = list(_KINDS[find_kind(packed) + 1 : last_kind + 1])
    conditions: list[dict[str, Any]] = [{ID: {"$type": later}}] if later else []
    if value is None:  # no comparison finds anything but itself
        return [{ID: {"$in": [] if is_exclusive else [None]}}, *conditions]
    if _is_nan(value):
        return [{ID: {"$gte": -math.inf}}, *([] if is_exclusive else [{ID: value}]), *conditions]
    return [{ID: {"$gt" if is_exclusive else "$gte": value}}, *conditions]


#: makes a batch of documents
ToBatch = Callable[[Sequence[Mapping[str, Any]]], Batch]


@dataclass(frozen=True, slots=True)
class MongoScan:
    """The documents and fields to read from a collection.

    Attributes:
        address: the collection.
        to_batch: makes a batch of documents.
        fields: the fields to read, besides `_id`; None for all.
        filter: a query that documents must match.
        limit: the maximum number of documents per split; None for all.
        fetch_size: how many documents an answer of the server has.
        strategy: how the collection is cut.
        partition_bytes: the size of a part.
        samples: the samples per part, for `SAMPLE`.
        reopens: whether a cursor that the server has closed is opened again; otherwise the job fails.
        exact_dates: whether dates are `DatetimeMS`; otherwise `datetime`s where these have such a year.
    """

    address: MongoAddress
    to_batch: ToBatch
    fields: tuple[str, ...] | None = None
    filter: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    fetch_size: int = FETCH_SIZE
    strategy: PartitionStrategy = PartitionStrategy.DEFAULT
    partition_bytes: int = PARTITION_BYTES
    samples: int = SAMPLES
    reopens: bool = True
    exact_dates: bool = False

    def __post_init__(self) -> None:
        for name in ("fetch_size", "partition_bytes", "samples"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be positive")

    def open_collection(self, client: Any) -> Any:
        """Return the collection with the form of dates that is wanted."""
        collection = self.address.open_collection(client)
        if not self.exact_dates:
            return collection
        dates = bson("codec_options.DatetimeConversion").DATETIME_MS
        return collection.with_options(bson("codec_options.CodecOptions")(datetime_conversion=dates))

    def find_splits(self) -> list[MongoSplit]:
        """Return the splits of the collection.

        Raises:
            OperationError: if the server cannot be reached, or refuses.
        """
        from pymongo.errors import PyMongoError

        client = self.address.connect()
        try:
            return list(_Partitioner(self, client).cut())
        except PyMongoError as error:
            raise fail(self.address, error) from error
        finally:
            client.close()

    def fetch(self, collection: Any, split: MongoSplit) -> Iterator[list[Any]]:
        """Yield the documents of a split after its position."""
        from pymongo.errors import OperationFailure, PyMongoError

        projection = None if self.fields is None else {**dict.fromkeys(self.fields, 1), ID: 1}
        while True:
            condition = build_range(split)
            filters = [part for part in (condition, dict(self.filter)) if part]
            query = {"$and": filters} if len(filters) > 1 else filters[0] if filters else {}
            limit = 0 if self.limit is None else self.limit - split.count
            if limit < 0 or (self.limit is not None and limit == 0):
                return
            cursor = collection.find(query, projection, sort=[(ID, 1)], batch_size=self.fetch_size, limit=limit)
            rows: list[Any] = []
            try:
                with cursor:
                    for document in cursor:
                        rows.append(document)
                        if len(rows) >= self.fetch_size:
                            yield rows
                            split, rows = advance(split, rows), []
                if rows:
                    yield rows
                return
            except OperationFailure as error:
                if error.code != _CURSOR_NOT_FOUND or not self.reopens:
                    raise fail(self.address, error) from error
                if rows:
                    yield rows
                    split = advance(split, rows)
            except PyMongoError as error:
                raise fail(self.address, error) from error


def advance(split: MongoSplit, documents: Sequence[Mapping[str, Any]]) -> MongoSplit:
    """Return a split after some of its documents, at least one."""
    return replace(split, after=pack_id(documents[-1][ID]), count=split.count + len(documents))


class _Partitioner:
    """Cuts a collection into ranges of `_id`."""

    def __init__(self, scan: MongoScan, client: Any) -> None:
        self._scan, self._client = scan, client
        self._collection = scan.address.open_collection(client)
        self._database = self._collection.database
        #: see `MongoSplit`
        self._last_kind: int | None = None

    def cut(self) -> Iterator[MongoSplit]:
        """Yield the splits."""
        first, last = self._find_end(1), self._find_end(-1)
        if first is None or last is None:
            return
        is_mixed = find_kind(first) != find_kind(last) or _is_nan(unpack_id(first))
        self._last_kind = find_kind(last) if is_mixed else None
        bounds: list[bytes | None] = [None]
        for value in self._find_bounds():
            packed = pack_id(value)
            if packed != bounds[-1] and packed != first:
                bounds.append(packed)
        for number, lower in enumerate(bounds):
            upper = bounds[number + 1] if number + 1 < len(bounds) else None
            yield MongoSplit(number, lower, upper, self._last_kind)

    def _find_end(self, direction: int) -> bytes | None:
        dates = bson("codec_options.DatetimeConversion").DATETIME_MS
        options = bson("codec_options.CodecOptions")(datetime_conversion=dates)
        for document in self._collection.with_options(options).find({}, {ID: 1}, sort=[(ID, direction)], limit=1):
            return pack_id(document[ID])
        return None

    def _find_bounds(self) -> list[Any]:
        """Return the ids that begin a part, but the first."""
        match self._scan.strategy:
            case PartitionStrategy.SINGLE:
                return []
            case PartitionStrategy.SAMPLE:
                return self._sample()
            case PartitionStrategy.SPLIT_VECTOR:
                return self._split_vector()
            case PartitionStrategy.SHARDED:
                return self._find_chunks(is_required=True) or []
            case PartitionStrategy.PAGINATION:
                return self._walk()
        from pymongo.errors import OperationFailure

        chunks = self._find_chunks(is_required=False)
        if chunks is not None:
            return chunks
        try:
            return self._split_vector()
        except OperationFailure as error:
            if error.code == _VIEW:
                return []
            if error.code not in (_COMMAND_NOT_FOUND, _UNAUTHORIZED):
                raise
        try:
            return self._walk()
        except OperationFailure as error:
            if error.code == _VIEW:
                return []
            raise

    def _split_vector(self) -> list[Any]:
        answer = self._database.command(
            "splitVector",
            self._scan.address.title,
            keyPattern={ID: 1},
            force=False,
            maxChunkSizeBytes=self._scan.partition_bytes,
        )
        return [key[ID] for key in answer.get("splitKeys", ())]

    def _count_documents(self) -> tuple[int, int]:
        """Return how many documents the collection has, and a part."""
        statistics = self._database.command("collStats", self._scan.address.collection)
        count, size = int(statistics.get("count", 0)), int(statistics.get("size", 0))
        each = max(1, size // count) if count else 1
        return count, max(1, self._scan.partition_bytes // each)

    def _sample(self) -> list[Any]:
        count, per_part = self._count_documents()
        parts = math.ceil(count / per_part)
        if parts < 2:
            return []
        size = min(count, parts * self._scan.samples)
        stages = [{"$sample": {"size": size}}, {"$project": {ID: 1}}, {"$sort": {ID: 1}}]
        ids = [document[ID] for document in self._collection.aggregate(stages, allowDiskUse=True)]
        return ids[self._scan.samples :: self._scan.samples]

    def _walk(self) -> list[Any]:
        count, per_part = self._count_documents()
        bounds: list[Any] = []
        position = MongoSplit(0, last_kind=self._last_kind)
        while len(bounds) * per_part < count:
            query = build_range(position)
            skipped = per_part if position.after is None else per_part - 1
            ids = list(self._collection.find(query, {ID: 1}, sort=[(ID, 1)], skip=skipped, limit=1))
            if not ids:
                break
            bounds.append(ids[0][ID])
            position = advance(position, ids)
        return bounds

    def _find_chunks(self, is_required: bool) -> list[Any] | None:
        """Return the bounds of the chunks; None if the collection is not sharded by `_id`."""
        from pymongo.errors import OperationFailure

        config = self._client["config"]
        try:
            about = config["collections"].find_one({ID: self._scan.address.title, "dropped": {"$ne": True}})
        except OperationFailure:
            if is_required:
                raise
            return None
        key = None if about is None else dict(about.get("key", {}))
        if about is None or list(key or ()) != [ID] or (key or {})[ID] != 1:
            if not is_required:
                return None
            reason = "is not sharded" if about is None else f"is sharded by {key}, and not by ranges of _id"
            raise ConfigurationError(
                f"collection {self._scan.address.title} {reason}: leave out the partition strategy, or choose "
                "split-vector, sample or pagination"
            )
        owner = [{"ns": self._scan.address.title}, *([{"uuid": about["uuid"]}] if "uuid" in about else [])]
        chunks = config["chunks"].find({"$or": owner}, {"min": 1}, sort=[("min", 1)])
        least = bson("min_key.MinKey")
        return [chunk["min"][ID] for chunk in chunks if not isinstance(chunk["min"][ID], least)]


class MongoSource(connector.Source[Any, MongoSplit]):
    """Reads the documents of a collection once, each exactly once; built by `builder()`.

    Examples:
        >>> from penstock.datastream.connectors.mongodb import MongoSource
        >>> source = (
        ...     MongoSource.builder()
        ...     .set_uri("mongodb://localhost:27017")
        ...     .set_database("shop")
        ...     .set_collection("cups")
        ...     .set_projected_fields("kind", "price")
        ...     .build()
        ... )
        >>> source.scan.fields
        ('kind', 'price')
    """

    boundedness = connector.Boundedness.BOUNDED

    def __init__(self, scan: MongoScan) -> None:
        load_library("a source of MongoDB")
        self.scan = scan

    @staticmethod
    def builder() -> MongoSourceBuilder:
        """Return a builder."""
        return MongoSourceBuilder()

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[MongoSplit], restored: Any | None
    ) -> connector.SplitEnumerator[MongoSplit]:
        """See `Source`."""
        return DiscoveredSplits(context, self.scan.find_splits, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, MongoSplit]:
        """See `Source`."""
        return _MongoReader(context, self.scan)


class _MongoReader(ReadAheadReader[MongoSplit, "list[Any]"]):
    def __init__(self, context: connector.SourceReaderContext, scan: MongoScan) -> None:
        super().__init__(context)
        self._scan = scan
        self._client: Any = None

    def begin(self, split: MongoSplit) -> Background[list[Any]]:
        """See `ReadAheadReader`."""
        if self._client is None:
            self._client = self._scan.address.connect()
        collection = self._scan.open_collection(self._client)
        return Background(lambda: self._scan.fetch(collection, split), self._disconnect)

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def part(self, split: MongoSplit, rows: list[Any], max_records: int) -> tuple[Batch, MongoSplit]:
        """See `ReadAheadReader`."""
        some = rows[:max_records]
        self._rows = rows[max_records:] or None
        return self._scan.to_batch(some), advance(split, some)

    def close(self) -> None:
        """Stop reading, and close the connections."""
        super().close()
        self._disconnect()


@dataclass(frozen=True, slots=True)
class _Records:
    """Makes records of documents by a function, if there is one."""

    deserialize: Callable[[Any], Any] | None

    def __call__(self, documents: Sequence[Mapping[str, Any]]) -> Batch:
        if self.deserialize is None:
            return Batch(list(documents))
        return Batch(connector.call_each(self.deserialize, documents, "deserialize of a MongoSource"))


class MongoSourceBuilder:
    """Builds a `MongoSource`; URI, database and collection are required. The methods are Flink's.

    Examples:
        >>> from penstock.datastream.connectors.mongodb import MongoSource, PartitionStrategy
        >>> builder = MongoSource.builder().set_uri("mongodb://localhost").set_database("shop").set_collection("cups")
        >>> builder = builder.set_partition_strategy(PartitionStrategy.SAMPLE).set_filter({"kind": "tea"})
        >>> builder.set_deserialization_schema(lambda cup: cup["kind"]).build().scan.strategy.value
        'sample'
    """

    def __init__(self) -> None:
        self._address = {"uri": "", "database": "", "collection": ""}
        self._scan: dict[str, Any] = {}
        self._deserialize: Callable[[Any], Any] | None = None

    def set_uri(self, uri: str) -> MongoSourceBuilder:
        """Set the URI of the server."""
        self._address["uri"] = uri
        return self

    def set_database(self, database: str) -> MongoSourceBuilder:
        """Set the name of the database."""
        self._address["database"] = database
        return self

    def set_collection(self, collection: str) -> MongoSourceBuilder:
        """Set the name of the collection."""
        self._address["collection"] = collection
        return self

    def set_projected_fields(self, *fields: str) -> MongoSourceBuilder:
        """Set the fields to read, besides `_id`; by default all. `a.b` is a field of a nested document."""
        self._scan["fields"] = fields
        return self

    def set_filter(self, query: Mapping[str, Any]) -> MongoSourceBuilder:
        """Set a query of MongoDB that documents must match."""
        self._scan["filter"] = dict(query)
        return self

    def set_fetch_size(self, fetch_size: int) -> MongoSourceBuilder:
        """Set how many documents an answer of the server has. Default: 2048."""
        self._scan["fetch_size"] = fetch_size
        return self

    def set_limit(self, limit: int) -> MongoSourceBuilder:
        """Set the maximum number of documents of each split; -1, the default, for all."""
        self._scan["limit"] = limit if limit >= 0 else None
        return self

    def set_no_cursor_timeout(self, no_cursor_timeout: bool) -> MongoSourceBuilder:
        """Set whether a cursor that the server has closed is opened again. Default: True."""
        self._scan["reopens"] = no_cursor_timeout
        return self

    def set_partition_strategy(self, partition_strategy: PartitionStrategy) -> MongoSourceBuilder:
        """Set how the collection is cut into splits."""
        self._scan["strategy"] = partition_strategy
        return self

    def set_partition_size(self, partition_size: int) -> MongoSourceBuilder:
        """Set the size of a split in bytes. Default: 64 MiB."""
        self._scan["partition_bytes"] = partition_size
        return self

    def set_samples_per_partition(self, samples_per_partition: int) -> MongoSourceBuilder:
        """Set the number of samples per split, for `SAMPLE`. Default: 10."""
        self._scan["samples"] = samples_per_partition
        return self

    def set_deserialization_schema(self, deserialize: Callable[[dict[str, Any]], Any]) -> MongoSourceBuilder:
        """Set a function that returns the record of a document; by default the record is the document."""
        self._deserialize = deserialize
        return self

    def build(self) -> MongoSource:
        """Create the source.

        Raises:
            ConfigurationError: without a URI, database or collection, for limits that are not positive, and if pymongo
                is not installed.
        """
        return MongoSource(MongoScan(MongoAddress(**self._address), _Records(self._deserialize), **self._scan))
