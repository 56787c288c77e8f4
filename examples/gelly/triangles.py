"""Lists friends who are all friends of each other: `python examples/gelly/triangles.py --help`.

Says also for each person how many of their friends know each other, from 0 to 1. Shows an undirected graph, the listing
of triangles, and the local clustering coefficient (A5).
"""

import argparse
import random

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.gelly import Edge, Graph
from penstock.gelly.library.undirected import LocalClusteringCoefficient, TriangleListing


def friendships(count=25, seed=5):
    """Pairs of friends: people find friends among the friends of their friends."""
    chance = random.Random(seed)
    friends = {0: {1}, 1: {0}}
    for person in range(2, count):
        first = chance.randrange(person)
        known = {first} | {friend for friend in friends[first] if chance.random() < 0.6}
        friends[person] = known
        for friend in known:
            friends[friend].add(person)
    return sorted((one, other) for one, known in friends.items() for other in known if one < other)


def build(env: StreamExecutionEnvironment, pairs=None):
    """Streams of triangles (person, person, person), and of (person, score)."""
    edges = [Edge(one, other) for one, other in pairs or friendships()]
    graph = Graph.from_collection(edges, env).get_undirected()
    triangles = graph.run(TriangleListing().set_sort_triangle_vertices(True))
    clustering = graph.run(LocalClusteringCoefficient()).filter(lambda result: result.degree > 1)
    scores = clustering.map(lambda result: (result.vertex_id, result.get_local_clustering_coefficient_score()))
    return triangles.map(tuple), scores


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    arguments = parser.parse_args()

    config = Configuration()
    config.set_string("execution.target", arguments.target)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(arguments.parallelism)
    triangles, scores = build(env)
    triangles.print("triangle")
    scores.map(lambda pair: (pair[0], round(pair[1], 2))).print("score")
    env.execute("triangles")


if __name__ == "__main__":
    main()
