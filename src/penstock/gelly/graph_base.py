"""The names of `penstock.gelly.base.graph_base`, for algorithms on top of graphs."""

from penstock.gelly.base.graph_base import (
    GraphBase,
    Origin,
)

__all__ = [
    "GraphBase",
    "Origin",
]
