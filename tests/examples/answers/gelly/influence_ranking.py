"""The same by networkx."""

import networkx as nx
from examples.gelly.influence_ranking import follows


def inputs():
    return (follows(30, seed=127),)


def check(results, followed):
    expected = nx.pagerank(nx.DiGraph(followed), 0.85, tol=1e-10)
    assert len(results) == len(expected)
    assert all(abs(rank - expected[person]) < 1e-4 for person, rank in results)
