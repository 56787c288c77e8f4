"""Times and timers of process functions."""

from penstock.core.operators.process import TimerService

__all__ = ["TimerService"]
