"""Streams: nothing is delivered after a loss, and a peer that breaks the protocol gets a ProtocolError."""

import pickle
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ProtocolError
from penstock.runtime.columns import make_batch
from penstock.runtime.records import Batch, Buffer, Element, Event, Watermark
from penstock.wire.buffers import (
    ELEMENTS_MAX,
    FRAME_BYTES_MIN,
    FRAMES_MAX,
    VERSION,
    BufferCodec,
    Frame,
    RecordSerializationError,
)
from penstock.wire.streams import BufferArrived, CreditArrived, StreamBroken, StreamReceiver, StreamSender

VERSION_BYTE = VERSION.to_bytes(1, "big")
RECORD_BYTES_MAX = 1_000_000
CHANNEL = (1, 2, 3, 4)
OTHER = (1, 2, 3, 5)


def new_codec() -> BufferCodec[Element]:
    return BufferCodec(Event, Batch, make_batch, FRAME_BYTES_MIN, RECORD_BYTES_MAX)


def opened(stream: int = 1) -> tuple[StreamSender, StreamReceiver[Element]]:
    sender, receiver = StreamSender(stream, "a", "b"), StreamReceiver("b", new_codec())
    assert receiver.receive([sender.hello()]) is None
    return sender, receiver


def messages(sender: StreamSender, buffer: Buffer) -> list[list[Frame]]:
    codec = new_codec()
    sent: list[list[Frame]] = []
    for part in codec.encode(buffer):
        if part.is_large:
            sent += sender.messages(CHANNEL, part, codec.chunk_bytes)
        else:
            sent.append(sender.buffer(CHANNEL, part))
    return sent


def credit(sender: StreamSender, channel: Any, credit: int) -> bytes:
    sender.grant(channel, credit)
    frame = sender.credit()
    assert frame is not None
    return frame


def raw(*header: Any) -> bytes:
    return VERSION_BYTE + msgspec.msgpack.encode(header)


def outline(*entries: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(entries))


def test_buffers_and_credits_arrive_in_order() -> None:
    """Buffers, split ones too, and credits come out as they were put in."""
    sender, receiver = opened()
    large: Buffer = [Batch(list(range(5_000))), Watermark(1)]
    arrivals = [
        *map(receiver.receive, messages(sender, [Watermark(0)])),
        receiver.receive([credit(sender, OTHER, 3)]),
        *map(receiver.receive, messages(sender, large)),
    ]
    assert len(arrivals) > 4
    assert [arrival for arrival in arrivals if arrival] == [
        BufferArrived(CHANNEL, [Watermark(0)]),
        CreditArrived(((OTHER, 3),)),
        BufferArrived(CHANNEL, large),
    ]


def test_credit_goes_with_the_next_buffer() -> None:
    """Of all channels at once, added up, with the last part of a buffer; and what went along is not sent again."""
    sender, receiver = opened()
    for channel, of_channel in ((CHANNEL, 1), (OTHER, 2), (CHANNEL, 3)):
        sender.grant(channel, of_channel)
    large: Buffer = [Batch(list(range(5_000)))]
    *parts, last = map(receiver.receive, messages(sender, large))
    assert len(parts) > 1
    assert set(parts) == {None}
    assert last == BufferArrived(CHANNEL, large, ((CHANNEL, 4), (OTHER, 2)))
    assert sender.credit() is None
    assert receiver.receive(messages(sender, [Watermark(1)])[0]) == BufferArrived(CHANNEL, [Watermark(1)])


@pytest.mark.parametrize("lost", range(4))
def test_nothing_passes_after_a_loss(lost: int) -> None:
    """Whichever message is lost, the receiver is told once, and no later message is delivered."""
    sender, receiver = opened()
    sent = [messages(sender, [Watermark(i)])[0] for i in range(6)]
    arrivals = [receiver.receive(frames) for i, frames in enumerate(sent) if i != lost]
    assert arrivals[:lost] == [BufferArrived(CHANNEL, [Watermark(i)]) for i in range(lost)]
    assert arrivals[lost] == StreamBroken("a", f"message {lost + 1} arrived where {lost} was expected")
    assert set(arrivals[lost + 1 :]) == {None}


def test_part_of_a_buffer_lost() -> None:
    """When a part of a split buffer is lost, nothing of that buffer is delivered."""
    sender, receiver = opened()
    parts = messages(sender, [Batch(list(range(5_000)))])
    arrivals = [receiver.receive(frames) for frames in parts[:1] + parts[2:]]
    assert [type(arrival) for arrival in arrivals if arrival] == [StreamBroken]


def test_message_seen_twice() -> None:
    """A message that comes a second time breaks the stream rather than being delivered twice."""
    sender, receiver = opened()
    (frames,) = messages(sender, [Watermark(1)])
    assert isinstance(receiver.receive(frames), BufferArrived)
    assert isinstance(receiver.receive(frames), StreamBroken)


def test_streams_are_independent() -> None:
    """A broken stream does not touch the one that its sender opens next."""
    sender, receiver = opened()
    messages(sender, [Watermark(1)])  # lost
    assert isinstance(receiver.receive([credit(sender, CHANNEL, 1)]), StreamBroken)
    again = StreamSender(2, "a", "b")
    receiver.receive([again.hello()])
    assert receiver.receive([credit(again, CHANNEL, 1)]) == CreditArrived(((CHANNEL, 1),))


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ([], "0 frames"),
        ([b""], "an empty frame"),
        ([b"\x07\x90"], "protocol version 7"),
        ([b"x"] * (FRAMES_MAX + 1), f"{FRAMES_MAX + 1} frames"),
        ([raw(0, 9, "a", "c")], "a stream for worker 'c'"),
        ([raw(0, 1, "a", "b")], "opened twice"),
        ([raw(0, -1, "a", "b")], "does not decode"),
        ([raw(0, 9, "a" * 10_000, "b")], "does not decode"),
        ([raw(2, 77, 0, ((CHANNEL, 1),))], "never opened"),
        ([raw(2, 1, 0, ((CHANNEL, 0),))], "does not decode"),
        ([raw(2, 1, 0, (((1, 2, 3), 1),))], "does not decode"),
        ([raw(2, 1, 0, ((CHANNEL, 1),)), b"payload"], "credit came with a payload"),
        ([raw(4, 1, 0)], "does not decode"),
        ([VERSION_BYTE + b"\xdd\xff\xff\xff\xff\x01"], "does not decode"),
        ([VERSION_BYTE + b"\x96\x01\x01\x00\x94\x01\x02\x03\x04\xc2" + b"\x91" * 50_000 + b"\x01"], "recursion"),
    ],
)
def test_message_that_breaks_the_protocol(frames: list[Frame], said: str) -> None:
    """What belongs to no stream, or has wrong counts, types, lengths or nesting, raises a ProtocolError."""
    _, receiver = opened()
    with pytest.raises(ProtocolError, match=said):
        receiver.receive(frames)


@pytest.mark.parametrize(
    ("entries", "payload", "said"),
    [
        ([2], [], "without its payload"),
        ([2], [pickle.dumps([([1], None)])], "not a batch of 2 records"),
        ([2], [pickle.dumps([([1, 2], b"short")])], "not a batch of 2 records"),
        ([2], [pickle.dumps([((1, 2), None)])], "not a batch of 2 records"),
        ([2], [pickle.dumps("batches")], "not its 1 batches"),
        ([2], [pickle.dumps([])], "not its 1 batches"),
        ([1, 1], [pickle.dumps([([1], None)])], "not its 2 batches"),
        ([-2], [pickle.dumps([([1, 2], None)])], "did not begin"),
        ([["watermark", 1], -2], [pickle.dumps([([1, 2], None)])], "inside a message"),
        ([["no-such-event", 1]], [], "does not decode"),
        ([0] * (ELEMENTS_MAX + 1), [], "does not decode"),
    ],
)
def test_part_that_breaks_the_protocol(entries: list[Any], payload: list[Frame], said: str) -> None:
    """A payload that is not what its outline promised breaks the stream, and its receiver is told why."""
    _, receiver = opened()
    arrival = receiver.receive([raw(1, 1, 0, CHANNEL, False, outline(*entries)), *payload])
    assert isinstance(arrival, StreamBroken)
    assert said in arrival.reason


def test_buffer_inside_a_buffer() -> None:
    """A buffer of another channel amid the parts of one breaks the stream."""
    _, receiver = opened()
    assert receiver.receive([raw(1, 1, 0, CHANNEL, True, outline(("watermark", 1)))]) is None
    arrival = receiver.receive([raw(1, 1, 1, OTHER, False, outline(("watermark", 1)))])
    assert arrival == StreamBroken("a", "a buffer began before the previous one was complete")


def test_records_that_cannot_be_unpickled() -> None:
    """Bytes that do not unpickle raise an error that says so, and the stream delivers nothing more."""
    sender, receiver = opened()
    with pytest.raises(RecordSerializationError, match="cannot be unpickled here: ModuleNotFoundError"):
        receiver.receive([raw(1, 1, 0, CHANNEL, False, outline(1)), b"cno_such_module\nthing\n."])
    credit(sender, CHANNEL, 1)  # lost
    assert receiver.receive([credit(sender, CHANNEL, 1)]) is None


def test_nothing_is_unpickled_before_its_place_is_known(tmp_path: Path) -> None:
    """A pickle of no stream, out of turn, or beyond the promised batches is dropped without being opened."""
    canary = tmp_path / "canary"
    forged = pickle.dumps([CanaryPickle(canary)])
    _, receiver = opened()
    with pytest.raises(ProtocolError):
        receiver.receive([raw(1, 99, 0, CHANNEL, False, outline(1)), forged])
    assert isinstance(receiver.receive([raw(1, 1, 5, CHANNEL, False, outline(1)), forged]), StreamBroken)
    assert not canary.exists()


class CanaryPickle:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@given(st.lists(st.binary(max_size=60), max_size=4), st.booleans())
def test_random_frames(frames: list[bytes], versioned: bool) -> None:
    """Random frames are refused by a ProtocolError; nothing else happens."""
    _, receiver = opened()
    if versioned and frames:
        frames[0] = VERSION_BYTE + frames[0]
    with pytest.raises(ProtocolError):
        receiver.receive(list(frames))


@given(st.data())
def test_mutated_headers(data: st.DataObject) -> None:
    """A header with any bytes changed, cut or added leads to a delivery, a broken stream or a ProtocolError only."""
    sender, receiver = opened()
    header = bytearray(bytes(messages(sender, [Watermark(1), Watermark(2)])[0][0]))
    for _ in range(data.draw(st.integers(1, 5))):
        position = data.draw(st.integers(0, len(header)))
        cut = data.draw(st.integers(0, 3))
        header[position : position + cut] = data.draw(st.binary(max_size=4))
    try:
        receiver.receive([bytes(header)])
    except ProtocolError:
        return


# --- records larger than a message ----------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [["x" * 50_000], ["a", "x" * 50_000, "b", "y" * 9_000], [np.arange(20_000)]])
def test_a_record_larger_than_a_message_comes_in_chunks(values: list[Any]) -> None:
    """In order with what is around it; credit goes along with the last message; no message is longer than it may be."""
    sender, receiver = opened()
    sender.grant(OTHER, 1)
    sent = messages(sender, [Watermark(1), Batch(values), Watermark(2)])
    assert max(sum(memoryview(frame).nbytes for frame in frames) for frames in sent) <= FRAME_BYTES_MIN
    *parts, arrived = map(receiver.receive, sent)
    assert len(parts) > 4
    assert set(parts) == {None}
    assert isinstance(arrived, BufferArrived)
    assert arrived.credits == ((OTHER, 1),)
    first, batch, last = arrived.buffer
    assert (first, last) == (Watermark(1), Watermark(2))
    assert all(np.array_equal(came, gone) for came, gone in zip(batch.values, values, strict=True))
    assert receiver.receive(messages(sender, [Watermark(3)])[0]) == BufferArrived(CHANNEL, [Watermark(3)])


def test_a_chunk_lost() -> None:
    """Nothing of the record is delivered."""
    sender, receiver = opened()
    sent = messages(sender, [Batch(["x" * 20_000])])
    arrivals = [receiver.receive(frames) for frames in sent[:2] + sent[3:]]
    assert [type(arrival) for arrival in arrivals if arrival] == [StreamBroken]


def chunk(sequence: int, data: bytes, *sizes: int) -> list[Frame]:
    return [raw(3, 1, sequence, sizes), data]


NO_PAYLOAD = [raw(1, 1, 1, CHANNEL, False, outline(1))]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ([chunk(0, b"x", RECORD_BYTES_MAX + 1)], "1000001 bytes is coming, at most 1000000"),
        ([chunk(0, b"x", *[9_000] * 200)], "1800000 bytes is coming"),
        ([chunk(0, b"x")], "without the previous one"),
        ([chunk(0, b"x", 9), chunk(1, b"x", 9)], "between another's chunks"),
        ([chunk(0, b"", 9)], "is empty"),
        ([chunk(0, b"x", 9), chunk(1, b"")], "is empty"),
        ([chunk(0, b"x" * 10, 9)], "more than its frame has left"),
        ([chunk(0, b"x" * 10, 9, 9)], "more than its frame has left"),
        ([chunk(0, b"x", 1), chunk(1, b"x")], "after the last one"),
        ([[raw(3, 1, 0, (9,))]], "0 frames instead of one"),
        ([[*chunk(0, b"x", 9), b"y"]], "2 frames instead of one"),
        ([chunk(0, b"x", 9), NO_PAYLOAD], "between the chunks"),
        ([chunk(0, b"x", 1), [*NO_PAYLOAD, b"y"]], "a payload in addition to its chunks"),
        ([chunk(0, b"x", 9), [raw(2, 1, 1, ((CHANNEL, 1),))]], "a credit arrived between the chunks"),
        ([chunk(0, b"x", 1), [raw(2, 1, 1, ((CHANNEL, 1),))]], "a credit arrived between the chunks"),
    ],
)
def test_chunks_that_break_the_protocol(sent: list[list[Frame]], said: str) -> None:
    """Too much, too little, out of place, without an end: the stream is broken, and nothing of the record is kept."""
    _, receiver = opened()
    *good, bad = sent
    assert [receiver.receive(frames) for frames in good] == [None] * len(good)
    arrival = receiver.receive(bad)
    assert isinstance(arrival, StreamBroken)
    assert said in arrival.reason
    assert receiver._streams[1].large is None


@pytest.mark.parametrize("sizes", [(0,), (-1,), (2.5,), [1] * (FRAMES_MAX + 1)])
def test_sizes_that_are_none(sizes: Any) -> None:
    """Lengths that no frame has do not decode."""
    _, receiver = opened()
    with pytest.raises(ProtocolError, match="does not decode"):
        receiver.receive([raw(3, 1, 0, sizes), b"x"])


def test_memory_is_taken_for_what_has_come() -> None:
    """Whatever a peer announces."""
    _, receiver = opened()
    assert receiver.receive(chunk(0, b"x", RECORD_BYTES_MAX)) is None
    large = receiver._streams[1].large
    assert large is not None
    assert sum(map(sys.getsizeof, large._frames)) < 1_000
