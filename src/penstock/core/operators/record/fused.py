"""Runs successive maps and filters in one pass over a batch.

Alone, each of them would make a list of its results, which lives until the last one is done. In one pass a record goes
through all of them before the next record, so it is still in the processor's cache, and dropped records are in no list.
The pass is the loop that one would write by hand: a Python function with one line for each operator. It is compiled
once for each sequence of kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import Any, Final

MAP: Final = "map"
FILTER: Final = "filter"
#: The line of the first operator in the code of a pass.
_FIRST_LINE: Final = 3


class FusedError(Exception):
    """A function of a pass raised. Carries its place in the pass and the record; the cause is the error raised."""

    def __init__(self, index: int, record: Any) -> None:
        super().__init__(index, record)
        self.place = index
        self.record = record


def run_pass(
    kinds: tuple[str, ...], functions: tuple[Callable[[Any], Any], ...], values: list[Any], times: list[int] | None
) -> tuple[list[Any], list[int] | None]:
    """Run the operators on a batch; returns the results, with the timestamps of the records that they came from.

    Raises:
        FusedError: if a function raises.
    """
    results: list[Any] = []
    kept_times: list[int] | None = None
    run = _make(kinds, times is not None)
    try:
        if times is None:
            run(values, results.append, *functions)
        else:
            kept_times = []
            run(values, times, results.append, kept_times.append, *functions)
    except Exception as error:
        raise _told(error, run.__code__) from error
    return results, kept_times


@cache
def _make(kinds: tuple[str, ...], is_timed: bool) -> Callable[..., None]:
    """Compile the pass for a sequence of kinds: one line per function, so that the line shows which one has raised."""
    names = [f"f{i}" for i in range(len(kinds))]
    extra, times = ("times, ", "add_time, ") if is_timed else ("", "")
    lines = [f"def run(values, {extra}add, {times}{', '.join(names)}):"]
    lines.append("    for v, t in zip(values, times):" if is_timed else "    for v in values:")
    for index, kind in enumerate(kinds):
        lines.append(f"        v = f{index}(v)" if kind == MAP else f"        if not f{index}(v): continue")
    lines.append("        add(v)")
    if is_timed:
        lines.append("        add_time(t)")
    scope: dict[str, Any] = {}
    # The file name lies within the package, so that tracebacks of user functions leave it out.
    exec(compile("\n".join(lines), f"{__file__}<{' + '.join(kinds)}>", "exec"), scope)
    run: Callable[..., None] = scope["run"]
    return run


def _told(error: BaseException, code: CodeType) -> BaseException:
    """Return the error with the function's place, from the traceback: the pass itself records nothing as it runs."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is code:
            return FusedError(trace.tb_lineno - _FIRST_LINE, trace.tb_frame.f_locals["v"])
        trace = trace.tb_next
    return error
