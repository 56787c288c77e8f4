"""Finds accounts that belong to one person: `python examples/gelly/account_components.py --help`.

Accounts that have been used on one device belong together, and so do those that are connected by several devices and
accounts in between. Shows a graph whose vertices are of two kinds, and its connected components (A5).
"""

import argparse
import random

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.gelly import Edge, Graph
from penstock.gelly.library import ConnectedComponents


def logins(people=12, seed=3):
    """Pairs of an account and a device; each person has some of both."""
    chance = random.Random(seed)
    found = []
    for person in range(people):
        accounts = [f"account-{person:02}{letter}" for letter in "abcd"[: chance.randrange(1, 5)]]
        devices = [f"device-{person:02}{letter}" for letter in "xyz"[: chance.randrange(1, 4)]]
        found += [(account, devices[0]) for account in accounts]
        found += [(chance.choice(accounts), device) for device in devices]
    # Two of them share a computer.
    return [*found, ("account-01a", "device-07x")]


def build(env: StreamExecutionEnvironment, known=None):
    """A stream of (account, the first account or device of its component)."""
    edges = env.from_collection(known or logins()).map(lambda login: Edge(login[0], login[1], None))
    graph = Graph.from_data_stream(edges, vertex_value_initializer=lambda name: name)
    components = graph.run(ConnectedComponents(100))
    return components.filter(lambda vertex: vertex.id.startswith("account")).map(tuple)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    arguments = parser.parse_args()

    config = Configuration()
    config.set_string("execution.target", arguments.target)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(arguments.parallelism)
    build(env).print()
    env.execute("account components")


if __name__ == "__main__":
    main()
