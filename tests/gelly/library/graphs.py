"""Real graphs, which networkx ships, and random ones from seeds, all simple; and how they become Penstock's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import networkx as nx

from penstock.datastream import StreamExecutionEnvironment
from penstock.gelly import Edge, Graph, Vertex

#: Ids of different types; each is comparable with others of its type.
IDS: tuple[Callable[[int], Any], ...] = (int, lambda number: f"v{number:03}", lambda number: (number % 3, f"{number}"))


@dataclass(frozen=True)
class Given:
    """A graph for the algorithms: `nx` has vertex attributes `value` (int) and edge attributes `weight` (float)."""

    name: str
    nx: Any

    @property
    def is_directed(self) -> bool:
        return bool(self.nx.is_directed())

    def edges(self) -> list[Edge]:
        """Of an undirected graph each both ways."""
        there = [Edge(source, target, weight) for source, target, weight in self.nx.edges(data="weight")]
        return there if self.is_directed else there + [edge.reverse() for edge in there]

    def graph(self, env: StreamExecutionEnvironment) -> Graph:
        vertices = [Vertex(one, value) for one, value in self.nx.nodes(data="value")]
        return Graph.from_collection(self.edges(), env, vertices)


def given(name: str, graph: Any, seed: int = 1) -> Given:
    """A simple graph without attributes but those that `Given` names, which are random ones."""
    chance = random.Random(seed)
    kind = nx.DiGraph if graph.is_directed() else nx.Graph
    made = kind()
    nodes = list(graph.nodes)
    values = list(range(len(nodes)))
    chance.shuffle(values)
    for node, value in zip(nodes, values, strict=True):
        made.add_node(node, value=value)
    for source, target, *_ in graph.edges:
        if source != target:
            made.add_edge(source, target, weight=chance.choice([0.25, 0.5, 1.0, 1.5, 4.0]))
    return Given(name, made)


def real_graphs() -> list[Given]:
    """Four undirected ones and four directed ones."""
    krackhardt = nx.krackhardt_kite_graph()
    women = nx.davis_southern_women_graph()
    karate = nx.karate_club_graph()
    misérables = nx.les_miserables_graph()
    tournament = nx.DiGraph((a, b) if (int(a) * 7 + int(b) * 3) % 5 else (b, a) for a, b in karate.edges)
    # Who had more encounters leads to who had fewer; as many lead both ways.
    weights = dict(misérables.degree(weight="weight"))
    ranks = nx.DiGraph()
    for one, other in misérables.edges:
        if weights[one] >= weights[other]:
            ranks.add_edge(one, other)
        if weights[other] >= weights[one] or len(one) == len(other):
            ranks.add_edge(other, one)
    events = nx.DiGraph(
        (one, other) if women.degree(one) > women.degree(other) else (other, one) for one, other in women.edges
    )
    families = nx.florentine_families_graph()
    marriages = nx.DiGraph(sorted(tuple(sorted(edge)) for edge in families.edges))
    marriages.add_edges_from((b, a) for a, b in list(marriages.edges) if len(a) > len(b))
    named = {
        "karate club": karate,
        "florentine families": families,
        "les misérables": misérables,
        "davis southern women": women,
        "krackhardt kite": krackhardt,
        "karate club, directed": tournament,
        "les misérables, directed": ranks,
        "davis southern women, directed": events,
        "florentine families, directed": marriages,
    }
    return [given(name, graph) for name, graph in named.items()]


def random_graph(seed: int) -> Given:
    """Directed for odd seeds: of up to 40 vertices, thin or dense, in one part or many, of all types of ids."""
    chance = random.Random(seed)
    count = chance.choice([1, 2, 3, 4, 5, 8, 13, 20, 30, 40])
    density = (
        chance.choice([0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0]) if count < 20 else chance.choice([0.02, 0.1, 0.2, 0.35])
    )
    make_id = IDS[chance.randrange(len(IDS))]
    graph: Any = nx.DiGraph() if seed % 2 else nx.Graph()
    graph.add_nodes_from(range(count))
    if chance.random() < 0.3 and count > 4:
        likes = [1 / (1 + place) for place in range(count)]
        for _ in range(int(density * count * 6)):
            graph.add_edge(*chance.choices(range(count), likes, k=2))
    else:
        graph.add_edges_from(
            (one, other) for one in range(count) for other in range(count) if one != other and chance.random() < density
        )
    return given(f"random graph {seed}", nx.relabel_nodes(graph, {one: make_id(one) for one in range(count)}), seed)


def random_graphs(count: int, first_seed: int = 0) -> Iterator[Given]:
    return map(random_graph, range(first_seed, first_seed + count))
