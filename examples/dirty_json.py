"""Reads orders from JSON, and sets those aside that cannot be read: `python examples/dirty_json.py --help`.

Programs of several ages send orders; some lines are cut off, some have text where a number belongs. The good ones
become rows with names, the others go with their reason to a side output. Shows `JsonRowDeserializationSchema`, nested
rows, and a process function that writes to a side output (A2).
"""

import argparse
import json
import random

from penstock.common import Configuration, Row, Types
from penstock.common.typeinfo import RowTypeInfo
from penstock.datastream import OutputTag, ProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.formats.json import JsonRowDeserializationSchema

ORDER_TYPE: RowTypeInfo = Types.ROW_NAMED(
    ["id", "customer", "lines"],
    [
        Types.INT(),
        Types.ROW_NAMED(["name", "city"], [Types.STRING(), Types.STRING()]),
        Types.LIST(Types.ROW_NAMED(["sku", "quantity", "cents"], [Types.STRING(), Types.INT(), Types.LONG()])),
    ],
)
TOTAL_TYPE = Types.ROW_NAMED(["id", "city", "cents"], [Types.INT(), Types.STRING(), Types.LONG()])
REJECTED = OutputTag("rejected", Types.TUPLE([Types.STRING(), Types.STRING()]))


def lines(count=300, seed=11):
    """Orders as lines of JSON, one in ten of them damaged."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        line = {"sku": chance.choice("abc"), "quantity": chance.randrange(1, 5), "cents": chance.randrange(100, 9_000)}
        order = {
            "id": number,
            "customer": {"name": f"customer {chance.randrange(40)}", "city": chance.choice(["Ghent", "Lyon", "Porto"])},
            "lines": [line] * chance.randrange(1, 4),
        }
        text = json.dumps(order)
        damage = chance.random()
        if damage < 0.05:
            text = text[: chance.randrange(5, len(text) - 1)]
        elif damage < 0.1:
            text = text.replace('"cents": ', '"cents": "about "')
        made.append(text)
    return made


class ReadOrder(ProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.schema = JsonRowDeserializationSchema.builder().type_info(ORDER_TYPE).fail_on_missing_field().build()

    def process_element(self, value, ctx: ProcessFunction.Context):
        try:
            order = self.schema.deserialize(value.encode())
        except ValueError as error:
            yield REJECTED, (value, str(error))
            return
        cents = sum(line.quantity * line.cents for line in order.lines)
        yield Row(id=order.id, city=order["customer"].city, cents=cents)


def build(env: StreamExecutionEnvironment, records=None):
    """A stream of orders with their total, and one of rejected lines with the reason."""
    orders = (
        env.from_collection(records or lines(), type_info=Types.STRING())
        .process(ReadOrder(), output_type=TOTAL_TYPE)
        .name("read orders")
    )
    return orders, orders.get_side_output(REJECTED)


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
    totals, rejected = build(env)
    totals.print("order")
    rejected.print("rejected")
    env.execute("dirty json")


if __name__ == "__main__":
    main()
