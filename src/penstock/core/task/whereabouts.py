"""Where a thread is that runs tasks: the operator, its subtask, and the user's function, read from its frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType, FrameType

from penstock.core.operators.base import StreamOperator
from penstock.core.operators.context import OperatorContext

_PACKAGE = __file__.rpartition("core")[0]
_WAITING = ("/pyspark/", "/py4j/", "/zmq/")


def operator_of(frames: Sequence[FrameType]) -> OperatorContext | None:
    """The context of the innermost operator at work; `frames` come outermost first."""
    codes: list[CodeType] = []
    for frame in reversed(frames):
        owner = frame.f_locals.get("self")
        if isinstance(owner, StreamOperator):
            return owner.at_work(codes) if hasattr(owner, "context") else None
        codes.append(frame.f_code)
    return None


def whereabouts(frames: Sequence[FrameType]) -> str | None:
    """What a thread is doing, for people to read; None when it runs no user code.

    Such as `operator 'Map', subtask 1/2, in divide (program.py:12)`. The function is the first that is not Penstock's,
    and the line is where it is.
    """
    context = operator_of(frames)
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
    """The frames of a thread that is now in `frame`."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _users_function(frames: Iterable[FrameType]) -> str | None:
    """The first function that Penstock calls, perhaps by way of Python's own modules, and where it is."""
    is_inside = False
    for frame in frames:
        code = frame.f_code
        if code.co_filename.startswith(_PACKAGE):
            is_inside = True
        elif is_inside and not _is_of_python(code.co_filename):
            return f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})"
    return None


def _is_of_python(file_name: str) -> bool:
    """Whether it is a module of Python's own, or one of those that wait for others."""
    if any(name in file_name for name in _WAITING):
        return True
    return file_name.startswith("<frozen") or ("/lib/python" in file_name and "-packages/" not in file_name)
