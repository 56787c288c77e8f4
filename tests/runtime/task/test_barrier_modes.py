"""Barrier handling in the other modes: at least once, unaligned, aligned with a time-out; the bound on held data."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.runtime.task.gate_rig import GateRig, element_of

from penstock.runtime.records import Batch
from penstock.runtime.task.barriers import COUNTED_MAX
from penstock.runtime.task.channels.result_partition import estimated_bytes

AT_LEAST_ONCE = {
    "one channel": (1, "0:r1 0:b1 0:r2", "r1 | take 1 | r2"),
    "nothing is held back": (2, "0:b1 0:r1 1:r2 1:b1 1:r3", "r1 | r2 | take 1 | r3"),
    "several at once": (2, "0:b1 0:b2 0:r1 1:b1 1:r2 1:b2", "r1 | take 1 | r2 | take 2"),
    "the newer one is whole first": (2, "0:b1 0:b2 1:b2", "abort 1 | take 2"),
    "late barrier of a subsumed one": (2, "0:b1 0:b2 1:b2 1:b1 1:r1", "abort 1 | take 2 | r1"),
    "repeated barrier": (2, "0:b1 0:b1 1:b1 1:b1", "take 1"),
    "cancel marker ends the count": (2, "0:b1 1:c1 1:b1 1:r1", "abort 1 | r1"),
    "cancel marker before any barrier": (2, "0:c1 1:b1 1:r1 1:b2 0:b2", "abort 1 | r1 | take 2"),
    "cancel markers abort once": (2, "0:b1 0:c1 1:c1", "abort 1"),
    "cancel marker of one of several": (2, "0:b1 0:b2 1:c1 1:b2", "abort 1 | take 2"),
    "cancel marker of one that was taken": (1, "0:b1 0:c1", "take 1"),
    "a closed channel counts": (2, "1:e 0:b1 0:r1", "take 1 | r1"),
    "closing completes all": (2, "0:b1 0:b2 1:e", "take 1 | take 2"),
    "closing one of three does not": (3, "0:b1 0:r1 1:e 2:r2 2:b1", "r1 | r2 | take 1"),
    "aborted by the coordinator": (2, "0:b1 x1 1:b1 1:r1 0:b2 1:b2", "r1 | take 2"),
}


@pytest.mark.parametrize("case", AT_LEAST_ONCE)
def test_at_least_once(case: str) -> None:
    """G5: barriers are counted, of several checkpoints at once, and nothing is ever held back."""
    channels, script, expected = AT_LEAST_ONCE[case]
    rig = GateRig(channels, "at least once")
    assert rig.play(script) == expected
    assert not any(c.is_blocked for c in rig.gate.channels)


def test_at_least_once_counts_a_bounded_number() -> None:
    """G5: checkpoints that never become whole do not pile up: the oldest is given up."""
    rig = GateRig(2, "at least once")
    for checkpoint_id in range(1, COUNTED_MAX + 3):
        rig.send(0, f"b{checkpoint_id}")
    assert rig.log == ["abort 1", "abort 2"]
    rig.send(1, f"b{COUNTED_MAX + 2}")
    assert rig.log[-1] == f"take {COUNTED_MAX + 2}"


def test_at_least_once_reports_how_long_it_counted() -> None:
    """G4, G5: the time from the first barrier to the last is the alignment duration, also without holding back."""
    rig = GateRig(2, "at least once")
    rig.play("0:b1 +30 1:b1")
    assert rig.taken[1][1:] == (30, 0)


#: `o1` overtakes, `t1` is aligned on for 10 ms at most; `.` only arrives, `:` is processed too
UNALIGNED = {
    "what waits is captured": (1, "0.r1,r2 0.o1 p", "take 1 | whole 1 0=r1+r2 | r1 | r2"),
    "what was processed is not": (1, "0:r1 0.r2 0.o1 p", "r1 | take 1 | whole 1 0=r2 | r2"),
    "nothing in flight": (1, "0:r1 0:o1 0:r2", "r1 | take 1 | whole 1 | r2"),
    "until the other barrier": (
        2,
        "0:o1 1:r1 1.r2 1.o1 p 1:r3",
        "take 1 | r1 | whole 1 1=r1+r2 | r2 | r3",
    ),
    "nothing behind the barrier": (
        2,
        "0.r1 0.o1 0.r2 1.r3 p 1:r4 1:o1 0:r5",
        "take 1 | r1 | r3 | r2 | r4 | whole 1 0=r1 1=r3+r4 | r5",
    ),
    "both barriers before the task looks": (
        2,
        "0.r1 1.r2 1.o1 0.o1 1.r3 p",
        "take 1 | whole 1 0=r1 1=r2 | r1 | r2 | r3",
    ),
    "two checkpoints before the task looks": (1, "0.o1 0.o2 0.r1 p", "take 1 | whole 1 | take 2 | whole 2 | r1"),
    "watermarks are captured": (1, "0.r1,w5,r2 0.o1 p", "take 1 | whole 1 0=r1+w5+r2 | r1 | w5 | r2"),
    "an ended channel": (2, "1:e 0.r1 0.o1 p", "take 1 | whole 1 0=r1 | r1"),
    "the end waits in the queue": (2, "1.r1,e 0.o1 p", "take 1 | whole 1 1=r1 | r1"),
    "the end arrives while capturing": (2, "0:o1 1.r1 1.e p", "take 1 | whole 1 1=r1 | r1"),
    "the end arrives behind records": (2, "0:o1 1:r1,e", "take 1 | whole 1 1=r1 | r1"),
    "all channels ended but one": (3, "0:e 1:e 2.r1 2.o1 p", "take 1 | whole 1 2=r1 | r1"),
    "gives up aligning": (
        2,
        "0:t1 0:r1 1:r2 1.r3 +10 1:r4 1:t1 1:r5",
        "r2 | take 1 | r3 | r1 | r4 | whole 1 1=r3+r4 | r5",
    ),
    "the barrier in band waits in the queue": (2, "0:t1 1.r1,t1,r2 +10", "take 1 | whole 1 1=r1 | r1 | r2"),
    "the barrier in band within a buffer": (2, "0:t1 +10 1:r1,t1,r2", "take 1 | whole 1 1=r1 | r1 | r2"),
    "aligned in time": (2, "0:t1 0:r1 1:r2 1:t1 +20", "r2 | take 1 | r1"),
    "just not yet": (2, "0:t1 0:r1 +9 1:t1", "take 1 | r1"),
    "an upstream task gave up": (2, "0:t1 0:r1 1.r2 1.o1 p 1:r3", "take 1 | whole 1 1=r2 | r2 | r1 | r3"),
    "in band after overtaking began": (2, "0:o1 1:r1 1:t1 1:r2 +20", "take 1 | r1 | whole 1 1=r1 | r2"),
    "three channels, three ways": (
        3,
        "0:t1 1.r1 +10 2:r2 1:o1 2:r3,t1 0:r4",
        "take 1 | r1 | r2 | whole 1 1=r1 2=r2+r3 | r3 | r4",
    ),
    "aborted while capturing": (
        2,
        "0:o1 1:r1 x1 1:o1 1:r2 0:o2 1:o2",
        "take 1 | r1 | r2 | take 2 | whole 2",
    ),
    "aborted while aligning": (2, "0:t1 0:r1 x1 1:t1 +20 1:r2", "r1 | r2"),
    "aborted before any barrier": (2, "x1 0:o1 0:r1 1:o1 1:r2", "r1 | r2"),
    "aborted before any barrier that would be aligned on": (2, "x1 0:t1 0:r1 +20 1:t1 1:r2", "r1 | r2"),
    "aborted while its barrier waits behind records": (2, "1.r1,t1 x1 +20 p", "r1"),
    "another one is aborted": (2, "0:o2 x1 1:o2", "take 2 | whole 2"),
    "a newer one while capturing": (
        2,
        "0:o1 1:r1 0:o2 1.r2 1.o2 p",
        "take 1 | r1 | abort 1 | take 2 | whole 2 1=r2 | r2",
    ),
    "a newer aligned one while capturing": (2, "0:o1 1:r1 0:b2 1:o1 1:b2", "take 1 | r1 | abort 1 | take 2"),
    "a newer one while aligning": (2, "0:t1 0:r1 1:o2 0:o2", "abort 1 | take 2 | r1 | whole 2 0=r1"),
    "an older one late": (2, "0:o2 1:o2 0:o1 1:b1 1:r1", "take 2 | whole 2 | r1"),
    "cancel marker while capturing": (2, "0:o1 1:c1 1:r1", "take 1 | abort 1 | r1"),
    "cancel marker before": (2, "1:c1 0:o1 0:r1", "abort 1 | r1"),
    "cancel marker while aligning": (2, "0:t1 0:r1 1:c1 1:t1 +20 1:r2", "abort 1 | r1 | r2"),
}


@pytest.mark.parametrize("case", UNALIGNED)
def test_unaligned(case: str) -> None:
    """G5: what is captured in flight, in every way that a channel's part can end."""
    channels, script, expected = UNALIGNED[case]
    rig = GateRig(channels, "unaligned")
    assert rig.play(script) == expected
    assert not any(c.is_blocked for c in rig.gate.channels)
    assert rig.handler.next_deadline() is None


def test_the_barrier_overtakes_from_here_on() -> None:
    """G5: a task that gave up aligning passes the barrier on as an overtaking one."""
    rig = GateRig(2, "unaligned")
    rig.play("0:t1 0:r1 +10")
    barrier, alignment_ms, held_back = rig.taken[1]
    assert (barrier.is_unaligned, barrier.alignment_timeout_ms) == (True, None)
    assert (alignment_ms, held_back) == (10, estimated_bytes(Batch(["r1"])))


def test_a_barrier_with_a_time_out_does_not_wait_behind_records_for_ever() -> None:
    """G5: a barrier that has arrived and waits behind records, even in a single channel, overtakes them in time."""
    rig = GateRig(1, "unaligned")
    rig.put(0, "r1")
    rig.put(0, "t1")
    rig.clock.advance(1_000)
    rig.step()
    assert rig.log == ["take 1", "whole 1 0=r1"]
    rig.drain()
    assert rig.log == ["take 1", "whole 1 0=r1", "r1"]


def test_an_aligned_one_stays_aligned() -> None:
    """G5: a barrier with a time-out that was aligned on in time goes on with that time-out."""
    rig = GateRig(2, "unaligned")
    rig.play("0:t1 1:t1")
    assert rig.taken[1][0] == element_of("t1")


@pytest.mark.parametrize("mode", ["aligned", "at least once", "forced"])
def test_overtaking_barriers_belong_to_one_mode(mode: str) -> None:
    """G5: what cannot happen in a mode is an error there, not a wrong checkpoint."""
    with pytest.raises(AssertionError, match="overtook"):
        GateRig(1, mode).send(0, "o1")


# --- the bound on what is held back ---------------------------------------------------------------------------------

ONE_BATCH = estimated_bytes(Batch(["r1"]))


@pytest.mark.parametrize("mode", ["aligned", "unaligned", "forced"])
def test_too_much_held_back(mode: str) -> None:
    """G4: an alignment that holds back more than allowed is declined, and everything is released, in order."""
    rig = GateRig(2, mode, held_back_bytes_max=2 * ONE_BATCH)
    assert rig.play("0:b1 0:r1 0:r2") == ""
    assert rig.play("0:r3") == "abort 1 | r1 | r2 | r3"
    assert f"{3 * ONE_BATCH} bytes" in rig.reason
    assert f"the limit is {2 * ONE_BATCH}" in rig.reason
    assert rig.play("1:b1 1:r4 0:b2 1:b2") == "abort 1 | r1 | r2 | r3 | r4 | take 2"


def test_data_of_channels_that_are_not_held_back_does_not_count() -> None:
    """G4: only what alignment keeps from being processed counts, however much waits elsewhere."""
    rig = GateRig(2, "aligned", held_back_bytes_max=ONE_BATCH)
    rig.play("0:b1 0:r1")
    for _ in range(5):
        rig.put(1, "r2")
    assert rig.play("p 1:b1") == "r2 | r2 | r2 | r2 | r2 | take 1 | r1"
    assert rig.taken[1][2] == ONE_BATCH


# --- for any interleaving -------------------------------------------------------------------------------------------

BARRIERS = {"aligned": "b", "unaligned": "o", "unaligned with time-out": "ot", "forced alignment": "bft"}


@pytest.mark.parametrize("mode", BARRIERS)
@settings(deadline=None, max_examples=300)
@given(st.integers(1, 4), st.data())
def test_every_cut_is_consistent(mode: str, channels: int, data: st.DataObject) -> None:
    """G1, G2, G5: in any interleaving of arrivals, processing and time, what was processed before the snapshot and
    what was captured in flight are together just the records before the barrier, of each channel and in order."""
    streams: list[list[str]] = []
    before: list[dict[int, list[str]]] = []
    for channel in range(channels):
        stream: list[str] = []
        before.append({})
        checkpoints = data.draw(st.integers(0, 3))
        for checkpoint in (1, 2, 3):
            if checkpoint <= checkpoints + 1:
                stream += [f"r{channel}-{checkpoint}-{n}" for n in range(data.draw(st.integers(0, 2)))]
            before[-1][checkpoint] = [e for e in stream if e[0] == "r"]
            if checkpoint <= checkpoints:
                stream.append(data.draw(st.sampled_from(BARRIERS[mode])) + str(checkpoint))
        streams.append([*stream, "e"])
    sent = max((int(e[1:]) for stream in streams for e in stream if e[0] in "botf"), default=0)
    records = [[e for e in stream if e[0] == "r"] for stream in streams]
    rig = GateRig(channels, mode.split()[0])
    for action in data.draw(st.lists(st.integers(0, channels + 2), max_size=40)):
        if action < channels:
            if streams[action]:
                rig.put(action, streams[action].pop(0))
        elif action == channels:
            rig.clock.advance(4)
        else:
            rig.step()
    for channel in range(channels):
        for element in streams[channel]:
            rig.put(channel, element)
    rig.drain()

    for channel in range(channels):
        assert [e for e in rig.log if e.startswith(f"r{channel}-")] == records[channel]
    assert not rig.incomplete
    for checkpoint in range(1, sent + 1):
        if checkpoint not in rig.in_flight:
            assert checkpoint < sent, "the last one has nothing that could end it"
            assert f"abort {checkpoint}" in rig.log or f"take {checkpoint}" not in rig.log
            continue
        processed = rig.log[: rig.log.index(f"take {checkpoint}")]
        for channel in range(channels):
            mine = [e for e in processed if e.startswith(f"r{channel}-")]
            assert mine + rig.in_flight[checkpoint].get(channel, []) == before[channel][checkpoint]
