"""Avro records whose schemas are in a registry, in Confluent's format: a zero byte, the schema id, the record.

`SchemaRegistry` is the client of a registry with Confluent's HTTP API: it looks up schemas by id, and ids of schemas.
An id never changes its meaning, so answers are cached for the life of the process. A registry that cannot be reached is
an error of the job, not of a message: the restart strategy decides what follows.
"""

from __future__ import annotations

import base64
import functools
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import ConfigurationError, FormatError, OperationError, shorten
from penstock.base.types import Row
from penstock.codecs.avro_reading import READ_ERRORS, AvroType, RecordReader, Values, parse_record
from penstock.codecs.avro_row import PythonValues
from penstock.codecs.avro_writing import WRITE_ERRORS, RecordWriter
from penstock.codecs.pickling import make_rows
from penstock.codecs.serialization import DeserializationSchema, Deserialized, SerializationSchema, decode_each
from penstock.formats.avro import AvroSchema

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 10
_NOT_FOUND: Final = 404
_SERVER_ERRORS: Final = 500
#: the kinds of schemas, for errors
_KINDS: Final = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protocol Buffers"}
#: The header before a record: a zero byte, and the schema id in four bytes.
HEADER_BYTES: Final = 5


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The addresses of a registry, and how to connect to it. They travel with a job.

    Attributes:
        urls: its addresses; if one does not answer, the next one is asked.
        user_info: `name:password`, for basic authentication.
        token: the token for bearer authentication.
        certificates: a PEM file of trusted certificates; None for the system's.
        own_certificate: a PEM file with the client's certificate and key.
        own_password: the password of the client's key.
    """

    urls: tuple[str, ...]
    user_info: str | None = None
    token: str | None = None
    certificates: str | None = None
    own_certificate: str | None = None
    own_password: str | None = None

    def __post_init__(self) -> None:
        for url in self.urls:
            if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
                raise ConfigurationError(f"the address of a schema registry begins with http, unlike {url!r}")
        if not self.urls:
            raise ConfigurationError("a schema registry needs an address")
        if self.user_info is not None and self.token is not None:
            raise ConfigurationError("a schema registry takes a name and password, or a token, not both")

    def __repr__(self) -> str:
        return f"RegistrySettings({', '.join(self.urls)})"  # no secrets in a log


@functools.cache
def get_registry(settings: RegistrySettings) -> SchemaRegistry:
    """Return the client of a registry; all users in a process share it."""
    return SchemaRegistry(settings)


class SchemaRegistry:
    """A client of a registry."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._schemas: dict[int, tuple[str, str]] = {}
        self._ids: dict[tuple[str, str], int] = {}

    def schema(self, schema_id: int, kind: str = "AVRO") -> str:
        """Return the schema with an id, as text.

        Args:
            schema_id: the id.
            kind: AVRO, JSON or PROTOBUF. An Avro schema must not refer to others.

        Raises:
            FormatError: if the registry has no schema of this kind with this id, or it refers to other schemas.
            OperationError: if the registry does not answer properly.
        """
        if schema_id not in self._schemas:
            response = self._ask("GET", f"/schemas/ids/{schema_id}")
            if response is None:
                raise FormatError(f"the schema registry has no schema {schema_id}: {', '.join(self._settings.urls)}")
            if response.get("references") and kind == "AVRO":
                raise FormatError(f"schema {schema_id} of the registry refers to others, which is not supported")
            self._schemas[schema_id] = response.get("schemaType", "AVRO"), response["schema"]
        schema, text = self._schemas[schema_id]
        if schema != kind:
            raise FormatError(f"schema {schema_id} of the registry is none of {_KINDS[kind]} but of {schema}")
        return text

    def register(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        """Return the id of a schema under a subject; register the schema if it is not there yet.

        Raises:
            OperationError: if the registry refuses the schema, or does not answer properly.
        """
        key = subject, schema
        if key not in self._ids:
            path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
            body = {"schema": schema} if kind == "AVRO" else {"schema": schema, "schemaType": kind}
            response = self._ask("POST", path, body)
            if response is None:
                raise OperationError(f"there is no schema registry at {', '.join(self._settings.urls)}")
            self._ids[key] = response["id"]
        return self._ids[key]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the registry's answer; None for an object that it does not have."""
        failures = []
        for url in self._settings.urls:
            request = urllib.request.Request(
                url.rstrip("/") + path,
                None if body is None else json.dumps(body).encode(),
                {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE, **self._authorization()},
                method=method,
            )
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls(url)) as response:
                    return json.loads(response.read())
            except urllib.error.HTTPError as error:
                if error.code == _NOT_FOUND and method == "GET":
                    return None
                reason = error.read().decode("utf-8", "replace") or error.reason
                if error.code < _SERVER_ERRORS:
                    raise OperationError(
                        f"the schema registry refuses {method} {url}{path} ({error.code}): {reason}"
                    ) from None
                failures.append(f"{url}: {error.code} {reason}")
            except (OSError, ValueError) as error:
                failures.append(f"{url}: {error}")
        raise OperationError(f"the schema registry does not answer {method} {path}: {'; '.join(failures)}")

    def _authorization(self) -> dict[str, str]:
        settings = self._settings
        if settings.user_info is not None:
            return {"Authorization": "Basic " + base64.b64encode(settings.user_info.encode()).decode()}
        return {} if settings.token is None else {"Authorization": f"Bearer {settings.token}"}

    def _tls(self, url: str) -> ssl.SSLContext | None:
        if not url.startswith("https"):
            return None
        context = ssl.create_default_context(cafile=self._settings.certificates)
        if self._settings.own_certificate is not None:
            context.load_cert_chain(self._settings.own_certificate, password=self._settings.own_password)
        return context


def decode_schema_id(message: bytes) -> int:
    """Return the id of the schema that a message was written with. Raises FormatError for a message without an id."""
    if len(message) < HEADER_BYTES or message[0] != 0:
        raise FormatError("it does not begin with a zero and the number of a schema")
    return int.from_bytes(message[1:HEADER_BYTES], "big")


def encode_schema_id(schema_id: int) -> bytes:
    """Return the header before records of a schema."""
    return b"\0" + schema_id.to_bytes(HEADER_BYTES - 1, "big")


_READ: Final = (*READ_ERRORS, FormatError)


class RegistryReader:
    """Reads records of any schema as records of one schema.

    Args:
        settings: the registry.
        reader_schema: the schema to read records as; None for the schema that each record was written with.
        values: the representation of values.
        narrows: see `RecordReader`.
    """

    def __init__(
        self, settings: RegistrySettings, reader_schema: AvroType | None, values: Values, narrows: bool = False
    ) -> None:
        self._settings = settings
        self._wanted = reader_schema
        self._values = values
        self._narrows = narrows
        self._readers: dict[int, tuple[RecordReader, tuple[str, ...]]] = {}

    def values(self, message: bytes) -> tuple[tuple[str, ...], list[Any]]:
        """Return the field names of a message's record, and their values.

        Raises:
            FormatError: if the message does not hold such a record; it names the field.
            OperationError: if the registry does not answer.
        """
        reader, names = self._reader(decode_schema_id(message))
        try:
            return names, reader.values(message, HEADER_BYTES)
        except READ_ERRORS as error:
            raise FormatError(reader.reason(error)) from error

    def many(self, messages: Sequence[bytes]) -> tuple[tuple[str, ...], list[list[Any]]] | None:
        """Read many messages likewise, if all were written with the same schema; otherwise return None.

        Raises:
            ValueError: or another of `READ_ERRORS`, if a message does not hold such a record.
        """
        headers = {message[:HEADER_BYTES] for message in messages}
        if len(headers) != 1:
            return None
        reader, names = self._reader(decode_schema_id(messages[0]))
        return names, reader.many(messages, HEADER_BYTES)

    def _reader(self, schema_id: int) -> tuple[RecordReader, tuple[str, ...]]:
        entry = self._readers.get(schema_id)
        if entry is None:
            written = parse_record(get_registry(self._settings).schema(schema_id))
            reader_schema = self._wanted or written
            try:
                reader = RecordReader(written, reader_schema, self._values, self._narrows)
            except FormatError as error:
                raise FormatError(f"records of schema {schema_id} cannot be read: {error}") from error
            entry = self._readers[schema_id] = reader, tuple(field.name for field in reader_schema.fields)
        return entry


class RegistryWriter:
    """Writes records of a schema, and registers the schema with the first of them."""

    def __init__(self, settings: RegistrySettings, subject: str, schema: str, writer: RecordWriter) -> None:
        self._parts = settings, subject, schema
        self._writer = writer
        self._header: bytes | None = None

    def messages(self, records: Sequence[Any]) -> list[bytes]:
        """Return the message of each record. Raises one of `WRITE_ERRORS` if one does not fit the schema."""
        if self._header is None:
            settings, subject, schema = self._parts
            self._header = encode_schema_id(get_registry(settings).register(subject, schema))
        header, write = self._header, self._writer.record
        return [header + write(record) for record in records]


class ConfluentRegistryAvroDeserializationSchema(DeserializationSchema[Row]):
    """Reads rows from Avro records whose schemas are in a registry; create one with `for_generic`.

    A source then reads records written with any schema that can be read as this one.
    """

    def __init__(self, schema: AvroSchema | None, settings: RegistrySettings) -> None:
        self._parts = schema, settings
        reader_schema = None if schema is None else schema.record
        self._reader = RegistryReader(settings, reader_schema, PythonValues())

    @staticmethod
    def for_generic(
        schema: AvroSchema | None, schema_registry_url: str, **settings: Any
    ) -> ConfluentRegistryAvroDeserializationSchema:
        """Create a schema for rows.

        Args:
            schema: the schema of the rows; None for the schema that each record was written with.
            schema_registry_url: the registry's address, or several, separated by commas.
            settings: more of `RegistrySettings`, such as `user_info`.

        Raises:
            ConfigurationError: if the settings are invalid.
        """
        return ConfluentRegistryAvroDeserializationSchema(schema, _settings(schema_registry_url, settings))

    def deserialize(self, message: bytes) -> Row | None:
        """Return the row of a message. Return None for an unreadable message if such messages are skipped.

        Raises:
            FormatError: if the message does not hold such a record.
            OperationError: if the registry does not answer.
        """
        try:
            return self._record(message)
        except FormatError as error:
            if self.on_error == "skip":
                return None
            raise FormatError(f"cannot read Avro {shorten(repr(message))}: {error}") from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Return the rows of many messages."""
        try:
            decoded = self._reader.many(messages)
        except _READ:
            decoded = None
        return decode_each(self._record, messages) if decoded is None else Deserialized(make_rows(*decoded))

    def _record(self, message: bytes) -> Row:
        names, values = self._reader.values(message)
        return make_rows(names, (values,))[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts, self.malformed_handling()


class ConfluentRegistryAvroSerializationSchema(SerializationSchema[Any]):
    """Writes rows, tuples or dicts as Avro records whose schema is in a registry; create one with `for_generic`."""

    def __init__(self, subject: str, schema: AvroSchema, settings: RegistrySettings) -> None:
        self._parts = subject, schema, settings
        writer = RecordWriter(schema.record, PythonValues())
        self._writer = RegistryWriter(settings, subject, schema.text, writer)

    @staticmethod
    def for_generic(
        subject: str, schema: AvroSchema, schema_registry_url: str, **settings: Any
    ) -> ConfluentRegistryAvroSerializationSchema:
        """Create a schema for rows.

        Args:
            subject: the subject to register the schema under; for the values of a topic usually `topic-value`.
            schema: the schema of the rows.
            schema_registry_url: the registry's address, or several, separated by commas.
            settings: more of `RegistrySettings`, such as `user_info`.

        Raises:
            ConfigurationError: if the settings are invalid.
        """
        return ConfluentRegistryAvroSerializationSchema(subject, schema, _settings(schema_registry_url, settings))

    def serialize(self, element: Any) -> bytes:
        """Return the message for a record.

        Raises:
            FormatError: if the record does not fit the schema.
            OperationError: if the registry refuses the schema, or does not answer.
        """
        try:
            return self._writer.messages([element])[0]
        except WRITE_ERRORS as error:
            raise FormatError(f"cannot write {shorten(repr(element))} as Avro: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


def _settings(urls: str, more: dict[str, Any]) -> RegistrySettings:
    return RegistrySettings(tuple(url.strip() for url in urls.split(",")), **more)
