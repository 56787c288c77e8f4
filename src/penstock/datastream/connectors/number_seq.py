"""A source of integers."""

from penstock.connectors.generator import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
