"""`penstock version`."""

from __future__ import annotations

import click


@click.command("version")
def command() -> None:
    """Print the version."""
    from importlib.metadata import version

    click.echo(f"penstock {version('penstock')}")
