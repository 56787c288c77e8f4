"""Classifies errors by whether another attempt may avoid them.

This module distinguishes three kinds, by the error and its causes:

- *Final* errors recur whatever happens: a program that cannot be loaded, a record that is too large.
- Errors that are *final at first* recur as long as the job has never worked: an unwritable directory, a missing
  module. A job that has worked before may work again once the user has repaired what changed.
- Errors from *outside* resolve themselves, sooner or later: a server that refuses connections, a full disk.

All other errors may or may not recur: see `core.job.failover`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.base.errors import PenstockError
from penstock.core.protocol import Failure

#: Operating system errors that mean that a path is unusable rather than that something is out of order.
_OF_PLACES: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
_OF_PATHS: Final = _OF_PLACES | {errno.ENOENT, errno.EEXIST}


def with_prospects(failure: Failure, error: BaseException) -> Failure:
    """Return the failure with the prospects of another attempt, judged by its error."""
    return msgspec.structs.replace(
        failure,
        suppresses_restart=is_final(error),
        is_final_at_first=is_final_at_first(error),
        is_outside=is_outside(error),
    )


def is_final(error: BaseException) -> bool:
    """Return whether every attempt would fail with the same error."""
    return any(isinstance(cause, PenstockError) and cause.suppresses_restart for cause in _causes(error))


def is_final_at_first(error: BaseException) -> bool:
    """Return whether every attempt of a job that has never worked would fail with the same error."""
    return any(
        isinstance(cause, ImportError) or (isinstance(cause, OSError) and cause.errno in _OF_PLACES)
        for cause in _causes(error)
    )


def is_outside(error: BaseException) -> bool:
    """Return whether the cause lies outside the job and may resolve itself."""
    return any(isinstance(cause, OSError) and cause.errno not in _OF_PATHS for cause in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__
