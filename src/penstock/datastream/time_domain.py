"""Which time a timer goes by."""

from penstock.core.operators.record.process import TimeDomain

__all__ = ["TimeDomain"]
