"""Launch of the program that `penstock run` names, and the display of its plan.

`ProgramSpec` is the program and its Python command line. It starts either in place of this process or detached from it.

`show_program` starts a process that stops at the program's first job, and takes the plan from it. The functions after
it draw a plan of the REST API, or of `get_execution_plan`, in the terminal or a file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import click
from rich.text import Text
from rich.tree import Tree

from penstock.base.errors import MissingPathError, OperationError, UnsupportedError, WrongValueError
from penstock.base.options import EXECUTION_TARGET, PARALLELISM, PYTHON_ARCHIVES, PYTHON_EXECUTABLE, PYTHON_FILES
from penstock.cli.client.rest_client import parse_options
from penstock.cli.program.reports import REPORT_VARIABLE
from penstock.drivers.global_configuration import OPTIONS_VARIABLE, Setting, handed_over
from penstock.drivers.logs import OUTPUT_VARIABLE

_RUNNER: Final = "penstock.cli.program.runner"
#: The ports to try by default: Flink's port and the next ones.
REST_PORTS: Final = "8081-8180"


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """A program.

    Attributes:
        target: the path of a script or, for a module, its name.
        arguments: the program's arguments, which follow its name in `sys.argv`.
        options: the options of the command line, by key.
        is_module: whether the target is a module.
        interpreter: the Python that runs it; None for this one.
    """

    target: str
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] | None = None
    is_module: bool = False
    interpreter: str | None = None

    def command(self, runner_options: Sequence[str] = (), runner: str = _RUNNER) -> list[str]:
        """Return the command line that runs the program with the module `runner`."""
        module = ["--module"] if self.is_module else []
        return [
            self.interpreter or sys.executable,
            "-m",
            runner,
            *runner_options,
            *module,
            self.target,
            *self.arguments,
        ]

    def environment(self, outer: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for the program: `outer` with its options, and with its files on the import path."""
        options = dict(self.options or {})
        inner = dict(outer) | {OPTIONS_VARIABLE: handed_over(options)}
        files = [os.path.abspath(file) for file in options.get(PYTHON_FILES.key(), "").split(",") if file]
        import_paths = [str(Path(file).parent) if file.endswith(".py") else file for file in files]
        if import_paths:
            inner["PYTHONPATH"] = os.pathsep.join(
                [*dict.fromkeys(import_paths), *filter(None, [outer.get("PYTHONPATH")])]
            )
        return inner


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The flags of `penstock run` that stand for configuration options; None if not given."""

    parallelism: int | None = None
    savepoint: str | None = None
    allow_non_restored: bool = False
    claim_mode: str | None = None
    files: str | None = None
    archives: str | None = None
    requirements: str | None = None
    executable: str | None = None
    target: str | None = None


def options_of_flags(flags: RunFlags) -> dict[str, str]:
    """Return the options that the flags stand for.

    Raises:
        UnsupportedError: if requirements are given, because executors install nothing.
    """
    if flags.requirements is not None:
        raise UnsupportedError(
            "-pyreq: executors install nothing. Pack their packages with penstock package-env, and name the archive "
            "with -pyarch"
        )
    named = {
        PARALLELISM.key(): None if flags.parallelism is None else str(flags.parallelism),
        "execution.state-recovery.path": flags.savepoint,
        "execution.state-recovery.ignore-unclaimed-state": "true" if flags.allow_non_restored else None,
        "execution.state-recovery.claim-mode": None if flags.claim_mode is None else flags.claim_mode.upper(),
        PYTHON_FILES.key(): flags.files,
        PYTHON_ARCHIVES.key(): flags.archives,
        PYTHON_EXECUTABLE.key(): flags.executable,
        EXECUTION_TARGET.key(): flags.target,
    }
    return {key: value for key, value in named.items() if value is not None}


def with_rest(options: Mapping[str, str], settings: Mapping[str, Setting], enabled: bool) -> dict[str, str]:
    """Return the options with a port for the REST API, unless a port is set or the API is not wanted.

    Raises:
        WrongValueError: if the API is not wanted but an option sets a port.
    """
    keys = [key for key in ("rest.port", "rest.bind-port") if key in settings]
    if enabled:
        return dict(options) if keys else {**options, "rest.bind-port": REST_PORTS}
    if keys:
        raise WrongValueError(f"--no-rest contradicts {keys[0]}, which {settings[keys[0]].origin} sets")
    return dict(options)


def build_program_spec(
    script: str | None, module: str | None, arguments: Sequence[str], options: Mapping[str, str], python: str | None
) -> ProgramSpec:
    """Return the program that the command line names.

    Raises:
        MissingPathError: if the script does not exist.
        WrongValueError: if it is a jar.
    """
    if module is not None:
        given = arguments if script is None else (script, *arguments)
        return ProgramSpec(module, tuple(given), options, True, python)
    assert script is not None, "the command asks for one of them"
    if script.endswith(".jar"):
        raise WrongValueError(f"{script} is a jar: Penstock runs Python programs")
    if not os.path.isfile(script):
        raise MissingPathError(f"{script} is no file")
    return ProgramSpec(script, tuple(arguments), options, False, python)


#: The default directory for the output of detached programs; the variable and the command line override it.
LOG_DIRECTORY: Final = Path("~/.penstock/logs")
LOG_VARIABLE: Final = "PENSTOCK_LOG_DIR"
#: How much output (characters) to show when a program ends before it has started a job.
OUTPUT_TOLD: Final = 2_000


def run_attached(spec: ProgramSpec) -> None:
    """Replace this process with the program. Returns only through an error of the operating system."""
    sys.stdout.flush()
    command = spec.command()
    os.execvpe(command[0], command, spec.environment(os.environ))


def run_detached(spec: ProgramSpec, log: Path, on_event: Callable[[dict[str, Any]], None]) -> int:
    """Start the program in its own session, and wait until it has started its first job.

    Returns:
        The id of its process.

    Raises:
        OperationError: if it ends before it has started a job, or its job cannot start from the savepoint; the
            message has the reason.
    """
    with started_detached(spec.command(), spec.environment(os.environ), log) as (process, reports):
        for event in reports:
            if event["event"] == "refused":
                raise OperationError(event["reason"])
            on_event(event)
            if event["event"] == "submitted":
                return process.pid
    code, end = process.wait(), end_of_log(log)
    raise OperationError(f"the program ended with {code} before it began a job; its output is in {log}\n{end}")


def end_of_log(log: Path) -> str:
    """Return the end of the output."""
    return log.read_text(errors="replace")[-OUTPUT_TOLD:].strip()


@contextmanager
def started_detached(
    command: Sequence[str], environment: Mapping[str, str], log: Path, text: str | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[dict[str, Any]]]]:
    """Start a process in its own session; yield it and its reports, until it ends or closes them.

    Its standard input is a text, or nothing.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    reader, writer = os.pipe()
    more = {REPORT_VARIABLE: str(writer), OUTPUT_VARIABLE: str(log.absolute())}
    with os.fdopen(reader) as reports, log.open("ab") as output:
        process = _started(command, {**environment, **more}, writer, output, text)
        yield process, map(json.loads, reports)


def log_file(name: str, directory: str | None) -> Path:
    """Return the file for a program's output, a new one for each start."""
    folder = Path(directory or os.environ.get(LOG_VARIABLE) or LOG_DIRECTORY).expanduser()
    plain = re.sub(r"[^\w.-]+", "-", Path(name).stem) or "program"
    return folder / f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"


def _started(
    command: Sequence[str], environment: Mapping[str, str], writer: int, output: IO[bytes], text: str | None
) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as given:
        given.write((text or "").encode())
        given.seek(0)
        try:
            return subprocess.Popen(
                list(command),
                env=environment,
                stdin=subprocess.DEVNULL if text is None else given,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[writer],
                start_new_session=True,
            )
        finally:
            os.close(writer)


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
