"""The location of a thread that runs tasks: operator, subtask, and user function, read from its frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType, FrameType

from penstock.core.operators.base import StreamOperator
from penstock.core.operators.context import OperatorContext

_PACKAGE = __file__.rpartition("core")[0]
_WAITING = ("/pyspark/", "/py4j/", "/zmq/")


def find_running_operator(frames: Sequence[FrameType]) -> OperatorContext | None:
    """Return the context of the innermost running operator; `frames` start with the outermost."""
    codes: list[CodeType] = []
    for frame in reversed(frames):
        owner = frame.f_locals.get("self")
        if isinstance(owner, StreamOperator):
            return owner.at_work(codes) if hasattr(owner, "context") else None
        codes.append(frame.f_code)
    return None


def whereabouts(frames: Sequence[FrameType]) -> str | None:
    """Describe a thread's current work for people to read; None if it runs no user code.

    For example, `operator 'Map', subtask 1/2, in divide (program.py:12)`. The function is the first one outside
    Penstock, and the line is its current one.
    """
    context = find_running_operator(frames)
    function = _users_function(frames)
    if context is None and function is None:
        return None
    parts = []
    if context is not None:
        parts.append(f"operator {context.operator_name!r}, subtask {context.subtask_index + 1}/{context.parallelism}")
    if function is not None:
        parts.append(f"in {function}")
    return ", ".join(parts)


def outermost_first(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of a thread whose innermost frame is `frame`."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _users_function(frames: Iterable[FrameType]) -> str | None:
    """Return the first function that Penstock calls, directly or through Python's own modules, and its current line."""
    is_inside = False
    for frame in frames:
        code = frame.f_code
        if code.co_filename.startswith(_PACKAGE):
            is_inside = True
        elif is_inside and not _is_of_python(code.co_filename):
            return f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})"
    return None


def _is_of_python(file_name: str) -> bool:
    """Return whether a file belongs to Python itself, or to a library that waits for other threads or processes."""
    if any(name in file_name for name in _WAITING):
        return True
    return file_name.startswith("<frozen") or ("/lib/python" in file_name and "-packages/" not in file_name)
