"""Finds cards that are being tried out, as a pattern: `python examples/cep/fraud_sequence.py --help`.

Two or more charges of a few cents in a row and a large one directly behind them, all within ten minutes, are an alert.
Shows a loop of neighbouring events, a strategy that gives each charge to one alert only, and a window.
"""

import argparse
import random

from penstock.cep import CEP, AfterMatchSkipStrategy, Pattern, PatternProcessFunction
from penstock.common import Configuration, Duration, Row, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment

CHARGE_TYPE = Types.ROW_NAMED(["card", "time_ms", "cents"], [Types.STRING(), Types.LONG(), Types.INT()])
#: Card, moment of the large charge in ms, cents of all charges.
ALERT_TYPE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LIST(Types.INT())])


def charges(count=1_500, seed=3):
    """Charges in the order of their time: half of them a shopper's, others a few cents, some large."""
    chance = random.Random(seed)
    now_ms, made = 0, []
    for _ in range(count):
        now_ms += chance.randrange(8_000)
        lowest, highest = chance.choices([(10, 99), (500, 12_000), (40_001, 200_000)], [4, 4, 1])[0]
        made.append(Row(card=f"card {chance.randrange(30)}", time_ms=now_ms, cents=chance.randint(lowest, highest)))
    return made


PROBED = (
    Pattern.begin("probes", AfterMatchSkipStrategy.skip_past_last_event())
    .where(lambda charge: charge.cents < 100)
    .times_or_more(2)
    .consecutive()
    .next("large")
    .where(lambda charge: charge.cents > 40_000)
    .within(Duration.of_minutes(10))
)


class Alert(PatternProcessFunction):
    def process_match(self, match, ctx):
        large = match["large"][0]
        yield large.card, large.time_ms, [charge.cents for charge in (*match["probes"], large)]


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of alerts."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row.time_ms)
    by_card = (
        env.from_collection(records or charges(), type_info=CHARGE_TYPE)
        .assign_timestamps_and_watermarks(in_order)
        .set_parallelism(1)  # a card's charges stay in order
        .key_by(lambda row: row.card, key_type=Types.STRING())
    )
    return CEP.pattern(by_card, PROBED).process(Alert(), ALERT_TYPE).name("probed cards")


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
    env.execute("fraud sequence")


if __name__ == "__main__":
    main()
