"""Access checks: host names, origins and tokens, checked before a handler is called.

- The Host header must be a name of this server or an IP address. A page whose name resolves to this server (DNS
  rebinding) sends its own name.
- A request that changes something is refused if a browser sends it for another site's page (CSRF): browsers state this
  in Origin, Referer or Sec-Fetch-Site, and programs send none of them.
- Changes need the operator's token, and routes that reveal something need the reader's or the operator's. If a reader's
  token is set, every route except the login needs one of the two. Without tokens, this host is trusted. An empty or
  blank token grants no role, and `RestSettings` refuses one.
- A browser that is logged in sends a cookie instead (`logins`). A change by cookie also requires the browser to state
  that a page of this server sent the request, because browsers send cookies for other pages as well.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from penstock.operations.rest.access.logins import Role, role_of_token
from penstock.operations.rest.access.settings import RestSettings
from penstock.operations.rest.calls.errors import RestError
from penstock.operations.rest.calls.routing import Access


def parse_host(authority: str) -> str:
    """Return the name or address in a Host header, in lower case, without port and brackets."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower()


def check_host(settings: RestSettings, headers: Mapping[str, str]) -> None:
    """Refuse a request that names another host."""
    host = parse_host(headers.get("host", ""))
    if host in settings.hosts:
        return
    try:
        ipaddress.ip_address(host)
    except ValueError as error:
        raise RestError(
            403,
            f"{host[:100]!r} is no name of this server; penstock.rest.allowed-hosts names more of them",
        ) from error


def check_origin(settings: RestSettings, headers: Mapping[str, str]) -> None:
    """Refuse a change that another site's page requests."""
    own = headers.get("host", "").lower()
    for name in ("origin", "referer"):
        value = headers.get(name)
        if value is None:
            continue
        if name == "origin" and settings.allow_origin not in (None, "*") and value == settings.allow_origin:
            continue
        try:
            theirs = urlsplit(value).netloc.lower()
        except ValueError:
            theirs = ""
        if theirs != own:
            raise RestError(403, f"the {name} {value[:100]!r} is another site, which may not change anything here")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and "origin" not in headers:
        raise RestError(403, "a page of another site may not change anything here")


def check_own_page(settings: RestSettings, headers: Mapping[str, str]) -> None:
    """Refuse a change by cookie, unless the browser states that a page of this server requests it."""
    check_origin(settings, headers)
    if "origin" in headers or "referer" in headers or headers.get("sec-fetch-site") == "same-origin":
        return
    raise RestError(403, "a log-in changes something only for a page of this server; a program sends the token")


def get_role(settings: RestSettings, headers: Mapping[str, str]) -> Role:
    """Return the role that the request's token grants."""
    kind, _, given = headers.get("authorization", "").partition(" ")
    return role_of_token(settings, given.strip()) if kind.lower() == "bearer" else "nobody"


def check_access(settings: RestSettings, access: Access, role: Role) -> None:
    """Refuse a request whose token is missing or insufficient."""
    if settings.token is None or role == "operator" or access == "login":
        return
    if access == "open" and (settings.reader_token is None or role == "reader"):
        return
    if access == "reveals" and role == "reader":
        return
    if role == "reader":
        raise RestError(403, "the reader's token may not change anything: this needs the operator's")
    raise RestError(401, "this needs a token: Authorization: Bearer <token>, or a log-in at /login")
