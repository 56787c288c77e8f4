"""Browser logins with a token: a cookie stands for the token.

The cookie holds a random id, which only this server knows, and is valid for 12 hours. Scripts cannot read it
(HttpOnly), and pages of other sites cannot send it (SameSite=Strict). Pages at other ports of the same host count as
the same site, so a cookie allows changes only if the browser states that the request comes from a page of this server
(`guards`). The cookie's name contains the port, because cookies do not distinguish ports.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal

from starlette.requests import cookie_parser

from penstock.operations.rest.access.settings import RestSettings

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
