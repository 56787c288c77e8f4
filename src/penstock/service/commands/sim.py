"""`penstock sim`: simulated clusters, one per seed."""

from __future__ import annotations

import click


@click.command(
    "sim",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Run simulated clusters, one per seed, and check Penstock's guarantees, as penstock-sim does."""
    from penstock.drivers.simulation.command.cli import main

    main.main(ctx.args, prog_name="penstock sim")
