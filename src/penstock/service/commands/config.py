"""`penstock config`: the options in effect outside of programs, and the meaning of an option."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.service.commands.options import as_json, print_json


@click.command("config")
@click.option("--explain", "key", metavar="KEY", help="Explain one option: type, default, purpose, effective value.")
@click.option("--all", "everything", is_flag=True, help="Include unset options, with their defaults.")
@click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option (repeatable).")
@as_json
def command(key: str | None, everything: bool, properties: Sequence[str], is_json: bool) -> None:
    """Print the options that apply if a program sets none, and the source of each. Secrets are hidden."""
    from penstock.drivers.settings.explained import effective, explained
    from penstock.service.client.address import parse_options, resolve_settings

    settings = resolve_settings(parse_options(properties))
    if key is not None:
        explanation = explained(key, settings)
        if is_json:
            print_json(explanation)
        else:
            for name, value in explanation.items():
                click.echo(f"{name + ':':<13} {'(none)' if value is None else value}")
        return
    options = effective(settings, everything)
    if is_json:
        print_json([option.as_dict() for option in options])
        return
    if not options:
        click.echo("No option is set: there is no config.yaml, and no -D.")
    for option in options:
        click.echo(f"{option.key}: {'' if option.value is None else option.value}  # {option.origin}")
        if option.problem is not None:
            click.echo(f"warning: {option.problem}", err=True)
