"""`ExecutionConfig`: the settings of a program's execution, by method."""

from penstock.base.execution_config import (
    ExecutionConfig,
)

__all__ = [
    "ExecutionConfig",
]
