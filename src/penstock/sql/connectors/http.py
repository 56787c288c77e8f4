"""`http` and `rest-lookup`: look-ups at an HTTP service, with the options of Flink's HTTP connector.

**A request** is made of the key columns. `http.request.url-map` names the columns of the path,
`http.request.query-param-fields` the columns of the query; `http.request.body-template` has the others. If neither of
the last two is given, all columns outside of the path go into the query (GET) or into a JSON object (other methods).
Values have their form in the format `json`.

**An answer** is decoded by `format`. Key columns that it lacks have the values of the key. The keys of a batch are
asked at the same time, up to `http.source.lookup.request.thread-pool.size`; equal requests of a batch are sent once.

**Failures.** Requests that fail for now are repeated, `lookup.max-retries` times. Others fail the job, or are joined as
a row with the error in metadata columns (`http.source.lookup.continue-on-error`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.config_options import POSITIVE, ConfigOption, ConfigOptions, choice
from penstock.base.errors import ConfigurationError, OperationError, short_repr
from penstock.connectors import http
from penstock.connectors.http_client import Response
from penstock.runtime.connector import Boundedness, Source
from penstock.sql.connectors.jdbc import LOOKUP_OPTIONS
from penstock.sql.data import types
from penstock.sql.data.arrow import to_column
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.formats.format import Formats, MessageDecoder, MessageEncoder, decode_columns
from penstock.sql.logical.nodes import INSERTS, RowSchema, Scan, Write
from penstock.sql.tables.connector import (
    FORMAT,
    AsyncLookupReader,
    LookedUp,
    LookupReader,
    TableConnector,
    TableLookup,
    TableOptions,
)
from penstock.sql.tables.tables import TableReader, TableWriter, column_names

_TEXT: Final = types.VarCharType(types.LENGTH_MAX)
ERROR, STATUS, HEADERS, STATE = "error-string", "http-status-code", "http-headers-map", "http-completion-state"
METADATA: Final[Mapping[str, DataType]] = {
    ERROR: _TEXT,
    STATUS: types.IntType(),
    HEADERS: types.MapType(_TEXT, types.ArrayType(_TEXT)),
    STATE: _TEXT,
}
_GENERIC, _GET_QUERY = "http-generic-json-url", "http-generic-get-query"
_PLACEHOLDER: Final = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")
#: how the names of options began before Flink had the connector
_FORMER: Final = "gid.connector."


# --- requests and answers of look-ups --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LookupRequests:
    """How requests are made of keys.

    Attributes:
        method: the method.
        target: the path with its query; it may have `{name}` for the columns of `path`.
        path: the columns in the path, by their names there.
        query: the columns in the query; None for all others.
        template: the body with `{{column}}`; None for an object of all others.
        names: the names of the key columns.
        encoder: the encoder of keys, as JSON objects.
    """

    method: str
    target: str
    path: Mapping[str, str]
    query: tuple[str, ...] | None
    template: str | None
    names: tuple[str, ...]
    encoder: MessageEncoder

    def build(self, keys: pa.RecordBatch) -> list[tuple[str, bytes]]:
        """Return the target and the body of the request of each key."""
        messages = self.encoder.encode(keys.rename_columns(list(self.names)))
        return [self._build(msgspec.json.decode(message, type=dict[str, msgspec.Raw])) for message in messages]

    def _build(self, values: Mapping[str, msgspec.Raw]) -> tuple[str, bytes]:
        target = self.target
        for name, column in self.path.items():
            target = target.replace(f"{{{name}}}", quote(_show(values[column]), safe=""))
        others = [name for name in self.names if name not in self.path.values()]
        has_body = self.method not in ("GET", "DELETE", "HEAD")
        in_query = (others if not has_body else []) if self.query is None else self.query
        if in_query:
            pairs = urlencode([(name, _show(values[name])) for name in in_query], quote_via=quote)
            target += ("&" if "?" in target else "?") + pairs
        if self.template is not None:
            text = _PLACEHOLDER.sub(lambda match: bytes(values[match[1]]).decode(), self.template)
            return target, text.encode()
        if not has_body or self.query is not None:
            return target, b""
        return target, msgspec.json.encode({name: values[name] for name in others})


def _show(value: msgspec.Raw) -> str:
    """Return a JSON value as text: strings without quotes."""
    text = bytes(value).decode()
    return str(msgspec.json.decode(text)) if text.startswith('"') else text


class Answer(NamedTuple):
    """The answer to a request: messages of rows, and the values of metadata columns."""

    messages: list[bytes]
    status: int | None
    headers: list[tuple[str, list[str]]] | None
    state: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LookupTable:
    """How a table is looked up.

    Attributes:
        title: the table's name, for errors.
        service: the service.
        requests: makes requests.
        decoder: turns answers into rows of the `wanted` columns.
        wanted: the positions of columns that answers have.
        schema: all columns.
        key: the positions of the key columns, in the order of keys.
        metadata: the keys of metadata columns, by position.
        success: the statuses of answers with rows.
        ignored: the statuses of answers without rows.
        retried: the statuses after which a request is repeated.
        retry: when it is repeated.
        continues: whether failed requests give rows with the error in metadata columns.
        is_array: whether an answer is a JSON array of rows.
        skips_bad: whether answers that are not valid rows are left out.
        at_once: how many requests are in flight.
    """

    title: str
    service: http.HttpService
    requests: LookupRequests
    decoder: MessageDecoder
    wanted: tuple[int, ...]
    schema: RowSchema
    key: tuple[int, ...]
    metadata: Mapping[int, str]
    success: frozenset[int]
    ignored: frozenset[int]
    retried: frozenset[int]
    retry: http.RetryStrategy
    continues: bool
    is_array: bool
    skips_bad: bool
    at_once: int

    async def ask(self, caller: http.HttpCaller, target: str, body: bytes) -> Answer:
        """Return the answer to a request. Raises `OperationError` if it fails for good."""
        attempt = 0
        while True:
            attempt += 1
            answer = None
            try:
                response = await caller.call(self.requests.method, target, body)
            except OSError as error:
                failure = f"{type(error).__name__}: {error}"
                if not http.is_passing(error) or attempt > self.retry.retries:
                    answer = Answer([], None, None, "EXCEPTION", failure)
            else:
                answer = self._read(response)
                if response.status in self.retried and attempt <= self.retry.retries:
                    answer = None
            if answer is None:
                await asyncio.sleep(self.retry.delay(attempt) / 1_000)
            elif answer.state in ("SUCCESS", "IGNORE_STATUS_CODE") or self.continues:
                return answer
            else:
                raise OperationError(
                    f"a look-up of table {self.title} failed after {attempt} attempts: {answer.error}. "
                    "http.source.lookup.success-codes, ignored-response-codes and retry-codes say which statuses are "
                    "none"
                )

    def _read(self, response: Response) -> Answer:
        headers = [(name, [value]) for name, value in response.headers.items()]
        if response.status in self.ignored:
            return Answer([], response.status, headers, "IGNORE_STATUS_CODE")
        if response.status not in self.success:
            return Answer([], response.status, headers, "HTTP_ERROR_STATUS", http.describe(response))
        messages = [response.body] if response.body.strip() else []
        if self.is_array and messages:
            try:
                messages = [bytes(part) for part in msgspec.json.decode(response.body, type=list[msgspec.Raw])]
            except msgspec.DecodeError as error:
                return self._refuse(response.body, response.status, headers, f"it is no JSON array: {error}")
        return Answer(messages, response.status, headers, "SUCCESS")

    def _refuse(self, body: bytes, status: int | None, headers: Any, reason: str) -> Answer:
        if self.skips_bad:
            return Answer([], status, headers, "SUCCESS")
        if not self.continues:
            raise OperationError(f"table {self.title}: an answer cannot be read, {reason}: {short_repr(body)}")
        return Answer([], status, headers, "UNABLE_TO_DESERIALIZE_RESPONSE", body.decode("utf-8", "replace"))

    async def look_up(self, caller: http.HttpCaller, limit: asyncio.Semaphore, keys: pa.RecordBatch) -> LookedUp:
        """Return the rows of keys."""
        valid = [row for row in range(keys.num_rows) if all(column[row].is_valid for column in keys.columns)]
        requests = self.requests.build(keys.take(pa.array(valid, pa.int64())) if len(valid) < keys.num_rows else keys)
        distinct = list(dict.fromkeys(requests))

        async def ask(target: str, body: bytes) -> Answer:
            async with limit:
                return await self.ask(caller, target, body)

        answers = await asyncio.gather(*[ask(*request) for request in distinct])
        decoded, rows_of = self._decode(answers)
        answer_of = dict(zip(distinct, rows_of, strict=True))
        key_numbers: list[int] = []
        rows: list[int | None] = []
        of_rows: list[Answer] = []
        for number, request in zip(valid, requests, strict=True):
            answer, positions = answer_of[request]
            more = positions or ([None] if self.metadata and answer.state != "SUCCESS" else [])
            key_numbers += [number] * len(more)
            rows += more
            of_rows += [answer] * len(more)
        columns = self._build_columns(keys.take(pa.array(key_numbers, pa.int64())), decoded, rows, of_rows)
        return LookedUp(columns, pa.array(key_numbers, pa.int64()))

    def _decode(self, answers: Sequence[Answer]) -> tuple[pa.RecordBatch, list[tuple[Answer, list[int | None]]]]:
        """Decode all answers at once; return the rows, and for each answer which of them it has."""
        messages = [message for answer in answers for message in answer.messages]
        decoded = self.decoder.decode(messages)
        bad = {message.place: message.reason for message in decoded.bad}
        positions = range(len(messages)) if decoded.places is None else decoded.places
        row_of = {position: row for row, position in enumerate(positions)}
        rows_of: list[tuple[Answer, list[int | None]]] = []
        start = 0
        for answer in answers:
            own = range(start, start + len(answer.messages))
            start = own.stop
            wrong = next((position for position in own if position in bad), None)
            if wrong is not None and not self.skips_bad:
                answer = self._refuse(messages[wrong], answer.status, answer.headers, bad[wrong])
                own = range(0)
            rows_of.append((answer, [row_of[position] for position in own if position in row_of]))
        return decoded.columns, rows_of

    def _build_columns(
        self, keys: pa.RecordBatch, decoded: pa.RecordBatch, rows: Sequence[int | None], answers: Sequence[Answer]
    ) -> pa.RecordBatch:
        indices = pa.array(rows, pa.int64())
        by_metadata: dict[str, list[Any]] = {
            ERROR: [answer.error for answer in answers],
            STATUS: [answer.status for answer in answers],
            HEADERS: [answer.headers for answer in answers],
            STATE: [answer.state for answer in answers],
        }
        arrays = []
        for position, column in enumerate(self.schema):
            if position in self.metadata:
                arrays.append(to_column(by_metadata[self.metadata[position]], column.type))
                continue
            array = decoded.column(self.wanted.index(position)).take(indices)
            if position in self.key and array.null_count:
                array = pc.coalesce(array, keys.column(self.key.index(position)))
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, column_names(len(arrays)))


class HttpAsyncLookupReader(AsyncLookupReader):
    """Sends the requests of several batches at the same time."""

    def __init__(self, table: LookupTable) -> None:
        self._table = table
        self._caller: http.HttpCaller | None = None

    async def open(self) -> None:
        """Read the certificates."""
        self._caller = http.HttpCaller(self._table.service)
        self._limit = asyncio.Semaphore(self._table.at_once)

    async def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        assert self._caller is not None
        return await self._table.look_up(self._caller, self._limit, keys)

    async def close(self) -> None:
        """Close the connections."""
        if self._caller is not None:
            self._caller.close()
            await asyncio.sleep(0)  # connections end in the next turn of the loop


class HttpLookupReader(LookupReader):
    """Sends the requests of a batch at the same time, in an event loop of its own thread."""

    def __init__(self, table: LookupTable) -> None:
        self._reader = HttpAsyncLookupReader(table)
        self._thread = ThreadPoolExecutor(1, "penstock-http-lookup")
        self._runner = asyncio.Runner()

    def _call(self, coroutine: Any) -> Any:
        return self._thread.submit(self._runner.run, coroutine).result()

    def open(self) -> None:
        """Read the certificates."""
        self._call(self._reader.open())

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        answer: LookedUp = self._call(self._reader.lookup(keys))
        return answer

    def close(self) -> None:
        """Close the connections."""
        self._call(self._reader.close())
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()


class _KeysOnly(Source[Any, Any]):
    """Stands for a table that can be looked up, and not read."""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(self, title: str) -> None:
        self._title = title

    def check_execution_mode(self, mode: str, is_local: bool) -> None:
        """Raise `ValidationError`: the job would read the table as a whole."""
        raise ValidationError(
            f"a service has no rows but those of keys, so table {self._title} cannot be read as a whole: join it FOR "
            "SYSTEM_TIME AS OF a processing time"
        )

    def create_enumerator(self, context: Any, restored: Any | None) -> Any:
        """Never called."""
        raise AssertionError

    def create_reader(self, context: Any) -> Any:
        """Never called."""
        raise AssertionError


# --- options ---------------------------------------------------------------------------------------------------------


def text_option(key: str, description: str) -> ConfigOption[str | None]:
    """Return an option of text that may be missing."""
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def texts_option(key: str, default: str, description: str) -> ConfigOption[str]:
    """Return an option of text with a default."""
    return ConfigOptions.key(key).string_type().default_value(default).with_description(description)


def number_option(key: str, default: int, description: str) -> ConfigOption[int]:
    """Return an option that is a positive number."""
    return ConfigOption(key, POSITIVE, default).with_description(description)


def switch_option(key: str, description: str) -> ConfigOption[bool]:
    """Return an option that is false by default."""
    return ConfigOptions.key(key).boolean_type().default_value(False).with_description(description)


def time_option(key: str, default: int, description: str) -> ConfigOption[int]:
    """Return an option that is a time, in ms."""
    return ConfigOptions.key(key).duration_type().default_value(default).with_description(description)


URL: Final = text_option("url", "The URL, without user and password; these go into the header `Authorization`.")
SECURITY: Final[tuple[ConfigOption[Any], ...]] = (
    text_option("http.security.cert.server", "Files of certificates to trust, in PEM, separated by commas."),
    text_option("http.security.cert.client", "The client's certificate, in PEM."),
    text_option("http.security.key.client", "The private key of the client's certificate."),
    switch_option("http.security.cert.server.allowSelfSigned", "Whether any certificate of a server is accepted."),
    text_option("http.security.oidc.token.endpoint.url", "Where tokens come from (OpenID Connect)."),
    text_option("http.security.oidc.token.request", "The body of the request for a token, form encoded."),
    texts_option("http.security.oidc.token.expiry.reduction", "1", "How long before its end a token is replaced."),
)


def common_options(side: str) -> tuple[ConfigOption[Any], ...]:
    """Return the options of requests; `side` is `sink` or `source.lookup`."""
    return (
        texts_option(
            f"http.{side}.request.timeout", "30", "How long a request may take; a number alone is in seconds."
        ),
        text_option(
            f"http.{side}.connection.timeout", "How long it may take to connect; by default as long as a request."
        ),
        switch_option(
            f"http.{side}.use-raw-authorization-header",
            "Whether the header `Authorization` is sent unchanged. Otherwise `user:password` becomes a Basic login; a "
            "value with a scheme, such as `Bearer …`, stays.",
        ),
        text_option(f"http.{side}.header.*", "A header of each request, such as `…header.Accept`."),
    )


METHOD: Final = texts_option("lookup-method", "GET", "`GET`, `POST`, `PUT` or another method.")
POLLING: Final = switch_option(
    "asyncPolling", "Whether requests for several batches of rows are in flight; a batch's requests always are."
)
CREATOR: Final = ConfigOption(
    "http.source.lookup.query-creator", choice(_GENERIC, _GET_QUERY), _GENERIC
).with_description("What makes requests; `http-generic-get-query` has no options `http.request.*`.")
REQUEST_FORMAT: Final = ConfigOption("lookup-request.format", choice("json"), "json").with_description(
    "The format of values in requests."
)
QUERY_FIELDS: Final = text_option("http.request.query-param-fields", "The columns in the query, separated by `;`.")
TEMPLATE: Final = text_option(
    "http.request.body-template", "The body, with `{{column}}` for the JSON value of a key column."
)
URL_MAP: Final = text_option(
    "http.request.url-map", "Columns in the path: `customerId:cid,…` puts column customerId for `{cid}` in the URL."
)
SUCCESS: Final = texts_option("http.source.lookup.success-codes", "2XX", "The statuses of answers: `2XX,404,!203`.")
RETRIED: Final = texts_option("http.source.lookup.retry-codes", "500,503,504", "The statuses after which to ask again.")
IGNORED: Final = text_option("http.source.lookup.ignored-response-codes", "The statuses of answers without rows.")
CONTINUES: Final = switch_option(
    "http.source.lookup.continue-on-error",
    "Whether failed requests are joined as a row with the error in metadata columns; otherwise the job fails.",
)
RESULT: Final = ConfigOption(
    "http.source.lookup.result-type", choice("single-value", "array"), "single-value"
).with_description("Whether an answer is a row, or a JSON array of rows.")
AT_ONCE: Final = number_option(
    "http.source.lookup.request.thread-pool.size",
    8,
    "How many requests of a subtask are in flight. The connector starts no threads.",
)
_RETRY: Final = "http.source.lookup.retry-strategy."
STRATEGY: Final = ConfigOption(
    f"{_RETRY}type", choice("fixed-delay", "exponential-delay"), "fixed-delay"
).with_description("The delays before a request is repeated, up to `lookup.max-retries` times.")
DELAY: Final = time_option(f"{_RETRY}fixed-delay.delay", 1_000, "The delay.")
INITIAL: Final = time_option(f"{_RETRY}exponential-delay.initial-backoff", 1_000, "The first delay.")
LONGEST: Final = time_option(f"{_RETRY}exponential-delay.max-backoff", 60_000, "The longest delay.")
MULTIPLIER: Final = (
    ConfigOptions.key(f"{_RETRY}exponential-delay.backoff-multiplier")
    .double_type()
    .default_value(1.5)
    .with_description("How much longer each delay is.")
)
_LOOKUP: Final = "source.lookup"


class HttpConnector(TableConnector):
    """Treats options that begin with `gid.connector.http.` like options that begin with `http.`."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of the format, the headers, and the former names of options."""
        headers = [key for key in options if ".header." in key and key.startswith(("http.", f"{_FORMER}http."))]
        declared = {option.key() for option in (*self.required_options, *self.optional_options)}
        former = [key for key in options if key.startswith(_FORMER) and key.removeprefix(_FORMER) in declared]
        refused = [key for key in options if re.search(r"\.(proxy\.\w+|request-callback|http-version)$", key)]
        return [*self._formats.option_keys(options), *headers, *former, *refused]


def with_present_names(options: TableOptions) -> TableOptions:
    """Return the options by their present names."""
    values = {key.removeprefix(_FORMER): value for key, value in options.items()}
    return TableOptions(options.title, values, zone=options.zone)


def build_service(options: TableOptions, side: str, headers: Mapping[str, str], url: str) -> http.HttpService:
    """Return the service; `headers` are those unless others are given. Raises `ValidationError` if it is not valid."""
    try:
        service = http.HttpService(url, tuple(headers.items())).with_properties(options, side)
        service.build_tls()
    except ConfigurationError as error:
        raise options.wrong(URL.key(), str(error)) from error
    return service


class HttpLookupConnector(HttpConnector):
    """See the module docstring."""

    name = "http"
    required_options = (URL, FORMAT)
    optional_options = (
        METHOD,
        POLLING,
        *LOOKUP_OPTIONS,
        CREATOR,
        REQUEST_FORMAT,
        QUERY_FIELDS,
        TEMPLATE,
        URL_MAP,
        SUCCESS,
        RETRIED,
        IGNORED,
        CONTINUES,
        RESULT,
        AT_ONCE,
        STRATEGY,
        DELAY,
        INITIAL,
        LONGEST,
        MULTIPLIER,
        *common_options(_LOOKUP),
        *SECURITY,
    )

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the metadata of the request."""
        return METADATA

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return a reader for the planner of joins: it states that the table can only be read by key."""
        return TableReader(_KeysOnly(options.title), key=scan.key)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Raise `ValidationError`: another connector writes."""
        raise ValidationError(
            f"Connector '{self.name}' only looks rows up: table {options.title} is written with 'connector' = "
            "'http-async-sink'"
        )

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return the look-up by any columns."""
        table = self._build_table(scan, tuple(key), with_present_names(options))
        is_async = with_present_names(options).read(POLLING)
        return TableLookup(
            table.key,
            partial(HttpLookupReader, table),
            partial(HttpAsyncLookupReader, table) if is_async else None,
            repeats=True,
        )

    def _build_table(self, scan: Scan, key: tuple[int, ...], options: TableOptions) -> LookupTable:
        schema, metadata = scan.schema, dict(scan.metadata)
        asked = [schema[position].name for position in key if position in metadata]
        if asked:
            raise ValidationError(f"column '{asked[0]}' of table {options.title} is metadata, and no key to ask for")
        wanted = tuple(position for position in range(len(schema)) if position not in metadata)
        table_format, of_format = self._formats.find(options)
        decoding = decode_columns(table_format, schema, wanted, of_format)
        if decoding.messages is None or decoding.changes != INSERTS:
            raise options.wrong(FORMAT.key(), "answers are messages with a row, as in json, csv and raw")
        is_array = options.read(RESULT) == "array"
        if is_array and table_format.name != "json":
            raise options.wrong(RESULT.key(), "only answers in the format json are arrays")
        retries = max(0, options.read(_MAX_RETRIES))
        retry = http.RetryStrategy(retries, options.read(DELAY), options.read(DELAY))
        if options.read(STRATEGY) == "exponential-delay":
            retry = http.RetryStrategy(retries, options.read(INITIAL), options.read(LONGEST), options.read(MULTIPLIER))
        codes: dict[ConfigOption[Any], frozenset[int]] = {}
        listed: tuple[ConfigOption[Any], ...] = (SUCCESS, IGNORED, RETRIED)
        for option in listed:
            try:
                codes[option] = http.parse_codes(options.read(option) or "")
            except ConfigurationError as error:
                raise options.wrong(option.key(), str(error)) from error
        headers = {"Accept": "application/json"} if table_format.name == "json" else {}
        if options.read(METHOD).upper() not in ("GET", "DELETE", "HEAD"):
            headers["Content-Type"] = "application/json"
        requests = self._build_requests(schema, key, options)
        url = urlsplit(options.required(URL))._replace(path="", query="", fragment="").geturl()
        return LookupTable(
            options.title,
            build_service(options, _LOOKUP, headers, url),
            requests,
            decoding.messages,
            wanted,
            schema,
            key,
            metadata,
            codes[SUCCESS],
            codes[IGNORED],
            codes[RETRIED],
            retry,
            options.read(CONTINUES),
            is_array,
            decoding.skips_bad,
            options.read(AT_ONCE),
        )

    def _build_requests(self, schema: RowSchema, key: tuple[int, ...], options: TableOptions) -> LookupRequests:
        keys = RowSchema(tuple(schema[position] for position in key))
        url = urlsplit(options.required(URL))
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        path: dict[str, str] = {}
        for pair in filter(None, (options.read(URL_MAP) or "").split(",")):
            column, _, name = (part.strip() for part in pair.partition(":"))
            if f"{{{name}}}" not in target:
                raise options.wrong(URL_MAP.key(), f"there is no {{{name}}} in the URL")
            path[name] = column
        fields = options.read(QUERY_FIELDS)
        query = None if fields is None else tuple(field.strip() for field in fields.split(";") if field.strip())
        template, method = options.read(TEMPLATE), options.read(METHOD).upper()
        if options.read(CREATOR) == _GET_QUERY and (path or query is not None or template is not None):
            raise options.wrong(CREATOR.key(), f"only {_GENERIC} has options http.request.*")
        if template is not None and method in ("GET", "DELETE", "HEAD"):
            raise options.wrong(TEMPLATE.key(), f"a request by {method} has no body")
        for option, columns in (
            (URL_MAP, path.values()),
            (QUERY_FIELDS, query or ()),
            (TEMPLATE, _PLACEHOLDER.findall(template or "")),
        ):
            unknown = [column for column in columns if column not in keys.names]
            if unknown:
                raise options.wrong(
                    option.key(),
                    f"column '{unknown[0]}' is not among those that the join compares: {', '.join(keys.names)}",
                )
        table_format, of_format = self._formats.find(
            TableOptions(options.title, {FORMAT.key(): "json"}, zone=options.zone)
        )
        encoder = table_format.encoding(keys, of_format).messages
        assert encoder is not None
        return LookupRequests(method, target, path, query, template, tuple(keys.names), encoder)


_MAX_RETRIES: Final[ConfigOption[int]] = next(
    option for option in LOOKUP_OPTIONS if option.key() == "lookup.max-retries"
)


class RestLookupConnector(HttpLookupConnector):
    """The same under the name that the connector had before."""

    name = "rest-lookup"
