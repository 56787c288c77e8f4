"""The receiving end of all edges into a task.

Each channel has its own queue, bounded by the credit that its producer was given. A channel that is held back for
alignment simply is not polled; its records wait in its own queue and come next when it is released, so held-back data
is always consumed before newer data of the same channel (G2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.core.protocol import ChannelId
from penstock.core.records import Batch, Buffer, Element


class InputChannel:
    """One channel into a task."""

    __slots__ = (
        "_position",
        "channel",
        "end_of_data",
        "ended",
        "index",
        "input_index",
        "is_blocked",
        "is_queued",
        "queue",
        "worker_id",
    )

    def __init__(self, index: int, input_index: int, channel: ChannelId, worker_id: str) -> None:
        self.index = index
        self.input_index = input_index
        self.channel = channel
        self.worker_id = worker_id
        self.queue: deque[Buffer] = deque()
        self.is_blocked = False
        self.is_queued = False
        self.end_of_data = False
        self.ended = False
        self._position = 0

    def pop(self) -> tuple[Element, bool]:
        """The next element, and whether it was the last of its buffer."""
        buffer = self.queue[0]
        element = buffer[self._position]
        self._position += 1
        if self._position < len(buffer):
            return element, False
        self.queue.popleft()
        self._position = 0
        return element, True


class InputGate:
    """All channels into a task, polled in turn, a buffer at a time."""

    def __init__(self, channels: list[InputChannel], return_credit: Callable[[InputChannel], None]) -> None:
        self.channels = channels
        self._by_id = {c.channel: c for c in channels}
        self._ready: deque[InputChannel] = deque()
        self._return_credit = return_credit

    def on_buffer(self, channel: ChannelId, buffer: Buffer) -> None:
        """A buffer has arrived."""
        target = self._by_id[channel]
        if not buffer:
            self._return_credit(target)
            return
        target.queue.append(buffer)
        self._enqueue(target)

    def _enqueue(self, channel: InputChannel) -> None:
        if not channel.is_queued and not channel.is_blocked and channel.queue:
            channel.is_queued = True
            self._ready.append(channel)

    def poll(self) -> tuple[InputChannel, Element] | None:
        """The next element of any channel that is not held back."""
        ready = self._ready
        while ready:
            channel = ready[0]
            if channel.is_blocked or not channel.queue:
                ready.popleft()
                channel.is_queued = False
                continue
            element, buffer_done = channel.pop()
            if buffer_done:
                ready.popleft()
                channel.is_queued = False
                self._enqueue(channel)
                self._return_credit(channel)
            return channel, element
        return None

    def block(self, channel: InputChannel) -> None:
        """Hold a channel back."""
        channel.is_blocked = True

    def unblock_all(self) -> None:
        """Release every channel; what waited in them comes next."""
        for channel in self.channels:
            if channel.is_blocked:
                channel.is_blocked = False
                self._enqueue(channel)

    def held_back_records(self) -> int:
        """Records that wait in channels held back for alignment."""
        return sum(
            len(element)
            for channel in self.channels
            if channel.is_blocked
            for buffer in channel.queue
            for element in buffer
            if type(element) is Batch
        )

    @property
    def is_finished(self) -> bool:
        """Whether every channel has ended."""
        return all(c.ended for c in self.channels)

    @property
    def has_data(self) -> bool:
        return bool(self._ready)
