"""Interval join: pairs records of two keyed streams whose timestamps lie close together (A2).

A left record at `l` and a right record at `r` of one key are a pair when `l + lower <= r <= l + upper`, in ms of event
time. The operator keeps both sides in keyed state, in time buckets that are a fraction of the interval. So a record
looks at few buckets of the other side, however much is stored. When event time passes a bucket, the whole bucket is
dropped at once, and no record needs its own timer.

A record earlier than the watermark is late: it is in no pair, and goes to its side's late output or is counted. Every
pair of records that were not late is emitted exactly once, when the later one arrives. The operator keeps a record as
long as a record that is not late could pair with it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from types import GeneratorType
from typing import Any, Final

from penstock.base.errors import WrongTypeError
from penstock.runtime.operators.base import FunctionOperator
from penstock.runtime.operators.emitting import check_results
from penstock.runtime.operators.results import Results
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.state.backend import KeyedTable
from penstock.state.states import NO_KEY

#: The approximate number of buckets in an interval. With more buckets, a record looks at more of them but at fewer
#: records in vain.
_BUCKETS: Final = 4


class ProcessJoinContext:
    """The context passed to a `ProcessJoinFunction` with each pair; times in ms."""

    __slots__ = ("left_timestamp", "right_timestamp")

    def __init__(self) -> None:
        self.left_timestamp = MIN_TIMESTAMP
        self.right_timestamp = MIN_TIMESTAMP

    def get_left_timestamp(self) -> int:
        """Return the left record's event time."""
        return self.left_timestamp

    def get_right_timestamp(self) -> int:
        """Return the right record's event time."""
        return self.right_timestamp

    def get_timestamp(self) -> int:
        """Return the pair's event time: the later of the two, which its results carry."""
        return max(self.left_timestamp, self.right_timestamp)


class _Side:
    """The stored records of one stream: time bucket [start, end) -> key -> [(timestamp, value)]."""

    def __init__(self, table: KeyedTable, width_ms: int, kept_ms: int) -> None:
        self._table = table
        self._width_ms = width_ms
        self._kept_ms = kept_ms
        #: by the bucket's number: its entries and its namespace. Changes are marked by namespace: RocksDB writes only
        #: namespaces that are in use, and such a mark puts the namespace back into use.
        self._buckets: dict[int, tuple[dict[Any, list[tuple[int, Any]]], tuple[int, int]]] = {}
        self._order: list[int] = []
        other_panes = []
        for start, end in table.panes:
            if end - start == width_ms and start % width_ms == 0:
                self._open(start // width_ms)
            else:
                other_panes.append((start, end))
        for namespace in other_panes:  # from a program with other bounds
            for key, records in table.drop(namespace).items():
                for timestamp, value in records:
                    self.add(key, timestamp, value)

    def _open(self, bucket: int) -> tuple[dict[Any, list[tuple[int, Any]]], tuple[int, int]]:
        namespace = (bucket * self._width_ms, (bucket + 1) * self._width_ms)
        opened = self._buckets[bucket] = (self._table.entries(namespace), namespace)
        heappush(self._order, bucket)
        return opened

    def add(self, key: Any, timestamp: int, value: Any) -> None:
        """Store a record."""
        bucket = timestamp // self._width_ms
        entries, namespace = self._buckets.get(bucket) or self._open(bucket)
        records = entries.get(key)
        if records is None:
            entries[key] = [(timestamp, value)]
        else:
            records.append((timestamp, value))
        self._table.changed(namespace).add(key)

    def between(self, key: Any, first: int, last: int) -> list[tuple[int, Any]]:
        """Return a key's records with timestamps from `first` to `last`, both included; earlier buckets come first."""
        matches: list[tuple[int, Any]] = []
        buckets, width_ms = self._buckets, self._width_ms
        for number in range(first // width_ms, last // width_ms + 1):
            bucket = buckets.get(number)
            records = None if bucket is None else bucket[0].get(key)
            if records:
                matches += [record for record in records if first <= record[0] <= last]
        return matches

    def drop(self, watermark: int) -> None:
        """Drop the buckets whose records can no longer pair with a record that is not late."""
        order, width_ms = self._order, self._width_ms
        while order and (order[0] + 1) * width_ms - 1 + self._kept_ms < watermark:
            bucket = heappop(order)
            del self._buckets[bucket]
            self._table.drop((bucket * width_ms, (bucket + 1) * width_ms))


class IntervalJoinOperator(FunctionOperator):
    """Calls a `ProcessJoinFunction` for every pair; its results have the later timestamp of the two.

    Args:
        function: the `ProcessJoinFunction`.
        key_selectors: the key selectors of the left and the right stream.
        lower_ms: the least difference, the right record's timestamp minus the left one's; may be negative.
        upper_ms: the greatest difference; both bounds are included, and `lower_ms <= upper_ms`.
        late_tags: the side outputs for late records of the left and the right stream; None to count and drop them.
    """

    is_keyed = True

    def __init__(
        self,
        function: Any,
        key_selectors: tuple[Callable[[Any], Any], Callable[[Any], Any]],
        lower_ms: int,
        upper_ms: int,
        late_tags: tuple[str | None, str | None] = (None, None),
    ) -> None:
        super().__init__(function)
        self._key_selectors = key_selectors
        self._lower_ms = lower_ms
        self._upper_ms = upper_ms
        self._late_tags = late_tags
        self._watermark = MIN_TIMESTAMP

    def late_outputs(self) -> tuple[str, ...]:
        """Return the tags of the late outputs of both sides."""
        return tuple(tag for tag in self._late_tags if tag is not None)

    def initialize_state(self) -> None:
        """Look up the stored records of both sides."""
        super().initialize_state()
        width_ms = max(1, (self._upper_ms - self._lower_ms + 1) // _BUCKETS)
        table = self.context.keyed.table
        self._sides = (
            _Side(table("_penstock_interval_left"), width_ms, max(self._upper_ms, 0)),
            _Side(table("_penstock_interval_right"), width_ms, max(-self._lower_ms, 0)),
        )

    def open(self) -> None:
        """Open the function."""
        self._ctx = ProcessJoinContext()
        super().open()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Pair every record with the records of the other side, and store it for later ones."""
        if batch.timestamps is None:
            raise WrongTypeError(
                f"{self.context.operator_name}: an interval join needs timestamps, but these records have none; give "
                "the source a WatermarkStrategy with a timestamp assigner, or call assign_timestamps_and_watermarks "
                "before key_by"
            )
        values, timestamps = self._without_late(batch, input_index)
        keys = self.extract_keys(values, self._key_selectors[input_index])
        results = Results()
        if input_index == 0:
            self._join_left(keys, values, timestamps, results)
        else:
            self._join_right(keys, values, timestamps, results)
        for sweeper in self.context.keyed.sweepers.values():
            sweeper.on_records(len(values))
        results.emit(self.output, is_timed=True)

    def _without_late(self, batch: Batch, input_index: int) -> tuple[list[Any], list[int]]:
        """Return the records that are not late, and pass on or count the late ones."""
        values, timestamps, watermark = batch.values, batch.timestamps or [], self._watermark
        if not values or min(timestamps) >= watermark:
            return values, timestamps
        late: tuple[list[Any], list[int]] = ([], [])
        rest: tuple[list[Any], list[int]] = ([], [])
        for value, timestamp in zip(values, timestamps, strict=True):
            side = late if timestamp < watermark else rest
            side[0].append(value)
            side[1].append(timestamp)
        tag = self._late_tags[input_index]
        if tag is None:
            self.context.count(LATE_RECORDS, len(late[0]))
        else:
            self.output.collect_side(tag, Batch(*late))
        return rest

    def _join_left(self, keys: list[Any], values: list[Any], timestamps: list[int], results: Results) -> None:
        lower_ms, upper_ms, ctx, keyed = self._lower_ms, self._upper_ms, self._ctx, self.context.keyed
        (mine, other), process = self._sides, self.function.process_element
        add, between = mine.add, other.between
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            add(key, timestamp, value)
            matches = between(key, timestamp + lower_ms, timestamp + upper_ms)
            if not matches:
                continue
            keyed.current_key, ctx.left_timestamp = key, timestamp
            for right_timestamp, right in matches:
                ctx.right_timestamp = right_timestamp
                self._call(process, value, right, results)
                results.add_times(max(timestamp, right_timestamp))
        keyed.current_key = NO_KEY

    def _join_right(self, keys: list[Any], values: list[Any], timestamps: list[int], results: Results) -> None:
        lower_ms, upper_ms, ctx, keyed = self._lower_ms, self._upper_ms, self._ctx, self.context.keyed
        (other, mine), process = self._sides, self.function.process_element
        add, between = mine.add, other.between
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            add(key, timestamp, value)
            matches = between(key, timestamp - upper_ms, timestamp - lower_ms)
            if not matches:
                continue
            keyed.current_key, ctx.right_timestamp = key, timestamp
            for left_timestamp, left in matches:
                ctx.left_timestamp = left_timestamp
                self._call(process, left, value, results)
                results.add_times(max(timestamp, left_timestamp))
        keyed.current_key = NO_KEY

    def _call(self, process: Callable[[Any, Any, Any], Any], left: Any, right: Any, results: Results) -> None:
        try:
            yielded = process(left, right, self._ctx)
            if yielded is not None:
                if yielded.__class__ is not GeneratorType and yielded.__class__ is not list:
                    yielded = check_results(yielded, process)
                results.take(yielded)
        except Exception as error:
            self.context.keyed.current_key = NO_KEY
            raise self.failed((left, right)) from error

    def process_watermark(self, timestamp: int) -> None:
        """Drop the records that event time has passed, and pass the watermark on."""
        self._watermark = timestamp
        for side in self._sides:
            side.drop(timestamp)
        self.output.emit_watermark(timestamp)

    def end_keys(self) -> None:
        """Drop all records."""
        self.advance_keys(MAX_WATERMARK)

    def advance_keys(self, timestamp: int) -> None:
        """Drop the records that event time has passed."""
        before = self._watermark
        self.process_watermark(timestamp)
        self._watermark = before
