"""Restart strategies: immutable descriptions that convert to and from a `Configuration`."""

from penstock.base.restart_strategy import (
    RestartStrategies,
    RestartStrategyConfiguration,
    read_restart_strategy,
)

__all__ = [
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "read_restart_strategy",
]
