"""Lets each message pass once: `python examples/deduplication.py --help`.

Senders that get no answer send again, so messages come in double, a little later. What was seen is kept as state of the
message's id; so that it does not grow for ever, the state lives for an hour and is then forgotten. Shows a filter with
state, and time to live (D1).
"""

import argparse
import random

from penstock.common import Configuration, Time, Types
from penstock.datastream import FilterFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import StateTtlConfig, ValueStateDescriptor

#: Id, sender, text.
MESSAGE_TYPE = Types.TUPLE([Types.STRING(), Types.STRING(), Types.STRING()])


def messages(count=500, seed=6):
    """Messages, each sent once, twice or three times, all within the next fifty places."""
    chance = random.Random(seed)
    placed = []
    for number in range(count):
        message = (f"m{number:04}", chance.choice(["ann", "bob", "cem"]), chance.choice(["hello", "on my way", "bye"]))
        placed += [(number + chance.uniform(0, 50), message) for _ in range(chance.choice([1, 1, 2, 3]))]
    return [message for _, message in sorted(placed)]


class FirstOfItsKey(FilterFunction):
    def open(self, runtime_context: RuntimeContext):
        lives_an_hour = (
            StateTtlConfig.new_builder(Time.hours(1))
            .set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)
            .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
            .build()
        )
        descriptor = ValueStateDescriptor("seen", Types.BOOLEAN())
        descriptor.enable_time_to_live(lives_an_hour)
        self.seen = runtime_context.get_state(descriptor)

    def filter(self, value):
        if self.seen.value():
            return False
        self.seen.update(True)
        return True


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of messages without repetitions."""
    return (
        env.from_collection(records or messages(), type_info=MESSAGE_TYPE)
        .key_by(lambda message: message[0], key_type=Types.STRING())
        .filter(FirstOfItsKey())
        .name("first of its id")
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
    env.execute("deduplication")


if __name__ == "__main__":
    main()
