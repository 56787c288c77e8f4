"""The options of a table environment."""

from penstock.sql.session.session import TableConfig

__all__ = ["TableConfig"]
