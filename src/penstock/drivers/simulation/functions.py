"""User-defined functions of simulated jobs. Records are (key, origin, number).

The effect of each on one record is a plain function beside it, which the reference computation also uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.drivers.simulation.outside import outside
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor

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
