"""What happens after a failure: restart strategies as frozen descriptions, to and from a `Configuration`."""

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
