"""The base of the commands: groups, shared options, the output console, and human-readable sizes.

Groups load their commands on demand, and print errors in one line. Commands print tables and pictures on the result
console.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from penstock.base.errors import PenstockError
from penstock.base.secrets import hide

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.cli.client.rest_client import RestClient


#: The help options of every command.
HELP = {"help_option_names": ["-h", "--help"]}


class Commands(click.Group):
    """A group that imports its commands when one is called or listed: the function `NAME_command` of a module.

    An error raised by Penstock ends the command with exit code 1, after one line on stderr.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._modules = dict(modules or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._modules, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return super().get_command(ctx, cmd_name)
        module = import_module(self._modules[cmd_name])
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            click.echo(hide(f"error: {error}"), err=True)
            sys.exit(1)
        except BrokenPipeError:  # the reader of the output, such as head, has closed it
            sys.stderr.close()
            sys.exit(0)


class DefaultCommand(click.Group):
    """A group with a default command for calls that name none."""

    default = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in HELP["help_option_names"]:
            args = [self.default, *args]
        return super().parse_args(ctx, args)


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
    from penstock.cli.client.rest_client import RestClient, parse_options, resolve_address

    return RestClient(resolve_address(jobmanager, parse_options(properties)))


def print_json(value: object) -> None:
    """Print a value as indented JSON on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


#: The line width (characters) without a terminal. Tables use only the width that they need.
_PIPED_WIDTH: Final = 2_000


def result_console() -> Console:
    """Return the console for tables and pictures on stdout; it does not truncate them in a file or a pipe."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=_PIPED_WIDTH)


def size_text(size: float) -> str:
    """Return a number of bytes in human-readable form."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
