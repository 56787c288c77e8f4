"""`ResultKind`: what a statement gives back."""

from __future__ import annotations

from enum import Enum

__all__ = ["ResultKind"]


class ResultKind(Enum):
    """What a statement gives back."""

    #: it only says that it worked, as DDL does
    SUCCESS = 0
    #: it has rows: of a query, of SHOW or DESCRIBE, or the counts of INSERT
    SUCCESS_WITH_CONTENT = 1
