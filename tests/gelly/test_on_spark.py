"""A5: iterations over vertices on Spark: the tasks of a barrier stage exchange messages."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.gelly.graphs import records
from tests.gelly.test_iterations import NEAREST, ROADS, Combine, Compute, Gather, Scatter, far

from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.gelly import Edge, Graph
from penstock.gelly.library import ConnectedComponents, PageRank

pytestmark = pytest.mark.spark


def env_of() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    return env.set_runtime_mode(RuntimeExecutionMode.BATCH)


@pytest.mark.slow
def test_functions_of_vertices() -> None:
    graph = Graph.from_collection(ROADS, env_of(), vertex_value_initializer=far)
    found = graph.run_vertex_centric_iteration(Compute(), Combine(), 10).get_vertices()
    found = found.union(graph.run_scatter_gather_iteration(Scatter(), Gather(), 10).get_vertices())
    assert records(found) == sorted(NEAREST * 2)


@pytest.mark.slow
def test_kernels_whose_messages_are_large(caplog: pytest.LogCaptureFixture) -> None:
    """A ring of 20,000 vertices: half of the values go to the other partition, if any does."""
    caplog.set_level("INFO", "penstock.iterations")
    size = 20_000
    edges = env_of().from_collection([(number, (number + 1) % size) for number in range(size)])
    graph = Graph.from_tuple2_data_stream(edges, vertex_value_initializer=lambda vertex_id: vertex_id)
    ranks = records(graph.run(PageRank(0.85, 4)).filter(lambda rank: rank.vertex_id < 5))
    assert [rank.page_rank_score for rank in ranks] == [pytest.approx(1 / size)] * 5
    lines = [record.getMessage() for record in caplog.records]
    assert any("superstep 4: 20000 vertices active" in line for line in lines)
    parts = records(graph.run(ConnectedComponents(3)).filter(lambda vertex: vertex.id < 5))
    assert [vertex.value for vertex in parts] == [0, 0, 0, 0, 1]


def test_a_function_that_fails_names_the_vertex() -> None:
    def compute(function: Any, vertex: Any, messages: Any) -> None:
        if vertex.id == 2:
            raise ValueError("no")
        function.send_message_to_all_neighbors(math.inf)

    graph = Graph.from_collection([Edge(1, 2), Edge(2, 3), Edge(3, 1)], env_of())
    found = graph.run_vertex_centric_iteration(compute, None, 3).get_vertices()
    with pytest.raises(Exception, match=r"(?s)Vertex-centric Iteration.*id=2.*ValueError: no"):
        records(found)
