"""`penstock completion`: shell completion of commands and options."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands and options of `penstock`.

    bash: eval "$(penstock completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc. fish: penstock completion fish >
    ~/.config/fish/completions/penstock.fish.
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.ClickException(f"click has no completion for {shell}")
    click.echo(completion_class(ctx.find_root().command, {}, "penstock", "_PENSTOCK_COMPLETE").source())
