"""`ResultKind`: the kind of a statement's result."""

from __future__ import annotations

from enum import Enum

__all__ = ["ResultKind"]


class ResultKind(Enum):
    """The kind of a statement's result."""

    #: the statement succeeded, such as DDL
    SUCCESS = 0
    #: the result has rows: those of a query, SHOW or DESCRIBE, or the counts of INSERT
    SUCCESS_WITH_CONTENT = 1
