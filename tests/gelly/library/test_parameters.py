"""What algorithms are told, and what they refuse; and where their loops end."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from tests.gelly.graphs import env_of
from tests.gelly.library import answers

from penstock.gelly import Edge, Graph, Vertex
from penstock.gelly.asm import MaximumDegree, Simplify, TranslateGraphIds, TranslateVertexValues
from penstock.gelly.library import (
    HITS,
    AdamicAdar,
    ChecksumHashCode,
    CommunityDetection,
    JaccardIndex,
    LabelPropagation,
    SingleSourceShortestPaths,
    directed,
    undirected,
)

TRIANGLE = [Edge(1, 2), Edge(2, 3), Edge(3, 1), Edge(3, 4)]


def build_graph(edges: list[Edge], **arguments: Any) -> Graph:
    return Graph.from_collection(edges, env_of(2), **arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HITS(), "HITS: set iterations, convergence_threshold, or both"),
        (lambda: HITS(0), "HITS: iterations must be 1 or more, not 0"),
        (lambda: HITS(convergence_threshold=0), "HITS: convergence_threshold must be greater than 0, not 0"),
        (lambda: HITS(convergence_threshold=math.nan), "convergence_threshold must be greater than 0, not nan"),
        (lambda: SingleSourceShortestPaths(1, -1), "max_iterations must be 0 or more, not -1"),
        (lambda: LabelPropagation(True), "LabelPropagation: max_iterations must be a whole number, not True"),
        (lambda: CommunityDetection(5, "x"), "CommunityDetection: delta must be a number, not 'x'"),  # type: ignore[arg-type]
        (lambda: JaccardIndex().set_minimum_score(2, 1), "set_minimum_score takes a fraction of at most 1, not 2/1"),
        (lambda: JaccardIndex().set_maximum_score(1, 0), "set_maximum_score: the denominator must be 1 or more"),
        (lambda: JaccardIndex().set_group_size(0), "JaccardIndex: group_size must be 1 or more"),
        (lambda: AdamicAdar().set_minimum_ratio(-1), "set_minimum_ratio: the ratio must be 0 or more, not -1"),
        (lambda: undirected.TriangleListing().set_permute_results(1), "set_permute_results takes True or False, not 1"),  # type: ignore[arg-type]
        (lambda: MaximumDegree(0), "MaximumDegree: maximum_degree must be 1 or more, not 0"),
        (lambda: Simplify("yes"), "clip_and_flip is None for a directed graph, or True or False, not 'yes'"),  # type: ignore[arg-type]
        (lambda: TranslateGraphIds(3), "TranslateGraphIds takes a function, or an object with a method translate"),
        (lambda: ChecksumHashCode().execute(), "ChecksumHashCode has no graph yet: call graph.run"),
    ],
)
def test_wrong_parameters_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        make()


def test_edges_without_lengths_have_no_shortest_path() -> None:
    with pytest.raises(Exception, match="the shortest path needs edges whose values are numbers"):
        build_graph(TRIANGLE).run(SingleSourceShortestPaths(1, 5)).collect()


def test_from_a_vertex_that_is_not_there_nothing_is_reached() -> None:
    lengths = [Edge(*edge[:2], 1.0) for edge in TRIANGLE]
    assert {value for _, value in build_graph(lengths).run(SingleSourceShortestPaths(9, 5)).collect()} == {math.inf}


def test_a_path_has_as_many_edges_as_supersteps() -> None:
    lengths = [Edge(number, number + 1, 0.5) for number in range(5)]
    found = dict(build_graph(lengths).run(SingleSourceShortestPaths(0, 3)).collect())
    assert found == {0: 0.0, 1: 0.5, 2: 1.0, 3: 1.5, 4: math.inf, 5: math.inf}


def test_labels_may_be_text() -> None:
    people = [Vertex(1, "red"), Vertex(2, "blue"), Vertex(3, "blue"), Vertex(4, "green")]
    found = build_graph(TRIANGLE, vertices=people).run(LabelPropagation(1)).collect()
    assert sorted(found) == [(1, "red"), (2, "red"), (3, "blue"), (4, "green")]


def test_hits_ends_when_scores_hardly_change() -> None:
    graph = nx.DiGraph(edge[:2] for edge in [*TRIANGLE, Edge(4, 2), Edge(1, 3)])
    edges = [Edge(*pair) for pair in graph.edges]
    found = {
        vertex_id: (hub, authority) for vertex_id, hub, authority in build_graph(edges).run(HITS(None, 1e-3)).collect()
    }
    so_far = [answers.hits(graph, iterations) for iterations in range(1, 40)]
    changes = [
        sum(abs(now[node][place] - then[node][place]) for node in graph for place in (0, 1))
        for then, now in pairwise(so_far)
    ]
    last = so_far[1 + next(place for place, change in enumerate(changes) if change <= 1e-3)]
    for node, scores in last.items():
        assert found[node] == pytest.approx(scores, abs=1e-9)


def test_hits_comes_to_what_networkx_says() -> None:
    graph = nx.DiGraph([(1, 2), (2, 3), (3, 1), (3, 4), (4, 2), (1, 3)])
    hubs, authorities = nx.hits(graph)
    found = build_graph([Edge(*pair) for pair in graph.edges]).run(HITS(60)).collect()
    hub_sum = sum(score.hub_score for score in found)
    authority_sum = sum(score.authority_score for score in found)
    for vertex_id, hub, authority in found:
        assert hub / hub_sum == pytest.approx(hubs[vertex_id], abs=1e-6)
        assert authority / authority_sum == pytest.approx(authorities[vertex_id], abs=1e-6)


def test_results_have_getters() -> None:
    (triangle,) = build_graph(TRIANGLE).run(directed.TriangleListing().set_sort_triangle_vertices(True)).collect()
    assert (triangle.get_vertex_id_0(), triangle.get_vertex_id_2(), triangle.get_bitmask()) == (1, 3, 0b011001)
    assert triangle.to_printable_string() == "1->2, 1<-3, 2->3"
    metrics = build_graph(TRIANGLE).run(directed.VertexMetrics())
    assert metrics.execute().get_number_of_directed_edges() == 4
    assert metrics.get_result() is metrics.get_result()


def test_metrics_of_nothing_are_zero_or_not_a_number() -> None:
    nothing = Graph.from_collection([], env_of(1), [Vertex(1, None)])
    metrics = nothing.run(undirected.VertexMetrics()).execute()
    assert metrics.number_of_vertices == metrics.maximum_degree == 0
    assert math.isnan(metrics.average_degree)
    assert math.isnan(metrics.density)
    assert nothing.run(directed.TriadicCensus()).execute().counts == (0,) * 16


def test_a_checksum_does_not_depend_on_the_order() -> None:
    one = build_graph(TRIANGLE).run(ChecksumHashCode()).execute()
    assert one == build_graph(TRIANGLE[::-1]).run(ChecksumHashCode()).execute()
    assert one != build_graph(TRIANGLE[1:]).run(ChecksumHashCode()).execute()
    assert str(one).endswith("count 8")


def test_ids_and_values_are_translated() -> None:
    graph = build_graph(TRIANGLE).run(TranslateGraphIds(lambda number: f"v{number}"))
    graph = graph.run(TranslateVertexValues(lambda value: value is None))
    assert sorted(graph.get_vertices().collect()) == [(f"v{number}", True) for number in range(1, 5)]
