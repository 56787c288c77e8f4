"""Building blocks of graph algorithms, each for `Graph.run`: degrees, simple graphs, translation of ids and values."""

from penstock.gelly.asm.edge_degrees import (
    EdgeDegreePair,
    EdgeDegreesPair,
    EdgeSourceDegree,
    EdgeSourceDegrees,
    EdgeTargetDegree,
    EdgeTargetDegrees,
)
from penstock.gelly.asm.simplify import MaximumDegree, Simplify
from penstock.gelly.asm.translate import TranslateEdgeValues, TranslateGraphIds, TranslateVertexValues
from penstock.gelly.asm.vertex_degrees import Degrees, VertexDegree, VertexDegrees, VertexInDegree, VertexOutDegree

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
