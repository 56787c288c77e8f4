"""A source of integers."""

from penstock.connectors.split_reader import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
