"""The options of a table environment."""

from penstock.sql.session.config import TableConfig

__all__ = ["TableConfig"]
