"""All available connectors."""

from penstock.table.connectors.built_in.connectors import built_in

__all__ = ["built_in"]
