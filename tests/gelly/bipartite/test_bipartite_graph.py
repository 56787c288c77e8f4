"""Graphs of two kinds of vertices, and their projections."""

from __future__ import annotations

import pytest
from tests.gelly.graphs import env_of, records

from penstock.gelly import Edge, Vertex
from penstock.gelly.bipartite import BipartiteEdge, BipartiteGraph, Projection

TOP = [Vertex(4, "top4"), Vertex(5, "top5"), Vertex(6, "top6")]
BOTTOM = [Vertex(1, "bottom1"), Vertex(2, "bottom2"), Vertex(3, "bottom3")]
EDGES = [
    BipartiteEdge(4, 1, "4-1"),
    BipartiteEdge(5, 1, "5-1"),
    BipartiteEdge(5, 2, "5-2"),
    BipartiteEdge(6, 2, "6-2"),
    BipartiteEdge(6, 3, "6-3"),
]


def build_graph(parallelism: int) -> BipartiteGraph:
    env = env_of(parallelism)
    top, bottom, edges = env.from_collection(TOP), env.from_collection(BOTTOM), env.from_collection(EDGES)
    return BipartiteGraph.from_data_stream(top, bottom, edges)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_simple_projections(parallelism: int) -> None:
    graph = build_graph(parallelism)
    top = graph.projection_top_simple()
    assert records(top.get_vertices()) == TOP
    assert records(top.get_edges()) == [
        Edge(4, 5, ("4-1", "5-1")),
        Edge(5, 4, ("5-1", "4-1")),
        Edge(5, 6, ("5-2", "6-2")),
        Edge(6, 5, ("6-2", "5-2")),
    ]
    bottom = graph.projection_bottom_simple()
    assert records(bottom.get_vertices()) == BOTTOM
    assert records(bottom.get_edges())[0] == Edge(1, 2, ("5-1", "5-2"))


def test_full_projections() -> None:
    graph = build_graph(2)
    top = records(graph.projection_top_full().get_edges())
    assert len(top) == 4
    assert top[0] == Edge(4, 5, Projection(1, "bottom1", "top4", "top5", "4-1", "5-1"))
    bottom = records(graph.projection_bottom_full().get_edges())
    assert len(bottom) == 4
    assert bottom[0] == Edge(1, 2, Projection(5, "top5", "bottom1", "bottom2", "5-1", "5-2"))
    assert bottom[0].value.get_intermediate_vertex_value() == "top5"


def test_parts() -> None:
    graph = build_graph(1)
    assert records(graph.get_top_vertices()) == TOP
    assert records(graph.get_bottom_vertices()) == BOTTOM
    assert records(graph.get_edges()) == EDGES
    assert EDGES[0].get_top_id() == 4
    assert EDGES[0].get_bottom_id() == 1
