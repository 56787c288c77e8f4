"""The receiving end of all edges into a task.

`InputGate`: each channel has its own queue, bounded by the credit given to its producer. The gate does not poll a
channel that is held back for alignment. Its records wait in its own queue and come next when it is released, so
held-back data is always consumed before newer data of the same channel (G2).

After a change of parallelism, in-flight records of a key may come from a different producer than new ones. So the gate
holds each channel back at the end of its channel state, until the channel state of the whole edge has been processed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from penstock.runtime.protocol import ChannelId
from penstock.runtime.records import Batch, Buffer, CheckpointBarrier, Element, EndOfData, EndOfPartition
from penstock.runtime.task.channels.result_partition import ByteCount, estimated_bytes

#: The number of overtaking barriers of a channel that may arrive before the task handles them.
_CUTS_MAX = 8


class RecoveredBuffer(list[Element]):
    """A buffer from a checkpoint: it came without credit, so none is returned for it."""


class ArrivalListener(Protocol):
    """Handles buffers when they arrive, rather than when they are polled."""

    def on_arrival(self, channel: InputChannel, buffer: Buffer) -> None: ...

    def on_barrier_arrival(self, channel: InputChannel, barrier: CheckpointBarrier) -> None: ...


class InputChannel:
    """One input channel of a task."""

    __slots__ = (
        "_arrived",
        "_cuts",
        "_position",
        "awaits_others",
        "channel",
        "end_of_data",
        "ended",
        "index",
        "input_index",
        "is_blocked",
        "is_queued",
        "is_remote",
        "queue",
        "worker_id",
    )

    def __init__(
        self, index: int, input_index: int, channel: ChannelId, worker_id: str, is_remote: bool = False
    ) -> None:
        self.index = index
        self.input_index = input_index
        self.channel = channel
        self.worker_id = worker_id
        #: whether its producer is on another worker
        self.is_remote = is_remote
        self.queue: deque[Buffer] = deque()
        self.is_blocked = False
        #: whether its channel state has been processed, but not yet that of another channel of its edge
        self.awaits_others = False
        self.is_queued = False
        self.end_of_data: EndOfData | None = None
        self.ended = False
        self._position = 0
        self._arrived = 0
        #: checkpoint id -> how many buffers had arrived before its overtaking barrier
        self._cuts: dict[int, int] = {}

    @property
    def buffers_arrived(self) -> int:
        """The number of buffers that have arrived."""
        return self._arrived

    @property
    def has_drained(self) -> bool:
        """Whether no record will ever follow on this channel; false if its sender was only suspended."""
        return self.end_of_data is not None and self.end_of_data.drain

    def append(self, buffer: Buffer) -> None:
        """Queue a buffer that has arrived."""
        self.queue.append(buffer)
        self._arrived += 1

    def prepend(self, buffer: RecoveredBuffer) -> None:
        """Put recovered elements before everything that has arrived."""
        self.queue.appendleft(buffer)

    def cut(self, checkpoint_id: int) -> None:
        """Note that the checkpoint's overtaking barrier has arrived: later buffers come after it."""
        first = self._arrived - len(self.queue)
        self._cuts = {i: n for i, n in self._cuts.items() if n >= first and i > checkpoint_id - _CUTS_MAX}
        self._cuts[checkpoint_id] = self._arrived

    def waiting(self) -> Iterator[Element]:
        """Yield the elements that have arrived and were not polled yet."""
        for offset, buffer in enumerate(self.queue):
            yield from buffer[self._position :] if offset == 0 else buffer

    def before_barrier(self, checkpoint_id: int) -> tuple[Buffer, bool]:
        """Return the waiting elements before a checkpoint's barrier, and whether that barrier has arrived yet."""
        limit = self._cuts.get(checkpoint_id)
        first = self._arrived - len(self.queue)
        elements: Buffer = []
        for offset, buffer in enumerate(self.queue):
            if limit is not None and first + offset >= limit:
                break
            for element in buffer[self._position :] if offset == 0 else buffer:
                if type(element) is CheckpointBarrier and element.checkpoint_id == checkpoint_id:
                    return elements, True
                if type(element) is EndOfPartition:
                    return elements, True
                elements.append(element)
        return elements, limit is not None

    def pop(self) -> tuple[Element, bool]:
        """Remove and return the next element, and whether it was the last of its buffer."""
        buffer = self.queue[0]
        element = buffer[self._position]
        self._position += 1
        if self._position < len(buffer):
            return element, False
        self.queue.popleft()
        self._position = 0
        return element, True

    def validate(self, credit_max: int) -> None:
        """Assert the invariants that hold between any two steps. Only the simulator calls this, never a running job."""
        queue = self.queue
        waiting = len(queue[0]) if queue else 1
        assert self._position < waiting, f"{self.channel}: what was polled last is not all of a buffer that waits"
        assert not self.ended or self.end_of_data is not None, f"{self.channel}: a partition ends behind its data"
        assert not self.ended or not queue, f"{self.channel}: nothing waits behind the end of a partition"
        if len(queue) > credit_max:
            sent = sum(type(buffer) is not RecoveredBuffer for buffer in queue)
            assert sent <= credit_max, f"{self.channel}: {sent} buffers wait, for which there never was credit"
        if self._cuts:
            assert max(self._cuts.values()) <= self._arrived, f"{self.channel}: a barrier cuts what has arrived"

    def has_passed(self, checkpoint_id: int) -> bool:
        """Return whether an element was polled that arrived after a checkpoint's overtaking barrier."""
        limit = self._cuts.get(checkpoint_id)
        return limit is not None and self._arrived - len(self.queue) + (self._position > 0) > limit


class InputGate:
    """All input channels of a task, polled in turn, one buffer at a time."""

    def __init__(
        self,
        channels: list[InputChannel],
        return_credit: Callable[[InputChannel], None],
        awaited_edges: Collection[int] = (),
    ) -> None:
        self.channels = channels
        #: by edge, the channels whose channel state is still to come or being processed
        self._recovering: dict[int, set[int]] = {}
        for channel in channels:
            if channel.channel.edge in awaited_edges:
                self._recovering.setdefault(channel.channel.edge, set()).add(channel.index)
        #: overtaking barriers that have arrived, to be handled before anything is polled
        self.overtaking: deque[tuple[InputChannel, CheckpointBarrier]] = deque()
        self.listener: ArrivalListener | None = None
        #: the bytes that the task has taken from all channels
        self.bytes_in = ByteCount()
        self.remote_bytes = 0
        self._by_id = {c.channel: c for c in channels}
        self._ready: deque[InputChannel] = deque()
        self._return_credit = return_credit

    def release(self) -> None:
        """Drop the listener after the task has ended: it refers to the gate, so there is a reference cycle."""
        self.listener = None

    def on_buffer(self, channel: ChannelId, buffer: Buffer) -> None:
        """Queue a buffer that has arrived, or note its overtaking barrier."""
        target = self._by_id[channel]
        if not buffer:
            self._return_credit(target)
            return
        first = buffer[0]
        if type(first) is CheckpointBarrier and first.is_unaligned:
            target.cut(first.checkpoint_id)
            self.overtaking.append((target, first))
            if self.listener is not None:
                self.listener.on_barrier_arrival(target, first)
            return
        target.append(buffer)
        if self.listener is not None:
            self.listener.on_arrival(target, buffer)
        self._enqueue(target)

    def recover(self, edge: int, producer: int, elements: Buffer) -> None:
        """Put elements from a checkpoint back into a channel, before everything that has arrived."""
        for channel in self.channels:
            if (channel.channel.edge, channel.channel.producer) == (edge, producer):
                channel.prepend(RecoveredBuffer(elements))
                self._enqueue(channel)
                return
        raise AssertionError(f"no channel of edge {edge} from subtask {producer} to recover into")

    def _enqueue(self, channel: InputChannel) -> None:
        if not channel.is_queued and not self._is_held(channel) and channel.queue:
            channel.is_queued = True
            self._ready.append(channel)

    @staticmethod
    def _is_held(channel: InputChannel) -> bool:
        return channel.is_blocked or channel.awaits_others

    def end_channel_state(self, channel: InputChannel) -> bool:
        """Note that a channel's channel state has been processed; return whether all channel state has been."""
        edge = channel.channel.edge
        waiting = self._recovering[edge]
        waiting.remove(channel.index)
        channel.awaits_others = True
        if waiting:
            return False
        del self._recovering[edge]
        for sibling in self.channels:
            if sibling.channel.edge == edge:
                sibling.awaits_others = False
                self._enqueue(sibling)
        return not self._recovering

    @property
    def is_recovering(self) -> bool:
        """Whether channel state of the restored checkpoint is still to be processed."""
        return bool(self._recovering)

    def poll(self) -> tuple[InputChannel, Element] | None:
        """Return the next element of any channel that is not held back."""
        ready = self._ready
        while ready:
            channel = ready[0]
            if channel.is_blocked or channel.awaits_others or not channel.queue:
                ready.popleft()
                channel.is_queued = False
                continue
            had_credit = type(channel.queue[0]) is not RecoveredBuffer
            element, buffer_done = channel.pop()
            if buffer_done:
                ready.popleft()
                channel.is_queued = False
                self._enqueue(channel)
                if had_credit:
                    self._return_credit(channel)
            return channel, element
        return None

    def count(self, channel: InputChannel, batch: Batch) -> None:
        """Count a batch that the task has taken from a channel."""
        size = self.bytes_in.add(batch)
        if channel.is_remote:
            self.remote_bytes += size

    def block(self, channel: InputChannel) -> None:
        """Hold a channel back."""
        channel.is_blocked = True

    def unblock_all(self) -> None:
        """Release every channel; the records waiting in them come next."""
        for channel in self.channels:
            if channel.is_blocked:
                channel.is_blocked = False
                self._enqueue(channel)

    def held_back_bytes(self) -> int:
        """Return about how many bytes of records wait in channels held back for alignment."""
        return sum(
            estimated_bytes(element)
            for channel in self.channels
            if channel.is_blocked
            for element in channel.waiting()
            if isinstance(element, Batch)
        )

    @property
    def is_finished(self) -> bool:
        """Whether every channel has ended."""
        return all(c.ended for c in self.channels)

    @property
    def has_data(self) -> bool:
        return bool(self._ready)

    def validate(self, credit_max: int) -> None:
        """Assert the invariants that hold between any two steps. Only the simulator calls this, never a running job."""
        for channel in self.channels:
            channel.validate(credit_max)
            assert channel.is_queued or self._is_held(channel) or not channel.queue, (
                f"{channel.channel}: what waits in a channel that is not held back comes to its turn"
            )
            edge, index = channel.channel.edge, channel.index
            is_through = edge in self._recovering and index not in self._recovering[edge]
            assert channel.awaits_others is is_through, (
                f"{channel.channel}: waits exactly until the channel state of its edge is through"
            )
        for channel, barrier in self.overtaking:
            assert not channel.has_passed(barrier.checkpoint_id), (
                f"{channel.channel}: nothing behind barrier {barrier.checkpoint_id} is polled ahead of it"
            )
        assert all(channel.is_queued for channel in self._ready), "a channel that comes to its turn knows it"
        assert len(self._ready) == sum(channel.is_queued for channel in self.channels), "a channel waits for one turn"

    @property
    def held_back(self) -> set[int]:
        """The indices of the channels that are held back."""
        return {channel.index for channel in self.channels if channel.is_blocked}
