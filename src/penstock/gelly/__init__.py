"""Graphs: Flink's Gelly under PyFlink's conventions, on bounded streams (see docs/graphs.md).

from penstock.gelly import Edge, Graph

graph = Graph.from_collection([Edge(1, 2, 0.5), Edge(2, 3, 1.0)], env)
for vertex_id, degree in graph.get_degrees().execute_and_collect(): ...
"""

from penstock.gelly.base import (
    Edge,
    EdgeDirection,
    GraphAlgorithm,
    GraphAnalytic,
    GraphValidator,
    Triplet,
    Vertex,
)
from penstock.gelly.csv_reader import GraphCsvReader
from penstock.gelly.functions import (
    EdgesFunction,
    EdgesFunctionWithVertexValue,
    NeighborsFunction,
    NeighborsFunctionWithVertexValue,
)
from penstock.gelly.graph import Graph, InvalidVertexIdsValidator

__all__ = [
    "Edge",
    "EdgeDirection",
    "EdgesFunction",
    "EdgesFunctionWithVertexValue",
    "Graph",
    "GraphAlgorithm",
    "GraphAnalytic",
    "GraphCsvReader",
    "GraphValidator",
    "InvalidVertexIdsValidator",
    "NeighborsFunction",
    "NeighborsFunctionWithVertexValue",
    "Triplet",
    "Vertex",
]
