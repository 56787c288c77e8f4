"""The algorithms for undirected graphs, with each edge in both directions, that have directed variants."""

from penstock.gelly.library.clustering import UndirectedAverageClusteringCoefficient as AverageClusteringCoefficient
from penstock.gelly.library.clustering import UndirectedGlobalClusteringCoefficient as GlobalClusteringCoefficient
from penstock.gelly.library.clustering import UndirectedLocalClusteringCoefficient as LocalClusteringCoefficient
from penstock.gelly.library.clustering import UndirectedTriangleListing as TriangleListing
from penstock.gelly.library.metrics import UndirectedEdgeMetrics as EdgeMetrics
from penstock.gelly.library.metrics import UndirectedVertexMetrics as VertexMetrics
from penstock.gelly.library.triadic_census import UndirectedTriadicCensus as TriadicCensus

__all__ = [
    "AverageClusteringCoefficient",
    "EdgeMetrics",
    "GlobalClusteringCoefficient",
    "LocalClusteringCoefficient",
    "TriadicCensus",
    "TriangleListing",
    "VertexMetrics",
]
