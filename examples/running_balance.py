"""Tells each account's balance after every booking: `python examples/running_balance.py --help`.

A `MapFunction` on a keyed stream may hold keyed state, which it gets from its `RuntimeContext` when it opens; here the
balance, and the booking's number (A2, D1).
"""

import argparse
import random

from penstock.common import Configuration, Row, Types
from penstock.datastream import KeySelector, MapFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

BOOKING_TYPE = Types.ROW_NAMED(["account", "cents"], [Types.STRING(), Types.LONG()])
BALANCE_TYPE = Types.ROW_NAMED(
    ["account", "number", "cents", "balance"], [Types.STRING(), Types.INT(), Types.LONG(), Types.LONG()]
)


def bookings(count=1_000, seed=13):
    chance = random.Random(seed)
    return [
        Row(account=f"account {chance.randrange(40)}", cents=chance.randrange(-9_000, 10_000)) for _ in range(count)
    ]


class ByAccount(KeySelector):
    def get_key(self, value):
        return value.account


class Balance(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.INT()))
        self.balance = runtime_context.get_state(ValueStateDescriptor("balance", Types.LONG()))

    def map(self, value):
        number = (self.number.value() or 0) + 1
        balance = (self.balance.value() or 0) + value.cents
        self.number.update(number)
        self.balance.update(balance)
        return Row(account=value.account, number=number, cents=value.cents, balance=balance)


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of bookings with their number and the balance after them."""
    return (
        env.from_collection(records or bookings(), type_info=BOOKING_TYPE)
        .key_by(ByAccount(), key_type=Types.STRING())
        .map(Balance(), output_type=BALANCE_TYPE)
        .name("balance")
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
    env.execute("running balance")


if __name__ == "__main__":
    main()
