"""Building blocks of graph algorithms, each for `Graph.run`: degrees, simple graphs, translation of ids and values."""

from penstock.gelly.asm.degrees import (
    Degrees,
    EdgeDegreePair,
    EdgeDegreesPair,
    EdgeSourceDegree,
    EdgeSourceDegrees,
    EdgeTargetDegree,
    EdgeTargetDegrees,
    VertexDegree,
    VertexDegrees,
    VertexInDegree,
    VertexOutDegree,
)
from penstock.gelly.asm.simplify import (
    MaximumDegree,
    Simplify,
    TranslateEdgeValues,
    TranslateGraphIds,
    TranslateVertexValues,
)

__all__ = [
    "Degrees",
    "EdgeDegreePair",
    "EdgeDegreesPair",
    "EdgeSourceDegree",
    "EdgeSourceDegrees",
    "EdgeTargetDegree",
    "EdgeTargetDegrees",
    "MaximumDegree",
    "Simplify",
    "TranslateEdgeValues",
    "TranslateGraphIds",
    "TranslateVertexValues",
    "VertexDegree",
    "VertexDegrees",
    "VertexInDegree",
    "VertexOutDegree",
]
