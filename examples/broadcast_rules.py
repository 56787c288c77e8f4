"""Converts payments with rates that change while the job runs: `python examples/broadcast_rules.py --help`.

Rates are few and needed everywhere, so each subtask keeps all of them as broadcast state. Which of the two streams
comes first is nobody's promise: a payment whose currency has no rate yet waits in the keyed state of its account. Each
rate has a version, so that the latest one wins in whatever order they come.
"""

import argparse
from collections.abc import Iterable, Iterator

from penstock.common import Configuration
from penstock.datastream import DataStream, KeyedBroadcastProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ListState, ListStateDescriptor, MapStateDescriptor

#: A payment: account, currency, amount in cents.
Payment = tuple[str, str, int]
#: A rate: currency, version, cents of the one currency for a hundred of the other.
Rate = tuple[str, int, int]
#: Account, currency, amount, and what it is worth in cents.
Converted = tuple[str, str, int, int]

RATES = MapStateDescriptor("rates")
WAITING = ListStateDescriptor("payments that wait for a rate")

PAYMENTS: list[Payment] = [
    ("ann", "EUR", 1_000),
    ("bob", "JPY", 50_000),
    ("ann", "JPY", 7_000),
    ("cid", "GBP", 250),
    ("bob", "EUR", 399),
]
RATE_LIST: list[Rate] = [("EUR", 1, 108), ("JPY", 1, 1), ("GBP", 1, 127)]


class Convert(KeyedBroadcastProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting: ListState[Payment] = runtime_context.get_list_state(WAITING)

    def process_element(
        self, value: Payment, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[Converted]:
        rate = ctx.get_broadcast_state(RATES).get(value[1])
        if rate is None:
            self.waiting.add(value)
        else:
            yield converted(value, rate)

    def process_broadcast_element(self, value: Rate, ctx: KeyedBroadcastProcessFunction.Context) -> list[Converted]:
        currency, version, _ = value
        rates = ctx.get_broadcast_state(RATES)
        known = rates.get(currency)
        if known is None or version > known[1]:
            rates.put(currency, value)
        released: list[Converted] = []

        def release(account: str, waiting: ListState[Payment]) -> None:
            payments = list(waiting.get())
            released.extend(converted(payment, value) for payment in payments if payment[1] == currency)
            waiting.update([payment for payment in payments if payment[1] != currency])

        if known is None:  # otherwise nothing waits for it
            ctx.apply_to_key_state(WAITING, release)
        return released


def converted(payment: Payment, rate: Rate) -> Converted:
    account, currency, amount = payment
    return account, currency, amount, amount * rate[2] // 100


def build(
    env: StreamExecutionEnvironment, payments: Iterable[Payment] = PAYMENTS, rates: Iterable[Rate] = RATE_LIST
) -> DataStream:
    """A stream of converted payments."""
    everywhere = env.from_collection(rates).name("rates").broadcast(RATES)
    return (
        env.from_collection(payments)
        .name("payments")
        .key_by(lambda payment: payment[0])
        .connect(everywhere)
        .process(Convert())
        .name("convert")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    arguments = parser.parse_args()

    settings = Configuration.from_dict(
        {"execution.target": arguments.target, "parallelism.default": arguments.parallelism}
    )
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.enable_checkpointing(1000)  # milliseconds
    build(env).print()
    env.execute("broadcast rules")


if __name__ == "__main__":
    main()
