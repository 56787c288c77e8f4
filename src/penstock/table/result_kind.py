"""The kind of a statement's result."""

from penstock.sql.session.result import ResultKind

__all__ = ["ResultKind"]
