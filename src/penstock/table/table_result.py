"""Results of statements."""

from penstock.table.session.table_result import CloseableIterator, TableResult

__all__ = ["CloseableIterator", "TableResult"]
