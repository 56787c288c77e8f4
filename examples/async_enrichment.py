"""Asks a service about each visitor, many at a time: `python examples/async_enrichment.py --help`.

The service, here a table behind a delay, takes some milliseconds an answer and sometimes has none at first; asked one
by one, it would hold up the stream. Calls without an answer are made again, up to five times. Shows `AsyncDataStream`
with an `AsyncFunction` and retries; results come in the order of the answers (A2).
"""

import argparse
import asyncio
import random

from penstock.common import Configuration, Time, Types
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    RuntimeContext,
    StreamExecutionEnvironment,
)

COUNTRIES = ["Chile", "Kenya", "Nepal", "Tonga"]
#: Visitor, page.
VISIT_TYPE = Types.TUPLE([Types.INT(), Types.STRING()])
ENRICHED_TYPE = Types.TUPLE([Types.INT(), Types.STRING(), Types.STRING()])


def visits(count=300, seed=25):
    chance = random.Random(seed)
    return [(chance.randrange(1_000), chance.choice(["/", "/prices", "/docs"])) for _ in range(count)]


class AskForCountry(AsyncFunction):
    def open(self, runtime_context: RuntimeContext):
        self.asked = set()

    async def async_invoke(self, value):
        visitor, page = value
        await asyncio.sleep(visitor % 7 / 1_000)
        if visitor % 10 == 0 and visitor not in self.asked:  # the service does not have it at hand
            self.asked.add(visitor)
            return []
        return [(visitor, page, COUNTRIES[visitor % len(COUNTRIES)])]

    def timeout(self, value):
        return [(*value, "unknown")]


def is_empty(results):
    return not results


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of (visitor, page, country)."""
    source = env.from_collection(records or visits(), type_info=VISIT_TYPE)
    again = AsyncRetryStrategy.fixed_delay(5, 10, result_predicate=is_empty, exception_predicate=None)
    return AsyncDataStream.unordered_wait_with_retry(
        source, AskForCountry(), Time.minutes(1), again, capacity=50, output_type=ENRICHED_TYPE
    ).name("ask for the country")


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
    env.execute("async enrichment")


if __name__ == "__main__":
    main()
