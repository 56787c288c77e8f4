"""The time domain of a timer: event time or processing time."""

from penstock.runtime.operators.record.process import TimeDomain

__all__ = ["TimeDomain"]
