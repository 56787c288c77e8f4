"""What kind of result a statement has."""

from penstock.table.session.result_kind import ResultKind

__all__ = ["ResultKind"]
