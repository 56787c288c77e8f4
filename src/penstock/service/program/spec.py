"""The program that `penstock run` runs, and its Python command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.base.errors import MissingPathError, UnsupportedError, WrongValueError
from penstock.base.options import EXECUTION_TARGET, PARALLELISM, PYTHON_ARCHIVES, PYTHON_EXECUTABLE, PYTHON_FILES
from penstock.drivers.settings.defaults import OPTIONS_VARIABLE, Setting, handed_over

_RUNNER: Final = "penstock.service.program.runner"
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
