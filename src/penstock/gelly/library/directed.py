"""The algorithms for directed graphs that have undirected variants."""

from penstock.gelly.library.clustering import DirectedAverageClusteringCoefficient as AverageClusteringCoefficient
from penstock.gelly.library.clustering import DirectedGlobalClusteringCoefficient as GlobalClusteringCoefficient
from penstock.gelly.library.edge_metrics import DirectedEdgeMetrics as EdgeMetrics
from penstock.gelly.library.local_clustering import DirectedLocalClusteringCoefficient as LocalClusteringCoefficient
from penstock.gelly.library.triadic_census import DirectedTriadicCensus as TriadicCensus
from penstock.gelly.library.triangle_listing import DirectedTriangleListing as TriangleListing
from penstock.gelly.library.vertex_metrics import DirectedVertexMetrics as VertexMetrics

__all__ = [
    "AverageClusteringCoefficient",
    "EdgeMetrics",
    "GlobalClusteringCoefficient",
    "LocalClusteringCoefficient",
    "TriadicCensus",
    "TriangleListing",
    "VertexMetrics",
]
