"""The algorithms for directed graphs that have undirected variants."""

from penstock.gelly.library.clustering import DirectedAverageClusteringCoefficient as AverageClusteringCoefficient
from penstock.gelly.library.clustering import DirectedGlobalClusteringCoefficient as GlobalClusteringCoefficient
from penstock.gelly.library.clustering import DirectedLocalClusteringCoefficient as LocalClusteringCoefficient
from penstock.gelly.library.clustering import DirectedTriangleListing as TriangleListing
from penstock.gelly.library.metrics import DirectedEdgeMetrics as EdgeMetrics
from penstock.gelly.library.metrics import DirectedVertexMetrics as VertexMetrics
from penstock.gelly.library.triadic_census import DirectedTriadicCensus as TriadicCensus

__all__ = [
    "AverageClusteringCoefficient",
    "EdgeMetrics",
    "GlobalClusteringCoefficient",
    "LocalClusteringCoefficient",
    "TriadicCensus",
    "TriangleListing",
    "VertexMetrics",
]
