"""Shows the plan of a program, using a process that stops at the program's first job.

Draws a plan of the REST API, or of `get_execution_plan`, in the terminal or a file.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text
from rich.tree import Tree

from penstock.base.errors import WrongValueError
from penstock.cli.client.rest_client import parse_options
from penstock.cli.program.launch import RunFlags, build_program_spec, options_of_flags

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
        from penstock.cli.console import result_console

        result_console().print(picture({"name": Path(script).name} | json.loads(completed.stdout)))
    return 0


_BREAK: Final = "<br/>"


def picture(plan: Mapping[str, Any]) -> Tree:
    """Return a tree from the sinks up, each node's inputs below it. A node with several readers is expanded once."""
    nodes = {str(node["id"]): node for node in plan["nodes"]}
    read = {source for node in nodes.values() for source, _ in get_inputs(node)}
    root = Tree(Text(str(plan.get("name") or "plan"), "bold"))
    drawn: set[str] = set()
    for node_id in nodes:
        if node_id not in read:
            _grow(root, nodes, node_id, "", drawn)
    return root


def get_inputs(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the ids of a node's inputs, each with how records come from it."""
    inputs = node.get("inputs") or node.get("predecessors") or []
    return [(str(edge["id"]), str(edge.get("ship_strategy") or "FORWARD")) for edge in inputs]


def format_label(node: Mapping[str, Any]) -> str:
    """Return a node's name."""
    return str(node.get("description") or node.get("contents") or node.get("type")).replace(_BREAK, " ").strip()


def _grow(above: Tree, nodes: Mapping[str, Mapping[str, Any]], node_id: str, way: str, drawn: set[str]) -> None:
    node = nodes[node_id]
    label = Text(format_label(node)).append(f"  x{node['parallelism']}", "cyan")
    if way:
        label = Text(f"{way} <- ", "dim").append_text(label)
    if node_id in drawn:
        above.add(label.append("  (above)", "dim"))
        return
    drawn.add(node_id)
    branch = above.add(label)
    for source, how in get_inputs(node):
        if source in nodes:
            _grow(branch, nodes, source, how, drawn)


def written(plan: Mapping[str, Any], output: Path) -> None:
    """Write a job's plan as Mermaid or JSON.

    Raises:
        WrongValueError: if the file has another extension.
    """
    if output.suffix in (".mmd", ".mermaid"):
        output.write_text(mermaid(plan))
    elif output.suffix == ".json":
        output.write_text(json.dumps(plan, indent=2))
    else:
        raise WrongValueError(f"-o writes the plan of a job as .mmd (Mermaid) or .json, not as {output.name}")


def mermaid(plan: Mapping[str, Any]) -> str:
    """Return the plan as a Mermaid flowchart."""
    numbers = {str(node["id"]): number for number, node in enumerate(plan["nodes"])}
    lines = ["flowchart LR"]
    for node in plan["nodes"]:
        label = format_label(node).replace('"', "#quot;")
        lines.append(f'    v{numbers[str(node["id"])]}["{label}<br/>x{node["parallelism"]}"]')
    for node in plan["nodes"]:
        for source, way in get_inputs(node):
            if source in numbers:
                lines.append(f"    v{numbers[source]} -- {way} --> v{numbers[str(node['id'])]}")
    return "\n".join(lines) + "\n"
