"""Restart strategies: immutable descriptions that convert to and from a `Configuration`."""

from penstock.base.restart_strategy import (
    RestartStrategies,
    RestartStrategyConfiguration,
    restart_strategy_of,
)

__all__ = [
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "restart_strategy_of",
]
