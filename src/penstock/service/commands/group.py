"""Command groups that load their commands on demand, and print errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from penstock.base.errors import PenstockError
from penstock.base.secrets import hide

#: The help options of every command.
HELP = {"help_option_names": ["-h", "--help"]}


class Commands(click.Group):
    """A group whose commands are modules with a `command`, imported when one is called or listed.

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
        command: click.Command = import_module(self._modules[cmd_name]).command
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
