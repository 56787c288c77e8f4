"""The names of `penstock.gelly.base.algorithm`, for algorithms on top of graphs."""

from penstock.gelly.base.algorithm import (
    GraphAlgorithm,
    GraphAnalytic,
    GraphValidator,
    result_of,
)

__all__ = [
    "GraphAlgorithm",
    "GraphAnalytic",
    "GraphValidator",
    "result_of",
]
