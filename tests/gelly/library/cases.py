"""Every algorithm with a way to run it on a graph, and to check what it gave against the answers.

Tolerances: counts and ids are equal. Scores that come of one division are equal to 1e-12, relative; sums of logarithms
and the scores of HITS to 1e-9.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any

import networkx as nx
from tests.gelly.library import answers
from tests.gelly.library.graphs import Given

from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.gelly import asm, library
from penstock.gelly.library import directed, undirected
from penstock.gelly.library.clustering import permuted
from penstock.state.keys import key_bytes

EXACT = 1e-12
CLOSE = 1e-9
HITS_ITERATIONS = 12


@dataclass(frozen=True)
class Case:
    """An algorithm with parameters.

    Attributes:
        name: of the algorithm, and what is special.
        make: an algorithm or an analytic for a graph.
        check: raises if the results (a list of records, of a graph its vertices and edges, or an analytic's result) are
            not right.
        directed: which graphs it is for; None for all.
        streams: what of the algorithm's result is collected; None for an analytic.
        has_loop: whether it has supersteps, so that it takes longer.
    """

    name: str
    make: Callable[[Given], Any]
    check: Callable[[Any, Given], None]
    directed: bool | None = None
    is_analytic: bool = False
    has_loop: bool = False


def _label(label: Any, record: Any) -> tuple[Any, Any]:
    return label, record


def _streams(made: Any) -> dict[str, DataStream]:
    """What an algorithm gave: a stream, or the two of a graph."""
    return {"": made} if isinstance(made, DataStream) else {"vertex": made.get_vertices(), "edge": made.get_edges()}


def _results(found: dict[str, list[Any]]) -> Any:
    return found[""] if "" in found else (found["vertex"], found["edge"])


def run(case: Case, given: Given, env: StreamExecutionEnvironment) -> Any:
    """The results of a case."""
    made = given.graph(env).run(case.make(given))
    return made.execute() if case.is_analytic else together({case.name: made})[case.name]


def together(made: dict[str, Any]) -> dict[str, Any]:
    """The results of several algorithms, from one job."""
    labelled = {(name, kind): stream for name, one in made.items() for kind, stream in _streams(one).items()}
    first, *others = [stream.map(partial(_label, label)) for label, stream in labelled.items()]
    found: dict[Any, list[Any]] = {label: [] for label in labelled}
    for label, record in first.union(*others).collect():
        found[label].append(record)
    return {name: _results({kind: found[name, kind] for kind in _streams(one)}) for name, one in made.items()}


def check_together(cases: list[Case], given: Given, env: StreamExecutionEnvironment) -> None:
    """Check several algorithms that are no analytics."""
    graph = given.graph(env)
    found = together({case.name: graph.run(case.make(given)) for case in cases})
    for case in cases:
        case.check(found[case.name], given)


def check_case(case: Case, given: Given, env: StreamExecutionEnvironment) -> None:
    case.check(run(case, given, env), given)


def cases_of(given: Given, has_loop: bool | None = None) -> list[Case]:
    """Those for the graph."""
    return [case for case in CASES if case.directed in (None, given.is_directed) and has_loop in (None, case.has_loop)]


# --- checks ----------------------------------------------------------------------------------------------------------


def same(found: Any, expected: Any) -> None:
    """The same records, each as often."""
    assert Counter(map(tuple, found)) == Counter(map(tuple, expected))


def close(found: float, expected: float, tolerance: float) -> bool:
    if math.isnan(expected):
        return math.isnan(found)
    return math.isclose(found, expected, rel_tol=tolerance, abs_tol=tolerance)


def check_triangles(found: Any, given: Given) -> None:
    assert all(len(triangle) == 3 for triangle in found)
    same([sorted(triangle) for triangle in found], answers.triangles(given.nx))


def check_sorted_triangles(found: Any, given: Given) -> None:
    same(found, answers.triangles(given.nx))


def check_permuted_triangles(found: Any, given: Given) -> None:
    same(found, [order for triangle in answers.triangles(given.nx) for order in permutations(triangle)])


def check_masked_triangles(found: Any, given: Given) -> None:
    same(found, answers.masked_triangles(given.nx))


def check_any_masked_triangles(found: Any, given: Given) -> None:
    order = [permuted(one, sorted(range(3), key=one.__getitem__)) for one in found]
    same(order, answers.masked_triangles(given.nx))


def check_permuted_masked_triangles(found: Any, given: Given) -> None:
    expected = []
    for triangle in answers.masked_triangles(given.nx):
        for a, b, c in permutations(triangle[:3]):
            mask = 0
            for shift, (one, other) in ((4, (a, b)), (2, (a, c)), (0, (b, c))):
                mask |= (given.nx.has_edge(one, other) + 2 * given.nx.has_edge(other, one)) << shift
            expected.append((a, b, c, mask))
    same(found, expected)


def check_local_clustering(found: Any, given: Given, with_zero: bool = True) -> None:
    expected = answers.local_clustering(given.nx)
    if not with_zero:
        expected = {node: figures for node, figures in expected.items() if figures[0]}
    same(found, [(node, degree, count) for node, (degree, count, _) in expected.items()])
    for result in found:
        assert close(result.get_local_clustering_coefficient_score(), expected[result.vertex_id][2], EXACT)
    if not given.is_directed:
        scores = nx.clustering(given.nx)
        assert all(
            close(one.get_local_clustering_coefficient_score(), scores[one.vertex_id], EXACT)
            for one in found
            if one.degree > 1
        )


def check_average_clustering(found: Any, given: Given) -> None:
    assert found.number_of_vertices == len(given.nx)
    scores = [score for _, _, score in answers.local_clustering(given.nx).values()]
    expected = sum(0.0 if math.isnan(score) else score for score in scores) / len(scores)
    assert close(found.average_clustering_coefficient, expected, EXACT)
    if not given.is_directed:
        assert close(found.get_average_clustering_coefficient(), nx.average_clustering(given.nx), EXACT)


def check_global_clustering(found: Any, given: Given) -> None:
    triplets = sum(len(there) * (len(there) - 1) // 2 for there in answers.neighbours(given.nx).values())
    closed = 3 * len(answers.triangles(given.nx))
    assert found == (triplets, closed)
    if triplets:
        expected = nx.transitivity(nx.Graph(given.nx))
        assert close(found.global_clustering_coefficient_score, expected, EXACT)
    else:
        assert math.isnan(found.get_global_clustering_coefficient_score())


def check_undirected_census(found: Any, given: Given) -> None:
    assert found.counts == answers.undirected_census(given.nx)
    assert found.get_count_30() == len(answers.triangles(given.nx))


def check_directed_census(found: Any, given: Given) -> None:
    assert found.counts == answers.directed_census(given.nx)
    assert found.get_count("030T") == found.counts[8]


def check_vertex_metrics(found: Any, given: Given, with_zero: bool = False) -> None:
    graph = given.nx if with_zero else answers.with_edges(given.nx)
    degrees = [len(there) for there in answers.neighbours(graph).values()]
    triplets = [degree * (degree - 1) // 2 for degree in degrees]
    assert found.number_of_vertices == len(graph)
    assert found.number_of_edges == graph.number_of_edges()
    assert found.number_of_triplets == sum(triplets)
    assert found.maximum_degree == max(degrees, default=0)
    assert found.maximum_triplets == max(triplets, default=0)
    edges = graph.number_of_edges()
    ends = edges if given.is_directed else 2 * edges
    assert close(found.average_degree, ends / len(graph) if len(graph) else math.nan, EXACT)
    assert close(found.get_density(), nx.density(graph) if len(graph) > 1 else math.nan, EXACT)
    if given.is_directed:
        both_ways = sum(graph.has_edge(target, source) for source, target in graph.edges) // 2
        assert found.number_of_undirected_edges == both_ways
        assert found.number_of_directed_edges == edges - 2 * both_ways
        assert found.maximum_out_degree == max((degree for _, degree in graph.out_degree), default=0)
        assert found.maximum_in_degree == max((degree for _, degree in graph.in_degree), default=0)


def check_edge_metrics(found: Any, given: Given) -> None:
    assert tuple(found) == answers.edge_metrics(given.nx)


def check_jaccard(found: Any, given: Given, low: float = 0, high: float = 1, mirrored: bool = False) -> None:
    around = answers.neighbours(given.nx)
    scores = {(a, b): score for a, b, score in nx.jaccard_coefficient(given.nx, answers.shared_pairs(given.nx))}
    expected = [
        (a, b, len(around[a] & around[b]), len(around[a] | around[b]))
        for (a, b), score in scores.items()
        if low <= score <= high
    ]
    if mirrored:
        expected += [(b, a, *counts) for a, b, *counts in expected]
    same(found, expected)
    for result in found:
        pair = tuple(sorted(result[:2]))
        assert close(result.get_jaccard_index_score(), scores[pair], EXACT)


def check_adamic_adar(found: Any, given: Given, low: float = 0, ratio: float = 0, mirrored: bool = False) -> None:
    pairs = answers.shared_pairs(given.nx)
    limit = max(low, ratio * answers.average_contribution(given.nx) if pairs else 0.0)
    expected = {(a, b): score for a, b, score in nx.adamic_adar_index(given.nx, pairs)}
    scores = {(a, b): score for a, b, score in found}
    if mirrored:
        expected |= {(b, a): score for (a, b), score in expected.items()}
    assert len(scores) == len(found)
    # A score on the limit may be on either side of it.
    kept = {pair for pair, score in expected.items() if score >= limit}
    unsure = {pair for pair, score in expected.items() if close(score, limit, CLOSE)}
    assert kept - unsure <= set(scores) <= kept | unsure
    assert all(close(score, expected[pair], CLOSE) for pair, score in scores.items())


def check_hits(found: Any, given: Given, iterations: int = HITS_ITERATIONS) -> None:
    expected = answers.hits(given.nx, iterations) if given.nx.number_of_edges() else {}
    assert Counter(one.vertex_id for one in found) == Counter(list(expected))
    for vertex_id, hub, authority in found:
        assert close(hub, expected[vertex_id][0], CLOSE)
        assert close(authority, expected[vertex_id][1], CLOSE)


def first_vertex(given: Given) -> Any:
    return next(iter(given.nx))


def check_distances(found: Any, given: Given) -> None:
    expected = answers.distances(given.nx, first_vertex(given))
    assert dict(found) == expected  # exactly: all lengths are sums of a few powers of two
    assert len(found) == len(expected)


def check_components(found: Any, given: Given) -> None:
    same(found, answers.components(given.nx).items())


def check_labels(found: Any, given: Given, iterations: int) -> None:
    same(found, answers.label_propagation(given.nx, given.edges(), iterations).items())


def check_communities(found: Any, given: Given, iterations: int, delta: float) -> None:
    same(found[0], answers.community_detection(given.nx, given.edges(), iterations, delta).items())
    edges = given.edges()
    same(found[1], [*edges, *(edge.reverse() for edge in edges)])


def check_summary(found: Any, given: Given) -> None:
    values = dict(given.nx.nodes(data="value"))
    vertices, edges = answers.summary(given.nx, given.edges(), values)
    same(found[0], vertices.items())
    same(found[1], [(source, target, (value, count)) for (source, target, value), count in edges.items()])


def check_checksum(found: Any, given: Given) -> None:
    import xxhash

    records = [*given.nx.nodes(data="value"), *map(tuple, given.edges())]
    hashes = [xxhash.xxh3_64_intdigest(key_bytes(tuple(record))) for record in records]
    assert tuple(found) == (len(records), sum(hashes) % 2**64)


def check_degrees(found: Any, given: Given, of: Callable[[Any], dict[Any, Any]], with_zero: bool) -> None:
    expected = of(given.nx)
    empty = (0, (0, 0, 0))
    same(found, [one for one in expected.items() if with_zero or one[1] not in empty])


def degrees(graph: Any) -> dict[Any, Any]:
    around = answers.neighbours(graph)
    return {node: (len(around[node]), graph.out_degree(node), graph.in_degree(node)) for node in graph}


def check_edge_degrees(found: Any, given: Given, ends: tuple[int, ...]) -> None:
    of = degrees(given.nx) if given.is_directed else dict(given.nx.degree)
    same(found, [(*edge[:2], (edge.value, *(of[edge[end]] for end in ends))) for edge in given.edges()])


def check_maximum_degree(found: Any, given: Given, maximum: int) -> None:
    stay = {node for node, degree in given.nx.degree if degree <= maximum}
    same(found[0], [(node, value) for node, value in given.nx.nodes(data="value") if node in stay])
    same(found[1], [edge for edge in given.edges() if edge.source in stay and edge.target in stay])


def check_clipped(found: Any, given: Given) -> None:
    same(found[0], given.nx.nodes(data="value"))
    down = [edge for edge in given.edges() if edge.source > edge.target]
    same(found[1], [*down, *(edge.reverse() for edge in down)])


def check_symmetric(found: Any, given: Given) -> None:
    pairs = {frozenset(edge[:2]) for edge in given.edges()}
    same([edge[:2] for edge in found[1]], [order for pair in pairs for order in permutations(pair)])
    assert all(
        edge.value in (given.nx.edges[pair]["weight"] for pair in (edge[:2], edge[1::-1]) if given.nx.has_edge(*pair))
        for edge in found[1]
    )


def check_unchanged(found: Any, given: Given) -> None:
    same(found[0], given.nx.nodes(data="value"))
    same(found[1], given.edges())


def settings(algorithm: Any, **values: Any) -> Any:
    for name, value in values.items():
        algorithm = getattr(algorithm, f"set_{name}")(*(value if isinstance(value, tuple) else (value,)))
    return algorithm


def maker(algorithm: Any, *arguments: Any, **values: Any) -> Callable[[Given], Any]:
    return lambda given: settings(algorithm(*arguments), **values)


def analytic(name: str, algorithm: Any, check: Any, directed: bool | None = None, **values: Any) -> Case:
    return Case(name, maker(algorithm, **values), check, directed, is_analytic=True)


UNDIRECTED = [
    Case("TriangleListing", maker(undirected.TriangleListing), check_triangles, False),
    Case(
        "TriangleListing, sorted",
        maker(undirected.TriangleListing, sort_triangle_vertices=True),
        check_sorted_triangles,
        False,
    ),
    Case(
        "TriangleListing, permuted",
        maker(undirected.TriangleListing, permute_results=True),
        check_permuted_triangles,
        False,
    ),
    Case("LocalClusteringCoefficient", maker(undirected.LocalClusteringCoefficient), check_local_clustering, False),
    Case(
        "LocalClusteringCoefficient, with edges",
        maker(undirected.LocalClusteringCoefficient, include_zero_degree_vertices=False),
        partial(check_local_clustering, with_zero=False),
        False,
    ),
    analytic("AverageClusteringCoefficient", undirected.AverageClusteringCoefficient, check_average_clustering, False),
    analytic("GlobalClusteringCoefficient", undirected.GlobalClusteringCoefficient, check_global_clustering, False),
    analytic("TriadicCensus", undirected.TriadicCensus, check_undirected_census, False),
    analytic("VertexMetrics", undirected.VertexMetrics, check_vertex_metrics, False),
    analytic(
        "VertexMetrics, all",
        undirected.VertexMetrics,
        partial(check_vertex_metrics, with_zero=True),
        False,
        include_zero_degree_vertices=True,
    ),
    analytic("EdgeMetrics", undirected.EdgeMetrics, check_edge_metrics, False),
    Case("JaccardIndex", maker(library.JaccardIndex), check_jaccard, False),
    Case(
        "JaccardIndex, limits",
        maker(library.JaccardIndex, minimum_score=(1, 4), maximum_score=(2, 3), mirror_results=True, group_size=2),
        partial(check_jaccard, low=1 / 4, high=2 / 3, mirrored=True),
        False,
    ),
    Case("AdamicAdar", maker(library.AdamicAdar), check_adamic_adar, False),
    Case(
        "AdamicAdar, limit",
        maker(library.AdamicAdar, minimum_score=1.0, mirror_results=True),
        partial(check_adamic_adar, low=1.0, mirrored=True),
        False,
    ),
    Case(
        "AdamicAdar, ratio",
        maker(library.AdamicAdar, minimum_ratio=1.5),
        partial(check_adamic_adar, ratio=1.5),
        False,
        has_loop=True,
    ),
    Case(
        "VertexDegree",
        maker(asm.VertexDegree),
        partial(check_degrees, of=lambda g: dict(g.degree), with_zero=False),
        False,
    ),
    Case(
        "VertexDegree, all",
        maker(asm.VertexDegree, include_zero_degree_vertices=True, reduce_on_target_id=True),
        partial(check_degrees, of=lambda g: dict(g.degree), with_zero=True),
        False,
    ),
    Case("EdgeSourceDegree", maker(asm.EdgeSourceDegree), partial(check_edge_degrees, ends=(0,)), False),
    Case("EdgeTargetDegree", maker(asm.EdgeTargetDegree), partial(check_edge_degrees, ends=(1,)), False),
    Case("EdgeDegreePair", maker(asm.EdgeDegreePair), partial(check_edge_degrees, ends=(0, 1)), False),
    Case("MaximumDegree", maker(asm.MaximumDegree, 3), partial(check_maximum_degree, maximum=3), False),
]

DIRECTED = [
    Case("TriangleListing", maker(directed.TriangleListing), check_any_masked_triangles, True),
    Case(
        "TriangleListing, sorted",
        maker(directed.TriangleListing, sort_triangle_vertices=True),
        check_masked_triangles,
        True,
    ),
    Case(
        "TriangleListing, permuted",
        maker(directed.TriangleListing, permute_results=True),
        check_permuted_masked_triangles,
        True,
    ),
    Case("LocalClusteringCoefficient", maker(directed.LocalClusteringCoefficient), check_local_clustering, True),
    analytic("AverageClusteringCoefficient", directed.AverageClusteringCoefficient, check_average_clustering, True),
    analytic("GlobalClusteringCoefficient", directed.GlobalClusteringCoefficient, check_global_clustering, True),
    analytic("TriadicCensus", directed.TriadicCensus, check_directed_census, True),
    analytic("VertexMetrics", directed.VertexMetrics, check_vertex_metrics, True),
    analytic(
        "VertexMetrics, all",
        directed.VertexMetrics,
        partial(check_vertex_metrics, with_zero=True),
        True,
        include_zero_degree_vertices=True,
    ),
    analytic("EdgeMetrics", directed.EdgeMetrics, check_edge_metrics, True),
    Case("HITS", maker(library.HITS, HITS_ITERATIONS), check_hits, True, has_loop=True),
    Case("VertexDegrees", maker(asm.VertexDegrees), partial(check_degrees, of=degrees, with_zero=False), True),
    Case(
        "VertexDegrees, all",
        maker(asm.VertexDegrees, include_zero_degree_vertices=True),
        partial(check_degrees, of=degrees, with_zero=True),
        True,
    ),
    Case(
        "VertexOutDegree",
        maker(asm.VertexOutDegree),
        partial(check_degrees, of=lambda g: dict(g.out_degree), with_zero=False),
        True,
    ),
    Case(
        "VertexInDegree",
        maker(asm.VertexInDegree, include_zero_degree_vertices=True),
        partial(check_degrees, of=lambda g: dict(g.in_degree), with_zero=True),
        True,
    ),
    Case("EdgeSourceDegrees", maker(asm.EdgeSourceDegrees), partial(check_edge_degrees, ends=(0,)), True),
    Case("EdgeTargetDegrees", maker(asm.EdgeTargetDegrees), partial(check_edge_degrees, ends=(1,)), True),
    Case("EdgeDegreesPair", maker(asm.EdgeDegreesPair), partial(check_edge_degrees, ends=(0, 1)), True),
    Case("Simplify, both ways", maker(asm.Simplify, False), check_symmetric, True),
]


def check_page_rank(found: Any, given: Given, iterations: int) -> None:
    expected = answers.page_rank(answers.with_edges(given.nx), iterations)
    assert Counter(one.vertex_id for one in found) == Counter(list(expected))
    assert all(close(score, expected[vertex_id], CLOSE) for vertex_id, score in found)


LOOPS = [
    Case("ConnectedComponents", maker(library.ConnectedComponents, 100), check_components, has_loop=True),
    Case("PageRank", maker(library.PageRank, 0.85, 15), partial(check_page_rank, iterations=15), has_loop=True),
    Case(
        "SingleSourceShortestPaths",
        lambda given: library.SingleSourceShortestPaths(first_vertex(given), 100),
        check_distances,
        has_loop=True,
    ),
    Case(
        "GSASingleSourceShortestPaths",
        lambda given: library.GSASingleSourceShortestPaths(first_vertex(given), 100),
        check_distances,
        has_loop=True,
    ),
    Case("GSAConnectedComponents", maker(library.GSAConnectedComponents, 100), check_components, has_loop=True),
    *(
        Case(
            f"LabelPropagation, {iterations}",
            maker(library.LabelPropagation, iterations),
            partial(check_labels, iterations=iterations),
            has_loop=True,
        )
        for iterations in (1, 6)
    ),
    *(
        Case(
            f"CommunityDetection, {iterations}",
            maker(library.CommunityDetection, iterations, delta),
            partial(check_communities, iterations=iterations, delta=delta),
            has_loop=True,
        )
        for iterations, delta in ((2, 0.5), (9, 0.25))
    ),
]

ALL = [
    Case("TriangleEnumerator", maker(library.TriangleEnumerator), check_sorted_triangles),
    Case("Summarization", maker(library.Summarization), check_summary),
    analytic("ChecksumHashCode", library.ChecksumHashCode, check_checksum),
    Case("Simplify", maker(asm.Simplify), check_unchanged),
    Case("Simplify, clipped", maker(asm.Simplify, True), check_clipped),
]

CASES = [*UNDIRECTED, *DIRECTED, *LOOPS, *ALL]
