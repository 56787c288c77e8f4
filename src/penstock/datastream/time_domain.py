"""Which time a timer goes by."""

from penstock.core.operators.process import TimeDomain

__all__ = ["TimeDomain"]
