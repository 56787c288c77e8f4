"""A gate with a barrier handler, polled as a stream task does, which writes down what happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.runtime.protocol import ChannelId
from penstock.runtime.records import (
    Batch,
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    Element,
    EndOfPartition,
    Watermark,
)
from penstock.runtime.task.barriers import (
    AlignedBarrierHandler,
    AtLeastOnceBarrierHandler,
    BarrierHandler,
    ForcedAlignedBarrierHandler,
    InFlight,
    UnalignedBarrierHandler,
)
from penstock.runtime.task.channels.input_gate import InputChannel, InputGate
from penstock.testing import VirtualClock

MODES: dict[str, Callable[..., BarrierHandler]] = {
    "aligned": AlignedBarrierHandler,
    "at least once": AtLeastOnceBarrierHandler,
    "unaligned": UnalignedBarrierHandler,
    "forced": ForcedAlignedBarrierHandler,
}


def element_of(text: str) -> Element:
    """`r…` a record, `w5` a watermark, `b1` a barrier, `o1` an overtaking one, `t1` one with a time-out of 10 ms,
    `f1` one that may not overtake on this edge, `c1` a cancel marker, `e` the end of the partition."""
    number = int(text[1:]) if text[1:].isdigit() else 0
    made: dict[str, Callable[[], Element]] = {
        "r": lambda: Batch([text]),
        "w": lambda: Watermark(number),
        "b": lambda: CheckpointBarrier(number, 0),
        "o": lambda: CheckpointBarrier(number, 0, is_unaligned=True),
        "t": lambda: CheckpointBarrier(number, 0, alignment_timeout_ms=10),
        "f": lambda: CheckpointBarrier(number, 0, is_unaligned=True).forced_aligned(),
        "c": lambda: CancelCheckpointMarker(number),
        "e": EndOfPartition,
    }
    return made[text[0]]()


def shown(element: Element) -> str:
    if isinstance(element, Batch):
        return "+".join(element.values)
    return f"w{element.timestamp}" if isinstance(element, Watermark) else type(element).__name__


class GateRig:
    """Implements the checkpoint target. `log` is what happens; `in_flight` what each completed checkpoint captured."""

    def __init__(self, channels: int, mode: str = "aligned", **options: Any) -> None:
        self.clock = VirtualClock()
        self.log: list[str] = []
        self.credits: list[int] = []
        self.taken: dict[int, tuple[CheckpointBarrier, int, int]] = {}
        self.in_flight: dict[int, dict[int, list[str]]] = {}
        self.incomplete: set[int] = set()
        self.gate = InputGate(
            [InputChannel(i, 0, ChannelId(0, i, 0, 0), "w") for i in range(channels)],
            lambda channel: self.credits.append(channel.index),
        )
        self.handler = MODES[mode](self.gate, self, **options)
        self.gate.listener = self.handler

    # --- the target ---

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def trigger_checkpoint(
        self,
        barrier: CheckpointBarrier,
        alignment_ms: int,
        held_back_bytes: int,
        is_complete: bool = True,
        processed_bytes: int = 0,
    ) -> None:
        assert barrier.checkpoint_id not in self.taken, "a part is taken once"
        self.log.append(f"take {barrier.checkpoint_id}")
        self.taken[barrier.checkpoint_id] = (barrier, alignment_ms, held_back_bytes)
        if is_complete:
            self.in_flight[barrier.checkpoint_id] = {}
        else:
            self.incomplete.add(barrier.checkpoint_id)

    def complete_checkpoint(self, checkpoint_id: int, in_flight: InFlight) -> None:
        assert checkpoint_id in self.incomplete
        self.incomplete.remove(checkpoint_id)
        kept = {producer: [shown(e) for e in elements] for (_, producer), elements in in_flight.items()}
        self.in_flight[checkpoint_id] = kept
        texts = [f"{producer}={'+'.join(elements)}" for producer, elements in sorted(kept.items())]
        self.log.append(" ".join([f"whole {checkpoint_id}", *texts]))

    def abort_checkpoint(self, checkpoint_id: int, reason: str) -> None:
        assert reason
        self.incomplete.discard(checkpoint_id)
        self.log.append(f"abort {checkpoint_id}")
        self.reason = reason

    # --- the task ---

    def put(self, channel: int, *texts: str) -> None:
        """A buffer arrives; nothing is polled yet. An overtaking barrier arrives by itself."""
        buffer: Buffer = [element_of(text) for text in texts]
        self.gate.on_buffer(self.gate.channels[channel].channel, buffer)

    def send(self, channel: int, *texts: str) -> None:
        """A buffer arrives, and the task takes all it can."""
        self.put(channel, *texts)
        self.drain()

    def drain(self) -> None:
        while self.step():
            pass

    def step(self) -> bool:
        """One step, in the order in which a task does things."""
        if self.gate.overtaking:
            channel, barrier = self.gate.overtaking.popleft()
            self.handler.on_overtaking_barrier(channel, barrier)
            return True
        deadline = self.handler.next_deadline()
        if deadline is not None and deadline <= self.clock.now_ms():
            self.handler.on_time(self.clock.now_ms())
            return True
        polled = self.gate.poll()
        if polled is None:
            return False
        channel, element = polled
        if isinstance(element, CheckpointBarrier):
            self.handler.on_barrier(channel, element)
        elif isinstance(element, CancelCheckpointMarker):
            self.handler.on_cancel_marker(channel, element)
        elif isinstance(element, EndOfPartition):
            channel.ended = True
            self.handler.on_channel_ended(channel)
        else:
            self.log.append(shown(element))
        return True

    def advance(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        self.drain()

    def play(self, script: str) -> str:
        """Steps of a script: `0:r1` arrives and is processed, `0.r1` only arrives, `+5` ms go by, `x1` is aborted by
        the coordinator, `p` processes all. `0:r1,b1` is one buffer of two elements."""
        for step in script.split():
            if step == "p":
                self.drain()
            elif step[0] == "+":
                self.advance(int(step[1:]))
            elif step[0] == "x":
                self.handler.on_aborted(int(step[1:]))
                self.drain()
            else:
                channel, how, texts = int(step[0]), step[1], step[2:].split(",")
                (self.send if how == ":" else self.put)(channel, *texts)
        return " | ".join(self.log)
