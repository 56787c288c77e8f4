"""Finds out who works together from who writes to whom: `python examples/gelly/communities.py --help`.

People write to colleagues of their team more than to others. The teams are not in the data; a label that travels along
the letters finds them. Shows community detection, and a second step that summarises the graph by what was found (A5).
"""

import argparse
import random

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.gelly import Edge, Graph, Vertex
from penstock.gelly.library import CommunityDetection, Summarization


def letters(teams=4, size=6, seed=11):
    """Edges from one person to another, whose value grows with the number of letters."""
    chance = random.Random(seed)
    found = []
    for one in range(teams * size):
        for other in range(one + 1, teams * size):
            if one // size == other // size:
                found.append(Edge(one, other, chance.choice([1.0, 1.5, 2.0])))
            elif chance.random() < 0.06:
                found.append(Edge(one, other, 0.125))
    return found


def build(env: StreamExecutionEnvironment, written=None, supersteps=8):
    """Streams of (person, community), and of (community, how many people)."""
    written = written or letters()
    people = sorted({person for edge in written for person in edge[:2]})
    graph = Graph.from_collection(written, env, [Vertex(person, person) for person in people])
    communities = graph.run(CommunityDetection(supersteps, 0.5))
    groups = communities.run(Summarization()).get_vertices()
    return communities.get_vertices().map(tuple), groups.map(lambda group: tuple(group.value))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    arguments = parser.parse_args()

    config = Configuration()
    config.set_string("execution.target", arguments.target)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(arguments.parallelism)
    members, sizes = build(env)
    members.print("member")
    sizes.print("size")
    env.execute("communities")


if __name__ == "__main__":
    main()
