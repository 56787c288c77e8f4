"""Finds out who can reach whom over ferries: `python examples/connected_components.py --help`.

Each island begins as a group of its own, named after itself. Islands tell their neighbours the name of their group;
who hears of a lower name takes it, and tells it in turn. Shows a delta iteration: the solution set has the group of
every island, and a superstep looks only at the islands that have just changed theirs (A2, I3).
"""

import argparse
import random

from penstock.common import Configuration, Types
from penstock.datastream import FlatJoinFunction, JoinFunction, StreamExecutionEnvironment

#: Island, and another island: where a ferry goes, or the group's name.
PAIR_TYPE = Types.TUPLE([Types.INT(), Types.INT()])


def islands(count=60):
    """Their numbers."""
    return list(range(count))


def ferries(count=60, seed=28):
    """Pairs of islands; not all can be reached from everywhere."""
    chance = random.Random(seed)
    return [(chance.randrange(count), chance.randrange(count)) for _ in range(count * 2 // 3)]


class Tell(JoinFunction):
    def join(self, first, second):
        (_, group), (_, neighbour) = first, second
        return neighbour, group


class IfLower(FlatJoinFunction):
    def join(self, first, second):
        if first[1] < second[1]:
            yield first


def build(env: StreamExecutionEnvironment, places=None, connections=None, supersteps=100):
    """A stream of (island, lowest number of an island in its group)."""
    connections = connections or ferries()
    both_ways = connections + [(to, start) for start, to in connections]
    neighbours = env.from_collection(both_ways, type_info=PAIR_TYPE)
    begin = env.from_collection([(place, place) for place in places or islands()], type_info=PAIR_TYPE)

    iteration = begin.iterate_delta(begin, supersteps, lambda pair: pair[0]).name("connected components")
    told = (
        iteration.workset.join(neighbours)
        .where(lambda pair: pair[0], key_type=Types.INT())
        .equal_to(lambda ferry: ferry[0], key_type=Types.INT())
        .apply(Tell(), output_type=PAIR_TYPE)
        .key_by(lambda pair: pair[0], key_type=Types.INT())
        .reduce(lambda left, right: (left[0], min(left[1], right[1])))
    )
    changed = (
        told.join(iteration.solution_set)
        .where(lambda pair: pair[0], key_type=Types.INT())
        .equal_to(lambda pair: pair[0], key_type=Types.INT())
        .apply(IfLower(), output_type=PAIR_TYPE)
    )
    return iteration.close_with(changed, changed)


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
    env.execute("connected components")


if __name__ == "__main__":
    main()
