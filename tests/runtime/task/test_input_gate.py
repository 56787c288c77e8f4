"""The receiving and the sending end of channels: order, holding back, credit."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from penstock.runtime.protocol import ChannelId
from penstock.runtime.records import Batch, CheckpointBarrier, EndOfOutputChannelState, Watermark
from penstock.runtime.task.channels.input_gate import InputChannel, InputGate
from penstock.runtime.task.channels.result_partition import (
    ELEMENTS_PER_BUFFER_MAX,
    QUEUED_BUFFERS_MAX,
    BroadcastPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    HashPartitioner,
    RebalancePartitioner,
    ResultPartition,
    Subpartition,
    estimated_bytes,
)
from penstock.state.keys import assign_key_group, subtask_of_key_group


def channel_id(number: int) -> ChannelId:
    return ChannelId(0, number, 0, 0)


def make_gate(channels: int, awaited_edges: tuple[int, ...] = ()) -> tuple[InputGate, list[int]]:
    returned: list[int] = []
    gate = InputGate(
        [InputChannel(i, 0, channel_id(i), "w") for i in range(channels)],
        lambda c: returned.append(c.index),
        awaited_edges,
    )
    return gate, returned


def drain(gate: InputGate) -> list:
    elements = []
    while (polled := gate.poll()) is not None:
        elements.append((polled[0].index, polled[1]))
    return elements


def test_credit_returns_when_a_buffer_is_used_up() -> None:
    """B3: a credit goes back once per buffer, with its last element, also for an empty one."""
    gate, returned = make_gate(1)
    gate.on_buffer(channel_id(0), [Batch([1]), Watermark(1)])
    gate.poll()
    assert returned == []
    gate.poll()
    assert returned == [0]
    gate.on_buffer(channel_id(0), [])
    assert returned == [0, 0]
    assert gate.poll() is None
    assert not gate.has_data


def test_channels_take_turns() -> None:
    """B3: no channel starves: buffers of different channels come in turn."""
    gate, _ = make_gate(2)
    for number in range(3):
        gate.on_buffer(channel_id(0), [Batch([number])])
    gate.on_buffer(channel_id(1), [Batch(["x"])])
    assert [c for c, _ in drain(gate)] == [0, 1, 0, 0]


def test_what_was_in_flight_comes_before_all_that_is_new() -> None:
    """D4, G5: at another parallelism a key's new records may come from another producer than those in flight."""
    gate, _ = make_gate(2, awaited_edges=(0,))
    gate.on_buffer(channel_id(0), [EndOfOutputChannelState(), Batch(["new"])])
    gate.on_buffer(channel_id(1), [Batch(["old"])])
    assert gate.poll() == (gate.channels[0], EndOfOutputChannelState())
    assert gate.is_recovering
    assert not gate.end_channel_state(gate.channels[0])
    gate.validate(2)
    assert drain(gate) == [(1, Batch(["old"]))]
    gate.on_buffer(channel_id(1), [EndOfOutputChannelState(), Batch(["newer"])])
    assert gate.poll() == (gate.channels[1], EndOfOutputChannelState())
    assert gate.end_channel_state(gate.channels[1])
    gate.validate(2)
    assert not gate.is_recovering
    assert sorted(drain(gate), key=lambda one: one[0]) == [(0, Batch(["new"])), (1, Batch(["newer"]))]


def test_held_back_channel_goes_on_in_the_middle_of_a_buffer() -> None:
    """G2: what waited behind a barrier in its own buffer comes first after the release, in order."""
    gate, _ = make_gate(2)
    gate.on_buffer(channel_id(0), [Batch([1]), CheckpointBarrier(1, 0), Batch([2])])
    gate.on_buffer(channel_id(0), [Batch([3])])
    assert gate.poll() == (gate.channels[0], Batch([1]))
    channel, _ = gate.poll() or (gate.channels[1], None)
    gate.block(channel)
    gate.on_buffer(channel_id(0), [Batch([4])])
    gate.on_buffer(channel_id(1), [Batch(["x"])])
    assert drain(gate) == [(1, Batch(["x"]))]
    gate.unblock_all()
    gate.on_buffer(channel_id(0), [Batch([5])])
    assert drain(gate) == [(0, Batch([n])) for n in (2, 3, 4, 5)]


def test_held_back_bytes_are_counted() -> None:
    """G4: what alignment holds back is counted, without what was processed already and what is not held back."""
    gate, _ = make_gate(2)
    gate.on_buffer(channel_id(0), [Batch([1, 2, 3]), CheckpointBarrier(1, 0), Batch([4, 5])])
    gate.poll()
    gate.poll()
    gate.block(gate.channels[0])
    gate.on_buffer(channel_id(0), [Batch([6]), Watermark(5)])
    gate.on_buffer(channel_id(1), [Batch([7])])
    assert gate.held_back_bytes() == estimated_bytes(Batch([4, 5])) + estimated_bytes(Batch([6]))
    gate.unblock_all()
    assert gate.held_back_bytes() == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=12), st.data())
def test_order_within_a_channel_is_kept(buffers: list, data: st.DataObject) -> None:
    """B3, G2: whatever is held back and released when, each channel's elements come in order, each once."""
    gate, returned = make_gate(3)
    sent: list[list[int]] = [[], [], []]
    got: list[list[int]] = [[], [], []]

    def poll_some() -> None:
        for _ in range(data.draw(st.integers(0, 3))):
            polled = gate.poll()
            if polled is not None:
                assert not polled[0].is_blocked
                got[polled[0].index] += polled[1].values  # type: ignore[union-attr]

    for channel, elements in buffers:
        numbers = list(range(len(sent[channel]), len(sent[channel]) + elements))
        sent[channel] += numbers
        gate.on_buffer(channel_id(channel), [Batch([n]) for n in numbers])
        if data.draw(st.booleans()):
            gate.block(gate.channels[data.draw(st.integers(0, 2))])
        poll_some()
        if data.draw(st.booleans()):
            gate.unblock_all()
    gate.unblock_all()
    for channel, element in drain(gate):
        got[channel] += element.values
    assert got == sent
    assert len(returned) == len(buffers)


# --- sending --------------------------------------------------------------------------------------------------------


class Wire:
    def __init__(self) -> None:
        self.sent: list[list] = []

    def __call__(self, worker_id: str, channel: ChannelId, buffer: list) -> None:
        self.sent.append(buffer)


def make_subpartition(buffer_records: int = 4) -> tuple[Subpartition, Wire]:
    wire = Wire()
    return Subpartition(channel_id(0), "w", wire, buffer_records), wire


def test_buffers_are_sent_by_size() -> None:
    """B3: a buffer leaves when it is full; larger batches are cut; control elements keep their place."""
    subpartition, wire = make_subpartition()
    subpartition.grant(100)
    subpartition.add_batch(Batch([1, 2]))
    subpartition.add_event(Watermark(5))
    assert wire.sent == []
    subpartition.add_batch(Batch([3, 4]))
    assert wire.sent == [[Batch([1, 2]), Watermark(5), Batch([3, 4])]]
    subpartition.add_batch(Batch(list(range(10)), list(range(10))))
    assert wire.sent[1:] == [[Batch([0, 1, 2, 3], [0, 1, 2, 3])], [Batch([4, 5, 6, 7], [4, 5, 6, 7])]]
    subpartition.flush()
    assert wire.sent[3:] == [[Batch([8, 9], [8, 9])]]
    assert subpartition.is_empty


def test_a_flush_without_credit_leaves_the_buffer_open() -> None:
    """B3: what is flushed goes with the next credit, with all that has been added meanwhile; little blocks nobody."""
    subpartition, wire = make_subpartition()
    for number in range(3):
        subpartition.add_batch(Batch([number]))
        subpartition.flush()
        assert not subpartition.has_open_data, "asking for another flush would change nothing"
    assert not subpartition.is_blocked
    assert not subpartition.is_empty
    subpartition.grant(1)
    assert wire.sent == [[Batch([0, 1, 2])]]
    assert subpartition.is_empty
    subpartition.add_batch(Batch([3]))
    subpartition.grant(1)
    assert wire.sent == [[Batch([0, 1, 2])]], "this one was not flushed"


def test_what_came_behind_a_full_buffer_waits_for_its_own_flush() -> None:
    """B3: a flush that waits for credit is about what was there; the full buffer goes, what follows it stays open."""
    subpartition, wire = make_subpartition()
    subpartition.add_batch(Batch([1]))
    subpartition.flush()
    subpartition.add_batch(Batch([2, 3, 4]))
    subpartition.add_batch(Batch([5]))
    subpartition.grant(2)
    assert wire.sent == [[Batch([1, 2, 3, 4])]]
    assert subpartition.has_open_data


def test_neighbouring_batches_travel_as_one() -> None:
    """B3: batches side by side become one, unless only one of them has timestamps; the batches handed in stay as they
    were, for others may hold them too."""
    subpartition, wire = make_subpartition(100)
    subpartition.grant(1)
    shared = [Batch([1], [10]), Batch([2], [20]), Batch([3]), Batch([4]), Batch([5])]
    for batch in shared[:4]:
        subpartition.add_batch(batch)
    subpartition.add_event(Watermark(5))
    subpartition.add_batch(shared[4])
    subpartition.flush()
    assert wire.sent == [[Batch([1, 2], [10, 20]), Batch([3, 4]), Watermark(5), Batch([5])]]
    assert shared == [Batch([1], [10]), Batch([2], [20]), Batch([3]), Batch([4]), Batch([5])]


def test_control_elements_fill_a_buffer_too() -> None:
    """B3: what waits for credit is bounded even when nothing but control elements come."""
    subpartition, wire = make_subpartition()
    for number in range(QUEUED_BUFFERS_MAX * ELEMENTS_PER_BUFFER_MAX):
        assert not subpartition.is_blocked
        subpartition.add_event(Watermark(number))
    assert subpartition.is_blocked
    subpartition.grant(100)
    assert [e.timestamp for buffer in wire.sent for e in buffer] == list(
        range(QUEUED_BUFFERS_MAX * ELEMENTS_PER_BUFFER_MAX)
    )


def test_nothing_is_sent_without_credit() -> None:
    """B3: a buffer costs a credit; without any it waits, and the task stops when too much waits."""
    subpartition, wire = make_subpartition(1)
    partition = ResultPartition(ForwardPartitioner(), [subpartition])
    for number in range(QUEUED_BUFFERS_MAX):
        assert partition.is_available
        partition.collect(Batch([number]))
    assert not partition.is_available
    assert wire.sent == []
    subpartition.grant(1)
    assert wire.sent == [[Batch([0])]]
    assert partition.is_available
    assert not partition.is_empty
    subpartition.grant(5)
    assert [b[0].values for b in wire.sent] == [[0], [1]]
    assert partition.is_empty
    assert subpartition.credit == 4


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(0, 9), st.just("event"), st.just("flush"), st.just("credit")), max_size=30))
def test_order_and_credit_hold(steps: list) -> None:
    """G1: on a channel nothing is lost, repeated or overtaken, and no more buffers are sent than credited."""
    subpartition, wire = make_subpartition()
    added: list = []
    credit = 0
    for step in steps:
        if step == "event":
            added.append(Watermark(len(added)))
            subpartition.add_event(added[-1])
        elif step == "flush":
            subpartition.flush()
        elif step == "credit":
            credit += 1
            subpartition.grant(1)
        else:
            numbers = list(range(len(added), len(added) + step))
            added += numbers
            if numbers:
                subpartition.add_batch(Batch(numbers))
        assert len(wire.sent) <= credit
    subpartition.flush()
    subpartition.grant(100)
    received: list = []
    for buffer in wire.sent:
        assert buffer
        for element in buffer:
            received += element.values if isinstance(element, Batch) else [element]
    assert received == added
    assert subpartition.is_empty


# --- partitioners ---------------------------------------------------------------------------------------------------


def collect(partitioner: object, batches: list[Batch], channels: int) -> list[list]:
    partitioner.set_up(0, channels, 128)  # type: ignore[attr-defined]
    wires = [make_subpartition(1) for _ in range(channels)]
    for subpartition, _ in wires:
        subpartition.grant(10**6)
    partition = ResultPartition(partitioner, [s for s, _ in wires])  # type: ignore[arg-type]
    for batch in batches:
        partition.collect(batch)
    partition.flush()
    return [[e for buffer in wire.sent for b in buffer for e in b.values] for _, wire in wires]


BATCHES = st.lists(st.lists(st.integers(0, 50), max_size=6).map(lambda v: Batch(v, list(v))), max_size=6)


@settings(deadline=None)
@given(BATCHES, st.integers(1, 5))
def test_partitioners(batches: list[Batch], channels: int) -> None:
    """B3: broadcast, global, rebalance and hash send each record where they should, in order on each channel."""
    everything = [v for b in batches for v in b.values]
    assert collect(BroadcastPartitioner(), batches, channels) == [everything] * channels
    assert collect(GlobalPartitioner(), batches, channels) == [everything] + [[]] * (channels - 1)
    dealt = collect(RebalancePartitioner(), batches, channels)
    assert sorted(v for part in dealt for v in part) == sorted(everything)
    hashed = collect(HashPartitioner(lambda v: v), batches, channels)
    owner = [subtask_of_key_group(assign_key_group(v, 128), 128, channels) for v in everything]
    assert hashed == [[v for v, o in zip(everything, owner, strict=True) if o == c] for c in range(channels)]


def test_rebalance_is_even() -> None:
    """B3: rebalancing deals records out evenly, whatever the size of batches; producers begin with other channels."""
    for size in (1, 3, 4, 8):
        parts = collect(RebalancePartitioner(), [Batch(list(range(size))) for _ in range(24)], 4)
        assert len({len(p) for p in parts}) == 1
    partitioner = RebalancePartitioner()
    partitioner.set_up(2, 4, 128)
    assert [c for c, _ in partitioner.split(Batch([1, 2, 3]))] == [2, 3, 0]


def test_timestamps_travel_with_their_records() -> None:
    """B3: splitting a batch keeps each record's timestamp."""
    partitioner = HashPartitioner(lambda v: v)
    partitioner.set_up(0, 3, 128)
    for _, part in partitioner.split(Batch(list(range(20)), [10 * n for n in range(20)])):
        assert part.timestamps == [10 * n for n in part.values]
