"""The algorithms for undirected graphs, with each edge in both directions, that have directed variants."""

from penstock.gelly.library.clustering import UndirectedAverageClusteringCoefficient as AverageClusteringCoefficient
from penstock.gelly.library.clustering import UndirectedGlobalClusteringCoefficient as GlobalClusteringCoefficient
from penstock.gelly.library.edge_metrics import UndirectedEdgeMetrics as EdgeMetrics
from penstock.gelly.library.local_clustering import UndirectedLocalClusteringCoefficient as LocalClusteringCoefficient
from penstock.gelly.library.triadic_census import UndirectedTriadicCensus as TriadicCensus
from penstock.gelly.library.triangle_listing import UndirectedTriangleListing as TriangleListing
from penstock.gelly.library.vertex_metrics import UndirectedVertexMetrics as VertexMetrics

__all__ = [
    "AverageClusteringCoefficient",
    "EdgeMetrics",
    "GlobalClusteringCoefficient",
    "LocalClusteringCoefficient",
    "TriadicCensus",
    "TriangleListing",
    "VertexMetrics",
]
