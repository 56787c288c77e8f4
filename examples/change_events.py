"""Keeps the current row of each customer from a log of changes: `python examples/change_events.py --help`.

A database says what it did: inserted, updated, deleted, each with a sequence number. Such a log reaches a stream at
least once and, over several partitions, in no particular order; so events of a key are put into their order first, and
those seen before are passed over. What comes out is a changelog of rows: `+I`, `-U` and `+U`, `-D`, as a table that is
kept up to date needs it. Shows `RowKind`, and value and map state (A1, D1).
"""

import argparse
import random

from penstock.common import Configuration, Row, RowKind, Types
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor

#: Key, number of the change among those of the key, operation, and the row's values (name, city) or None.
EVENT_TYPE = Types.TUPLE([Types.INT(), Types.INT(), Types.STRING(), Types.PICKLED_BYTE_ARRAY()])
CUSTOMER_TYPE = Types.ROW_NAMED(["id", "name", "city"], [Types.INT(), Types.STRING(), Types.STRING()])


def changes(count=1_000, customers=60, seed=4):
    """Changes, some twice, each a little out of its place."""
    chance = random.Random(seed)
    live, numbers, made = set(), dict.fromkeys(range(customers), 0), []
    for position in range(count):
        customer = chance.randrange(customers)
        operation = "insert" if customer not in live else chance.choices(["update", "delete"], [4, 1])[0]
        (live.discard if operation == "delete" else live.add)(customer)
        row = None
        if operation != "delete":
            row = (f"customer {customer}", chance.choice(["Ghent", "Lyon", "Porto", "Turin", "Graz"]))
        event = (customer, numbers[customer], operation, row)
        numbers[customer] += 1
        made += [(position + chance.uniform(0, 40), event) for _ in range(chance.choice([1, 1, 1, 2]))]
    return [event for _, event in sorted(made, key=lambda placed: placed[0])]


class Upsert(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.current = runtime_context.get_state(ValueStateDescriptor("current", CUSTOMER_TYPE))
        self.next_number = runtime_context.get_state(ValueStateDescriptor("next number", Types.INT()))
        self.early = runtime_context.get_map_state(
            MapStateDescriptor("came too early", Types.INT(), Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value, ctx: KeyedProcessFunction.Context):
        expected = self.next_number.value() or 0
        if value[1] < expected:  # seen before
            return
        self.early.put(value[1], value)
        while self.early.contains(expected):
            event = self.early.get(expected)
            self.early.remove(expected)
            yield from self.apply(event)
            expected += 1
        self.next_number.update(expected)

    def apply(self, event):
        customer, _, operation, values = event
        before = self.current.value()
        if operation == "delete":
            self.current.clear()
            yield Row.of_kind(RowKind.DELETE, **before.as_dict())
            return
        after = Row(id=customer, name=values[0], city=values[1])
        self.current.update(after)
        if before is None:
            yield after
        elif before.city != after.city:
            yield Row.of_kind(RowKind.UPDATE_BEFORE, **before.as_dict())
            yield Row.of_kind(RowKind.UPDATE_AFTER, **after.as_dict())


def build(env: StreamExecutionEnvironment, records=None):
    """A changelog of customers."""
    return (
        env.from_collection(records or changes(), type_info=EVENT_TYPE)
        .key_by(lambda event: event[0], key_type=Types.INT())
        .process(Upsert(), output_type=CUSTOMER_TYPE)
        .name("current rows")
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
    env.execute("change events")


if __name__ == "__main__":
    main()
