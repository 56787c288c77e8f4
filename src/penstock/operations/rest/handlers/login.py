"""Login and logout for browsers: a form takes a token, and a cookie stands for it from then on.

URLs are relative, for proxies that serve the REST API under their own path.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final
from urllib.parse import parse_qs

import msgspec

from penstock.operations.rest.access.logins import (
    LOGIN_SECONDS,
    Role,
    cookie_header,
    cookie_name,
    read_cookie,
    role_of_token,
)
from penstock.operations.rest.calls.answers import HTML_TYPE, Answer, Html
from penstock.operations.rest.calls.routing import Call, Route


class LoginForm(msgspec.Struct, frozen=True):
    """The login form."""

    token: str


#: The maximum length of a token.
TOKEN_CHARS_MAX: Final = 1_000
_STYLE: Final = (
    "body{font:16px system-ui,sans-serif;max-width:26rem;margin:15vh auto;padding:0 1rem}"
    "input,button{font:inherit;padding:.5rem;width:100%;box-sizing:border-box;margin:.5rem 0}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_FORM: Final = (
    '<form method="post" action="login"><label>Token of the REST API'
    '<input name="token" type="password" autocomplete="current-password" autofocus required></label>'
    "<button>Log in</button></form>"
)
_OUT: Final = '<form method="post" action="logout"><button>Log out</button></form><p><a href="./">To the page</a></p>'


def form(call: Call) -> Answer:
    """Return the login form, or the logout form if the browser is logged in."""
    if not _asks_for_token(call):
        return _page('<p>This server asks for no token.</p><p><a href="./">To the page</a></p>')
    role = call.context.logins.get_role(_cookie(call))
    return _page(_FORM) if role == "nobody" else _page(f"<p>You are logged in as {role}.</p>{_OUT}")


def log_in(call: Call) -> Answer:
    """Check a token and set the cookie that stands for it."""
    if not _asks_for_token(call):
        return _redirect("./")
    role = role_of_token(call.context.settings, _token(call.body))
    if role == "nobody":
        return _page(f"<p>This token is wrong.</p>{_FORM}", 401)
    call.context.logins.end(_cookie(call))
    return _redirect("./", _set_cookie(call, call.context.logins.begin(role), LOGIN_SECONDS), role)


def log_out(call: Call) -> Answer:
    """End the login."""
    call.context.logins.end(_cookie(call))
    return _redirect("login", _set_cookie(call, "", 0))


def _asks_for_token(call: Call) -> bool:
    return call.context.settings.token is not None


def _token(body: bytes) -> str:
    """Return the token in the body of a form; empty if missing."""
    fields = parse_qs(body[: 4 * TOKEN_CHARS_MAX].decode("utf-8", "replace"))
    return fields.get("token", [""])[0].strip()


def _cookie(call: Call) -> str:
    return read_cookie(call.headers, call.context.port)


def _set_cookie(call: Call, value: str, seconds: int) -> str:
    is_encrypted = call.context.settings.certificate is not None
    return cookie_header(cookie_name(call.context.port), value, seconds, is_encrypted=is_encrypted)


def _redirect(path: str, cookie: str | None = None, role: Role | None = None) -> Answer:
    headers = {"location": path} | ({} if cookie is None else {"set-cookie": cookie})
    return Answer(303, b"", HTML_TYPE, headers, role)


def _page(content: str, code: int = 200) -> Answer:
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Penstock: log in</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head><body><h1>Penstock</h1>{content}</body></html>"
    )
    return Answer(code, text.encode(), HTML_TYPE, {"content-security-policy": _POLICY})


ROUTES = [
    Route("GET", "/login", form, "The form to log a browser in.", Html, access="login"),
    Route(
        "POST",
        "/login",
        log_in,
        "Takes a token, and sets a cookie for it.",
        Html,
        303,
        "login",
        body=LoginForm,
    ),
    Route("POST", "/logout", log_out, "Ends a log-in.", Html, 303, "login"),
]
