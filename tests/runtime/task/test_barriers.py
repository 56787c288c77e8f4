"""Aligned barrier handling, as a table: what comes on which channel, and what is made of it."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.runtime.task.gate_rig import GateRig

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
    "aborted before any barrier": (2, "x1 0:b1 0:r1 1:b1 1:r2", "r1 | r2"),
    "aborted before any barrier, one channel": (1, "x1 0:r1 0:b1 0:r2 0:b2", "r1 | r2 | take 2"),
    "only the aborted one is ignored": (2, "x2 0:b1 1:b1 0:b2 0:r1 1:b2 0:b3 1:b3", "take 1 | r1 | take 3"),
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
    assert GateRig(channels).play(sent) == expected


@pytest.mark.parametrize("case", TABLE)
def test_unaligned_handling_of_aligned_barriers(case: str) -> None:
    """G5: barriers that ask for no overtaking (those of savepoints) are aligned on by the unaligned mode too."""
    channels, sent, expected = TABLE[case]
    assert GateRig(channels, "unaligned").play(sent) == expected


def test_alignment_time_is_reported() -> None:
    """G4: how long the alignment took."""
    task = GateRig(2)
    task.send(0, "b1")
    task.clock.advance(30)
    task.send(1, "b1")
    assert task.taken[1][1] == 30


def test_one_channel_needs_no_alignment() -> None:
    """G2: a single-input task takes the fast path: nothing is ever held back."""
    task = GateRig(1)
    task.send(0, "b1")
    assert task.taken[1][1:] == (0, 0)
    assert not task.gate.channels[0].is_blocked


def test_a_newer_barrier_behind_a_held_back_one() -> None:
    """G1, G2: the barrier of a later checkpoint waits behind the records that are held back."""
    task = GateRig(2)
    for step in ("b1", "r1", "b2", "r2"):
        task.send(0, step)
    assert task.log == []
    task.send(1, "b1")
    assert task.log == ["take 1", "r1"]
    task.send(1, "b2")
    assert task.log == ["take 1", "r1", "take 2", "r2"]


@settings(deadline=None, max_examples=200)
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
    task = GateRig(channels)
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
