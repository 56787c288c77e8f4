"""Failures of a task: the location of its thread, and exceptions as the user reads them.

`whereabouts` is the location of a thread that runs tasks: operator, subtask, and user function, read from its frames.

`describe_failure` converts an exception raised in a task to a `Failure` for the user: operator, record, and the user's
traceback.
"""

from __future__ import annotations

import contextlib
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FrameType, TracebackType
from typing import Any

from penstock.base.errors import CallError, PenstockError, short_repr
from penstock.runtime.connector import RecordError
from penstock.runtime.failure import with_prospects
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.protocol import Failure

_PACKAGE = __file__.rpartition("runtime")[0]
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


def describe_failure(error: BaseException, task_name: str | None) -> Failure:
    """Describe an exception; for user code, without the frames of the runtime.

    An error raised within an operator, but not by Penstock, comes from user code: a source, a sink, a trigger. The same
    holds for a `CallError`, which responds to a call from that code. If no operator was running, `task_name` is
    reported.
    """
    return with_prospects(_described(error, task_name), error)


class EndedTask(ABC):
    """A task whose caller describes its error, from its operators, after the task has ended."""

    @abstractmethod
    def release(self) -> None:
        """Drop operators and state, because the error has been described."""


def forget_traceback(error: BaseException) -> None:
    """Drop the tracebacks of an error that `describe_failure` has described, and of its causes.

    A traceback references the local variables of each frame that the error passed through: the task, its state, and
    often the error itself. That cycle would keep the state of a failed attempt alive until Python's garbage collector
    runs.
    """
    for cause in _with_causes(error):
        cause.__traceback__ = None


def clear_own_frames(error: BaseException) -> None:
    """Clear the variables of Penstock's own frames in an error that is raised to the user; see `forget_traceback`.

    A debugger still shows the variables of the user's functions.
    Frames that are still running keep their variables. The failed task is released.
    """
    for cause in _with_causes(error):
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            owner = frame.f_locals.get("self")
            if isinstance(owner, EndedTask):
                owner.release()
            if frame.f_code.co_filename.startswith(_PACKAGE):
                with contextlib.suppress(RuntimeError):
                    frame.clear()
                _ = frame.f_locals  # refreshes the copy of the variables that an earlier access left in the frame


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    errors: list[BaseException | None] = [error]
    seen: set[int] = set()
    while errors:
        cause = errors.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        errors += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            errors += cause.exceptions
        yield cause


def _described(error: BaseException, task_name: str | None) -> Failure:
    if isinstance(error, SystemExit):
        context = find_running_operator([frame for frame, _ in traceback.walk_tb(error.__traceback__)])
        return Failure(
            reason=f"SystemExit: {error}, raised by a function: it would have ended the worker, not the job",
            operator_name=task_name if context is None else context.operator_name,
            traceback=user_traceback(error),
            user_code=True,
        )
    if isinstance(error, UserCodeError):
        return _of_user_code(error.operator_name, error.__cause__ or error, error.what, error.record)
    operator = _operator_at_work(error)
    operator_name = operator.context.operator_name if operator is not None else task_name
    if isinstance(error, RecordError) and operator_name is not None:
        return _of_user_code(operator_name, error.__cause__ or error, error.what, error.record)
    is_by_user_code = operator is not None and _frames_outside(error) is not None
    if isinstance(error, PenstockError) and not (is_by_user_code and isinstance(error, CallError)):
        # Raised on purpose with a message for the user: a location in the runtime adds nothing.
        return Failure(reason=str(error), operator_name=operator_name)
    if operator is not None and is_by_user_code:
        return _of_user_code(operator.context.operator_name, error, operator.user_part, None)
    return Failure(
        reason=f"{type(error).__name__}: {error}",
        operator_name=operator_name,
        traceback="".join(traceback.format_exception(error)),
    )


def _of_user_code(operator_name: str, cause: BaseException, what: str, record: Any) -> Failure:
    where = f" in {what}" if what else ""
    return Failure(
        reason=f"{type(cause).__name__}: {cause}{where}",
        operator_name=operator_name,
        record=None if record is None else short_repr(record),
        traceback=user_traceback(cause),
        user_code=True,
        what=what,
    )


def _operator_at_work(error: BaseException) -> StreamOperator | None:
    """Return the innermost operator in the traceback that raised the error in one of its methods."""
    operator = None
    trace = error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, StreamOperator) and hasattr(owner, "context"):  # set by setup()
            operator = owner
        trace = trace.tb_next
    return operator


def _frames_outside(error: BaseException) -> TracebackType | None:
    """Return the traceback from the point where it leaves Penstock; None if it never does."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    return frames


def user_traceback(error: BaseException) -> str:
    """Return the traceback without the leading frames that belong to Penstock."""
    return "".join(traceback.format_exception(type(error), error, _frames_outside(error)))
