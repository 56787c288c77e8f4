"""`ExecutionConfig`: the execution settings of a program, one method each."""

from penstock.base.execution_config import (
    ExecutionConfig,
)

__all__ = [
    "ExecutionConfig",
]
