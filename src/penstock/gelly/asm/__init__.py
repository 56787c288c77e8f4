"""Steps that algorithms on graphs are made of: degrees, simple graphs, other ids and values; each for `Graph.run`."""

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
