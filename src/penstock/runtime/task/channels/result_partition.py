"""The sending end of an edge, and the partitioners that choose the channels of its records (B3).

`Partitioner` decides which records of a batch go to which channel of an edge. With `CustomPartitioner`, the partitioner
of `partition_custom`, a user's function chooses the channel of a key.

`ResultPartition` buffers each channel, flushes by size or age, and sends as credit allows. Records and control elements
of a channel leave in the order of their addition (G1). Buffers without credit wait here. The task stops taking input
while too many wait (`is_available`), so the backlog is bounded by the output of one step of the task.

The traffic determines the size of the buffers. A flush sends the open buffer, however little it holds. Without credit,
a flush closes nothing: the buffer stays open and grows until credit arrives or it is full. So a slow consumer gets few
large buffers, and many small ones never block a task. Adjacent batches in a buffer travel as one.

`ByteCount` estimates the serialized size of the records of an edge, based on a sample.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain, compress, pairwise
from operator import index, itemgetter
from typing import Any, Final

import numpy as np

from penstock.base.errors import WrongValueError
from penstock.runtime.columns import ColumnBatch, ColumnKey, ColumnRoutes
from penstock.runtime.operators.base import KEY_SELECTOR, UserCodeError, refused_key, select_keys
from penstock.runtime.operators.function_context import OperatorContext, RuntimeContext
from penstock.runtime.protocol import ChannelId
from penstock.runtime.records import Batch, Buffer, CheckpointBarrier, Event
from penstock.state.errors import StateError
from penstock.state.keys import assign_key_group, subtask_of_key_group

#: The maximum number of keys whose routes are cached; beyond it, the cache is cleared.
ROUTES_MAX = 1 << 18
_MASK = (1 << 64) - 1
#: With more channels, one pass over the records is faster than one pass per channel.
MASKED_CHANNELS_MAX: Final = 8
#: Up to this many records of columns are split without kernels.
_FEW: Final = 16
#: For each channel, a table that maps the channel's byte to 1 and all others to 0.
_MASKS: Final = [bytes(int(byte == channel) for byte in range(256)) for channel in range(MASKED_CHANNELS_MAX)]
_SAMPLE_RECORDS: Final = 8
#: The size of one batch in this many is estimated, for each edge.
_BATCHES_PER_SAMPLE: Final = 64


def estimated_bytes(batch: Batch) -> int:
    """Return the approximate size of the records on the wire, in bytes, estimated from the first few."""
    if isinstance(batch, ColumnBatch):
        return int(batch.columns.nbytes)
    sample = batch.values[:_SAMPLE_RECORDS]
    try:
        size = len(pickle.dumps(sample, protocol=5))
    except Exception:  # noqa: BLE001 - it is only a figure, and user classes may raise anything
        size = 64 * len(sample)
    return size * len(batch) // max(1, len(sample))


class ByteCount:
    """Estimates the bytes of all records of an edge from the size of a batch now and then."""

    __slots__ = ("_batches", "_per_record", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._batches = 0
        self._per_record = 0.0

    def add(self, batch: Batch) -> int:
        """Count a batch, and return its approximate size in bytes."""
        if not len(batch):
            return 0
        if self._batches % _BATCHES_PER_SAMPLE == 0:
            self._per_record = estimated_bytes(batch) / len(batch)
        self._batches += 1
        size = int(self._per_record * len(batch))
        self.bytes += size
        return size


class Partitioner:
    """Splits batches over channels. `name` appears in plans. Broadcasts use `is_broadcast` instead of `split`."""

    name = "FORWARD"
    is_broadcast = False
    #: Pointwise partitioners connect each producer to some consumers only, see `runtime.graph.job_graph`.
    is_pointwise = False

    def set_up(self, subtask_index: int, channels: int, max_parallelism: int, consumer: str = "") -> None:
        """Set the number of channels, and the name of the consuming operator, before the first batch."""
        self.channels = channels

    def open(self, context: OperatorContext) -> None:
        """Prepare for the first batch of the operator with this context."""

    def close(self) -> None:
        """Release the resources that `open` acquired; called on every path."""

    def split(self, batch: Batch) -> list[tuple[int, Batch]]:
        """Return (channel, records) for each channel that gets any; the order within a channel is kept."""
        return [(0, batch)]


class ForwardPartitioner(Partitioner):
    """Sends subtask i to subtask i."""

    name = "FORWARD"
    is_pointwise = True


class GlobalPartitioner(Partitioner):
    """Sends everything to the first subtask."""

    name = "GLOBAL"


class BroadcastPartitioner(Partitioner):
    """Sends everything to every subtask."""

    name = "BROADCAST"
    is_broadcast = True


class RebalancePartitioner(Partitioner):
    """Round robin, in runs: a batch is cut into one run per channel; the next batch continues where it ended."""

    name = "REBALANCE"

    def set_up(self, subtask_index: int, channels: int, max_parallelism: int, consumer: str = "") -> None:
        """Begin with a channel that differs between producers."""
        super().set_up(subtask_index, channels, max_parallelism, consumer)
        self._next = subtask_index % channels

    def split(self, batch: Batch) -> list[tuple[int, Batch]]:
        """Distribute the records in runs."""
        size = len(batch)
        run = -(-size // self.channels)
        parts = []
        for start in range(0, size, run):
            parts.append((self._next, batch.slice(start, start + run)))
            self._next = (self._next + 1) % self.channels
        return parts


class RescalePartitioner(RebalancePartitioner):
    """Round robin over a few neighbours: the consumers fed only by this producer, or only by its group."""

    name = "RESCALE"
    is_pointwise = True


class SelectingPartitioner(Partitioner):
    """Chooses a channel for each record."""

    def split(self, batch: Batch) -> list[tuple[int, Batch]]:
        """Route each record; with a single channel, without looking at any record."""
        if self.channels == 1:
            return [(0, batch)]
        if isinstance(batch, ColumnBatch):
            return _split_columns(batch, self.channels_of_columns(batch), self.channels)
        chosen = self.select_channels(batch.values)
        if self.channels <= MASKED_CHANNELS_MAX:
            return _split_by_masks(batch, bytes(chosen), self.channels)
        return _split_by_loop(batch, chosen, self.channels)

    def select_channels(self, values: list[Any]) -> Sequence[int]:
        """Return the channel of each record."""
        raise NotImplementedError

    def channels_of_columns(self, batch: ColumnBatch) -> Any:
        """Return the channel of each record of a column batch, as a numpy array."""
        return np.asarray(self.select_channels(batch.values))


def _split_columns(batch: ColumnBatch, chosen: Any, channels: int) -> list[tuple[int, Batch]]:
    """Sort the records by channel in one go, and cut them where the next channel begins."""
    if len(batch) <= _FEW:
        return _split_few(batch, chosen.tolist())
    chosen = chosen.astype(np.uint16)  # numpy sorts this type by radix
    ends = np.cumsum(np.bincount(chosen, minlength=channels)).tolist()
    ordered = batch.take(np.argsort(chosen, kind="stable"))
    return [
        (channel, ordered.slice(begin, end)) for channel, (begin, end) in enumerate(pairwise([0, *ends])) if begin < end
    ]


def _split_few(batch: ColumnBatch, chosen: list[int]) -> list[tuple[int, Batch]]:
    """Split a few records, which mostly go to one channel."""
    used = sorted(set(chosen))
    if len(used) == 1:
        return [(used[0], batch)]
    return [
        (channel, batch.take(np.array([index for index, other in enumerate(chosen) if other == channel])))
        for channel in used
    ]


def _split_by_masks(batch: Batch, chosen: bytes, channels: int) -> list[tuple[int, Batch]]:
    """Split with a byte per record for its channel; for each channel, C code skips the other records."""
    values, timestamps, kinds = batch.values, batch.timestamps, batch.kinds
    parts: list[tuple[int, Batch]] = []
    for channel in range(channels):
        if channel in chosen:
            mask = chosen.translate(_MASKS[channel])
            times = None if timestamps is None else list(compress(timestamps, mask))
            of_part = None if kinds is None else bytes(compress(kinds, mask))
            parts.append((channel, Batch(list(compress(values, mask)), times, of_part)))
    return parts


def _split_by_loop(batch: Batch, chosen: Sequence[int], channels: int) -> list[tuple[int, Batch]]:
    """Split in one pass, however many channels there are, and another pass for kinds."""
    if batch.kinds is not None:
        kinds = [bytearray() for _ in range(channels)]
        for channel, kind in zip(chosen, batch.kinds, strict=True):
            kinds[channel].append(kind)
        parts = _split_by_loop(Batch(batch.values, batch.timestamps), chosen, channels)
        return [(i, Batch(part.values, part.timestamps, bytes(kinds[i]))) for i, part in parts]
    values: list[list[Any]] = [[] for _ in range(channels)]
    if batch.timestamps is None:
        for channel, value in zip(chosen, batch.values, strict=True):
            values[channel].append(value)
        return [(i, Batch(part)) for i, part in enumerate(values) if part]
    times: list[list[int]] = [[] for _ in range(channels)]
    for channel, value, timestamp in zip(chosen, batch.values, batch.timestamps, strict=True):
        values[channel].append(value)
        times[channel].append(timestamp)
    return [(i, Batch(part, times[i])) for i, part in enumerate(values) if part]


class ShufflePartitioner(SelectingPartitioner):
    """Uniformly random: a stream of pseudo-random numbers for each producer, the same in every run."""

    name = "SHUFFLE"

    def set_up(self, subtask_index: int, channels: int, max_parallelism: int, consumer: str = "") -> None:
        """Begin this producer's own stream of numbers."""
        super().set_up(subtask_index, channels, max_parallelism, consumer)
        self._state = (subtask_index + 1) * 0x9E3779B97F4A7C15 & _MASK

    def select_channels(self, values: list[Any]) -> Sequence[int]:
        """Return channels from a linear congruential generator (Knuth's MMIX), using the upper bits, which are good."""
        state, channels = self._state, self.channels
        result = []
        for _ in values:
            state = (state * 6364136223846793005 + 1442695040888963407) & _MASK
            result.append((state >> 32) * channels >> 32)
        self._state = state
        return result


class KeyMemory(dict[Any, int]):
    """A number for each key, computed at the first request: a known key costs no Python call."""

    def __missing__(self, key: Any) -> int:
        if len(self) >= ROUTES_MAX:
            self.clear()
        number = self[key] = self.work_out(key)
        return number

    def work_out(self, key: Any) -> int:
        """Return the number of a key that is not known yet."""
        raise NotImplementedError

    def of(self, keys: list[Any]) -> Sequence[int]:
        """Return the number of each key."""
        return list(map(self.__getitem__, keys))

    def of_records(self, key_selector: Callable[[Any], Any], values: list[Any], consumer: str) -> Sequence[int]:
        """Return the number of each record's key; raises `UserCodeError` that names the consumer and the record."""
        keys = select_keys(values, key_selector, consumer)
        try:
            return self.of(keys)
        except Exception:  # noqa: BLE001 - hashing a key calls user code, which may raise anything
            return self._one_by_one(keys, values, consumer)

    def _one_by_one(self, keys: list[Any], values: list[Any], consumer: str) -> list[int]:
        """Do the same one by one, after a key was refused, to name that key."""
        numbers = []
        for key, value in zip(keys, values, strict=True):
            try:
                numbers.append(self.work_out(key))
            except Exception as error:  # noqa: BLE001 - as above
                raise refused_key(consumer, value, key, error)  # noqa: B904 - it has its cause
        return numbers


class _Routes(KeyMemory):
    """The channel of each key.

    Small integers also have a table, which is a tenth of the dictionary's size and stays in the processor's cache.
    """

    def __init__(self, max_parallelism: int, channels: int) -> None:
        super().__init__()
        self._max_parallelism = max_parallelism
        self._channels = channels
        #: By key; None for keys not requested yet. The table itself is None once a key did not fit it.
        self._table: list[int | None] | None = []

    def work_out(self, key: Any) -> int:
        """Return the subtask that owns the key, by key group."""
        return subtask_of_key_group(assign_key_group(key, self._max_parallelism), self._max_parallelism, self._channels)

    def of(self, keys: list[Any]) -> Sequence[int]:
        """Return the channel of each key."""
        if self._table is not None and len(keys) > 1:
            try:
                return self._in_table(self._table, keys)
            except Exception:  # noqa: BLE001 - keys of users' types may raise anything when they are compared
                self._table = None
        return super().of(keys)

    def _in_table(self, table: list[int | None], keys: list[Any]) -> Sequence[int]:
        """Return the channel of each key; raises for keys that are not integers, or that do not fit a table."""
        if min(keys) < 0:
            raise IndexError
        take: Any = itemgetter(*keys)
        try:
            channels = take(table)
        except IndexError:
            self._extend(table, max(keys) + 1)
            channels = take(table)
        return self._with_new_keys(table, keys, list(channels)) if None in channels else channels

    def _with_new_keys(self, table: list[int | None], keys: list[Any], channels: list[Any]) -> list[int]:
        """Complete the channels in `channels`, where keys not requested before have None."""
        at = -1
        for _ in range(channels.count(None)):
            at = channels.index(None, at + 1)
            key = keys[at]
            channel = table[key]
            if channel is None:
                channel = table[key] = self[key]
            channels[at] = channel
        return channels

    def _extend(self, table: list[int | None], size: int) -> None:
        if size > ROUTES_MAX:
            raise IndexError
        table.extend([None] * (max(size, min(2 * len(table), ROUTES_MAX)) - len(table)))


class HashPartitioner(SelectingPartitioner):
    """Routes by the key group of the record's key (D4)."""

    name = "HASH"

    def __init__(self, key_selector: Callable[[Any], Any]) -> None:
        self.key_selector = key_selector

    def set_up(self, subtask_index: int, channels: int, max_parallelism: int, consumer: str = "") -> None:
        """Set up the routes from key groups to channels."""
        super().set_up(subtask_index, channels, max_parallelism, consumer)
        self._consumer = consumer
        self._routes = _Routes(max_parallelism, channels)
        selector, route = self.key_selector, self._routes.__getitem__
        self._column_routes = ColumnRoutes(selector, route) if isinstance(selector, ColumnKey) else None

    def channels_of_columns(self, batch: ColumnBatch) -> Any:
        """Return the channels of keys in columns; each distinct key is hashed once."""
        if self._column_routes is None:
            return super().channels_of_columns(batch)
        try:
            return self._column_routes.select_channels(batch.data)
        except (TypeError, StateError) as error:
            raise UserCodeError(self._consumer, None, KEY_SELECTOR) from error

    def select_channels(self, values: list[Any]) -> Sequence[int]:
        """Return the subtask that owns the key group of each record's key."""
        return self._routes.of_records(self.key_selector, values, self._consumer)


class CustomPartitioner(SelectingPartitioner):
    """Sends a record to channel `partition(key, channels)`; no keyed state can follow it.

    Args:
        partitioner: a `Partitioner`, whose `open` and `close` are called on the sending side, or a plain callable.
        key_selector: extracts the key from a record.
    """

    name = "CUSTOM"

    def __init__(self, partitioner: Any, key_selector: Callable[[Any], Any]) -> None:
        self._partitioner = partitioner
        self._key_selector = key_selector
        self._opened = False

    def set_up(self, subtask_index: int, channels: int, max_parallelism: int, consumer: str = "") -> None:
        """Remember the consumer that errors name."""
        super().set_up(subtask_index, channels, max_parallelism, consumer)
        self._consumer = consumer
        self._partition: Callable[[Any, int], int] = getattr(self._partitioner, "partition", self._partitioner)

    def open(self, context: OperatorContext) -> None:
        """Open the user's function with the runtime context of the sending operator."""
        opener = getattr(self._partitioner, "open", None)
        self._opened = True
        if opener is not None:
            try:
                opener(RuntimeContext(context))
            except Exception as error:
                raise UserCodeError(context.operator_name, None, "open() of the partitioner") from error

    def close(self) -> None:
        """Close the user's function, if it was opened."""
        closer = getattr(self._partitioner, "close", None)
        if closer is not None and self._opened:
            self._opened = False
            closer()

    def select_channels(self, values: list[Any]) -> list[int]:
        """Return the channels chosen by the user's function, checked."""
        keys = select_keys(values, self._key_selector, self._consumer)
        partition, channels = self._partition, self.channels
        result: list[int] = []
        try:
            for key in keys:
                channel = index(partition(key, channels))
                if not 0 <= channel < channels:
                    raise WrongValueError(
                        f"partition() returned {channel!r} for key {key!r}: not in 0 to {channels - 1}"
                    )
                result.append(channel)
        except Exception as error:
            raise UserCodeError(self._consumer, values[len(result)], "the partitioner") from error
        return result


#: Full buffers of one channel that may wait for credit before the task is blocked.
QUEUED_BUFFERS_MAX: Final = 2
#: Number of elements that fills a buffer, however few records they have.
ELEMENTS_PER_BUFFER_MAX: Final = 256

SendBuffer = Callable[[str, ChannelId, Buffer], None]


class Subpartition:
    """One outgoing channel of a task."""

    __slots__ = (
        "_open",
        "_open_records",
        "_queue",
        "_send",
        "_target_records",
        "_wants_flush",
        "buffers_sent",
        "channel",
        "credit",
        "worker_id",
    )

    def __init__(self, channel: ChannelId, worker_id: str, send: SendBuffer, buffer_records: int) -> None:
        self.channel = channel
        self.worker_id = worker_id
        self.credit = 0
        self.buffers_sent = 0
        self._send = send
        self._target_records = buffer_records
        self._open: Buffer = []
        self._open_records = 0
        self._queue: deque[Buffer] = deque()
        #: whether the open buffer leaves with the next credit, full or not
        self._wants_flush = False

    def add_batch(self, batch: Batch) -> None:
        """Append records. Split batches larger than a buffer, except column batches: they are small and fast whole."""
        size = len(batch)
        if size > self._target_records and not isinstance(batch, ColumnBatch):
            for start in range(0, size, self._target_records):
                self.add_batch(batch.slice(start, start + self._target_records))
            return
        self._open.append(batch)
        self._open_records += size
        if self._open_records >= self._target_records or len(self._open) >= ELEMENTS_PER_BUFFER_MAX:
            self._close_buffer()
            self._drain()

    def add_event(self, event: Event) -> None:
        """Append a control element; it leaves with the next flush."""
        self._open.append(event)
        if len(self._open) >= ELEMENTS_PER_BUFFER_MAX:
            self._close_buffer()
            self._drain()

    def overtake(self, barrier: CheckpointBarrier) -> Buffer:
        """Send a barrier ahead of all queued elements, without credit. Return these elements, which stay queued."""
        overtaken = [element for buffer in self._queue for element in buffer] + self._open
        self._send(self.worker_id, self.channel, [barrier])
        return overtaken

    def recover(self, elements: Buffer) -> None:
        """Put elements from a checkpoint back at the front of the queue; they leave as credit allows."""
        self._queue.appendleft(elements)
        self._drain()

    def flush(self) -> None:
        """Send all buffers as credit allows; the rest leaves as soon as credit arrives."""
        self._wants_flush = bool(self._open)
        self._drain()

    def grant(self, credit: int) -> None:
        """Add `credit`: the number of further buffers that the consumer can take."""
        self.credit += credit
        self._drain()

    def _close_buffer(self) -> None:
        self._queue.append(_joined(self._open) if len(self._open) > 1 else self._open)
        self._open, self._open_records, self._wants_flush = [], 0, False

    def _drain(self) -> None:
        queue = self._queue
        while self.credit > 0:
            if not queue:
                if not self._wants_flush:
                    return
                self._close_buffer()
            self.credit -= 1
            self.buffers_sent += 1
            self._send(self.worker_id, self.channel, queue.popleft())

    @property
    def has_open_data(self) -> bool:
        """Whether the open buffer holds elements that no flush has requested yet."""
        return bool(self._open) and not self._wants_flush

    @property
    def queued(self) -> int:
        """The number of full buffers that wait for credit."""
        return len(self._queue)

    @property
    def is_blocked(self) -> bool:
        return len(self._queue) >= QUEUED_BUFFERS_MAX

    @property
    def is_empty(self) -> bool:
        """Whether all added elements have been sent."""
        return not self._open and not self._queue

    def validate(self) -> None:
        """Assert the invariants that hold between steps. The simulator calls this; a running job never does."""
        assert self.credit >= 0, f"{self.channel}: nothing was sent without credit"
        assert not self.credit or not self._queue, f"{self.channel}: what is full leaves while there is credit"
        if self._wants_flush:
            assert self._open, f"{self.channel}: a flush is owed to what is open"
            assert not self.credit, f"{self.channel}: what was flushed leaves while there is credit"
        assert len(self._open) < ELEMENTS_PER_BUFFER_MAX, f"{self.channel}: a full buffer is closed"
        assert self._open_records < self._target_records, f"{self.channel}: a full buffer is closed"
        assert self._open or not self._open_records, f"{self.channel}: an empty buffer has no records"


def _joined(buffer: Buffer) -> Buffer:
    """Return the same elements with adjacent batches merged. The batches may be shared, so they are not modified."""
    joined: Buffer = []
    run: list[Batch] = []
    for element in buffer:
        if type(element) is Batch:
            if run and not _are_alike(run[0], element):
                joined.append(_merge_batches(run))
                run = []
            run.append(element)
            continue
        if run:
            joined.append(_merge_batches(run))
            run = []
        joined.append(element)
    if run:
        joined.append(_merge_batches(run))
    return joined


def _merge_batches(run: list[Batch]) -> Batch:
    if len(run) == 1:
        return run[0]
    values = list(chain.from_iterable(batch.values for batch in run))
    kinds = None if run[0].kinds is None else b"".join(batch.kinds or b"" for batch in run)
    if run[0].timestamps is None:
        return Batch(values, None, kinds)
    return Batch(values, [time for batch in run for time in batch.timestamps or ()], kinds)


def _are_alike(batch: Batch, other: Batch) -> bool:
    """Return whether both batches have timestamps or neither has, and likewise for kinds."""
    return (batch.timestamps is None) == (other.timestamps is None) and (batch.kinds is None) == (other.kinds is None)


class ResultPartition:
    """All channels of one outgoing edge of a task. Barriers overtake nothing on it unless it `supports_unaligned`.

    With `passes_references`, the consumers of several channels could get the same objects (`ports.Network`).
    """

    def __init__(
        self,
        partitioner: Partitioner,
        subpartitions: list[Subpartition],
        supports_unaligned: bool = True,
        passes_references: bool = False,
    ) -> None:
        self.subpartitions = subpartitions
        self.partitioner = partitioner
        self.supports_unaligned = supports_unaligned
        self._passes_references = passes_references
        self.records_out = 0
        self.bytes_out = ByteCount()

    def collect(self, batch: Batch) -> None:
        """Add records to the channels selected by the partitioner."""
        size = len(batch)
        if not size:
            return
        self.records_out += size
        self.bytes_out.add(batch)
        subpartitions = self.subpartitions
        if self.partitioner.is_broadcast:
            self._add_to_all(batch)
        else:
            for index, part in self.partitioner.split(batch):
                subpartitions[index].add_batch(part)

    def _add_to_all(self, batch: Batch) -> None:
        """Add records to every channel. A subtask may modify its records, so no two channels share a record."""
        workers: set[str] = set()
        can_change = True
        for subpartition in self.subpartitions:
            part = batch
            if can_change and workers and (self._passes_references or subpartition.worker_id in workers):
                part = batch.separated()
                can_change = part is not batch
            workers.add(subpartition.worker_id)
            subpartition.add_batch(part)

    def broadcast(self, event: Event, flush: bool = False) -> None:
        """Add a control element to every channel."""
        for subpartition in self.subpartitions:
            subpartition.add_event(event)
            if flush:
                subpartition.flush()

    def overtake(self, barrier: CheckpointBarrier) -> list[tuple[ChannelId, Buffer]]:
        """Send a barrier ahead of everything in every channel. Return the overtaken elements of each channel."""
        return [(s.channel, s.overtake(barrier)) for s in self.subpartitions]

    def recover(self, consumer: int, elements: Buffer) -> None:
        """Put elements from a checkpoint back into the channel to a consumer."""
        for subpartition in self.subpartitions:
            if subpartition.channel.consumer == consumer:
                subpartition.recover(elements)
                return
        raise AssertionError(f"no channel to subtask {consumer} to recover into")

    def flush(self) -> None:
        """Send all buffers as credit allows."""
        for subpartition in self.subpartitions:
            subpartition.flush()

    @property
    def is_available(self) -> bool:
        # Called in every step: a loop takes half the time of `any`.
        for subpartition in self.subpartitions:  # noqa: SIM110
            if subpartition.is_blocked:
                return False
        return True

    @property
    def has_open_data(self) -> bool:
        for subpartition in self.subpartitions:  # noqa: SIM110 - as above
            if subpartition.has_open_data:
                return True
        return False

    @property
    def is_empty(self) -> bool:
        return all(s.is_empty for s in self.subpartitions)

    def validate(self) -> None:
        """Call `Subpartition.validate` for all channels."""
        for subpartition in self.subpartitions:
            subpartition.validate()
