"""The same by networkx."""

from collections import Counter

import networkx as nx
from examples.gelly.triangles import friendships


def inputs():
    return (friendships(20, seed=105),)


def check(results, pairs):
    graph = nx.Graph(pairs)
    cliques = {tuple(sorted(clique)) for clique in nx.enumerate_all_cliques(graph) if len(clique) == 3}
    assert Counter(record for stream, record in results if stream == 0) == Counter(cliques)
    scores = dict(record for stream, record in results if stream == 1)
    expected = {person: score for person, score in nx.clustering(graph).items() if graph.degree[person] > 1}
    assert set(scores) == set(expected)
    assert all(abs(score - expected[person]) < 1e-12 for person, score in scores.items())
