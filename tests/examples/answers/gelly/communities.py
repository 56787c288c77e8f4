"""The same in dictionaries, superstep by superstep; and the teams are found."""

from collections import Counter, defaultdict

import networkx as nx
from examples.gelly.communities import letters
from tests.gelly.library.answers import community_detection


def inputs():
    return (letters(3, 5, seed=111),)


def answer(written):
    graph = nx.Graph()
    graph.add_nodes_from((person, {"value": person}) for edge in written for person in edge[:2])
    found = community_detection(graph, written, 8, 0.5)
    teams = defaultdict(set)
    for person, label in found.items():
        teams[label].add(person)
    assert sorted(map(sorted, teams.values())) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]
    sizes = Counter(found.values())
    return Counter([(0, member) for member in found.items()]) + Counter([(1, size) for size in sizes.items()])
