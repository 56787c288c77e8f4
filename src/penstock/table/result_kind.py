"""The kind of a statement's result."""

from penstock.table.session.result_kind import ResultKind

__all__ = ["ResultKind"]
