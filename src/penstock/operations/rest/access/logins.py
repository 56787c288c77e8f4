"""Browsers that have logged in with a token: a cookie stands for the token.

The cookie holds a random id, which means something to this server alone, and for 12 hours. No script can read it
(HttpOnly), and no page of another site sends it (SameSite=Strict). Pages at other ports of the same host are of the
same site, so a cookie is good for changes only if the browser says that a page of this server asks (`guards`). The
cookie's name has the port, because cookies do not tell ports apart.
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

#: How long (s) a log-in is good.
LOGIN_SECONDS: Final = 12 * 3600
#: How many log-ins are remembered; one more drops the oldest.
LOGINS_MAX: Final = 1_000


class Logins:
    """The log-ins of a server. Any thread may ask.

    Args:
        now: a clock (s) that never goes back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        #: by the cookie's value, oldest first: the role, and when it ends
        self._known: dict[str, tuple[Role, float]] = {}

    def begin(self, role: Role) -> str:
        """Remember a log-in; the cookie's value."""
        value = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._known) >= LOGINS_MAX:
                del self._known[next(iter(self._known))]
            self._known[value] = role, self._now() + LOGIN_SECONDS
        return value

    def end(self, value: str) -> None:
        """Forget one."""
        with self._lock:
            self._known.pop(value, None)

    def role_of(self, value: str) -> Role:
        """For whom a cookie stands."""
        with self._lock:
            role, until = self._known.get(value, ("nobody", 0.0))
        return role if self._now() < until else "nobody"


def cookie_name(port: int) -> str:
    """The name of the cookie of the server at a port."""
    return f"penstock-rest-{port}"


def cookie_of(headers: Mapping[str, str], port: int) -> str:
    """The value of the cookie in a request; empty if it has none."""
    return cookie_parser(headers.get("cookie", "")).get(cookie_name(port), "")


def cookie_header(name: str, value: str, seconds: int, *, is_encrypted: bool) -> str:
    """The header Set-Cookie."""
    secure = "; Secure" if is_encrypted else ""
    return f"{name}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}"


def role_of_token(settings: RestSettings, token: str) -> Role:
    """For whom a token is."""
    if not token:
        return "nobody"
    if settings.token is not None and _equal(token, settings.token):
        return "operator"
    if settings.reader_token is not None and _equal(token, settings.reader_token):
        return "reader"
    return "nobody"


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
