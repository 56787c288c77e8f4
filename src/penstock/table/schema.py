"""`Schema`: the columns of a table as a program declares them."""

from penstock.table.catalog.schema import Schema

__all__ = ["Schema"]
