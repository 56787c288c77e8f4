"""A source of integers."""

from penstock.connectors.number_sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
