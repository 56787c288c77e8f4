"""Ranks pages by the links between them: `python examples/page_rank.py --help`.

A page's rank is shared out among the pages that it links to; that is done again and again, until the ranks hardly
change. Shows a bulk iteration: each superstep begins with the ranks that the one before came to, the links are the same
in all of them, and an aggregator tells how much has changed, which ends the loop (A2, I3).
"""

import argparse
import random

from penstock.common import Configuration, Types
from penstock.common.aggregators import ConvergenceCriterion, DoubleSumAggregator
from penstock.datastream import FlatJoinFunction, JoinFunction, RuntimeContext, StreamExecutionEnvironment

DAMPING = 0.85
#: Page, rank.
RANK_TYPE = Types.TUPLE([Types.STRING(), Types.DOUBLE()])


def links(count=30, seed=27):
    """For each page the pages that it links to; some are linked to more often."""
    chance = random.Random(seed)
    pages = [f"page{number:02}" for number in range(count)]
    favour = [1 / (1 + number) for number in range(count)]
    return [(page, sorted(set(chance.choices(pages, favour, k=chance.randrange(1, 6))))) for page in pages]


class Share(FlatJoinFunction):
    """The rank of a page goes to the pages it links to; the page itself gets nothing, so as not to be forgotten."""

    def join(self, first, second):
        page, rank = first
        targets = second[1]
        yield page, 0.0
        for target in targets:
            yield target, rank / len(targets)


class Rank(JoinFunction):
    """The new rank, beside the one before."""

    def __init__(self, pages):
        self.pages = pages

    def open(self, runtime_context: RuntimeContext):
        self.changed = runtime_context.get_iteration_aggregator("changed")

    def join(self, first, second):
        rank = (1 - DAMPING) / self.pages + DAMPING * first[1]
        self.changed.aggregate(abs(rank - second[1]))
        return first[0], rank


class HardlyChanged(ConvergenceCriterion):
    def __init__(self, limit):
        self.limit = limit

    def is_converged(self, iteration, value):
        return value < self.limit


def build(env: StreamExecutionEnvironment, linked=None, supersteps=30, limit=0.05):
    """A stream of (page, rank)."""
    linked = linked or links()
    begin = [(page, 1 / len(linked)) for page, _ in linked]
    ranks = env.from_collection(begin, type_info=RANK_TYPE).iterate(supersteps).name("page rank")
    ranks.register_aggregation_convergence_criterion("changed", DoubleSumAggregator(), HardlyChanged(limit))
    shares = (
        ranks.join(env.from_collection(linked))
        .where(lambda rank: rank[0], key_type=Types.STRING())
        .equal_to(lambda link: link[0], key_type=Types.STRING())
        .apply(Share(), output_type=RANK_TYPE)
        .key_by(lambda share: share[0], key_type=Types.STRING())
        .reduce(lambda left, right: (left[0], left[1] + right[1]))
    )
    new_ranks = (
        shares.join(ranks)
        .where(lambda share: share[0], key_type=Types.STRING())
        .equal_to(lambda rank: rank[0], key_type=Types.STRING())
        .apply(Rank(len(linked)), output_type=RANK_TYPE)
    )
    return ranks.close_with(new_ranks)


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
    env.execute("page rank")


if __name__ == "__main__":
    main()
