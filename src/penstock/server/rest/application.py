"""The ASGI application of the REST API: routes, access checks, the audit log, the web page, and the OpenAPI document.

`ROUTES` is the table of routes: the single source for the server, the OpenAPI document and the required tokens.

`document` generates the OpenAPI document from the table.

**Access checks** of host names, origins and tokens come before a handler is called.

- The Host header must be a name of this server or an IP address. A page whose name resolves to this server (DNS
  rebinding) sends its own name.
- A request that changes something is refused if a browser sends it for another site's page (CSRF): browsers state this
  in Origin, Referer or Sec-Fetch-Site, and programs send none of them.
- Changes need the operator's token, and routes that reveal something need the reader's or the operator's. If a reader's
  token is set, every route except the login needs one of the two. Without tokens, this host is trusted. An empty or
  blank token grants no role, and `RestSettings` refuses one.
- A browser that is logged in sends a cookie instead (`Logins`). A change by cookie also requires the browser to state
  that a page of this server sent the request, because browsers send cookies for other pages as well.

`Audit` is the log of requests: one line per change, and a bounded number of lines for refused requests.

**The web page.** `page_file` serves `index.html` at `/`, and its assets. With the Content-Security-Policy of answers,
browsers load nothing else, whatever a name or a record injects.

`application`: handlers run in threads. Routes that wait for a worker or for a program's process have their own thread
pools, so they never delay the other routes. Every failure becomes an answer in Flink's form; an unexpected error is
logged with its traceback and answered with 500.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route as StarletteRoute

from penstock import __version__
from penstock.base.errors import MissingPathError, shorten
from penstock.base.secrets import hide, hide_json
from penstock.server.page import files
from penstock.server.rest.calls import routing
from penstock.server.rest.calls.context import RestContext, RestSettings, Role, cookie_name, read_cookie, role_of_token
from penstock.server.rest.handlers import checkpoints, cluster, jobs, metrics, programs, rescales, vertices

#: Error answers, for a refused path, query or body.
_REFUSALS = {
    "400": "A parameter, or the body, is wrong.",
    "401": "A token is needed.",
    "403": "Refused: another host, another site, or a token that is not good enough.",
    "404": "There is no such thing.",
    "409": "The job is not in a state for it.",
    "413": "The body is too large.",
    "429": "Too many operations are under way.",
}

#: The credentials that routes accept without requiring any; {} stands for no credentials.
_SECURITY: dict[str, list[dict[str, list[str]]]] = {"open": [{}, {"token": []}, {"login": []}], "login": [{}]}


@cache
def _components(routes: tuple[routing.Route, ...]) -> tuple[dict[Any, Any], dict[str, Any]]:
    kinds = list({str(kind): kind for route in routes for kind in (route.answers, route.body)}.values())
    kinds = [kind for kind in kinds if kind is not None and kind not in (routing.Text, routing.Html)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return dict(zip(map(str, kinds), schemas, strict=True)), components


def document(routes: Iterable[routing.Route], cookie: str = "penstock-rest-8081") -> dict[str, Any]:
    """Build the document of all routes, omitting their /v1 twins; `cookie` names the login cookie."""
    listed = tuple(routes)
    schemas, components = _components(listed)
    paths: dict[str, dict[str, Any]] = {}
    for route in listed:
        path = "/".join(f"{{{part[1:]}}}" if part.startswith(":") else part for part in route.path.split("/"))
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schemas)
    errors = {"type": "object", "properties": {"errors": {"type": "array", "items": {"type": "string"}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": __version__, "description": "Flink's REST API over Penstock's jobs."},
        "servers": [{"url": "/"}, {"url": "/v1"}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Errors": errors | {"required": ["errors"]}},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "login": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": cookie,
                    "description": "POST /login sets it, for 12 hours. A change needs an Origin, a Referer or a "
                    "Sec-Fetch-Site of this server, too.",
                },
            },
        },
    }


def _operation(route: routing.Route, schemas: dict[str, Any]) -> dict[str, Any]:
    if route.answers is routing.Text:
        content = {"text/plain": {"schema": {"type": "string"}}}
    elif route.answers is routing.Html:
        content = {"text/html": {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": schemas[str(route.answers)]}}
    refusal: dict[str, Any] = {"application/json": {"schema": {"$ref": "#/components/schemas/Errors"}}}
    if route.answers is routing.Html:
        refusal |= content
    responses = {str(route.code): {"description": "As asked.", "content": content}}
    responses |= {code: {"description": text, "content": refusal} for code, text in _REFUSALS.items()}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": _operation_id(route),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": routing.build_parameter_schema(name)}
            for name in route.parameters
        ]
        + [_parameter(parameter) for parameter in route.query],
        "responses": responses,
        "security": _SECURITY.get(route.access, [{"token": []}, {"login": []}, {}]),
    }
    if route.is_upload:
        form = {"type": "object", "properties": {"jarfile": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"content": {"multipart/form-data": {"schema": form}}}
    if route.body is not None:
        kind = "application/x-www-form-urlencoded" if route.answers is routing.Html else "application/json"
        operation["requestBody"] = {"content": {kind: {"schema": schemas[str(route.body)]}}}
    return operation


def _operation_id(route: routing.Route) -> str:
    return "_".join([route.method.lower(), *(part.lstrip(":") for part in route.path.split("/") if part)])


def _parameter(parameter: routing.Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.kind}
    if parameter.values:
        schema["enum"] = list(parameter.values)
    if parameter.kind == "integer":
        schema |= {"minimum": 0, "maximum": 10**9 - 1}
    return {
        "name": parameter.name,
        "in": "query",
        "required": False,
        "description": parameter.description,
        "schema": schema,
    }


def _order(route: routing.Route) -> list[tuple[bool, str]]:
    """Sort fixed parts of a path before parameters, so that /jobs/overview does not match /jobs/:jobid."""
    return [(part.startswith(":"), part) for part in route.path.split("/")]


ROUTES: Final[list[routing.Route]] = sorted(
    [
        *checkpoints.ROUTES,
        *cluster.ROUTES,
        *jobs.ROUTES,
        *metrics.ROUTES,
        *programs.ROUTES,
        *rescales.ROUTES,
        *vertices.ROUTES,
    ],
    key=_order,
)


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
        raise routing.RestError(
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
            raise routing.RestError(
                403, f"the {name} {value[:100]!r} is another site, which may not change anything here"
            )
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and "origin" not in headers:
        raise routing.RestError(403, "a page of another site may not change anything here")


def check_own_page(settings: RestSettings, headers: Mapping[str, str]) -> None:
    """Refuse a change by cookie, unless the browser states that a page of this server requests it."""
    check_origin(settings, headers)
    if "origin" in headers or "referer" in headers or headers.get("sec-fetch-site") == "same-origin":
        return
    raise routing.RestError(403, "a log-in changes something only for a page of this server; a program sends the token")


def get_role(settings: RestSettings, headers: Mapping[str, str]) -> Role:
    """Return the role that the request's token grants."""
    kind, _, given = headers.get("authorization", "").partition(" ")
    return role_of_token(settings, given.strip()) if kind.lower() == "bearer" else "nobody"


def check_access(settings: RestSettings, access: routing.Access, role: Role) -> None:
    """Refuse a request whose token is missing or insufficient."""
    if settings.token is None or role == "operator" or access == "login":
        return
    if access == "open" and (settings.reader_token is None or role == "reader"):
        return
    if access == "reveals" and role == "reader":
        return
    if role == "reader":
        raise routing.RestError(403, "the reader's token may not change anything: this needs the operator's")
    raise routing.RestError(401, "this needs a token: Authorization: Bearer <token>, or a log-in at /login")


_audit = logging.getLogger("penstock.audit")

#: The number of characters of a path in a line.
PATH_CHARS_MAX: Final = 200
#: The number of refused requests that are logged per period (s); a later line counts the rest.
REFUSED_MAX: Final = 20
PERIOD_SECONDS: Final = 60.0


def printable(path: str) -> str:
    """Return a path for the log: on one line, in printable characters, and shortened."""
    return shorten(path[: 2 * PATH_CHARS_MAX].encode("unicode_escape").decode("ascii"), PATH_CHARS_MAX)


class Audit:
    """Logs who changed something, and who was refused. Thread-safe."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._began = -PERIOD_SECONDS
        self._refused = 0

    def note(self, method: str, path: str, asker: str, where: str, code: int) -> None:
        """Log the answer to a request that may change something."""
        if code >= 400 and not self._may_tell():
            return
        _audit.info("%s %s by %s from %s: %d", method, printable(path), asker, where, code)

    def _may_tell(self) -> bool:
        with self._lock:
            now = self._now()
            if now - self._began >= PERIOD_SECONDS:
                if self._refused > REFUSED_MAX:
                    _audit.info("%d more requests were refused in between", self._refused - REFUSED_MAX)
                self._began, self._refused = now, 0
            self._refused += 1
            if self._refused == REFUSED_MAX + 1:
                _audit.info("further refused requests leave no line for up to %.0f s", PERIOD_SECONDS)
            return self._refused <= REFUSED_MAX


#: For the page: only its own files. The built page has the same policy, except for frames, which only a header can
#: forbid.
PAGE_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-src 'none'; frame-ancestors 'none'"
)
#: For data: nothing at all.
DATA_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


_PAGE_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "content-security-policy": PAGE_POLICY,
}


def page_file(asset: str | None) -> FileResponse:
    """Return the page, or one of its assets by name. Asset names change with their content, so browsers cache them.

    Raises:
        RestError: 404 if the file does not exist, or this installation has no page.
    """
    try:
        root = files()
    except MissingPathError as error:
        raise routing.RestError(404, str(error)) from error
    if asset is None:
        return FileResponse(root / "index.html", headers={**_PAGE_HEADERS, "cache-control": "no-store"})
    known = {path.name: path for path in (root / "assets").iterdir()}
    if asset not in known:
        raise routing.RestError(404, f"Unable to load requested file /assets/{asset[:200]}.")
    return FileResponse(known[asset], headers={**_PAGE_HEADERS, "cache-control": "public, max-age=31536000, immutable"})


_log = logging.getLogger("penstock.rest")

#: The largest request body. Only the upload of a program may be larger.
BODY_BYTES_MAX: Final = 1 << 20
_HEADERS: Final = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "content-security-policy": DATA_POLICY,
}
#: The number of handlers of each kind that run at a time.
THREADS: Final[dict[routing.Pool, int]] = {"quick": 32, "workers": 16, "programs": 4, "statements": 256}
#: The path of the OpenAPI document, which Flink does not serve.
OPENAPI_PATH: Final = "/openapi.json"

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]


def application(
    context: RestContext, settings: RestSettings, table: Sequence[routing.Route] | None = None
) -> Starlette:
    """Build the application with all routes of a table, by default `ROUTES`, each with and without /v1."""
    context.settings = settings
    table = ROUTES if table is None else table
    door = Door(context, settings)
    described = routing.Route(
        "GET",
        OPENAPI_PATH,
        lambda call: document(table, cookie_name(call.context.port)),
        "This document.",
        dict[str, Any],
    )
    routes = [
        StarletteRoute(prefix + starlette_path(route.path), door.endpoint(route), methods=[route.method])
        for prefix in ("", "/v1")
        for route in [*table, described]
    ]
    routes += [StarletteRoute(path, door.page, methods=["GET"]) for path in ("/", "/assets/{name:str}")]
    return Starlette(routes=routes, exception_handlers={HTTPException: door.refuse_unrouted})


def starlette_path(path: str) -> str:
    """Convert a path with parameters to Starlette's notation."""
    return "/".join(f"{{{part[1:]}}}" if part.startswith(":") else part for part in path.split("/"))


class Door:
    """Checks requests, calls their handlers and builds the responses."""

    #: The message for an unknown path, if the method is GET.
    unknown_path = "Unable to load requested file {}."

    def __init__(self, context: RestContext, settings: RestSettings) -> None:
        self._context = context
        self._settings = settings
        self._headers = dict(_HEADERS)
        self._audit = Audit()
        #: thread limits by kind of route, created in the event loop
        self._pools: dict[routing.Pool, CapacityLimiter] = {}
        if settings.allow_origin is not None:
            self._headers["access-control-allow-origin"] = settings.allow_origin

    def endpoint(self, route: routing.Route) -> Endpoint:
        """Return the Starlette endpoint for a route."""

        async def endpoint(request: Request) -> Response:
            role, by_cookie = self._asker(request)
            answer = await self._answer(route, request, role, by_cookie)
            if route.must_be_own:
                asker = "anybody" if self._settings.token is None else answer.asker or role
                where = request.client.host if request.client is not None else "?"
                self._audit.note(route.method, request.url.path, asker, where, answer.code)
            return self._response(answer)

        return endpoint

    def _asker(self, request: Request) -> tuple[Role, bool]:
        """Return the caller's role, and whether a cookie grants it. A header with a token takes precedence."""
        if request.headers.get("authorization", "").lower().startswith("bearer"):
            return get_role(self._settings, request.headers), False
        value = read_cookie(request.headers, self._context.port)
        return (self._context.logins.get_role(value), True) if value else ("nobody", False)

    async def _answer(self, route: routing.Route, request: Request, role: Role, by_cookie: bool) -> routing.Answer:
        try:
            check_host(self._settings, request.headers)
            if route.must_be_own:
                (check_own_page if by_cookie and role != "nobody" else check_origin)(self._settings, request.headers)
            check_access(self._settings, route.access, role)
            call = routing.Call(
                self._context,
                route.check({name: str(value) for name, value in request.path_params.items()}),
                dict(request.query_params),
                await _body(request, route, self._settings.upload_bytes_max if route.is_upload else BODY_BYTES_MAX),
                request.headers.get("content-type", ""),
                request.headers,
            )
            return routing.build_answer(route.code, await self._in_thread(route.pool, route.handler, call))
        except routing.RestError as error:
            return routing.error_answer(error.code, error.message)
        except ClientDisconnect:
            return routing.error_answer(400, "the client is gone")
        except Exception:  # noqa: BLE001 - the client gets an answer, and the log the traceback
            _log.exception("%s %s failed", route.method, printable(request.url.path))
            return routing.error_answer(500, "Internal server error; the log of the driver has its traceback.")

    async def _in_thread(self, pool: routing.Pool, function: Callable[[Any], T], argument: Any) -> T:
        """Call a function in a thread of a pool; wait as long as the pool is full."""
        limiter = self._pools.get(pool)
        if limiter is None:
            limiter = self._pools[pool] = CapacityLimiter(THREADS[pool])
        return await run_sync(function, argument, limiter=limiter)

    async def page(self, request: Request) -> Response:
        """Serve a file of the web page. Its files hold no data, so they need no token; the page asks for one itself."""
        try:
            check_host(self._settings, request.headers)
            return await self._in_thread("quick", page_file, request.path_params.get("name"))
        except routing.RestError as refusal:
            return self._response(routing.error_answer(refusal.code, refusal.message))

    async def refuse_unrouted(self, request: Request, error: Exception) -> Response:
        """Answer 404 for unknown paths and, as in Flink, for known paths with another method."""
        try:
            check_host(self._settings, request.headers)
        except routing.RestError as refusal:
            return self._response(routing.error_answer(refusal.code, refusal.message))
        path = request.url.path[:200]
        message = self.unknown_path.format(path) if request.method == "GET" else f"Not found: {path}"
        return self._response(routing.error_answer(404, message))

    def _response(self, answer: routing.Answer) -> Response:
        headers = {**self._headers, **answer.headers, "content-type": answer.content_type}
        body = answer.body
        if answer.has_rows:
            pass  # what a query has read is not changed
        elif answer.content_type == routing.JSON_TYPE:
            body = hide_json(body.decode()).encode()
        elif answer.content_type == routing.TEXT_TYPE:
            body = hide(body.decode("utf-8", "replace")).encode()
        if answer.code == 401:
            headers["www-authenticate"] = "Bearer"
        return Response(body, answer.code, headers)


async def _body(request: Request, route: routing.Route, bytes_max: int) -> bytes:
    """Return the body, or raise 413 if it is too large. That of a GET is ignored, unless the route takes one."""
    if request.method in ("GET", "HEAD") and route.body is None:
        return b""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > bytes_max:
            raise routing.RestError(413, f"the body is larger than {bytes_max} bytes")
        parts.append(part)
    return b"".join(parts)
