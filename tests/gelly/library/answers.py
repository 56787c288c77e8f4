"""What the algorithms must give: networkx's answers, and naive ones where networkx has none."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np

from penstock.gelly.library.triadic_census import DIRECTED_KINDS


def neighbours(graph: Any) -> dict[Any, set[Any]]:
    """Whichever way the edges lead."""
    undirected = nx.Graph(graph)
    return {node: set(undirected[node]) - {node} for node in undirected}


def triangles(graph: Any) -> set[tuple[Any, Any, Any]]:
    cliques = nx.enumerate_all_cliques(nx.Graph(graph))
    return {tuple(sorted(clique)) for clique in cliques if len(clique) == 3}


def masked_triangles(graph: Any) -> set[tuple[Any, Any, Any, int]]:
    found = set()
    for a, b, c in triangles(graph):
        mask = 0
        for shift, (one, other) in ((4, (a, b)), (2, (a, c)), (0, (b, c))):
            mask |= (graph.has_edge(one, other) + 2 * graph.has_edge(other, one)) << shift
        found.add((a, b, c, mask))
    return found


def local_clustering(graph: Any) -> dict[Any, tuple[int, int, float]]:
    """Degree, edges among the neighbours, score."""
    found = {}
    for node, around in neighbours(graph).items():
        edges = sum(graph.has_edge(a, b) for a in around for b in around if a != b)
        degree = len(around)
        possible = degree * (degree - 1)
        count = edges if graph.is_directed() else edges // 2
        found[node] = (degree, count, edges / possible if possible else math.nan)
    return found


def with_edges(graph: Any) -> Any:
    """Without isolated vertices, which do not count in a census."""
    return graph.subgraph([node for node in graph if graph.degree(node)])


def undirected_census(graph: Any) -> tuple[int, ...]:
    census = nx.triadic_census(nx.DiGraph(with_edges(graph)))
    return tuple(census[kind] for kind in ("003", "102", "201", "300"))


def directed_census(graph: Any) -> tuple[int, ...]:
    census = nx.triadic_census(with_edges(graph))
    return tuple(census[kind] for kind in DIRECTED_KINDS)


def edge_metrics(graph: Any) -> tuple[int, ...]:
    around = neighbours(graph)
    order = {node: (len(there), node) for node, there in around.items()}
    triangle, rectangle = [0], [0]
    for node, there in around.items():
        high = sum(order[other] > order[node] for other in there)
        low = len(there) - high
        triangle.append(high * (high - 1) // 2)
        rectangle.append(high * (high - 1) // 2 + high * low)
    return sum(triangle), sum(rectangle), max(triangle), max(rectangle)


def shared_pairs(graph: Any) -> list[tuple[Any, Any]]:
    around = neighbours(graph)
    return [(a, b) for a, b in combinations(sorted(graph), 2) if around[a] & around[b]]


def average_contribution(graph: Any) -> float:
    degrees = [degree for _, degree in graph.degree if degree > 1]
    pairs = [degree * (degree - 1) / 2 for degree in degrees]
    return float(sum(count / math.log(degree) for count, degree in zip(pairs, degrees, strict=True)) / sum(pairs))


def hits(graph: Any, iterations: int) -> dict[Any, tuple[float, float]]:
    """As many power iterations by matrices, from the in-degrees on."""
    nodes = list(with_edges(graph))
    matrix = nx.to_numpy_array(graph, nodelist=nodes, weight=None)
    authorities = matrix.sum(axis=0)
    hubs = np.zeros(len(nodes))
    for _ in range(iterations):
        hubs = matrix @ authorities
        authorities = matrix.T @ hubs
        hubs, authorities = hubs / np.linalg.norm(hubs), authorities / np.linalg.norm(authorities)
    return dict(zip(nodes, zip(hubs.tolist(), authorities.tolist(), strict=True), strict=True))


def page_rank(graph: Any, iterations: int, factor: float = 0.85) -> dict[Any, float]:
    """As many power iterations by matrices; what sinks have goes to all evenly."""
    nodes = list(graph)
    if not nodes:
        return {}
    matrix = nx.to_numpy_array(graph, nodelist=nodes, weight=None)
    degrees = matrix.sum(axis=1)
    shares = np.divide(matrix, degrees[:, None], out=np.zeros_like(matrix), where=degrees[:, None] > 0)
    scores = np.full(len(nodes), 1 / len(nodes))
    for _ in range(iterations):
        lost = scores[degrees == 0].sum()
        scores = (1 - factor + factor * lost) / len(nodes) + factor * (scores @ shares)
    return dict(zip(nodes, scores.tolist(), strict=True))


def distances(graph: Any, source: Any) -> dict[Any, float]:
    reached = nx.single_source_dijkstra_path_length(graph, source) if source in graph else {}
    return {node: reached.get(node, math.inf) for node in graph}


def components(graph: Any) -> dict[Any, Any]:
    """The least value of each component, for each vertex."""
    found: dict[Any, Any] = {}
    for component in nx.connected_components(nx.Graph(graph)):
        least = min(graph.nodes[node]["value"] for node in component)
        found |= dict.fromkeys(component, least)
    return found


def label_propagation(graph: Any, edges: Any, iterations: int) -> dict[Any, Any]:
    labels = {node: graph.nodes[node]["value"] for node in graph}
    active = set(graph)
    for _ in range(iterations):
        if not active:
            break
        received = defaultdict(list)
        for source, target, _ in edges:
            if source in active:
                received[target].append(labels[source])
        new = {}
        for node, told in received.items():
            counts = Counter(told)
            most = max(counts.values())
            if most == 1:
                new[node] = max([labels[node], *told])
            else:
                new[node] = max(label for label, count in counts.items() if count == most)
        labels |= new
        active = set(new)
    return labels


def community_detection(graph: Any, edges: Any, iterations: int, delta: float) -> dict[Any, Any]:
    state = {node: (graph.nodes[node]["value"], 1.0) for node in graph}
    both = list(edges) + [edge.reverse() for edge in edges]
    active = set(graph)
    for superstep in range(1, iterations + 1):
        if not active:
            break
        received = defaultdict(list)
        for source, target, weight in both:
            if source in active:
                label, score = state[source]
                received[target].append((label, score * weight))
        new = {}
        for node, told in received.items():
            scores = defaultdict(list)
            for label, score in told:
                scores[label].append(score)
            best = sorted(scores, key=lambda label: (-math.fsum(scores[label]), label))[0]
            highest = max(scores[best])
            new[node] = (best, highest - (delta / superstep if best != state[node][0] else 0))
        state |= new
        active = set(new)
    return {node: label for node, (label, _) in state.items()}


def summary(graph: Any, edges: Any, value_of: dict[Any, Any]) -> tuple[dict[Any, Any], dict[Any, int]]:
    """Groups of vertices by their values, and of edges."""
    members = defaultdict(list)
    for node in graph:
        members[value_of[node]].append(node)
    group = {node: min(members[value_of[node]]) for node in graph}
    vertices = {min(nodes): (value, len(nodes)) for value, nodes in members.items()}
    return vertices, Counter((group[source], group[target], value) for source, target, value in edges)
