"""Access to time and timers in process functions."""

from penstock.core.operators.record.process import TimerService

__all__ = ["TimerService"]
