"""Client of a schema registry with Confluent's HTTP API: looks up schemas by id, and ids of schemas.

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
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import ConfigurationError, FormatError, OperationError

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 10
_NOT_FOUND: Final = 404
_SERVER_ERRORS: Final = 500
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
        self._schemas: dict[int, str] = {}
        self._ids: dict[tuple[str, str], int] = {}

    def schema(self, schema_id: int) -> str:
        """Return the schema with an id, as text.

        Raises:
            FormatError: if the registry has no Avro schema with this id, or it refers to other schemas.
            OperationError: if the registry does not answer properly.
        """
        if schema_id not in self._schemas:
            response = self._ask("GET", f"/schemas/ids/{schema_id}")
            if response is None:
                raise FormatError(f"the schema registry has no schema {schema_id}: {', '.join(self._settings.urls)}")
            if response.get("schemaType", "AVRO") != "AVRO":
                raise FormatError(f"schema {schema_id} of the registry is none of Avro but of {response['schemaType']}")
            if response.get("references"):
                raise FormatError(f"schema {schema_id} of the registry refers to others, which is not supported")
            self._schemas[schema_id] = response["schema"]
        return self._schemas[schema_id]

    def register(self, subject: str, schema: str) -> int:
        """Return the id of a schema under a subject; register the schema if it is not there yet.

        Raises:
            OperationError: if the registry refuses the schema, or does not answer properly.
        """
        key = subject, schema
        if key not in self._ids:
            path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
            response = self._ask("POST", path, {"schema": schema})
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
