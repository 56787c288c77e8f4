"""The options of a table environment."""

from penstock.table.session.table_config import TableConfig

__all__ = ["TableConfig"]
