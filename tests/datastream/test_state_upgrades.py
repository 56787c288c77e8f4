"""Jobs that begin from the savepoint of another version of themselves."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import JobExecutionError
from penstock.base.restart_strategy import RestartStrategies
from penstock.common import Configuration, Row, Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor

RECORDS = 30_000
KEYS = 7
OLD = Types.ROW_NAMED(["count", "last"], [Types.INT(), Types.INT()])
#: Set when a record was counted in this process.
HAS_COUNTED = threading.Event()
NEW = Types.ROW_NAMED(["last", "count", "note"], [Types.LONG(), Types.BIG_INT(), Types.STRING()])


class Count(KeyedProcessFunction):
    """Counts records, in a row of the fields that the version declares."""

    def __init__(self, info: Any) -> None:
        self.info = info

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("counts", self.info))

    def process_element(self, value: Any, ctx: Any) -> Any:
        row = self.state.value()
        count = 1 if row is None else row["count"] + 1
        fields = {"count": count, "last": value, "note": None if row is None else "seen"}
        self.state.update(Row(**{name: fields[name] for name in self.info.get_field_names()}))
        HAS_COUNTED.set()
        yield (value, count)


def job(info: Any, savepoint: str | None = None) -> Any:
    configuration = Configuration()
    for key, value in {
        "execution.target": "local",
        "penstock.source.batch-records": "4",
        **({} if savepoint is None else {"execution.state-recovery.path": savepoint}),
    }.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1_000, 60_000))
    counted = env.from_collection(list(range(RECORDS))).uid("numbers").key_by(lambda n: n % KEYS).process(Count(info))
    return env, counted.uid("counter")


@pytest.fixture(scope="module")
def savepoint(new_store_directory: Callable[[], Path]) -> str:
    """That of the old version, taken in the middle of its records."""
    env, counted = job(OLD)
    counted.print().uid("printer")
    client = env.execute_async("old")
    assert HAS_COUNTED.wait(60)
    path: str = client.stop_with_savepoint(False, str(new_store_directory())).result(60)
    return path


def test_a_compatible_version_goes_on(savepoint: str) -> None:
    """H4: fields were reordered, widened and added; no record is lost or counted twice."""
    _, counted = job(NEW, savepoint)
    with counted.execute_and_collect() as results:
        last = {value % KEYS: count for value, count in results}
    assert last == {key: len(range(key, RECORDS, KEYS)) for key in range(KEYS)}


def test_an_incompatible_version_fails_at_once(savepoint: str) -> None:
    """H4: the error names the operator with its uid, the state and both types, and no restart is tried."""
    env, counted = job(Types.ROW_NAMED(["count", "last"], [Types.STRING(), Types.INT()]), savepoint)
    counted.print()
    with pytest.raises(JobExecutionError) as error:
        env.execute("new")
    text = str(error.value)
    assert "(uid 'counter'): state 'counts' was written as ValueState<ROW<count INT, last INT>>" in text
    assert "field count: INT cannot become STRING" in text
