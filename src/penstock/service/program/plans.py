"""Shows the plan of a program, using a process that stops at the program's first job."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.base.errors import WrongValueError
from penstock.service.client.address import parse_options
from penstock.service.program.spec import RunFlags, build_program_spec, options_of_flags

_FORMS = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".json": "json"}


def show_program(
    script: str,
    arguments: Sequence[str],
    output: Path | None,
    parallelism: int | None,
    properties: Sequence[str],
    is_json: bool,
) -> int:
    """Print or draw a program's plan. Returns the exit code.

    Raises:
        WrongValueError: if the output file has another extension.
        MissingPathError: if the program does not exist.
    """
    if output is not None and output.suffix not in _FORMS:
        raise WrongValueError(f"-o draws .svg, .mmd (Mermaid) or .json, not {output.name}")
    form = _FORMS[output.suffix] if output is not None else "json"
    options = options_of_flags(RunFlags(parallelism=parallelism)) | parse_options(properties)
    spec = build_program_spec(script, None, arguments, options, None)
    command, environment = spec.command(("--plan", form)), spec.environment(os.environ)
    completed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if completed.returncode:
        return completed.returncode
    if output is not None:
        output.write_text(completed.stdout)
        click.echo(f"The plan is in {output}.")
    elif is_json:
        click.echo(completed.stdout.rstrip())
    else:
        from penstock.service.program.consoles import result_console
        from penstock.service.program.pictures import picture

        result_console().print(picture({"name": Path(script).name} | json.loads(completed.stdout)))
    return 0
