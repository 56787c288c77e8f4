"""Documents of OpenSearch and Elasticsearch: `OpensearchSource` reads an index once, and `SearchClient` finds some.

**Splits.** A split is a range of a shard's sequence numbers. Each shard numbers its operations, so a document has its
number on all copies of the shard, and another one when it changes. Documents are read in the order of their numbers
(`search_after`), so the position of a split is the last number: after a restore no document comes twice.

**Point in time.** When the job starts, a point in time is opened for each shard, and all splits are read from it: the
documents of that moment. The service forgets it if it is not used for `keep_alive_ms`, or when the node restarts. Then
reading goes on in a new one at the position. A document that has changed meanwhile has a later number, so it may come
again with its new content, or not at all.

**Conditions.** `Condition` says what documents must match. `resolve_condition` translates it by the mapping of the
index, leaving out what the index would answer otherwise than a comparison of the documents: fields of text, fields that
drop long or malformed values, or that have a value for null. So what it returns never excludes a document that matches.

**Digits.** The service cuts fractions to doubles when it selects fields of a document. So documents are read as a whole
if a decimal, or the text of a number, is wanted, and decoded here.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import ceil
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from penstock.base.errors import ConfigurationError, OperationError
from penstock.base.secrets import hide
from penstock.connectors.conditions import Condition
from penstock.connectors.http_client import HttpClient, Response
from penstock.connectors.opensearch import Service
from penstock.connectors.split_reader import Background, DiscoveredSplits, ReadAheadReader
from penstock.runtime import connector
from penstock.runtime.records import Batch

FETCH_SIZE: Final = 1_000
SPLIT_DOCUMENTS: Final = 1_000_000
KEEP_ALIVE_MS: Final = 300_000
RETRIES: Final = 5
RETRY_MS: Final = 500
_RETRY_MAX_MS: Final = 10_000
#: the greatest number of documents of a search
SEARCH_MAX: Final = 10_000
#: types of fields whose values are texts in documents
_TEXTS: Final = frozenset({"text", "keyword", "constant_keyword", "wildcard", "match_only_text", "date", "ip"})
_OK: Final = range(200, 300)
_SERVER_ERROR: Final = 500
_FOR_NOW: Final = frozenset({408, 429})
_TEXT_CHARS_MAX: Final = 500


_INTEGERS: Final = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_NS_PER_MS: Final = 1_000_000
#: properties of a field by which the index differs from the documents
_UNFIT: Final = ("ignore_malformed", "normalizer", "script", "path")


def find_field(properties: Mapping[str, Any], name: str, type: str) -> tuple[str, str] | None:
    """Return the field that finds values exactly, and its type in the mapping; None if there is none."""
    about = properties.get(name)
    if about is None:
        return None
    candidates = {name: about} | {f"{name}.{sub}": each for sub, each in about.get("fields", {}).items()}
    for path, each in candidates.items():
        kind = each.get("type", "object")
        is_indexed = each.get("index", True) not in (False, "false")
        if not is_indexed or "null_value" in each or any(each.get(key) for key in _UNFIT):
            continue
        fits = {
            "integer": kind in _INTEGERS,
            "double": kind == "double",
            "text": kind == "keyword",
            "boolean": kind == "boolean",
            "time": kind == "date",
        }
        if fits[type]:
            return path, kind if "ignore_above" not in each else f"{kind} up to {each['ignore_above']}"
    return None


def resolve_condition(condition: Condition, properties: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a query that all documents match which meet a condition; None if there is none."""
    if condition.kind in ("and", "or"):
        parts = [part for each in condition.parts if (part := resolve_condition(each, properties)) is not None]
        if len(parts) < (len(condition.parts) if condition.kind == "or" else 1):
            return None
        return {"bool": {"filter" if condition.kind == "and" else "should": parts}}
    field = find_field(properties, condition.field, condition.type)
    if field is None:
        return None
    path, kind = field
    if condition.kind in ("exists", "missing"):
        if " " in kind:
            return None
        exists = {"exists": {"field": path}}
        return exists if condition.kind == "exists" else {"bool": {"must_not": [exists]}}
    if condition.kind == "range":
        return _resolve_range(condition, path, kind)
    values = _fit_values(condition.values, kind)
    if values is None:
        return None
    terms = {"terms": {path: values}}
    return terms if condition.kind == "in" else {"bool": {"must_not": [terms]}}


def _resolve_range(condition: Condition, path: str, kind: str) -> dict[str, Any] | None:
    (bound,) = condition.values
    if condition.type == "time":  # the index of a date has milliseconds
        is_lower = condition.operator in ("gt", "gte")
        moment_ms = bound // _NS_PER_MS if is_lower else -(-bound // _NS_PER_MS)
        return {"range": {path: {"gte" if is_lower else "lte": moment_ms, "format": "epoch_millis"}}}
    if condition.type in ("text", "boolean") or _fit_values([bound], kind) is None:
        return None
    return {"range": {path: {condition.operator: bound}}}


def _fit_values(values: Sequence[Any], kind: str) -> list[Any] | None:
    """Return values as the index has them; None if one of them is out of its range."""
    if kind in _INTEGERS:
        limit = 1 << _INTEGERS[kind]
        return list(values) if all(-limit <= value < limit for value in values) else None
    if kind.startswith("keyword up to"):
        longest = int(kind.rpartition(" ")[2])
        return list(values) if all(len(value.encode("utf-16-le")) // 2 <= longest for value in values) else None
    if kind == "double":  # the index tells -0.0 from 0.0
        return list(values) if all(values) else None
    return None if kind == "date" else list(values)


class Document(msgspec.Struct, frozen=True):
    """A document as the service has it.

    Attributes:
        index: the name of its index.
        id: its id.
        source: its content, in JSON.

    Examples:
        >>> from penstock.datastream.connectors.elasticsearch import Document
        >>> Document("orders", "7", b'{"price":0.10}').read()
        {'price': Decimal('0.10')}
    """

    index: str
    id: str
    source: bytes

    def read(self) -> dict[str, Any]:
        """Return the content; numbers with a fraction are `Decimal`s, with all their digits."""
        content: dict[str, Any] = _read_content(self.source)
        return content


_read_content: Final = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal).decode


class _Hit(msgspec.Struct):
    index: str = msgspec.field(name="_index")
    id: str = msgspec.field(name="_id")
    source: msgspec.Raw | msgspec.UnsetType = msgspec.field(name="_source", default=msgspec.UNSET)
    sort: tuple[int, ...] = ()
    is_there: bool = msgspec.field(name="found", default=True)
    error: Any = None


class _Hits(msgspec.Struct):
    hits: list[_Hit]


class _Shards(msgspec.Struct):
    failed: int = 0
    failures: list[Any] = []


class _Found(msgspec.Struct):
    hits: _Hits
    timed_out: bool = False
    pit_id: str = ""
    shards: _Shards = msgspec.field(name="_shards", default_factory=_Shards)


class _Documents(msgspec.Struct):
    docs: list[_Hit]


_read_found: Final = msgspec.json.Decoder(_Found).decode
_read_documents: Final = msgspec.json.Decoder(_Documents).decode


class SearchClient:
    """Asks a service, one request at a time, on an event loop of its own. Used by one thread.

    The hosts take turns; one that cannot be reached is passed over.

    Args:
        service: the service.
        user: the feature that asks, for errors.
        retries: how often a request is repeated that the service refuses for now.
        pause_ms: the time until it is repeated for the first time; it doubles each time.
    """

    def __init__(self, service: Service, user: str, retries: int = RETRIES, pause_ms: float = RETRY_MS) -> None:
        self._user, self._retries, self._pause_ms = user, retries, pause_ms
        self._clients: list[HttpClient] = service.clients("application/json")
        self._loop = asyncio.new_event_loop()
        self._turn = 0
        #: how often a request was repeated
        self.repeated = 0
        self._is_elasticsearch: bool | None = None

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the body of the response.

        Raises:
            OperationError: if the service cannot be reached, or refuses.
        """
        content = b"" if body is None else msgspec.json.encode(body)
        pause_ms = self._pause_ms
        for left in range(self._retries, -1, -1):
            try:
                response = self._loop.run_until_complete(self._send(method, path, content))
            except OSError as error:
                if not left or isinstance(error, ssl.SSLCertVerificationError):
                    raise OperationError(f"{self._user}: the service does not answer: {hide(str(error))}") from error
            else:
                if response.status in _OK:
                    return response.body
                self._refuse(path, response, bool(left))
            self.repeated += 1
            time.sleep(pause_ms / 1_000)
            pause_ms = min(2 * pause_ms, _RETRY_MAX_MS)
        raise AssertionError("the last attempt returns or raises")

    def _refuse(self, path: str, response: Response, is_repeated: bool) -> None:
        status = response.status
        if is_repeated and (status in _FOR_NOW or status >= _SERVER_ERROR):
            return
        text = hide(response.body[:_TEXT_CHARS_MAX].decode("utf-8", "replace"))
        raise OperationError(f"{self._user}: the service refuses {path.partition('?')[0]} (status {status}): {text}")

    async def _send(self, method: str, path: str, content: bytes) -> Response:
        self._turn += 1
        for attempt in range(len(self._clients)):
            client = self._clients[(self._turn + attempt) % len(self._clients)]
            try:
                return await client.request(method, path, content)
            except OSError:
                if attempt + 1 == len(self._clients):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def ask_json(self, method: str, path: str, body: Any = None) -> Any:
        """Return the response, decoded. Raises as `ask` does."""
        return msgspec.json.decode(self.ask(method, path, body))

    def open_point(self, index: str, shard: int, keep_alive_ms: int) -> str:
        """Open a point in time of a shard, and return its id."""
        name = "_pit" if self._is_elastic() else "_search/point_in_time"
        options = urlencode({"keep_alive": f"{keep_alive_ms}ms", "preference": f"_shards:{shard}"})
        answer = self.ask_json("POST", f"/{quote(index)}/{name}?{options}")
        return str(answer.get("pit_id") or answer["id"])

    def close_point(self, point: str) -> None:
        """Close a point in time, which may be closed already."""
        try:
            if self._is_elastic():
                self.ask("DELETE", "/_pit", {"id": point})
            else:
                self.ask("DELETE", "/_search/point_in_time", {"pit_id": [point]})
        except OperationError:
            return  # the service forgets it by itself

    def _is_elastic(self) -> bool:
        if self._is_elasticsearch is None:
            version = self.ask_json("GET", "/").get("version", {})
            self._is_elasticsearch = version.get("distribution") != "opensearch"
        return self._is_elasticsearch

    def search(self, path: str, body: Mapping[str, Any]) -> _Found:
        """Return what a search finds. Raises `OperationError` if a shard has not answered."""
        answer = _read_found(self.ask("POST", path, body))
        if answer.timed_out or answer.shards.failed:
            reason = hide(str(answer.shards.failures)[:_TEXT_CHARS_MAX])
            raise OperationError(f"{self._user}: a search is incomplete: {reason or 'it took too long'}")
        return answer

    def read_mappings(self, index: str) -> dict[str, Mapping[str, Any]]:
        """Return the fields of each index of this name, by the name of the index."""
        answer = self.ask_json("GET", f"/{quote(index, safe=',*-')}/_mapping")
        return {name: about["mappings"].get("properties", {}) for name, about in answer.items()}

    def get_many(self, index: str, ids: Sequence[str]) -> list[Document]:
        """Return the documents with these ids that exist."""
        answer = _read_documents(self.ask("POST", f"/{quote(index)}/_mget", {"ids": ids}))
        for hit in answer.docs:
            if hit.error is not None:
                raise OperationError(f"{self._user}: index {index!r} cannot be read: {hide(str(hit.error))}")
        return [build_document(hit) for hit in answer.docs if hit.is_there]

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()
        self._loop.run_until_complete(asyncio.sleep(0))  # the transports close in the next round
        self._loop.close()


def build_document(hit: Any) -> Document:
    """Return a hit as a document. Raises `OperationError` for an index that does not keep documents."""
    if hit.source is msgspec.UNSET:
        raise OperationError(f"index {hit.index!r} does not keep its documents (_source), so they cannot be read")
    return Document(hit.index, hit.id, bytes(hit.source))


@dataclass(frozen=True, slots=True)
class ShardSplit:
    """The documents of a shard with some sequence numbers, after a position.

    Attributes:
        index: the name of the index.
        shard: the number of the shard.
        lower: the least number.
        upper: the least number behind the split; None for no bound.
        query: what documents must match, in JSON.
        fields: the fields to read; None for whole documents.
        point: the point in time; None if there is none any more.
        position: the last number that was read.
        count: how many documents were read.
    """

    index: str
    shard: int
    lower: int
    upper: int | None
    query: bytes
    fields: tuple[str, ...] | None
    point: str | None
    position: int | None = None
    count: int = 0


#: makes a batch of documents
ToBatch = Callable[[Sequence[Document]], Batch]


@dataclass(frozen=True, slots=True)
class SearchScan:
    """What is read of an index.

    Attributes:
        service: the service.
        index: the name of an index, of an alias, or a pattern such as `logs-*`; several separated by commas.
        to_batch: makes a batch of documents.
        query: a query in the service's form that documents must match.
        conditions: conditions that documents must match; those that the index cannot answer are left out.
        fields: the fields to read; None for whole documents, which have all digits of fractions.
        text_fields: those of the fields that are wanted as text. Documents are read as a whole if one of them may be a
            number in the index.
        limit: the maximum number of documents per split; None for all.
        fetch_size: how many documents an answer has.
        split_documents: about how many documents a split has at most.
        keep_alive_ms: how long the service keeps a point in time that is not used.
        retries: how often a request is repeated.

    Raises:
        ConfigurationError: without an index, and for limits that are not positive, or above the service's.
    """

    service: Service
    index: str
    to_batch: ToBatch
    query: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    fields: tuple[str, ...] | None = None
    text_fields: tuple[str, ...] = ()
    limit: int | None = None
    fetch_size: int = FETCH_SIZE
    split_documents: int = SPLIT_DOCUMENTS
    keep_alive_ms: int = KEEP_ALIVE_MS
    retries: int = RETRIES

    def __post_init__(self) -> None:
        if not self.index:
            raise ConfigurationError("give the name of an index")
        for name in ("fetch_size", "split_documents", "keep_alive_ms"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be positive")
        if self.fetch_size > SEARCH_MAX:
            raise ConfigurationError(f"fetch_size is {self.fetch_size}; an answer has at most {SEARCH_MAX} documents")

    def connect(self) -> SearchClient:
        """Return a client."""
        return SearchClient(self.service, f"index {self.index!r}", self.retries)

    def find_splits(self) -> list[ShardSplit]:
        """Return the splits of the index.

        Raises:
            OperationError: if there is no such index, the service cannot be reached, or a shard is away.
        """
        client = self.connect()
        try:
            return list(self._list_splits(client))
        finally:
            client.close()

    def _list_splits(self, client: SearchClient) -> Iterator[ShardSplit]:
        name = quote(self.index, safe=",*-")
        shards = client.ask_json("GET", f"/{name}/_search_shards")
        mappings = client.read_mappings(self.index)
        for (index, shard), (count, last) in sorted(_count_documents(client, name, shards).items()):
            filters: list[Any] = [dict(self.query)] if self.query else []
            of_alias = shards["indices"].get(index, {}).get("filter")
            filters += [of_alias] if of_alias else []
            resolved = [resolve_condition(each, mappings.get(index, {})) for each in self.conditions]
            filters += [query for query in resolved if query is not None]
            query = msgspec.json.encode(filters)
            are_texts = all(_is_text(mappings.get(index, {}).get(name)) for name in self.text_fields)
            fields = self.fields if are_texts else None
            parts = max(1, ceil(count / self.split_documents))
            step = max(1, ceil((last + 1) / parts))
            point = client.open_point(index, shard, self.keep_alive_ms)
            for number in range(parts):
                upper = (number + 1) * step if number + 1 < parts else None
                yield ShardSplit(index, shard, number * step, upper, query, fields, point)

    def fetch(self, client: SearchClient, split: ShardSplit) -> Iterator[tuple[list[_Hit], str | None]]:
        """Yield the documents of a split after its position, and the point in time that they are from."""
        filters = msgspec.json.decode(split.query)
        bounds = {"gte": split.lower, **({} if split.upper is None else {"lt": split.upper})}
        filters.append({"range": {"_seq_no": bounds}})
        position, count, point, is_new = split.position, split.count, split.point, False
        while self.limit is None or count < self.limit:
            if point is None:
                point, is_new = client.open_point(split.index, split.shard, self.keep_alive_ms), True
            size = self.fetch_size if self.limit is None else min(self.fetch_size, self.limit - count)
            body = {
                "size": size,
                "query": {"bool": {"filter": filters}},
                "sort": [{"_seq_no": {"order": "asc", "unmapped_type": "long"}}],  # an empty index has no mapping
                "pit": {"id": point, "keep_alive": f"{self.keep_alive_ms}ms"},
                "track_total_hits": False,
                **({} if position is None else {"search_after": [position]}),
                **({} if split.fields is None else {"_source": list(split.fields)}),
            }
            try:
                answer = client.search("/_search", body)
            except OperationError:
                if is_new:
                    raise
                point = None  # forgotten, or its node has gone
                continue
            point, is_new = answer.pit_id or point, False
            hits = answer.hits.hits
            if hits:
                yield hits, point
                position, count = hits[-1].sort[0], count + len(hits)
            if len(hits) < size:
                if not split.lower and split.upper is None:
                    client.close_point(point)
                return


def _is_text(about: Mapping[str, Any] | None) -> bool:
    return about is not None and about.get("type") in _TEXTS


def _count_documents(client: SearchClient, name: str, places: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """Return for each shard how many documents it has, and its last sequence number."""
    stats = client.ask_json("GET", f"/{name}/_stats/docs?level=shards&filter_path=indices.*.shards")
    shards: dict[tuple[str, int], tuple[int, int]] = {}
    for copies in places["shards"]:
        index, shard = copies[0]["index"], copies[0]["shard"]
        known = stats.get("indices", {}).get(index, {}).get("shards", {}).get(str(shard), [])
        counts = [(each["docs"]["count"], each["seq_no"]["max_seq_no"]) for each in known]
        shards[index, shard] = max(counts, default=(0, 0))
    return shards


class OpensearchSource(connector.Source[Any, ShardSplit]):
    """Reads the documents of an index once, each exactly once while documents do not change.

    Args:
        hosts: the URLs of the nodes, such as `https://search-1:9200`, without a login.
        index: the name of an index, of an alias, or a pattern such as `logs-*`.
        query: a query in the service's form that documents must match, such as `{"term": {"kind": "tea"}}`.
        fields: the fields to read; None for whole documents. Fractions are then cut to doubles by the service.
        deserialize: returns the record of a `Document`; by default the document.
        user: the user name.
        password: the password.
        fetch_size: how many documents an answer has.

    Raises:
        ConfigurationError: for hosts of another form, without an index, and for another size.

    Examples:
        >>> from penstock.datastream.connectors.elasticsearch import OpensearchSource
        >>> source = OpensearchSource("http://localhost:9200", index="cups", deserialize=lambda cup: cup.read()["kind"])
        >>> source.scan.index
        'cups'
    """

    boundedness = connector.Boundedness.BOUNDED

    def __init__(
        self,
        *hosts: str,
        index: str,
        query: Mapping[str, Any] | None = None,
        fields: Sequence[str] | None = None,
        deserialize: Callable[[Document], Any] | None = None,
        user: str | None = None,
        password: str | None = None,
        fetch_size: int = FETCH_SIZE,
    ) -> None:
        self.scan = SearchScan(
            Service(tuple(hosts), user, password),
            index,
            _Records(deserialize),
            query=query or {},
            fields=None if fields is None else tuple(fields),
            fetch_size=fetch_size,
        )

    @staticmethod
    def of_scan(scan: SearchScan) -> OpensearchSource:
        """Return the source of a scan."""
        source = OpensearchSource(*scan.service.hosts, index=scan.index)
        source.scan = scan
        return source

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[ShardSplit], restored: Any | None
    ) -> connector.SplitEnumerator[ShardSplit]:
        """See `Source`."""
        return DiscoveredSplits(context, self.scan.find_splits, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, ShardSplit]:
        """See `Source`."""
        return _DocumentReader(context, self.scan)


@dataclass(frozen=True, slots=True)
class _Records:
    """Makes records of documents by a function, if there is one."""

    deserialize: Callable[[Document], Any] | None

    def __call__(self, documents: Sequence[Document]) -> Batch:
        if self.deserialize is None:
            return Batch(list(documents))
        return Batch(connector.call_each(self.deserialize, documents, "deserialize of an OpensearchSource"))


class _Page(NamedTuple):
    """Documents of a split, the point in time that they are from, and how many requests were repeated."""

    hits: list[_Hit]
    point: str | None
    repeated: int


class _DocumentReader(ReadAheadReader[ShardSplit, _Page]):
    def __init__(self, context: connector.SourceReaderContext, scan: SearchScan) -> None:
        super().__init__(context)
        self._scan, self._reader_context = scan, context

    def begin(self, split: ShardSplit) -> Background[_Page]:
        """See `ReadAheadReader`."""
        return Background(lambda: self._fetch(split), lambda: None)

    def _fetch(self, split: ShardSplit) -> Iterator[_Page]:
        client = self._scan.connect()
        try:
            for hits, point in self._scan.fetch(client, split):
                repeated, client.repeated = client.repeated, 0
                yield _Page(hits, point, repeated)
        finally:
            client.close()

    def part(self, split: ShardSplit, rows: _Page, max_records: int) -> tuple[Batch, ShardSplit]:
        """See `ReadAheadReader`."""
        some = rows.hits[:max_records]
        if rows.repeated:
            self._reader_context.count("numRequestsRepeated", rows.repeated)
        self._rows = _Page(rows.hits[max_records:], rows.point, 0) if len(rows.hits) > max_records else None
        after = replace(split, position=some[-1].sort[0], count=split.count + len(some), point=rows.point)
        return self._scan.to_batch([build_document(hit) for hit in some]), after
