"""The names of `penstock.gelly.base.elements`, for algorithms on top of graphs."""

from penstock.gelly.base.elements import (
    Edge,
    EdgeDirection,
    Triplet,
    Vertex,
)

__all__ = [
    "Edge",
    "EdgeDirection",
    "Triplet",
    "Vertex",
]
