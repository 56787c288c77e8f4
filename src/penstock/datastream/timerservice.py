"""Times and timers of process functions."""

from penstock.core.operators.record.process import TimerService

__all__ = ["TimerService"]
