"""A schema registry that speaks Confluent's HTTP API: schemas by number, and numbers of schemas.

A number never means another schema, so what was asked for once is kept for the life of the process. A registry that
cannot be reached is an error of the job, not of a message: the restart strategy decides what follows.
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
#: What stands before a record: a byte that is zero, and the number of the schema in four.
HEADER_BYTES: Final = 5


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a registry is, and how to reach it. It travels with a job.

    Attributes:
        urls: its addresses; the next one is asked where one does not answer.
        user_info: `name:password`, for basic authentication.
        token: for authentication by a bearer's token.
        certificates: a PEM file of the certificates that are trusted; None for those of the system.
        own_certificate: a PEM file with a certificate and its key that show who asks.
        own_password: that of the key.
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
        return f"RegistrySettings({', '.join(self.urls)})"  # nothing secret in a log


@functools.cache
def registry_of(settings: RegistrySettings) -> SchemaRegistry:
    """The registry, of which there is one object in a process."""
    return SchemaRegistry(settings)


class SchemaRegistry:
    """Asks a registry."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._schemas: dict[int, str] = {}
        self._ids: dict[tuple[str, str], int] = {}

    def schema(self, schema_id: int) -> str:
        """The schema of a number, as text.

        Raises:
            FormatError: if the registry has none of this number.
            OperationError: if the registry does not answer as it should.
        """
        if schema_id not in self._schemas:
            found = self._ask("GET", f"/schemas/ids/{schema_id}")
            if found is None:
                raise FormatError(f"the schema registry has no schema {schema_id}: {', '.join(self._settings.urls)}")
            if found.get("schemaType", "AVRO") != "AVRO":
                raise FormatError(f"schema {schema_id} of the registry is none of Avro but of {found['schemaType']}")
            if found.get("references"):
                raise FormatError(f"schema {schema_id} of the registry refers to others, which is not supported")
            self._schemas[schema_id] = found["schema"]
        return self._schemas[schema_id]

    def register(self, subject: str, schema: str) -> int:
        """The number of a schema under a subject, where it is put if it is not there yet.

        Raises:
            OperationError: if the registry refuses the schema, or does not answer as it should.
        """
        key = subject, schema
        if key not in self._ids:
            path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
            found = self._ask("POST", path, {"schema": schema})
            if found is None:
                raise OperationError(f"there is no schema registry at {', '.join(self._settings.urls)}")
            self._ids[key] = found["id"]
        return self._ids[key]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """What the registry answers; None for what it does not have."""
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


def schema_id_of(message: bytes) -> int:
    """The number of the schema with which a message was written. Raises FormatError for what has none."""
    if len(message) < HEADER_BYTES or message[0] != 0:
        raise FormatError("it does not begin with a zero and the number of a schema")
    return int.from_bytes(message[1:HEADER_BYTES], "big")


def header_of(schema_id: int) -> bytes:
    """What stands before records of a schema."""
    return b"\0" + schema_id.to_bytes(HEADER_BYTES - 1, "big")
