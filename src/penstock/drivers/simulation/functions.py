"""User functions of simulated jobs. Records are (key, where it comes from, a number).

Each says what it does to one record in a plain function beside it, which the reference computation uses too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.drivers.simulation.outside import outside
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor

Record = tuple[Any, Any, int]

#: Later than any record: such a timer fires at the end of the input only.
LAST_MS = 10**14
#: Lets aligned windows end after an even timestamp, so that what they give has even ones too.
WINDOW_OFFSET_MS = 1


def key_of(record: Record) -> Any:
    """The key."""
    return record[0]


def mapped(record: Record, keys: int) -> Record:
    """Another key (no two keys become one), another number."""
    key, origin, number = record
    return (key + 1) % keys, origin, number + 1


def is_kept(record: Record) -> bool:
    """Whether the filter keeps a record."""
    return record[2] % 4 != 1


def expanded(record: Record, keys: int) -> list[Record]:
    """Two records, or one."""
    key, origin, number = record
    return [record, ((key + 3) % keys, origin, number + 2)] if number % 3 == 0 else [record]


def counted(record: Record) -> Record:
    """A record that counts itself; sums of them do not depend on their order."""
    return record[0], "count", 1


def added(one: Record, other: Record) -> Record:
    """Sum of numbers."""
    return one[0], one[1], one[2] + other[2]


def tallied(key: Any, uid: str, count: int) -> Record:
    """What a tally emits for its n-th record of a key, besides the record."""
    return key, ("tally", uid), count


class _Watched:
    """A user function whose calls the outside world hears of."""

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
    """Changes nothing."""

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

    def reduce(self, one: Record, other: Record) -> Record:
        self.call()
        return added(one, other)


class Tally(_Watched):
    """Counts the records of a key in a value state, and emits the count beside each: `tallied`."""

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
    """Adds numbers up by buckets of event time in a map state; a timer at each bucket's end gives its sum.

    A value state counts the buckets of the key, so that each result tells whether one before it was lost.
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

    #: As the two inputs of one operator it treats the records of both alike.
    process_element1 = process_element2 = process_element

    def on_timer(self, timestamp: int, context: Any) -> Iterator[Record]:
        self.call()
        fired = (self.fired.value() or 0) + 1
        self.fired.update(fired)
        total = self.sums.get(timestamp)
        self.sums.remove(timestamp)
        yield context.get_current_key(), ("bucket", timestamp, fired), -1 if total is None else total


def bucket_end(timestamp: int | None, bucket_ms: int | None) -> int:
    """The end of the bucket; without a length there is one bucket only."""
    return LAST_MS if bucket_ms is None or timestamp is None else timestamp - timestamp % bucket_ms + bucket_ms


class SumAndCount:
    """An aggregate function: (count, sum)."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, record: Record, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + record[2]

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return one[0] + other[0], one[1] + other[1]


class WindowTotal(_Watched):
    """A window function over an aggregate or over all records: one record with count and sum."""

    def process(self, key: Any, context: Any, contents: list[Any]) -> Iterator[Record]:
        self.call()
        window = context.window()
        records = contents if contents and len(contents[0]) == 3 else None
        count, total = contents[0] if records is None else (len(records), sum(r[2] for r in records))
        yield key, ("window", window.start, window.end, count), total
