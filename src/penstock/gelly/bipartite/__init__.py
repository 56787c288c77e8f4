"""Graphs of two kinds of vertices, top and bottom, whose edges all lead from one kind to the other.

graph = BipartiteGraph.from_data_stream(people, films, seen)
graph.projection_top_simple()  # people with an edge for each film that both have seen
"""

from penstock.gelly.bipartite.graph import BipartiteEdge, BipartiteGraph, Projection

__all__ = ["BipartiteEdge", "BipartiteGraph", "Projection"]
