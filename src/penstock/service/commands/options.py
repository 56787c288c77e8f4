"""Options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from penstock.service.client.rest_client import RestClient

F = TypeVar("F", bound=Callable[..., Any])


def of_client(function: F) -> F:
    """Add the options for the server's address: `jobmanager` and `properties`."""
    function = click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option (repeatable).")(
        function
    )
    return click.option(
        "-m",
        "--jobmanager",
        metavar="HOST:PORT",
        help="The server; by default rest.address:rest.port, or localhost:8081.",
    )(function)


def as_json(function: F) -> F:
    """Add the option for JSON output: `is_json`."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON.")(function)


def build_client(jobmanager: str | None, properties: Sequence[str]) -> RestClient:
    """Return a client of the server that the options select."""
    from penstock.service.client.address import parse_options, resolve_address
    from penstock.service.client.rest_client import RestClient

    return RestClient(resolve_address(jobmanager, parse_options(properties)))


def print_json(value: object) -> None:
    """Print a value as indented JSON on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
