"""Where the server listens, and who may access it.

The defaults are secure: the server listens on this host only. To listen beyond it, the configuration must enable
encryption or explicitly allow plain traffic. The server then also requires a token, and generates one if none is set.

Browser logins with a token: a cookie stands for the token.

The cookie holds a random id, which only this server knows, and is valid for 12 hours. Scripts cannot read it
(HttpOnly), and pages of other sites cannot send it (SameSite=Strict). Pages at other ports of the same host count as
the same site, so a cookie allows changes only if the browser states that the request comes from a page of this server
(`application`). The cookie's name contains the port, because cookies do not distinguish ports.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from starlette.requests import cookie_parser

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.options import (
    REST_ADDRESS,
    REST_ALLOW_ORIGIN,
    REST_ALLOWED_HOSTS,
    REST_BIND_ADDRESS,
    REST_BIND_PORT,
    REST_CONTENT_BYTES_MAX,
    REST_INSECURE,
    REST_PORT,
    REST_PROFILING_ENABLED,
    REST_READER_TOKEN,
    REST_SSL_CERTIFICATE,
    REST_SSL_ENABLED,
    REST_SSL_KEY,
    REST_SSL_KEY_PASSWORD,
    REST_TOKEN,
    REST_TOKEN_DIRECTORY,
)

_log = logging.getLogger("penstock.rest")


@dataclass(frozen=True)
class RestSettings:
    """The server's settings, read from a configuration.

    Attributes:
        bind_address: where the server listens.
        ports: the ports to try, such as `8081-8090`.
        address: the host name for clients.
        certificate: the certificate file, in PEM; None without TLS.
        key: the file of the certificate's private key.
        key_password: the key's password.
        token: the operator's token; None if no token is required.
        reader_token: the reader's token; None if reading harmless data needs no token.
        hosts: the accepted host names, in lower case.
        allow_origin: the origin whose pages may read answers.
        upload_bytes_max: the maximum size of an uploaded program.
    """

    bind_address: str
    ports: str
    address: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = None
    token: str | None = None
    reader_token: str | None = None
    hosts: frozenset[str] = frozenset()
    allow_origin: str | None = None
    upload_bytes_max: int = 100 << 20

    @classmethod
    def of(cls, configuration: Configuration) -> RestSettings:
        """Read and check the settings; generate the token if one is required and missing.

        Raises:
            ConfigurationError: if they contradict each other, or are not safe.
        """
        if configuration.read(REST_PROFILING_ENABLED):
            raise UnsupportedError(f"{REST_PROFILING_ENABLED.key()}: there is no profiler; flame graphs have no option")
        bind_address, address = configuration.read(REST_BIND_ADDRESS), configuration.read(REST_ADDRESS)
        is_local = is_loopback(bind_address)
        certificate, key = _certificate(configuration)
        if not is_local and certificate is None and not configuration.read(REST_INSECURE):
            raise ConfigurationError(
                f"{REST_BIND_ADDRESS.key()}: {bind_address} is reached from other hosts, and so the REST API needs "
                f"{REST_SSL_ENABLED.key()}, or {REST_INSECURE.key()} if all who see its traffic may control the jobs"
            )
        token, reader_token = configuration.read(REST_TOKEN), configuration.read(REST_READER_TOKEN)
        if reader_token is not None and reader_token == token:
            raise ConfigurationError(
                f"{REST_READER_TOKEN.key()} is the same as {REST_TOKEN.key()}, so readers could change everything: "
                "set another one"
            )
        if token is None and (not is_local or reader_token is not None):
            token = generated_token(configuration.read(REST_TOKEN_DIRECTORY))
        more = (configuration.read(REST_ALLOWED_HOSTS) or "").split(",")
        known = ["localhost", bind_address, address or "", socket.gethostname(), *more]
        return cls(
            bind_address=bind_address,
            ports=_ports(configuration),
            address=address,
            certificate=certificate,
            key=key,
            key_password=configuration.read(REST_SSL_KEY_PASSWORD) if certificate is not None else None,
            token=token,
            reader_token=reader_token,
            hosts=frozenset(name.strip().lower() for name in known if name.strip()),
            allow_origin=configuration.read(REST_ALLOW_ORIGIN),
            upload_bytes_max=configuration.read(REST_CONTENT_BYTES_MAX),
        )


def is_loopback(address: str) -> bool:
    """Return whether an address is reachable from this host only."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _ports(configuration: Configuration) -> str:
    ports, port = configuration.read(REST_BIND_PORT), configuration.read(REST_PORT)
    return ports if ports is not None else str(port or 0)


def _certificate(configuration: Configuration) -> tuple[str | None, str | None]:
    if not configuration.read(REST_SSL_ENABLED):
        return None, None
    certificate, key = configuration.read(REST_SSL_CERTIFICATE), configuration.read(REST_SSL_KEY)
    for option, path in ((REST_SSL_CERTIFICATE, certificate), (REST_SSL_KEY, key)):
        if path is None or not Path(path).is_file():
            raise ConfigurationError(f"{REST_SSL_ENABLED.key()} needs {option.key()}, a file in PEM, not {path}")
    return certificate, key


def generated_token(directory: str | None) -> str:
    """Generate a token and write it to a file that only the user can read; log the path."""
    folder = Path(directory) if directory is not None else Path.home() / ".penstock"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, token = folder / f"rest-token-{os.getpid()}", secrets.token_urlsafe(32)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    _log.warning("the operator's token of the REST API is in %s", path)
    return token


Role = Literal["nobody", "reader", "operator"]

#: How long (s) a login is valid.
LOGIN_SECONDS: Final = 12 * 3600
#: The number of logins to remember; one more drops the oldest.
LOGINS_MAX: Final = 1_000


class Logins:
    """The logins of a server. Thread-safe.

    Args:
        now: a monotonic clock (s).
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        #: by cookie value, oldest first: the role and the time of expiry
        self._known: dict[str, tuple[Role, float]] = {}

    def begin(self, role: Role) -> str:
        """Remember a login and return the value of its cookie."""
        value = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._known) >= LOGINS_MAX:
                del self._known[next(iter(self._known))]
            self._known[value] = role, self._now() + LOGIN_SECONDS
        return value

    def end(self, value: str) -> None:
        """Forget a login."""
        with self._lock:
            self._known.pop(value, None)

    def get_role(self, value: str) -> Role:
        """Return the role that a cookie grants."""
        with self._lock:
            role, until = self._known.get(value, ("nobody", 0.0))
        return role if self._now() < until else "nobody"


def cookie_name(port: int) -> str:
    """Return the name of the login cookie of the server at this port."""
    return f"penstock-rest-{port}"


def read_cookie(headers: Mapping[str, str], port: int) -> str:
    """Return the value of the login cookie in a request; empty if missing."""
    return cookie_parser(headers.get("cookie", "")).get(cookie_name(port), "")


def cookie_header(name: str, value: str, seconds: int, *, is_encrypted: bool) -> str:
    """Return the value of the Set-Cookie header."""
    secure = "; Secure" if is_encrypted else ""
    return f"{name}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}"


def role_of_token(settings: RestSettings, token: str) -> Role:
    """Return the role that a token grants."""
    if not token:
        return "nobody"
    if settings.token is not None and _equal(token, settings.token):
        return "operator"
    if settings.reader_token is not None and _equal(token, settings.reader_token):
        return "reader"
    return "nobody"


def _equal(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode(), right.encode())
