"""The OpenAPI document, generated from the table of routes.

The table of routes: the single source for the server, the OpenAPI document and the required tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import msgspec

from penstock import __version__
from penstock.server.rest.calls.answers import Html, Text
from penstock.server.rest.calls.routing import Parameter, Route, build_parameter_schema
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
def _components(routes: tuple[Route, ...]) -> tuple[dict[Any, Any], dict[str, Any]]:
    kinds = list({str(kind): kind for route in routes for kind in (route.answers, route.body)}.values())
    kinds = [kind for kind in kinds if kind is not None and kind not in (Text, Html)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return dict(zip(map(str, kinds), schemas, strict=True)), components


def document(routes: Iterable[Route], cookie: str = "penstock-rest-8081") -> dict[str, Any]:
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


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    if route.answers is Text:
        content = {"text/plain": {"schema": {"type": "string"}}}
    elif route.answers is Html:
        content = {"text/html": {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": schemas[str(route.answers)]}}
    refusal: dict[str, Any] = {"application/json": {"schema": {"$ref": "#/components/schemas/Errors"}}}
    if route.answers is Html:
        refusal |= content
    responses = {str(route.code): {"description": "As asked.", "content": content}}
    responses |= {code: {"description": text, "content": refusal} for code, text in _REFUSALS.items()}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": _operation_id(route),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": build_parameter_schema(name)}
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
        kind = "application/x-www-form-urlencoded" if route.answers is Html else "application/json"
        operation["requestBody"] = {"content": {kind: {"schema": schemas[str(route.body)]}}}
    return operation


def _operation_id(route: Route) -> str:
    return "_".join([route.method.lower(), *(part.lstrip(":") for part in route.path.split("/") if part)])


def _parameter(parameter: Parameter) -> dict[str, Any]:
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


def _order(route: Route) -> list[tuple[bool, str]]:
    """Sort fixed parts of a path before parameters, so that /jobs/overview does not match /jobs/:jobid."""
    return [(part.startswith(":"), part) for part in route.path.split("/")]


ROUTES: Final[list[Route]] = sorted(
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
