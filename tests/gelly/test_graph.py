"""Graphs: how they are made, what they consist of, and the methods that change them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gelly.graphs import EDGES, VERTICES, build_graph, env_of, records

from penstock.gelly import Edge, EdgeDirection, Graph, InvalidVertexIdsValidator, Triplet, Vertex
from penstock.gelly.base import collected
from penstock.gelly.functions import (
    EdgesFunction,
    EdgesFunctionWithVertexValue,
    NeighborsFunction,
    NeighborsFunctionWithVertexValue,
)


def vertices(graph: Graph) -> list[Any]:
    return records(graph.get_vertices())


def edges(graph: Graph) -> list[Any]:
    return records(graph.get_edges())


class TestConstruction:
    def test_of_collections(self) -> None:
        graph = build_graph()
        assert vertices(graph) == VERTICES
        assert edges(graph) == EDGES
        assert all(type(vertex) is Vertex for vertex in vertices(graph))

    def test_without_vertices_they_are_those_of_the_edges(self) -> None:
        graph = Graph.from_collection(EDGES, env_of())
        found = collected(graph.get_vertices(), "vertices")
        assert sorted(found, key=lambda vertex: vertex.id) == [Vertex(i) for i in range(1, 6)]

    def test_an_initializer_gives_values(self) -> None:
        graph = Graph.from_collection(EDGES, env_of(), vertex_value_initializer=lambda vertex_id: vertex_id * 10)
        assert vertices(graph) == [Vertex(i, i * 10) for i in range(1, 6)]

    def test_both_are_refused(self) -> None:
        with pytest.raises(ValueError, match="use map_vertices"):
            Graph.from_collection(EDGES, env_of(), VERTICES, str)

    def test_of_tuples(self) -> None:
        env = env_of()
        graph = Graph.from_tuple_data_stream(env.from_collection([(1, 2, "a")]), env.from_collection([(1, 0), (2, 0)]))
        assert edges(graph) == [Edge(1, 2, "a")]
        assert vertices(graph) == [Vertex(1, 0), Vertex(2, 0)]

    def test_of_pairs(self) -> None:
        graph = Graph.from_tuple2_data_stream(env_of().from_collection([(1, 2), (2, 3)]), vertex_value_initializer=str)
        assert edges(graph) == [Edge(1, 2, None), Edge(2, 3, None)]
        assert vertices(graph) == [Vertex(1, "1"), Vertex(2, "2"), Vertex(3, "3")]

    def test_records_have_getters(self) -> None:
        assert (Vertex(1, 2).get_id(), Vertex(1, 2).get_value()) == (1, 2)
        edge = Edge(1, 2, 3)
        assert (edge.get_source(), edge.get_target(), edge.get_value()) == (1, 2, 3)
        assert edge.reverse() == Edge(2, 1, 3)


class TestParts:
    @pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])
    def test_numbers_and_tuples(self, mode: str) -> None:
        graph = build_graph(mode=mode)
        assert (graph.number_of_vertices(), graph.number_of_edges()) == (5, 7)
        assert records(graph.get_vertex_ids()) == [1, 2, 3, 4, 5]
        assert records(graph.get_edge_ids()) == [edge[:2] for edge in EDGES]
        assert {type(edge) for edge in records(graph.get_edges_as_tuple3())} == {tuple}
        assert {type(vertex) for vertex in records(graph.get_vertices_as_tuple2())} == {tuple}

    def test_triplets(self) -> None:
        expected = [Triplet(s, t, s, t, value) for s, t, value in EDGES]
        found = records(build_graph().get_triplets())
        assert found == expected
        assert found[0].get_src_vertex() == Vertex(1, 1)


class TestValues:
    def test_map_and_translate(self) -> None:
        graph = build_graph()
        assert vertices(graph.map_vertices(lambda vertex: vertex.value + 1))[0] == Vertex(1, 2)
        assert edges(graph.map_edges(lambda edge: edge.get_source()))[0] == Edge(1, 2, 1)
        assert vertices(graph.translate_graph_ids(str))[0] == Vertex("1", 1)
        assert edges(graph.translate_graph_ids(str))[0] == Edge("1", "2", 12)
        assert vertices(graph.translate_vertex_values(str))[0] == Vertex(1, "1")
        assert edges(graph.translate_edge_values(str))[0] == Edge(1, 2, "12")

    def test_join_with_vertices(self) -> None:
        graph = build_graph()
        data = graph.get_context().from_collection([(1, 10), (9, 1)])
        joined = graph.join_with_vertices(data, lambda value, other: value + other)
        assert vertices(joined) == [Vertex(1, 11), *VERTICES[1:]]

    def test_join_with_edges(self) -> None:
        graph = build_graph()
        env = graph.get_context()
        both = graph.join_with_edges(env.from_collection([(1, 2, 100)]), lambda value, other: value + other)
        assert edges(both) == [Edge(1, 2, 112), *EDGES[1:]]
        on_source = graph.join_with_edges_on_source(env.from_collection([(1, 100)]), lambda value, other: value + other)
        assert edges(on_source) == [Edge(1, 2, 112), Edge(1, 3, 113), *EDGES[2:]]
        on_target = graph.join_with_edges_on_target(env.from_collection([(1, 100)]), lambda value, other: value + other)
        assert edges(on_target) == [*EDGES[:-1], Edge(5, 1, 151)]

    def test_parts(self) -> None:
        graph = build_graph()
        part = graph.subgraph(lambda vertex: vertex.value > 2, lambda edge: edge.value > 34)
        assert vertices(part) == VERTICES[2:]
        assert edges(part) == [Edge(3, 5, 35), Edge(4, 5, 45)]
        assert edges(graph.filter_on_vertices(lambda vertex: vertex.value > 2)) == [
            Edge(3, 4, 34),
            Edge(3, 5, 35),
            Edge(4, 5, 45),
        ]
        few = graph.filter_on_edges(lambda edge: edge.value > 34)
        assert vertices(few) == VERTICES
        assert edges(few) == [Edge(3, 5, 35), Edge(4, 5, 45), Edge(5, 1, 51)]


class TestChanges:
    def test_add_and_remove_vertices(self) -> None:
        graph = build_graph()
        assert vertices(graph.add_vertex(Vertex(6, 6))) == [*VERTICES, Vertex(6, 6)]
        assert vertices(graph.add_vertices([Vertex(1, 99), Vertex(6, 6)])) == [*VERTICES, Vertex(6, 6)]
        without = graph.remove_vertex(Vertex(5, None))
        assert vertices(without) == VERTICES[:4]
        assert edges(without) == EDGES[:4]
        assert edges(graph.remove_vertices([Vertex(1), Vertex(2), Vertex(9)])) == EDGES[3:6]

    def test_add_and_remove_edges(self) -> None:
        graph = build_graph()
        more = graph.add_edge(Vertex(6, 6), Vertex(1, 1), 61)
        assert vertices(more) == [*VERTICES, Vertex(6, 6)]
        assert edges(more) == [*EDGES, Edge(6, 1, 61)]
        assert edges(graph.add_edges([Edge(1, 2, 12), Edge(7, 1, 0)])) == sorted([*EDGES, Edge(1, 2, 12)])
        assert edges(graph.remove_edge(Edge(5, 1, None))) == EDGES[:-1]
        assert edges(graph.remove_edges([Edge(5, 1), Edge(1, 2), Edge(9, 9)])) == EDGES[1:-1]

    def test_union_and_difference(self) -> None:
        graph = build_graph()
        other = Graph.from_collection(
            [Edge(1, 2, 12), Edge(1, 6, 16)], graph.get_context(), [VERTICES[0], Vertex(6, 6)]
        )
        both = graph.union(other)
        assert vertices(both) == [*VERTICES, Vertex(6, 6)]
        assert edges(both) == sorted([*EDGES, Edge(1, 2, 12), Edge(1, 6, 16)])
        assert vertices(graph.difference(other)) == VERTICES[1:]

    @pytest.mark.parametrize(("distinct", "times"), [(True, [1, 1]), (False, [4, 2])])
    def test_intersect(self, distinct: bool, times: list[int]) -> None:
        env = env_of()
        one = Graph.from_collection([Edge(1, 3, 12), Edge(1, 3, 12), Edge(1, 3, 13), Edge(1, 2, [7])], env)
        other = Graph.from_collection([Edge(1, 3, 12), Edge(1, 3, 12), Edge(1, 3, 14), Edge(1, 2, [7])], env)
        met = one.intersect(other, distinct)
        found = edges(met)
        assert [found.count(edge) for edge in (Edge(1, 3, 12), Edge(1, 2, [7]))] == times
        assert len(found) == sum(times)
        assert met.number_of_vertices() == 3


class WithSum(EdgesFunctionWithVertexValue):
    def iterate_edges(self, vertex: Any, edges: Any) -> Any:
        yield vertex.id, vertex.value + sum(edge.value for edge in edges)


class Greatest(EdgesFunction):
    def iterate_edges(self, edges: Any) -> Any:
        held = list(edges)
        yield held[0][0], max(edge.value for _, edge in held)


class NeighbourSum(NeighborsFunctionWithVertexValue):
    def iterate_neighbors(self, vertex: Any, neighbors: Any) -> Any:
        yield vertex.id, vertex.value + sum(neighbour.value for _, neighbour in neighbors)


class Neighbours(NeighborsFunction):
    def iterate_neighbors(self, neighbors: Any) -> Any:
        for vertex_id, edge, neighbour in neighbors:
            yield vertex_id, edge.value, neighbour.id


class TestNeighbourhoods:
    @pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])
    def test_degrees(self, mode: str) -> None:
        graph = build_graph(mode=mode).add_vertex(Vertex(6, 6))
        assert records(graph.out_degrees()) == [(1, 2), (2, 1), (3, 2), (4, 1), (5, 1), (6, 0)]
        assert records(graph.in_degrees()) == [(1, 1), (2, 1), (3, 2), (4, 1), (5, 2), (6, 0)]
        assert records(graph.get_degrees()) == [(1, 3), (2, 2), (3, 4), (4, 2), (5, 3), (6, 0)]

    def test_directions(self) -> None:
        graph = build_graph()
        assert edges(graph.reverse()) == sorted(Edge(t, s, value) for s, t, value in EDGES)
        assert len(edges(graph.get_undirected())) == 14

    def test_edges(self) -> None:
        graph = build_graph().add_vertex(Vertex(6, 6))
        sums = records(graph.group_reduce_on_edges(WithSum(), EdgeDirection.OUT))
        assert sums == [(1, 26), (2, 25), (3, 72), (4, 49), (5, 56), (6, 6)]
        assert records(graph.group_reduce_on_edges(Greatest(), EdgeDirection.IN)) == [
            (1, 51),
            (2, 12),
            (3, 23),
            (4, 34),
            (5, 45),
        ]
        assert records(graph.reduce_on_edges(min, EdgeDirection.ALL)) == [(1, 12), (2, 12), (3, 13), (4, 34), (5, 35)]

    def test_neighbours(self) -> None:
        graph = build_graph().add_vertex(Vertex(6, 6))
        sums = records(graph.group_reduce_on_neighbors(NeighbourSum(), EdgeDirection.IN))
        assert sums == [(1, 6), (2, 3), (3, 6), (4, 7), (5, 12), (6, 6)]
        all_ways = records(graph.group_reduce_on_neighbors(Neighbours(), EdgeDirection.ALL))
        assert len(all_ways) == 14
        assert all_ways[:3] == [(1, 12, 2), (1, 13, 3), (1, 51, 5)]
        assert records(graph.reduce_on_neighbors(lambda a, b: a + b, EdgeDirection.OUT)) == [
            (1, 5),
            (2, 3),
            (3, 9),
            (4, 5),
            (5, 1),
        ]

    def test_callables_by_their_arguments(self) -> None:
        graph = build_graph()
        number = records(graph.group_reduce_on_edges(lambda vertex, edges: [len(list(edges))], EdgeDirection.OUT))
        assert number == [1, 1, 1, 2, 2]
        number = records(graph.group_reduce_on_neighbors(lambda neighbours: [len(list(neighbours))], EdgeDirection.IN))
        assert number == [1, 1, 1, 2, 2]
        with pytest.raises(TypeError, match="nor a callable of one argument"):
            graph.group_reduce_on_edges(3, EdgeDirection.OUT)
        with pytest.raises(TypeError, match=r"EdgeDirection\.IN"):
            graph.reduce_on_edges(min, "in")  # type: ignore[arg-type]


@pytest.mark.parametrize("parallelism", [1, 4])
def test_validation(parallelism: int) -> None:
    graph = build_graph(parallelism)
    assert graph.validate(InvalidVertexIdsValidator())
    env = graph.get_context()
    broken = Graph.from_data_stream(graph.get_edges(), env.from_collection(VERTICES[1:]))
    assert not broken.validate(InvalidVertexIdsValidator())


def test_a_job_computes_only_what_it_reads() -> None:
    graph = build_graph()

    def fails(vertex: Any) -> Any:
        raise AssertionError("nobody reads this")

    graph.map_vertices(fails).get_triplets()
    assert graph.number_of_edges() == 7
