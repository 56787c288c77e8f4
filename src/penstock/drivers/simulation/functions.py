"""User-defined functions of simulated jobs: plain, asynchronous, and with shared operator state.

Records are (key, origin, number). The effect of each function on one record is a plain function beside it, which the
reference computation also uses.

`AsyncStage` makes calls that are slow, fail at first, or never return. However a call behaves, it finally returns the
result of the plain map or flat map, so the expected output is the same.

`LabelOperator` and `RuleOperator` have shared operator state, whose loss with a finished subtask has visible effects.
Users have no API for operator state, so these use their context's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from penstock.drivers.simulation.outside_world import outside
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.calls import AsyncWaitOperator
from penstock.runtime.records import MAX_WATERMARK, Batch
from penstock.state.snapshot import StateCapture
from penstock.state.states import MapStateDescriptor, ValueStateDescriptor

Record = tuple[Any, Any, int]

#: Later than any record: such a timer only fires at the end of the input.
LAST_MS = 10**14
#: Makes aligned windows end after an even timestamp, so that their results also have even timestamps.
WINDOW_OFFSET_MS = 1


def select_key(record: Record) -> Any:
    """Return the key."""
    return record[0]


def mapped(record: Record, keys: int) -> Record:
    """Change the key (no two keys become equal) and the number."""
    key, origin, number = record
    return (key + 1) % keys, origin, number + 1


def is_kept(record: Record) -> bool:
    """Return whether the filter keeps a record."""
    return record[2] % 4 != 1


def expanded(record: Record, keys: int) -> list[Record]:
    """Return one or two records."""
    key, origin, number = record
    return [record, ((key + 3) % keys, origin, number + 2)] if number % 3 == 0 else [record]


def counted(record: Record) -> Record:
    """Return a record that counts as one; sums of these do not depend on their order."""
    return record[0], "count", 1


def added(record: Record, other: Record) -> Record:
    """Add the numbers."""
    return record[0], record[1], record[2] + other[2]


def tallied(key: Any, uid: str, count: int) -> Record:
    """Return the extra record that a tally emits with its nth record of a key."""
    return key, ("tally", uid), count


class _Watched:
    """A user-defined function that reports its calls to the outside world."""

    def __init__(self, world: str) -> None:
        self.world = world

    def open(self, context: Any) -> None:
        self.call: Callable[[], None] = outside(self.world).on_user_call
        self.call()


class Map(_Watched):
    """`mapped`, or `counted`."""

    def __init__(self, world: str, keys: int | None) -> None:
        super().__init__(world)
        self.keys = keys

    def map(self, record: Record) -> Record:
        self.call()
        return counted(record) if self.keys is None else mapped(record, self.keys)


class Pass(_Watched):
    """Returns records unchanged."""

    def map(self, record: Record) -> Record:
        self.call()
        return record


class Filter(_Watched):
    """`is_kept`."""

    def filter(self, record: Record) -> bool:
        self.call()
        return is_kept(record)


class FlatMap(_Watched):
    """`expanded`."""

    def __init__(self, world: str, keys: int) -> None:
        super().__init__(world)
        self.keys = keys

    def flat_map(self, record: Record) -> list[Record]:
        self.call()
        return expanded(record, self.keys)


class Sum(_Watched):
    """`added`."""

    def reduce(self, record: Record, other: Record) -> Record:
        self.call()
        return added(record, other)


class Tally(_Watched):
    """Counts the records of a key in a value state and emits the count after each: `tallied`."""

    def __init__(self, world: str, uid: str) -> None:
        super().__init__(world)
        self.uid = uid

    def open(self, context: Any) -> None:
        super().open(context)
        self.count = context.get_state(ValueStateDescriptor("count"))

    def process_element(self, record: Record, context: Any) -> Iterator[Record]:
        self.call()
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield record
        yield tallied(context.get_current_key(), self.uid, count)

    def on_timer(self, timestamp: int, context: Any) -> Iterator[Record]:
        raise AssertionError("a tally sets no timer")


class Buckets(_Watched):
    """Sums numbers by buckets of event time in a map state; a timer at each bucket's end emits the sum.

    A value state counts the buckets of the key, so that each result shows whether an earlier one was lost.
    """

    def __init__(self, world: str, bucket_ms: int | None) -> None:
        super().__init__(world)
        self.bucket_ms = bucket_ms

    def open(self, context: Any) -> None:
        super().open(context)
        self.sums = context.get_map_state(MapStateDescriptor("sums"))
        self.fired = context.get_state(ValueStateDescriptor("fired"))

    def process_element(self, record: Record, context: Any) -> None:
        self.call()
        end = bucket_end(context.timestamp(), self.bucket_ms)
        self.sums.put(end, (self.sums.get(end) or 0) + record[2])
        context.timer_service().register_event_time_timer(end)

    #: A two-input operator treats the records of both inputs alike.
    process_element1 = process_element2 = process_element

    def on_timer(self, timestamp: int, context: Any) -> Iterator[Record]:
        self.call()
        fired = (self.fired.value() or 0) + 1
        self.fired.update(fired)
        total = self.sums.get(timestamp)
        self.sums.remove(timestamp)
        yield context.get_current_key(), ("bucket", timestamp, fired), -1 if total is None else total


def bucket_end(timestamp: int | None, bucket_ms: int | None) -> int:
    """Return the end of the bucket; without a length there is only one bucket."""
    return LAST_MS if bucket_ms is None or timestamp is None else timestamp - timestamp % bucket_ms + bucket_ms


class SumAndCount:
    """An aggregate function: (count, sum)."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, record: Record, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + record[2]

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, accumulator: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + other[0], accumulator[1] + other[1]


class WindowTotal(_Watched):
    """A window function over an aggregate or over all records: emits one record with count and sum."""

    def process(self, key: Any, context: Any, contents: list[Any]) -> Iterator[Record]:
        self.call()
        window = context.window()
        records = contents if contents and len(contents[0]) == 3 else None
        count, total = contents[0] if records is None else (len(records), sum(r[2] for r in records))
        yield key, ("window", window.start, window.end, count), total


#: One in more records than there are.
NEVER: Final = 1 << 40


@dataclass(frozen=True)
class Calls:
    """How a stage's calls behave. `hangs`, `fails`: one in how many records; `salt` selects which.

    All times are short compared with a checkpoint's timeout, because an aligned barrier waits for the calls of the
    records ahead of it.
    """

    is_ordered: bool
    capacity: int
    delay_ms_max: int
    hangs: int
    fails: int
    timeout_ms: int
    salt: int


def draw_calls(world: str, has_order: bool, number: int) -> Calls | None:
    """Draw a stage's calls; every other stage is asynchronous. Its own random numbers keep other draws stable."""
    chance = random.Random(f"calls of {number} in {world}")
    if chance.random() < 0.5:
        return None
    return Calls(
        is_ordered=has_order or chance.random() < 0.5,
        capacity=chance.choice((1, 2, 5, 100)),
        delay_ms_max=chance.choice((0, 1, 3, 6)),
        hangs=chance.choice((NEVER, NEVER, 7)),
        fails=chance.choice((NEVER, NEVER, 5)),
        timeout_ms=chance.choice((12, 25)),
        salt=chance.randrange(1_000),
    )


class AsyncStage(FlatMap):
    """`mapped` or `expanded`, as the response of a slow service."""

    def __init__(self, world: str, keys: int, kind: str, calls: Calls) -> None:
        super().__init__(world, keys)
        self._is_map = kind == "map"
        self._calls = calls

    def open(self, context: Any) -> None:
        super().open(context)
        self._asked: set[Record] = set()

    async def async_invoke(self, record: Record) -> list[Record]:
        calls = self._calls
        number = record[2] * 31 + record[0] * 7 + calls.salt
        is_first = record not in self._asked
        self._asked.add(record)
        self.call()
        await asyncio.sleep(number % (calls.delay_ms_max + 1) / 1000)
        if number % calls.hangs == 0:
            await asyncio.get_running_loop().create_future()
        if is_first and number % calls.fails == 0:
            raise ConnectionError("not at the first time")
        self.call()
        return self.timeout(record)

    def timeout(self, record: Record) -> list[Record]:
        return [mapped(record, self.keys)] if self._is_map else expanded(record, self.keys)


class RetryTwice:
    """Retry twice, after 2 ms."""

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= 2

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return 2

    def get_retry_predicate(self) -> RetryTwice:
        return self

    def result_predicate(self) -> None:
        return None

    def exception_predicate(self) -> Callable[[Exception], bool]:
        return lambda error: isinstance(error, ConnectionError)


def asynchronous(world: str, keys: int, kind: str, calls: Calls) -> Callable[[], AsyncWaitOperator]:
    """Return a factory for the operator of a "map" or "flat_map" stage."""
    function = AsyncStage(world, keys, kind, calls)
    return partial(AsyncWaitOperator, function, calls.is_ordered, calls.timeout_ms, calls.capacity, RetryTwice())


#: Added to a record's number, by its key modulo the length.
TABLE = (3, 5, 11)
#: The number of values of a rule, including none.
RULE_NUMBERS = 64


def labelled(record: Record, table: tuple[int, ...] = TABLE) -> Record:
    """Add the number of the key's label."""
    key, origin, number = record
    return key, origin, number + table[key % len(table)]


def select_rule(record: Record, rules: int) -> int:
    """Return the number of the rule that a record needs."""
    return record[2] % rules


def ruled(record: Record, rule: int | None) -> Record:
    """Apply a rule to a record; the rule is `None` if there never will be one."""
    key, origin, number = record
    return key, origin, number * RULE_NUMBERS + (0 if rule is None else rule + 1)


def rule_number(record: Record, split_records: int) -> int:
    """Return the number of the rule in a record from the rules' source."""
    _, split, position = record[1]
    return int(split * split_records + position)


class LabelOperator(StreamOperator):
    """Labels records by a table that one chosen subtask stores for all, in a union list.

    The table is created when the job begins, and never again: a restored subtask without it assigns wrong labels.
    """

    def __init__(self, world: str, chosen: int) -> None:
        self.world = world
        self.chosen = chosen

    def initialize_state(self) -> None:
        """Create the table, or restore it from the union of all subtasks' state."""
        state = self.context.operator_state
        self._table = state.list_state("table", "union")
        restored = tuple(self._table.get())
        self._labels = restored[: len(TABLE)] if state.is_restored else TABLE
        self._table.update(
            list(self._labels) if self.context.subtask_index == self.chosen % self.context.parallelism else []
        )
        self._call = outside(self.world).on_user_call

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self._call()
        labels = self._labels or (0,)
        self.output.collect(Batch([labelled(record, labels) for record in batch.values], batch.timestamps))


class RuleOperator(StreamOperator):
    """Applies rules from a broadcast input to the records of the other input; a record waits until its rule is known.

    The rules are broadcast state, the waiting records a split list. Watermarks wait with them, so no record becomes
    late.
    """

    def __init__(self, world: str, rules: int, split_records: int) -> None:
        self.world = world
        self.rules = rules
        self.split_records = split_records

    def initialize_state(self) -> None:
        state = self.context.operator_state
        self._known = state.broadcast_state("rules")
        self._waiting = state.list_state("waiting", "split")
        self._rules: dict[int, int] = dict(self._known.items())
        self._records: list[tuple[Record, int]] = self._waiting.get()
        self._watermark: int | None = None
        self._call = outside(self.world).on_user_call

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self._call()
        if input_index == 1:
            for record in batch.values:
                self._rules[rule_number(record, self.split_records)] = record[2]
        else:
            assert batch.timestamps is not None
            self._records += zip(batch.values, batch.timestamps, strict=True)
        self._emit(is_end=False)

    def process_watermark(self, timestamp: int) -> None:
        self._watermark = timestamp
        self._emit(is_end=timestamp == MAX_WATERMARK)

    def _emit(self, is_end: bool) -> None:
        """Emit the records whose rule is known, or all at the end; then the watermark, if no record is waiting."""
        known, rules = self._rules, self.rules
        ready = [(r, t) for r, t in self._records if is_end or select_rule(r, rules) in known]
        if ready:
            self._records = [(r, t) for r, t in self._records if not is_end and select_rule(r, rules) not in known]
            values: list[Any] = [ruled(r, known.get(select_rule(r, rules))) for r, _ in ready]
            self.output.collect(Batch(values, [t for _, t in ready]))
        if self._watermark is not None and not self._records:
            watermark, self._watermark = self._watermark, None
            self.output.emit_watermark(watermark)

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        self._known.put_all(self._rules)
        self._waiting.update(self._records)
        return super().snapshot_state(checkpoint_id)
