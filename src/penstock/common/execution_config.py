"""`ExecutionConfig`: the execution settings of a program, one method each."""

from penstock.base.configuration import (
    ExecutionConfig,
)

__all__ = [
    "ExecutionConfig",
]
