"""A script whose records, keys, states and committables are of classes of its own.

`python script_of_classes.py FOLDER` runs it on Spark in every execution mode, and hands state on: from Spark to one
process and back, and through the state processor. What the program's functions are given is of the very classes that
they name.
"""

import enum
import sys
from dataclasses import dataclass
from typing import NamedTuple

from penstock.common import Configuration
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.runtime.connector import Committer, Sink, SinkWriter
from penstock.state_processor import SavepointReader


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Shop:
    city: str


@dataclass
class Visit:
    shop: Shop
    color: Color
    count: int = 1


class Prepared(NamedTuple):
    visits: list[Visit]


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value, ctx):
        last = self.last.value()
        assert last is None or (type(last) is Visit and last.color in list(Color)), last
        assert type(ctx.get_current_key()) is Shop
        assert type(value) is Visit
        assert value == Visit(value.shop, value.color)
        self.last.update(value if last is None else Visit(value.shop, value.color, last.count + 1))
        yield self.last.value()


class KeepingSink(Sink):
    """Its committables are instances of `Prepared`."""

    def create_writer(self, context):
        return KeepingWriter()

    def create_committer(self, context):
        return KeepingCommitter()


class KeepingWriter(SinkWriter):
    def __init__(self):
        self.visits = []

    def write_batch(self, values, timestamps):
        self.visits += values

    def prepare_commit(self):
        visits, self.visits = self.visits, []
        return [Prepared(visits)] if visits else []


class KeepingCommitter(Committer):
    def commit(self, committables):
        assert all(type(prepared) is Prepared for prepared in committables)


def visit(number):
    return Visit(Shop("Delft" if number % 3 else "Gouda"), Color.RED if number % 2 else Color.BLUE)


def run(target, mode, more):
    """The highest count of Delft."""
    settings = {"execution.target": target, "execution.runtime-mode": mode, "parallelism.default": 2}
    settings |= {"restart-strategy.type": "none", "execution.checkpointing.interval": "200 ms"} | more
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    numbers = env.from_collection(list(range(30))).uid(f"numbers {len(more)} {mode}")
    visits = numbers.map(visit).key_by(lambda v: v.shop).process(Count()).uid("count")
    visits.sink_to(KeepingSink())
    with visits.execute_and_collect() as results:  # type: ignore[union-attr]
        found = list(results)
    assert all(type(v) is Visit and v.color in list(Color) for v in found)
    return max(v.count for v in found if v == Visit(Shop("Delft"), v.color, v.count))


def main(folder):
    for mode in ["STREAMING", "BATCH", "MICRO_BATCH"]:
        print(mode, run("spark", mode, {}))

    # A back-fill leaves a savepoint. State goes from Spark to one process, and from there to Spark.
    for target, mode in [("local", "STREAMING"), ("spark", "STREAMING"), ("spark", "MICRO_BATCH")]:
        other = "local" if target == "spark" else "spark"
        path = f"{folder}/from-{other}-{mode}"
        run(other, "BATCH", {"execution.batch.savepoint-path": path})
        restore = {"execution.state-recovery.path": path, "execution.state-recovery.ignore-unclaimed-state": "true"}
        after = run(target, mode, restore)
        print(f"{other} to {target} in {mode}", after)
    counts = SavepointReader.read(path).read_value_state("count", "last").to_arrow()
    print("the state processor read", counts.num_rows)


if __name__ == "__main__":
    main(sys.argv[1])
