"""Aligned barrier handling, as a table: what comes on which channel, and what is made of it."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.core.protocol import ChannelId
from penstock.core.records import Batch, CancelCheckpointMarker, CheckpointBarrier, EndOfPartition
from penstock.core.task.barriers import AlignedBarrierHandler
from penstock.core.task.input_gate import InputChannel, InputGate
from penstock.testing import VirtualClock


class Task:
    """Polls a gate as a stream task does, and writes down what happens."""

    def __init__(self, channels: int) -> None:
        self.clock = VirtualClock()
        self.log: list[str] = []
        self.gate = InputGate(
            [InputChannel(i, 0, ChannelId(0, i, 0, 0), "w") for i in range(channels)], lambda channel: None
        )
        self.handler = AlignedBarrierHandler(self.gate, self)

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def trigger_checkpoint(self, barrier: CheckpointBarrier, alignment_ms: int) -> None:
        self.log.append(f"take {barrier.checkpoint_id}")
        self.alignment_ms = alignment_ms

    def abort_checkpoint(self, checkpoint_id: int, reason: str) -> None:
        assert reason
        self.log.append(f"abort {checkpoint_id}")

    def send(self, channel: int, text: str) -> None:
        element: Any = {
            "b": lambda: CheckpointBarrier(int(text[1:]), 0),
            "c": lambda: CancelCheckpointMarker(int(text[1:])),
            "e": EndOfPartition,
            "r": lambda: Batch([text]),
        }[text[0]]()
        self.gate.on_buffer(self.gate.channels[channel].channel, [element])
        self.drain()

    def drain(self) -> None:
        while (polled := self.gate.poll()) is not None:
            channel, element = polled
            if isinstance(element, CheckpointBarrier):
                self.handler.on_barrier(channel, element)
            elif isinstance(element, CancelCheckpointMarker):
                self.handler.on_cancel_marker(channel, element)
            elif isinstance(element, EndOfPartition):
                channel.ended = True
                self.handler.on_channel_ended(channel)
            else:
                assert isinstance(element, Batch)
                self.log.append(element.values[0])


# channels, what is sent as "channel:element", what happens
TABLE = {
    "one channel takes at once": (1, "0:r1 0:b1 0:r2 0:b2", "r1 | take 1 | r2 | take 2"),
    "one channel, late barrier": (1, "0:b2 0:b1 0:b2", "take 2"),
    "one channel, cancel before": (1, "0:c1 0:b1 0:b2", "abort 1 | take 2"),
    "one channel, cancel after": (1, "0:b1 0:c1", "take 1"),
    "two channels align": (2, "0:b1 1:r1 1:b1", "r1 | take 1"),
    "held back until aligned": (2, "0:b1 0:r1 0:r2 1:r3 1:b1 1:r4", "r3 | take 1 | r1 | r2 | r4"),
    "three channels align": (3, "2:b1 0:b1 0:r1 1:r2 1:b1", "r2 | take 1 | r1"),
    "two checkpoints in a row": (2, "0:b1 0:r1 0:b2 1:b1 1:r2 1:b2", "take 1 | r1 | r2 | take 2"),
    "a newer barrier aborts the older": (2, "0:b1 0:r1 1:b2 0:b2", "abort 1 | r1 | take 2"),
    "the older one's late barrier is ignored": (3, "0:b1 1:b2 2:b1 2:b2 0:b2", "abort 1 | take 2"),
    "a barrier of an aborted checkpoint": (3, "0:b1 1:c1 2:b1 2:r1 0:r2", "abort 1 | r1 | r2"),
    "a cancel marker behind its own barrier": (2, "0:b1 0:c1 1:b1 1:r1", "take 1 | r1"),
    "cancel marker first, barriers ignored": (2, "0:c1 0:r1 1:b1 1:r2", "abort 1 | r1 | r2"),
    "cancel marker on every channel aborts once": (2, "0:c1 1:c1", "abort 1"),
    "cancel marker on the aligned channel": (2, "0:b1 1:c1 0:r1 1:r2", "abort 1 | r1 | r2"),
    "cancel marker of a newer checkpoint": (2, "0:b1 1:c2 0:r1 0:b2 1:r2", "abort 1 | r1 | r2"),
    "cancel marker of an older checkpoint": (2, "0:b2 1:c1 1:b2", "take 2"),
    "cancelled, then the next one": (2, "0:b1 1:c1 0:b2 1:b2", "abort 1 | take 2"),
    "a closed channel counts as aligned": (2, "1:e 0:b1 0:r1", "take 1 | r1"),
    "closing completes an alignment": (2, "0:b1 0:r1 1:e", "take 1 | r1"),
    "closing one of three does not": (3, "0:b1 0:r1 1:e 2:r2 2:b1", "r2 | take 1 | r1"),
    "barrier, then closed, on one channel": (2, "0:b1 0:e 1:r1 1:b1", "r1 | take 1"),
    "closing without alignment": (2, "0:e 1:r1", "r1"),
    "ids may skip": (2, "0:b5 1:b5 0:b9 1:b9", "take 5 | take 9"),
    "repeated barrier on one channel": (2, "0:b1 1:r1 1:b1 0:b1 0:r2", "r1 | take 1 | r2"),
}


@pytest.mark.parametrize("case", TABLE)
def test_table(case: str) -> None:
    """G2, G3: alignment, aborting, late barriers, cancel markers and closed channels, case by case."""
    channels, sent, expected = TABLE[case]
    task = Task(channels)
    for step in sent.split():
        channel, element = step.split(":")
        task.send(int(channel), element)
    assert " | ".join(task.log) == expected


def test_alignment_time_is_reported() -> None:
    """G4: how long the alignment took."""
    task = Task(2)
    task.send(0, "b1")
    task.clock.advance(30)
    task.send(1, "b1")
    assert task.alignment_ms == 30


def test_one_channel_needs_no_alignment() -> None:
    """G2: a single-input task takes the fast path: nothing is ever held back."""
    task = Task(1)
    task.send(0, "b1")
    assert task.alignment_ms == 0
    assert not task.gate.channels[0].is_blocked


def test_a_newer_barrier_behind_a_held_back_one() -> None:
    """G1, G2: the barrier of a later checkpoint waits behind the records that are held back."""
    task = Task(2)
    for step in ("b1", "r1", "b2", "r2"):
        task.send(0, step)
    assert task.log == []
    task.send(1, "b1")
    assert task.log == ["take 1", "r1"]
    task.send(1, "b2")
    assert task.log == ["take 1", "r1", "take 2", "r2"]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(1, 4), st.data())
def test_every_cut_is_consistent(channels: int, data: st.DataObject) -> None:
    """G1, G2: in any interleaving each snapshot has, of every channel, exactly the records before the barrier."""
    streams: list[list[str]] = []
    for channel in range(channels):
        streams.append([])
        for checkpoint in (1, 2, 3):
            for number in range(data.draw(st.integers(0, 2))):
                streams[-1].append(f"r{channel}-{checkpoint}-{number}")
            streams[-1].append(f"b{checkpoint}")
        streams[-1].append("e")
    everything = {e for s in streams for e in s if e[0] == "r"}
    task = Task(channels)
    while any(streams):
        channel = data.draw(st.sampled_from([i for i, s in enumerate(streams) if s]))
        task.send(channel, streams[channel].pop(0))
    assert [e for e in task.log if e[0] == "t"] == ["take 1", "take 2", "take 3"]
    assert sorted(e for e in task.log if e[0] == "r") == sorted(everything)
    for checkpoint in (1, 2, 3):
        before = set(task.log[: task.log.index(f"take {checkpoint}")]) & everything
        assert before == {e for e in everything if int(e.split("-")[1]) <= checkpoint}
    for channel in range(channels):
        mine = [e for e in task.log if e.startswith(f"r{channel}-")]
        assert mine == sorted(mine)
