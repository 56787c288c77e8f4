"""Results of statements."""

from penstock.sql.session.result import CloseableIterator, TableResult

__all__ = ["CloseableIterator", "TableResult"]
