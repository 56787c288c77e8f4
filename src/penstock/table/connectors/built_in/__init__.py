"""All connectors that there are."""

from penstock.table.connectors.built_in.connectors import built_in

__all__ = ["built_in"]
