"""The command `penstock cdc`, which runs a pipeline of a whole database, or shows what it would do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click


@click.command("cdc")
@click.argument("pipeline", type=click.Path(path_type=Path), metavar="PIPELINE.YAML")
@click.option("--dry-run", is_flag=True, help="Show tables, routes and the resulting schemas, and write nothing.")
@click.option("-d", "--detached", is_flag=True, help="Return once the job has started; it goes on in the background.")
@click.option("-p", "--parallelism", type=click.IntRange(1), help="Set parallelism.default.")
@click.option(
    "-s", "--from-savepoint", "--fromSavepoint", "savepoint", metavar="PATH", help="Start from this savepoint."
)
@click.option(
    "-n", "--allow-nonRestored-state", "--allowNonRestoredState", "allow", is_flag=True, help="Skip unknown state."
)
@click.option("-cm", "--claim-mode", "claim_mode", help="Who owns the savepoint: claim or no_claim.")
@click.option("-t", "--target", metavar="TARGET", help="Set execution.target: spark or local.")
@click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option (repeatable).")
@click.option("--rest/--no-rest", default=True, help="Serve the REST API at the first free port from 8081.")
@click.option("--log-dir", metavar="DIR", help="The directory for the output of a detached pipeline.")
def cdc_command(
    pipeline: Path,
    dry_run: bool,
    detached: bool,
    parallelism: int | None,
    savepoint: str | None,
    allow: bool,
    claim_mode: str | None,
    target: str | None,
    properties: Sequence[str],
    rest: bool,
    log_dir: str | None,
) -> None:
    """Copy the tables of a database, and all their changes, as PIPELINE.YAML says (in the form of Flink CDC).

    The options apply unless the section `pipeline` sets them.
    """
    from penstock.cdc.definition import load_definition
    from penstock.cdc.pipeline import check_definition, describe_plan, find_table_events, plan_tables
    from penstock.cli.client.rest_client import parse_options, resolve_settings
    from penstock.cli.program.launch import (
        ProgramSpec,
        RunFlags,
        log_file,
        options_of_flags,
        run_attached,
        run_detached,
        with_rest,
    )
    from penstock.cli.program.reports import format_event

    definition = load_definition(pipeline)
    sys.path.insert(0, str(pipeline.absolute().parent))
    if dry_run:
        for line in describe_plan(definition, plan_tables(definition, find_table_events(definition))):
            click.echo(line)
        return
    check_definition(definition)
    flags = RunFlags(
        parallelism=parallelism, savepoint=savepoint, allow_non_restored=allow, claim_mode=claim_mode, target=target
    )
    options = options_of_flags(flags) | parse_options(properties)
    options = with_rest(options, resolve_settings(options), rest)
    spec = ProgramSpec("penstock.cdc.pipeline", (str(pipeline.absolute()),), options, is_module=True)
    if not detached:
        run_attached(spec)
        return
    process = run_detached(spec, log_file("cdc", log_dir), lambda event: click.echo("\n".join(format_event(event))))
    click.echo(f"The pipeline goes on as process {process}")
