"""Access to time and timers in process functions."""

from penstock.runtime.operators.record.process import TimerService

__all__ = ["TimerService"]
