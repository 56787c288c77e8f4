"""`Schema`: the columns of a table as a program declares them."""

from penstock.sql.catalogs.columns import Schema

__all__ = ["Schema"]
