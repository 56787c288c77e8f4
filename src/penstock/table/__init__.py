"""The Table API and SQL, under PyFlink's names: the types of columns so far."""

from penstock.table.types import DataTypes

__all__ = ["DataTypes"]
