"""Kernels over the arrays of partitions, by PageRank and connected components beside plain Python."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.gelly.graphs import env_of, records

from penstock.common import WatermarkStrategy
from penstock.datastream.connectors.file_system import FileSource
from penstock.formats.parquet import ParquetFormat
from penstock.gelly import Edge, EdgeDirection, Graph, Vertex
from penstock.gelly.columnar import Combine, GraphArrays, Inbox, Kernel, run_kernel
from penstock.gelly.library import ConnectedComponents, PageRank

PARALLELISM = [1, 2, 4]


def some_edges(vertices: int, edges: int, seed: int) -> list[tuple[int, int]]:
    chance = random.Random(seed)
    return [(int(chance.paretovariate(1)) % vertices, chance.randrange(vertices)) for _ in range(edges)]


def plain_page_rank(edges: list[tuple[Any, Any]], iterations: int, vertices: set[Any]) -> dict[Any, float]:
    out: dict[Any, int] = {}
    for source, _ in edges:
        out[source] = out.get(source, 0) + 1
    scores = dict.fromkeys(vertices, 1 / len(vertices))
    for _ in range(iterations):
        sinks = sum(score for vertex, score in scores.items() if vertex not in out)
        new = dict.fromkeys(vertices, (0.15 + 0.85 * sinks) / len(vertices))
        for source, target in edges:
            new[target] += 0.85 * scores[source] / out[source]
        scores = new
    return scores


def plain_components(edges: list[tuple[Any, Any]]) -> dict[Any, Any]:
    label = {vertex: vertex for edge in edges for vertex in edge}
    changed = True
    while changed:
        changed = False
        for one, other in edges:
            least = min(label[one], label[other])
            if label[one] != label[other]:
                label[one] = label[other] = least
                changed = True
    return label


@pytest.mark.parametrize("parallelism", PARALLELISM)
class TestPageRank:
    def test_as_in_plain_python(self, parallelism: int) -> None:
        edges = some_edges(200, 600, 7)
        graph = Graph.from_tuple2_data_stream(env_of(parallelism).from_collection(edges))
        found = dict(records(graph.run(PageRank(0.85, 12))))
        expected = plain_page_rank(edges, 12, {vertex for edge in edges for vertex in edge})
        assert found == pytest.approx(expected)
        assert sum(found.values()) == pytest.approx(1)

    def test_ids_of_other_kinds_and_vertices_alone(self, parallelism: int) -> None:
        edges = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c"), ("d", "a"), ("z", "a")]
        vertices = [Vertex(one) for one in "abcde"]  # without z
        graph = Graph.from_collection([Edge(*edge) for edge in edges], env_of(parallelism), vertices)
        inside = [edge for edge in edges if "z" not in edge]
        found = dict(records(graph.run(PageRank(0.85, 5))))
        assert found == pytest.approx(plain_page_rank(inside, 5, set("abcd")))
        both = dict(records(graph.run(PageRank(0.85, 5).set_include_zero_degree_vertices(True))))
        assert both == pytest.approx(plain_page_rank(inside, 5, set("abcde")))


def test_page_rank_converges(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "penstock.iterations")
    graph = Graph.from_tuple2_data_stream(env_of(2).from_collection(some_edges(50, 200, 1)))
    found = dict(records(graph.run(PageRank(0.85, convergence_threshold=1e-9))))
    assert found == pytest.approx(dict(records(graph.run(PageRank(0.85, 100)))), abs=1e-9)
    ends = [record.getMessage() for record in caplog.records if "ended" in record.getMessage()]
    assert ends[0].endswith("converged")
    assert ends[1].endswith("ended after 100 supersteps: the maximum")


@pytest.mark.parametrize("arguments", [(0.85,), (1.0, 3), (0.85, 0), (0.85, None, 0.0)])
def test_page_rank_refuses(arguments: Any) -> None:
    with pytest.raises(ValueError, match=r"PageRank needs|must be"):
        PageRank(*arguments)


@pytest.mark.parametrize("parallelism", PARALLELISM)
@pytest.mark.parametrize("kind", [int, str, float, lambda number: (number, "x")])
def test_components(parallelism: int, kind: Any) -> None:
    edges = [(kind(one), kind(other)) for one, other in some_edges(300, 200, 5)]
    stream = env_of(parallelism).from_collection(edges)
    graph = Graph.from_tuple2_data_stream(stream, vertex_value_initializer=lambda vertex_id: vertex_id)
    found = dict(records(graph.run(ConnectedComponents(100))))
    assert found == plain_components(edges)


def test_components_of_given_values_and_of_none() -> None:
    graph = Graph.from_collection([Edge(1, 2), Edge(3, 2)], env_of(2), [Vertex(i, 10 - i) for i in range(5)])
    assert records(graph.run(ConnectedComponents(9))) == [(0, 10), (1, 7), (2, 7), (3, 7), (4, 6)]
    with pytest.raises(Exception, match="the vertices have no values"):
        records(Graph.from_collection([Edge(1, 2)], env_of(1)).run(ConnectedComponents(9)))


def test_columns_of_a_file(tmp_path: Path) -> None:
    edges = some_edges(100, 300, 3)
    sources, targets = zip(*edges, strict=True)
    pq.write_table(pa.table({"from": sources, "to": targets}), tmp_path / "edges.parquet")
    source = FileSource.for_bulk_file_format(ParquetFormat(as_columns=True), str(tmp_path / "edges.parquet")).build()
    stream = env_of(2).from_source(source, WatermarkStrategy.no_watermarks(), "edges")
    graph = Graph.from_tuple2_data_stream(stream, vertex_value_initializer=lambda vertex_id: vertex_id)
    expected = plain_page_rank(edges, 3, {vertex for edge in edges for vertex in edge})
    assert dict(records(graph.run(PageRank(0.85, 3)))) == pytest.approx(expected)
    assert dict(records(graph.run(ConnectedComponents(99)))) == plain_components(edges)
    assert records(graph.get_edges())[0] == Edge(*min(edges), None)


class Shortest(Kernel):
    """Edge values, and a mask."""

    combine = Combine.MIN

    def begin(self, graph: GraphArrays) -> None:
        self.far = np.array(graph.vertex_values, np.float64)
        self.changed = self.far == 0

    def send(self, graph: GraphArrays) -> Any:
        return self.far, self.changed

    def along_edges(self, values: Any, edge_values: Any) -> Any:
        return values + edge_values

    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        self.changed = inbox.values < self.far
        self.far = np.minimum(self.far, inbox.values)
        return int(self.changed.sum())

    def results(self, graph: GraphArrays) -> list[Any]:
        return [self.far]


class Listed(Kernel):
    """Messages that are not combined, against the direction of the edges."""

    direction, combine = EdgeDirection.IN, Combine.NONE

    def begin(self, graph: GraphArrays) -> None:
        self.values = np.array(graph.vertex_values)

    def send(self, graph: GraphArrays) -> Any:
        return self.values, self.values != 3

    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        self.came = [sorted(inbox.values[a:b].tolist()) for a, b in zip(inbox.offsets, inbox.offsets[1:], strict=False)]
        return 0

    def results(self, graph: GraphArrays) -> list[Any]:
        return [self.came]


@pytest.mark.parametrize("parallelism", PARALLELISM)
def test_edge_values_masks_and_uncombined_messages(parallelism: int) -> None:
    roads = [Edge(1, 2, 4.0), Edge(1, 3, 1.0), Edge(3, 2, 2.0), Edge(2, 4, 5.0), Edge(5, 1, 1.0), Edge(1, 2, 9.0)]
    graph = Graph.from_collection(roads, env_of(parallelism), [Vertex(i, 0 if i == 1 else 1e9) for i in range(1, 6)])
    found = records(run_kernel(graph, Shortest(), None, "Shortest", Vertex))
    assert found == [(1, 0.0), (2, 3.0), (3, 1.0), (4, 8.0), (5, 1e9)]
    graph = Graph.from_collection(roads, env_of(parallelism), [Vertex(i, i) for i in range(1, 6)])
    assert records(run_kernel(graph, Listed(), 3, "Listed", Vertex)) == [
        (1, [2, 2]),
        (2, [4]),
        (3, [2]),
        (4, []),
        (5, [1]),
    ]
