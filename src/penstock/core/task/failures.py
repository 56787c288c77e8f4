"""From what was raised in a task to a `Failure` for its user: operator, record, and the user's own traceback."""

from __future__ import annotations

import traceback
from typing import Any, Final

from penstock.common.errors import PenstockError
from penstock.core.healing import with_prospects
from penstock.core.operators.base import UserCodeError
from penstock.core.protocol import Failure
from penstock.core.task.whereabouts import operator_of

RECORD_TEXT_MAX: Final = 200
_PACKAGE = __file__.rpartition("core")[0]


def shorten(record: Any, limit: int = RECORD_TEXT_MAX) -> str:
    """`repr(record)`, cut to `limit` characters; never raises."""
    try:
        text = repr(record)
    except Exception as error:  # noqa: BLE001 - any repr may raise anything
        text = f"<a {type(record).__qualname__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def failure_of(error: BaseException, operator_name: str | None) -> Failure:
    """Describe an exception; for user code without the frames of the runtime."""
    return with_prospects(_described(error, operator_name), error)


def _described(error: BaseException, operator_name: str | None) -> Failure:
    if isinstance(error, SystemExit):
        context = operator_of([frame for frame, _ in traceback.walk_tb(error.__traceback__)])
        return Failure(
            reason=f"SystemExit: {error}, raised by a function: it would have ended the worker, not the job",
            operator_name=operator_name if context is None else context.operator_name,
            traceback=user_traceback(error),
            user_code=True,
        )
    if isinstance(error, UserCodeError):
        cause = error.__cause__ or error
        where = f" in {error.what}" if error.what else ""
        return Failure(
            reason=f"{type(cause).__name__}: {cause}{where}",
            operator_name=error.operator_name,
            record=None if error.record is None else shorten(error.record),
            traceback=user_traceback(cause),
            user_code=True,
        )
    if isinstance(error, PenstockError):
        # Raised on purpose, in words for the user: where in the runtime says nothing more.
        return Failure(reason=str(error), operator_name=operator_name)
    return Failure(
        reason=f"{type(error).__name__}: {error}",
        operator_name=operator_name,
        traceback="".join(traceback.format_exception(error)),
    )


def user_traceback(error: BaseException) -> str:
    """The traceback without the leading frames that belong to Penstock."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))
