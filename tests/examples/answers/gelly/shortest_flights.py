"""The same by networkx."""

import csv
from collections import Counter

import networkx as nx
from examples.gelly.shortest_flights import FLIGHTS


def answer():
    with FLIGHTS.open() as lines:
        connections = [(row["origin"], row["dest"], float(row["air_time"])) for row in csv.DictReader(lines)]
    graph = nx.Graph()
    graph.add_weighted_edges_from(connections)
    return Counter(nx.single_source_dijkstra_path_length(graph, "BOS").items())
