"""Runs a program as `__main__` in this process: `python -m penstock.cli.program.runner [OPTIONS] job.py ARGS`.

`--module` takes the name of a module instead of a script; `--plan FORM` prints the plan of the program's first job
(`json`, `text`, `mermaid` or `svg`) and does not run it. It exits like Python: with 1 after an uncaught exception, or
with the value passed to `sys.exit`.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Final

from penstock.base.durable_files import keep_lines_whole
from penstock.base.secrets import hide
from penstock.cli.program.reports import ProgressLines, Reports, answer_to_the_end, teller
from penstock.datastream import environment as plan_only
from penstock.drivers.client import submit as announcement
from penstock.plan.stream_graph import Plan

#: The files whose frames are removed from the start of a traceback; a session's process adds its own.
OWN_FILES: Final = [__file__]


def _job_plan(plan: Plan) -> str:
    """Return the plan in the format of the REST API."""
    from penstock.server.rest.calls.routing import encoded
    from penstock.server.rest.messages.jobs import plan_of_graph

    return encoded(plan_of_graph(plan.job_graph)).decode()


FORMS: Final[dict[str, Callable[[Plan], str]]] = {
    "json": Plan.to_json,
    "text": Plan.to_text,
    "mermaid": Plan.to_mermaid,
    "svg": Plan.to_svg,
    "job": _job_plan,
}


def main(arguments: list[str]) -> int:
    """Run a program. Returns the exit code."""
    form = None
    if arguments[0] == "--plan":
        form, arguments = arguments[1], arguments[2:]
    is_module = arguments[0] == "--module"
    target, *rest = arguments[1:] if is_module else arguments
    run = run_module if is_module else run_script
    if form is not None:
        return _plan(lambda: run(target, rest), FORMS[form])
    keep_lines_whole()
    reports = Reports(teller())
    announcement.observers.append(reports.on_job)
    if sys.stderr.isatty():
        announcement.observers.append(ProgressLines().on_job)
    try:
        return run_to_end(lambda: run(target, rest))
    finally:
        reports.finish()
        answer_to_the_end()


def run_script(path: str, arguments: list[str]) -> None:
    """Run a file as `python path arguments` does."""
    sys.argv = [path, *arguments]
    sys.path[0:1] = [os.path.dirname(os.path.abspath(path))]
    module = ModuleType("__main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    exec(code, module.__dict__)


def run_module(name: str, arguments: list[str]) -> None:
    """Run a module as `python -m name arguments` does."""
    from importlib.util import find_spec

    sys.path[0:1] = [os.getcwd()]
    spec = find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = find_spec(f"{name}.__main__")
    if spec is None or spec.origin is None or spec.loader is None:
        raise SystemExit(f"no module named {name} can be run: put it on the path with -pyfs")
    code = spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
    sys.argv = [spec.origin, *arguments]
    module = ModuleType("__main__")
    module.__file__, module.__spec__, module.__loader__ = spec.origin, spec, spec.loader
    module.__package__ = spec.parent
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def run_to_end(run: Callable[[], None]) -> int:
    """Run, and return the exit code. Errors are printed as by `sys.excepthook`, without the frames of this module."""
    try:
        run()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return 130
    except BaseException as error:  # noqa: BLE001 - whatever the program raises ends it
        sys.last_value = error  # as the interpreter does; the warnings at exit read it
        sys.stdout.flush()
        inner = error.__traceback__
        while inner is not None and inner.tb_frame.f_code.co_filename in (*OWN_FILES, "<frozen runpy>"):
            inner = inner.tb_next
        sys.stderr.write(hide("".join(traceback.format_exception(type(error), error, inner))))
        return 1
    return 0


def _plan(run: Callable[[], None], render: Callable[[Plan], str]) -> int:
    """Run until the first job with the program's output on stderr, and print only the plan on stdout."""
    output, sys.stdout = sys.stdout, sys.stderr
    plans: list[str] = []
    plan_only.takers.append(lambda plan: plans.append(render(plan)))
    try:
        code = run_to_end(lambda: _until_plan(run))
    finally:
        plan_only.takers.clear()
        sys.stdout = output
    if plans:
        print(plans[0].rstrip("\n"))
        return 0
    if code == 0:
        print("error: the program executes no job, so it has no plan", file=sys.stderr)
    return code or 1


def _until_plan(run: Callable[[], None]) -> None:
    with suppress(plan_only.PlanTaken):
        run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
