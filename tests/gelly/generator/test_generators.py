"""Generated graphs are those of networkx, whatever the parallelism; wrong parameters are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
from tests.gelly.graphs import env_of

from penstock.datastream import StreamExecutionEnvironment
from penstock.gelly import Graph
from penstock.gelly.asm import Simplify
from penstock.gelly.generator import (
    CirculantGraph,
    CompleteGraph,
    CycleGraph,
    EchoGraph,
    EmptyGraph,
    GridGraph,
    HypercubeGraph,
    PathGraph,
    RMatGraph,
    SingletonEdgeGraph,
    StarGraph,
)


def ends(graph: Graph) -> Counter[tuple[int, int]]:
    edges = graph.get_edges().collect()
    assert all(edge.value is None for edge in edges)
    return Counter((edge.source, edge.target) for edge in edges)


def ids(graph: Graph) -> list[int]:
    vertices = graph.get_vertices().collect()
    assert all(vertex.value is None for vertex in vertices)
    return sorted(vertex.id for vertex in vertices)


def both_ways(graph: Any) -> Counter[tuple[int, int]]:
    return Counter((a, b) for pair in graph.edges for a, b in (pair, pair[::-1]))


def grid(*sizes: int, closed: bool = False) -> Any:
    return nx.convert_node_labels_to_integers(nx.grid_graph(sizes[::-1], closed), ordering="sorted")


SHAPES: dict[str, tuple[Callable[[StreamExecutionEnvironment], Any], Any]] = {
    "circulant": (
        lambda env: CirculantGraph(env, 10).add_range(4, 3).add_range(1, 1),
        nx.circulant_graph(10, [1, 4, 5]),
    ),
    "circulant one way": (lambda env: CirculantGraph(env, 11).add_range(2, 2), nx.circulant_graph(11, [2, 3])),
    "circulant without range": (lambda env: CirculantGraph(env, 3), nx.empty_graph(3)),
    "complete": (lambda env: CompleteGraph(env, 9), nx.complete_graph(9)),
    "cycle": (lambda env: CycleGraph(env, 7), nx.cycle_graph(7)),
    "echo": (lambda env: EchoGraph(env, 9, 4), nx.circulant_graph(9, [3, 4])),
    "echo, odd degree": (lambda env: EchoGraph(env, 10, 3), nx.circulant_graph(10, [4, 5])),
    "empty": (lambda env: EmptyGraph(env, 5), nx.empty_graph(5)),
    "nothing": (lambda env: EmptyGraph(env, 0), nx.empty_graph(0)),
    "grid": (
        lambda env: GridGraph(env).add_dimension(2, False).add_dimension(3, False).add_dimension(4, False),
        grid(2, 3, 4),
    ),
    "torus": (lambda env: GridGraph(env).add_dimension(3, True).add_dimension(5, True), grid(3, 5, closed=True)),
    "closed pair": (lambda env: GridGraph(env).add_dimension(2, True), nx.path_graph(2)),
    "hypercube": (lambda env: HypercubeGraph(env, 4), grid(2, 2, 2, 2)),
    "path": (lambda env: PathGraph(env, 6), nx.path_graph(6)),
    "pairs": (lambda env: SingletonEdgeGraph(env, 3), nx.Graph([(0, 1), (2, 3), (4, 5)])),
    "star": (lambda env: StarGraph(env, 8), nx.star_graph(7)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_generated_graph_is_that_of_networkx(shape: str, parallelism: int) -> None:
    make, expected = SHAPES[shape]
    graph = make(env_of()).set_parallelism(parallelism).generate()
    assert ids(graph) == sorted(expected)
    assert ends(graph) == both_ways(expected)


def rmat(parallelism: int = 2, seed: int = 7, vertices: int = 1000, edges: int = 17_000) -> RMatGraph:
    return RMatGraph(env_of(parallelism), seed, vertices, edges)


def test_a_random_graph_depends_on_its_seed_and_on_nothing_else() -> None:
    once = ends(rmat(1).generate())
    assert once.total() == 17_000
    assert once == ends(rmat(4).generate()) == ends(rmat(2).set_parallelism(3).generate())
    assert once != ends(rmat(seed=8).generate())
    assert {id for pair in once for id in pair} <= set(range(1000))


def test_degrees_follow_a_power_law_or_not_as_the_constants_say() -> None:
    skewed = Counter(source for source, _ in ends(rmat(vertices=1024).generate()).elements())
    even = Counter(
        source for source, _ in ends(rmat(vertices=1024).set_constants(0.25, 0.25, 0.25).generate()).elements()
    )
    assert max(skewed.values()) > 400
    assert max(even.values()) < 50
    quarters = Counter(
        (source >= 512, target >= 512)
        for source, target in ends(rmat(vertices=1024).set_constants(0.4, 0.3, 0.2).generate()).elements()
    )
    for quarter, part in (((0, 0), 0.4), ((0, 1), 0.3), ((1, 0), 0.2), ((1, 1), 0.1)):
        assert abs(quarters[bool(quarter[0]), bool(quarter[1])] / 17_000 - part) < 0.02


def test_noise_changes_a_random_graph() -> None:
    noisy = rmat(edges=500).set_noise(True, 0.5).generate()
    assert ends(noisy).total() == 500
    assert ends(noisy) != ends(rmat(edges=500).generate())
    assert ends(rmat(edges=500).set_noise(False, 0.5).generate()) == ends(rmat(edges=500).generate())


def test_a_random_graph_becomes_simple() -> None:
    simple = ends(rmat(edges=2000, vertices=64).generate().run(Simplify(clip_and_flip=False)))
    assert max(simple.values()) == 1
    assert all((target, source) in simple and source != target for source, target in simple)


def test_ids_of_a_random_graph_without_a_choice() -> None:
    assert ends(rmat(vertices=1, edges=3).generate()) == {(0, 0): 3}
    impossible = rmat(vertices=3, edges=3).set_constants(0, 0, 0).generate()
    with pytest.raises(Exception, match="no edge had both ids below 3"):
        ends(impossible)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda env: CompleteGraph(env, 1), "CompleteGraph: vertex_count must be 2 or more, not 1"),
        (lambda env: CycleGraph(env, 2), "CycleGraph: vertex_count must be 3 or more, not 2"),
        (lambda env: EmptyGraph(env, -1), "EmptyGraph: vertex_count must be 0 or more"),
        (lambda env: EchoGraph(env, 5, 5), "each of 5 vertices has 4 neighbours at most"),
        (lambda env: EchoGraph(env, 5, 3), "one must be even, one odd"),
        (lambda env: GridGraph(env).generate(), "GridGraph has no dimensions"),
        (lambda env: GridGraph(env).add_dimension(1, False), "GridGraph: size must be 2 or more"),
        (lambda env: HypercubeGraph(env, 0), "HypercubeGraph: dimensions must be 1 or more"),
        (lambda env: PathGraph(env, True), "PathGraph: vertex_count must be a whole number, not True"),
        (lambda env: StarGraph(env, 2.5), "StarGraph: vertex_count must be a whole number, not 2.5"),  # type: ignore[arg-type]
        (lambda env: SingletonEdgeGraph(env, 0), "SingletonEdgeGraph: vertex_pair_count must be 1 or more"),
        (lambda env: CirculantGraph(env, 5).add_range(2, 4), "their sum must be 5 or less"),
        (lambda env: CirculantGraph(env, 9).add_range(1, 3).add_range(3, 1), "overlaps that of offset 1 and length 3"),
        (lambda env: RMatGraph(env, 1, 5, 0), "RMatGraph: edge_count must be 1 or more"),
        (lambda env: RMatGraph(env, 1, 5, 5).set_constants(0.5, 0.5, 0.1), "the sum of a, b and c must be 1 or less"),
        (lambda env: RMatGraph(env, 1, 5, 5).set_noise(True, 3), "noise must be 2 or less, not 3"),
        (lambda env: StarGraph(env, 3).set_parallelism(0), "StarGraph: parallelism must be 1 or more"),
        (lambda env: StarGraph(3, 3), "StarGraph takes a StreamExecutionEnvironment first, not int"),  # type: ignore[arg-type]
    ],
)
def test_wrong_parameters_are_refused(make: Callable[[StreamExecutionEnvironment], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make(env_of(1))
