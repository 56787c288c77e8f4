"""Keeps an account of each customer in state of every kind: `python examples/state_kinds.py --help`.

For each customer: all amounts (list), what was spent by category (map), the largest amount (reducing), the mean
(aggregating), and how many purchases there were (value). A summary is told when the last purchase says so. Shows the
five kinds of keyed state and their descriptors (D1).
"""

import argparse
import random

from penstock.common import Configuration, Types
from penstock.datastream import AggregateFunction, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)

#: Customer, category, amount in cents, and how many purchases the customer makes in all.
PURCHASE_TYPE = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG(), Types.INT()])
CATEGORIES = ["bread", "fruit", "wine"]


def purchases(customers=50, seed=12):
    chance = random.Random(seed)
    made = []
    for customer in range(customers):
        count = chance.randrange(1, 20)
        for _ in range(count):
            made.append((f"customer {customer}", chance.choice(CATEGORIES), chance.randrange(50, 5_000), count))
    chance.shuffle(made)
    return made


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] // accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Summary(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))
        self.amounts = runtime_context.get_list_state(ListStateDescriptor("amounts", Types.LONG()))
        self.spent = runtime_context.get_map_state(MapStateDescriptor("spent", Types.STRING(), Types.LONG()))
        self.largest = runtime_context.get_reducing_state(ReducingStateDescriptor("largest", max, Types.LONG()))
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.INT()]))
        )

    def process_element(self, value, ctx: KeyedProcessFunction.Context):
        customer, category, cents, purchases_in_all = value
        self.count.update((self.count.value() or 0) + 1)
        self.amounts.add(cents)
        self.spent.put(category, (self.spent.get(category) or 0) + cents)
        self.largest.add(cents)
        self.mean.add(cents)
        if self.count.value() == purchases_in_all:
            median = sorted(self.amounts.get())[purchases_in_all // 2]
            by_category = tuple(sorted(self.spent.items()))
            yield customer, purchases_in_all, median, by_category, self.largest.get(), self.mean.get()
            for state in (self.count, self.amounts, self.spent, self.largest, self.mean):
                state.clear()


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of (customer, purchases, median, cents by category, largest, mean)."""
    return (
        env.from_collection(records or purchases(), type_info=PURCHASE_TYPE)
        .key_by(lambda purchase: purchase[0], key_type=Types.STRING())
        .process(Summary())
        .name("summary")
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    arguments = parser.parse_args()

    config = Configuration()
    config.set_string("execution.target", arguments.target)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(arguments.parallelism)
    env.enable_checkpointing(1000)  # milliseconds
    build(env).print()
    env.execute("state kinds")


if __name__ == "__main__":
    main()
