"""Ranks people by who follows them: `python examples/gelly/influence_ranking.py --help`.

To be followed by someone who is followed by many counts more than to be followed by someone who is not. Shows a graph
of tuples, and PageRank, which runs until the ranks hardly change (A5).
"""

import argparse
import random

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.gelly import Graph
from penstock.gelly.library import PageRank


def follows(count=40, seed=27):
    """Pairs of a follower and a person whom they follow; some people are much better known than others."""
    chance = random.Random(seed)
    people = [f"person{number:02}" for number in range(count)]
    fame = [1 / (1 + number) for number in range(count)]
    pairs = [(one, other) for one in people for other in chance.choices(people, fame, k=chance.randrange(1, 8))]
    return sorted({(one, other) for one, other in pairs if one != other})


def build(env: StreamExecutionEnvironment, followed=None, threshold=1e-4):
    """A stream of (person, rank)."""
    graph = Graph.from_tuple2_data_stream(env.from_collection(followed or follows()))
    ranks = graph.run(PageRank(0.85, iterations=50, convergence_threshold=threshold))
    return ranks.map(lambda result: (result.vertex_id, result.page_rank_score))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    arguments = parser.parse_args()

    config = Configuration()
    config.set_string("execution.target", arguments.target)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(arguments.parallelism)
    with build(env).execute_and_collect() as ranks:
        for person, rank in sorted(ranks, key=lambda pair: -pair[1])[:10]:
            print(f"{person}  {rank:.4f}")


if __name__ == "__main__":
    main()
