"""A5: iterations over vertices: vertex-centric, scatter-gather, gather-sum-apply."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.gelly.graphs import env_of, records

from penstock.common.aggregators import LongSumAggregator
from penstock.gelly import Edge, EdgeDirection, Graph, Vertex, gsa, pregel, spargel

PARALLELISM = [1, 2, 4]
ROADS = [Edge("A", "B", 4.0), Edge("A", "C", 1.0), Edge("C", "B", 2.0), Edge("B", "D", 5.0), Edge("E", "A", 1.0)]
NEAREST = [Vertex("A", 0.0), Vertex("B", 3.0), Vertex("C", 1.0), Vertex("D", 8.0), Vertex("E", math.inf)]


def far(vertex_id: str) -> float:
    return 0.0 if vertex_id == "A" else math.inf


def roads(parallelism: int, mode: str = "BATCH") -> Graph:
    return Graph.from_collection(ROADS, env_of(parallelism, mode), vertex_value_initializer=far)


class Compute(pregel.ComputeFunction):
    def compute(self, vertex: Any, messages: Any) -> None:
        nearest = min([*messages, vertex.value])
        if nearest < vertex.value or (self.get_superstep_number() == 1 and vertex.value == 0):
            self.set_new_vertex_value(nearest)
            for edge in self.get_edges():
                self.send_message_to(edge.target, nearest + edge.value)


class Combine(pregel.MessageCombiner):
    def combine_messages(self, messages: Any) -> None:
        self.send_combined_message(min(messages))


class Scatter(spargel.ScatterFunction):
    def send_messages(self, vertex: Any) -> None:
        if vertex.value < math.inf:
            for edge in self.get_edges():
                self.send_message_to(edge.target, vertex.value + edge.value)


class Gather(spargel.GatherFunction):
    def update_vertex(self, vertex: Any, in_messages: Any) -> None:
        nearest = min(in_messages)
        if nearest < vertex.value:
            self.set_new_vertex_value(nearest)


@pytest.mark.parametrize("parallelism", PARALLELISM)
class TestShortestPaths:
    @pytest.mark.parametrize("combiner", [None, Combine(), min])
    def test_vertex_centric(self, parallelism: int, combiner: Any) -> None:
        assert (
            records(roads(parallelism).run_vertex_centric_iteration(Compute(), combiner, 10).get_vertices()) == NEAREST
        )

    def test_scatter_gather(self, parallelism: int) -> None:
        graph = roads(parallelism).run_scatter_gather_iteration(Scatter(), Gather(), 10)
        assert records(graph.get_vertices()) == NEAREST
        assert records(graph.get_edges()) == sorted(ROADS)

    def test_gather_sum_apply(self, parallelism: int) -> None:
        graph = roads(parallelism).run_gather_sum_apply_iteration(
            lambda neighbor: neighbor.neighbor_value + neighbor.edge_value,
            min,
            lambda new, current: new if new < current else None,
            10,
        )
        assert records(graph.get_vertices()) == NEAREST


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH", "AUTOMATIC"])
def test_any_mode(mode: str) -> None:
    graph = roads(2, mode).run_scatter_gather_iteration(Scatter(), Gather(), 10)
    assert records(graph.get_vertices()) == NEAREST


class CountDown(pregel.ComputeFunction):
    """Each vertex tells itself to go on, and adds what it knows to aggregators."""

    def __init__(self) -> None:
        self.before = 0
        self.seen: list[Any] = []

    def pre_superstep(self) -> None:
        self.before += 1
        self.seen.append(self.get_previous_iteration_aggregate("vertices"))

    def compute(self, vertex: Any, messages: Any) -> None:
        self.get_iteration_aggregator("vertices").aggregate(1)
        number = self.get_superstep_number()
        assert number == self.before
        if number == 3:
            factor = self.get_broadcast_set("factors")
            self.set_new_vertex_value((sorted(factor), self.seen, self.get_number_of_vertices()))
        self.send_message_to(vertex.id, number)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_supersteps_aggregators_and_broadcast_sets(parallelism: int) -> None:
    graph = roads(parallelism)
    parameters = pregel.VertexCentricConfiguration().set_name("Count down").set_opt_num_vertices(True)
    parameters.register_aggregator("vertices", LongSumAggregator())
    parameters.add_broadcast_set("factors", graph.get_context().from_collection([2, 1, 3]))
    found = records(graph.run_vertex_centric_iteration(CountDown(), None, 3, parameters).get_vertices())
    assert [vertex.value for vertex in found] == [([1, 2, 3], [None, 5, 5], 5)] * 5


class Degrees(spargel.ScatterFunction):
    def send_messages(self, vertex: Any) -> None:
        self.send_message_to(vertex.id, (self.get_in_degree(), self.get_out_degree(), self.get_number_of_vertices()))
        self.send_message_to_all_neighbors(vertex.id)


class Keep(spargel.GatherFunction):
    def update_vertex(self, vertex: Any, in_messages: Any) -> None:
        assert self.get_broadcast_set("a") == [1]
        found = sorted(in_messages, key=str)
        self.set_new_vertex_value((found, self.get_in_degree(), self.get_out_degree()))


@pytest.mark.parametrize("direction", list(EdgeDirection))
@pytest.mark.parametrize("counted", [True, False])
def test_directions_and_degrees(direction: EdgeDirection, counted: bool) -> None:
    graph = roads(2)
    parameters = spargel.ScatterGatherConfiguration().set_direction(direction).set_parallelism(3)
    parameters.set_opt_degrees(counted).set_opt_num_vertices(counted)
    parameters.add_broadcast_set_for_gather_function("a", graph.get_context().from_collection([1]))
    changed = graph.run_scatter_gather_iteration(Degrees(), Keep(), 1, parameters)
    of_b = next(vertex.value for vertex in records(changed.get_vertices()) if vertex.id == "B")
    degrees = (2, 1) if counted else (-1, -1)
    came = {EdgeDirection.OUT: ["A", "C"], EdgeDirection.IN: ["D"], EdgeDirection.ALL: ["A", "C", "D"]}[direction]
    assert of_b == ([(*degrees, 5 if counted else -1), *came], *degrees)


def test_gathering_the_other_way() -> None:
    parameters = gsa.GSAConfiguration().set_direction(EdgeDirection.IN)
    graph = Graph.from_collection([Edge(1, 2), Edge(1, 3), Edge(3, 1)], env_of(), vertex_value_initializer=int)
    summed = graph.run_gather_sum_apply_iteration(
        lambda neighbor: neighbor.neighbor_value, lambda a, b: a + b, lambda new, current: new, 1, parameters
    )
    assert records(summed.get_vertices()) == [Vertex(1, 5), Vertex(2, 2), Vertex(3, 1)]


class Restless(spargel.GatherFunction):
    def update_vertex(self, vertex: Any, in_messages: Any) -> None:
        self.set_new_vertex_value(self.get_superstep_number())


def test_a_value_set_to_itself_keeps_a_vertex_active_until_the_maximum() -> None:
    tell = lambda function, vertex: function.send_message_to_all_neighbors(0)  # noqa: E731
    graph = Graph.from_collection([Edge(1, 2), Edge(2, 1), Edge(3, 1)], env_of())
    for maximum in (0, 1, 4):
        found = graph.run_scatter_gather_iteration(tell, Restless(), maximum).get_vertices()
        expected = maximum or None
        values = {vertex.id: vertex.value for vertex in records(found.map(lambda v: Vertex(v.id, str(v.value))))}
        assert values == {1: str(expected), 2: str(expected), 3: "None"}


def test_progress_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "penstock.iterations")
    records(roads(2).run_scatter_gather_iteration(Scatter(), Gather(), 10).get_vertices())
    lines = [record.getMessage() for record in caplog.records if "superstep" in record.getMessage()]
    assert "superstep 1: 5 vertices active, 2 set, 2 messages" in lines[0]
    assert lines[-1].endswith("ended after 4 supersteps: no vertex is active")


class TestErrors:
    def test_a_function_that_fails_names_the_vertex(self) -> None:
        def compute(function: Any, vertex: Any, messages: Any) -> None:
            raise ValueError("no")

        with pytest.raises(Exception, match=r"(?s)Vertex-centric Iteration.*Vertex\(id=.*ValueError: no"):
            records(roads(2).run_vertex_centric_iteration(compute, None, 3).get_vertices())

    def test_a_message_to_nobody(self) -> None:
        graph = roads(2).run_scatter_gather_iteration(
            lambda function, vertex: function.send_message_to("Z", 1), Gather(), 3
        )
        with pytest.raises(Exception, match="vertex 'Z', which is not in the graph"):
            records(graph.get_vertices())
        lost = roads(2).run_vertex_centric_iteration(lambda f, vertex, messages: f.send_message_to("Z", 1), None, 3)
        assert len(records(lost.get_vertices())) == 5

    def test_misuse(self) -> None:
        with pytest.raises(TypeError, match="nor a callable"):
            roads(1).run_vertex_centric_iteration(3, None, 3)
        with pytest.raises(TypeError, match="must be a VertexCentricConfiguration"):
            roads(1).run_vertex_centric_iteration(Compute(), None, 3, gsa.GSAConfiguration())  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="0 or more"):
            roads(1).run_vertex_centric_iteration(Compute(), None, -1)
        with pytest.raises(ValueError, match="already has an aggregator"):
            gsa.GSAConfiguration().register_aggregator("a", LongSumAggregator()).register_aggregator(
                "a", LongSumAggregator()
            )

        def unknown(function: Any, vertex: Any, messages: Any) -> None:
            function.get_iteration_aggregator("none")

        with pytest.raises(Exception, match="no aggregator 'none'; registered: none"):
            records(roads(1).run_vertex_centric_iteration(unknown, None, 3).get_vertices())
