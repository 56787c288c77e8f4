"""The sending end of an edge: buffers each channel, flushes by size or age, and sends as credit allows.

Records and control elements of a channel leave in the order of their addition (G1). Buffers without credit wait here.
The task stops taking input while too many wait (`is_available`), so the backlog is bounded by the output of one step of
the task.

The traffic determines the size of the buffers. A flush sends the open buffer, however little it holds. Without credit,
a flush closes nothing: the buffer stays open and grows until credit arrives or it is full. So a slow consumer gets few
large buffers, and many small ones never block a task. Adjacent batches in a buffer travel as one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Final

from penstock.runtime.columns.batch import ColumnBatch
from penstock.runtime.protocol import ChannelId
from penstock.runtime.records import Batch, Buffer, CheckpointBarrier, Event
from penstock.runtime.task.channels.input_gate import ByteCount
from penstock.runtime.task.channels.partitioners import Partitioner

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
