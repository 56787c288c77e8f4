"""The ASGI application: from a request to a handler and back.

Handlers run in threads. Routes that wait for a worker or for a program's process have their own thread pools, so they
never delay the other routes. Every failure becomes an answer in Flink's form; an unexpected error is logged with its
traceback and answered with 500.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from penstock.base.secrets import hide, hide_json
from penstock.operations.rest.access.logins import Role, cookie_name, read_cookie
from penstock.operations.rest.access.settings import RestSettings
from penstock.operations.rest.audit import Audit, printable
from penstock.operations.rest.calls.answers import JSON_TYPE, TEXT_TYPE, Answer, build_answer, error_answer
from penstock.operations.rest.calls.context import RestContext
from penstock.operations.rest.calls.errors import RestError
from penstock.operations.rest.calls.routing import Call, Pool, Route
from penstock.operations.rest.guards import check_access, check_host, check_origin, check_own_page, get_role
from penstock.operations.rest.openapi import document
from penstock.operations.rest.page_files import page_file
from penstock.operations.rest.policies import DATA_POLICY
from penstock.operations.rest.table import ROUTES

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
THREADS: Final[dict[Pool, int]] = {"quick": 32, "workers": 16, "programs": 4}
#: The path of the OpenAPI document, which Flink does not serve.
OPENAPI_PATH: Final = "/openapi.json"

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]


def application(context: RestContext, settings: RestSettings) -> Starlette:
    """Build the application with all routes, each with and without /v1."""
    context.settings = settings
    door = _Door(context, settings)
    described = Route(
        "GET",
        OPENAPI_PATH,
        lambda call: document(ROUTES, cookie_name(call.context.port)),
        "This document.",
        dict[str, Any],
    )
    routes = [
        StarletteRoute(prefix + starlette_path(route.path), door.endpoint(route), methods=[route.method])
        for prefix in ("", "/v1")
        for route in [*ROUTES, described]
    ]
    routes += [StarletteRoute(path, door.page, methods=["GET"]) for path in ("/", "/assets/{name:str}")]
    return Starlette(routes=routes, exception_handlers={HTTPException: door.refuse_unrouted})


def starlette_path(path: str) -> str:
    """Convert a path with parameters to Starlette's notation."""
    return "/".join(f"{{{part[1:]}}}" if part.startswith(":") else part for part in path.split("/"))


class _Door:
    """Checks requests, calls their handlers and builds the responses."""

    def __init__(self, context: RestContext, settings: RestSettings) -> None:
        self._context = context
        self._settings = settings
        self._headers = dict(_HEADERS)
        self._audit = Audit()
        #: thread limits by kind of route, created in the event loop
        self._pools: dict[Pool, CapacityLimiter] = {}
        if settings.allow_origin is not None:
            self._headers["access-control-allow-origin"] = settings.allow_origin

    def endpoint(self, route: Route) -> Endpoint:
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

    async def _answer(self, route: Route, request: Request, role: Role, by_cookie: bool) -> Answer:
        try:
            check_host(self._settings, request.headers)
            if route.must_be_own:
                (check_own_page if by_cookie and role != "nobody" else check_origin)(self._settings, request.headers)
            check_access(self._settings, route.access, role)
            call = Call(
                self._context,
                route.check({name: str(value) for name, value in request.path_params.items()}),
                dict(request.query_params),
                await _body(request, self._settings.upload_bytes_max if route.is_upload else BODY_BYTES_MAX),
                request.headers.get("content-type", ""),
                request.headers,
            )
            return build_answer(route.code, await self._in_thread(route.pool, route.handler, call))
        except RestError as error:
            return error_answer(error.code, error.message)
        except ClientDisconnect:
            return error_answer(400, "the client is gone")
        except Exception:  # noqa: BLE001 - the client gets an answer, and the log the traceback
            _log.exception("%s %s failed", route.method, printable(request.url.path))
            return error_answer(500, "Internal server error; the log of the driver has its traceback.")

    async def _in_thread(self, pool: Pool, function: Callable[[Any], T], argument: Any) -> T:
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
        except RestError as refusal:
            return self._response(error_answer(refusal.code, refusal.message))

    async def refuse_unrouted(self, request: Request, error: Exception) -> Response:
        """Answer 404 for unknown paths and, as in Flink, for known paths with another method."""
        try:
            check_host(self._settings, request.headers)
        except RestError as refusal:
            return self._response(error_answer(refusal.code, refusal.message))
        path = request.url.path[:200]
        message = f"Unable to load requested file {path}." if request.method == "GET" else f"Not found: {path}"
        return self._response(error_answer(404, message))

    def _response(self, answer: Answer) -> Response:
        headers = {**self._headers, **answer.headers, "content-type": answer.content_type}
        body = answer.body
        if answer.content_type == JSON_TYPE:
            body = hide_json(body.decode()).encode()
        elif answer.content_type == TEXT_TYPE:
            body = hide(body.decode("utf-8", "replace")).encode()
        if answer.code == 401:
            headers["www-authenticate"] = "Bearer"
        return Response(body, answer.code, headers)


async def _body(request: Request, bytes_max: int) -> bytes:
    """Return the body, or raise 413 if it is too large."""
    if request.method in ("GET", "HEAD"):
        return b""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > bytes_max:
            raise RestError(413, f"the body is larger than {bytes_max} bytes")
        parts.append(part)
    return b"".join(parts)
