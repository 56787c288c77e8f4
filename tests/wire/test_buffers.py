"""Buffers: round trips, splitting and joining, and errors that name the record."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.columns import ColumnBatch, make_batch
from penstock.runtime.records import (
    Batch,
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    Element,
    EndOfData,
    EndOfPartition,
    Event,
    Watermark,
    WatermarkStatus,
)
from penstock.wire.buffers import (
    FRAME_BYTES_MIN,
    OUT_OF_BAND_BYTES_MIN,
    BufferCodec,
    Part,
    RecordSerializationError,
    RecordTooLargeError,
)

EVENTS: Buffer = [
    Watermark(-(2**63)),
    WatermarkStatus(True),
    CheckpointBarrier(7, 1234, "s3://savepoints/1"),
    CancelCheckpointMarker(8),
    EndOfData(True),
    EndOfPartition(),
]


def codec(frame_bytes: int = 1 << 20) -> BufferCodec[Element]:
    return BufferCodec(Event, Batch, make_batch, frame_bytes)


def decode(parts: list[Part]) -> Buffer:
    joined: Buffer = []
    decoder = codec()
    for part in parts:
        decoder.decode(part.outline, [bytes(frame) for frame in part.payload], joined)
    return joined


def size(part: Part) -> int:
    return len(part.outline) + sum(len(frame) for frame in part.payload)


@pytest.mark.parametrize(
    "buffer",
    [
        [],
        EVENTS,
        [Batch([])],
        [Batch([], [])],
        [Batch([1, "two", None], [-(2**63), 0, 2**63 - 1])],
        [Batch([(1, 2)]), Watermark(5), Batch([{"a": [1.5]}], [9]), *EVENTS],
    ],
)
def test_round_trip(buffer: Buffer) -> None:
    """Batches with and without timestamps, and every kind of event, come back equal and in order, in one message."""
    parts = codec().encode(buffer)
    assert len(parts) == 1
    assert not parts[0].more
    assert decode(parts) == buffer


elements = st.one_of(
    st.sampled_from(EVENTS),
    st.lists(st.text(max_size=300), max_size=60).map(Batch),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60).map(lambda ints: Batch([str(i) for i in ints], ints)),
)


@given(st.lists(elements, max_size=30))
def test_split_and_joined(buffer: Buffer) -> None:
    """Whatever a buffer's size, no message exceeds the bound, only the last says so, and joined they are the buffer."""
    parts = codec(FRAME_BYTES_MIN).encode(buffer)
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert all(size(part) <= FRAME_BYTES_MIN for part in parts)
    assert decode(parts) == buffer


def test_one_large_batch_is_split() -> None:
    """A batch much larger than a message arrives as one batch, not as many."""
    buffer: Buffer = [Watermark(1), Batch([f"record {i}" for i in range(5_000)], list(range(5_000))), Watermark(2)]
    parts = codec(FRAME_BYTES_MIN).encode(buffer)
    assert len(parts) > 10
    assert decode(parts) == buffer


def test_large_arrays_travel_beside_the_pickle() -> None:
    """The memory of a large array is a frame of its own, without a copy; a small array stays inside the pickle."""
    large, small = np.arange(OUT_OF_BAND_BYTES_MIN), np.arange(10)
    (part,) = codec(1 << 24).encode([Batch([large, small])])
    assert [len(frame) for frame in part.payload[1:]] == [large.nbytes]
    (batch,) = decode([part])
    assert isinstance(batch, Batch)
    assert all((came == sent).all() for came, sent in zip(batch.values, [large, small], strict=True))


def test_record_larger_than_a_message() -> None:
    """It is a part of its own, which says that its payload goes in chunks; its neighbours travel as ever."""
    buffer: Buffer = [Batch(["small", "LARGE" * 2_000, "small"])]
    parts = codec(FRAME_BYTES_MIN).encode(buffer)
    assert [part.is_large for part in parts].count(True) == 1
    assert all(part.is_large or size(part) <= FRAME_BYTES_MIN for part in parts)
    assert decode(parts) == buffer


def test_record_larger_than_any_may_be() -> None:
    """The error names the record, its size and the option; its neighbours are not blamed; no restart would help."""
    limited: BufferCodec[Element] = BufferCodec(Event, Batch, make_batch, FRAME_BYTES_MIN, 10_000)
    with pytest.raises(RecordTooLargeError) as raised:
        limited.encode([Batch(["small", "LARGE" * 2_000, "small"])])
    text = str(raised.value)
    assert "penstock.network.record-bytes-max allows 10000" in text
    assert "a record needs 100" in text
    assert "builtins.str: 'LARGELARGE" in text
    assert len(text) < 600
    assert raised.value.suppresses_restart


def iter_nothing() -> Iterator[int]:
    yield from ()


class Opaque:
    """Its repr raises, too."""

    def __reduce__(self) -> Any:
        raise OSError("holds a device")

    def __repr__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (threading.Lock(), "cannot pickle '_thread.lock' object"),
        ((1, iter_nothing()), "cannot pickle 'generator' object"),
        (Opaque(), "OSError: holds a device; record of type .*Opaque: <its repr raises ValueError>"),
        ({"x" * 10_000: threading.Lock()}, r"builtins.dict: \{'xxx.*\.\.\."),
    ],
)
def test_record_that_cannot_be_pickled(record: object, said: str) -> None:
    """The error names the record's type, shows it shortened, and says why, also when its repr fails."""
    with pytest.raises(RecordSerializationError, match=said) as raised:
        codec().encode([Batch([1, 2]), Batch([3, record, 4])])
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("timestamp", [2**63, -(2**63) - 1, 1.5, None, "12"])
def test_timestamp_that_is_none(timestamp: Any) -> None:
    """A timestamp that is no 64-bit integer is refused by value, with the record it belongs to."""
    with pytest.raises(RecordSerializationError, match=r"64-bit integer; record of type builtins\.str: 'second'"):
        codec().encode([Batch(["first", "second"], [1, timestamp])])


def test_timestamps_that_are_missing() -> None:
    """A batch with fewer timestamps than records never leaves."""
    with pytest.raises(RecordSerializationError, match="2 records, but 1 timestamps"):
        codec().encode([Batch([1, 2], [1])])


COLUMNS = pa.RecordBatch.from_pydict({"name": [f"n{i}" for i in range(5000)], "number": range(5000)})


@pytest.mark.parametrize("rowtimes", [None, np.arange(5000)])
def test_columns_stay_columns(rowtimes: Any) -> None:
    """A slice takes no more bytes than its records do."""
    whole = ColumnBatch(COLUMNS, rowtimes)
    small = whole.slice(10, 20)
    assert size(codec().encode([small])[0]) < 2_000
    watermark, first, second = decode(codec().encode([Watermark(1), whole, small]))
    assert watermark == Watermark(1)
    for sent, received in ((whole, first), (small, second)):
        assert isinstance(received, ColumnBatch)
        assert received.columns.equals(sent.columns)
        assert received.timestamps == sent.timestamps


def test_columns_that_are_too_large_for_a_message_come_in_several() -> None:
    encoded = codec(FRAME_BYTES_MIN).encode([ColumnBatch(COLUMNS, np.arange(5000)), Batch([1])])
    assert len(encoded) > 1
    assert all(size(part) <= FRAME_BYTES_MIN for part in encoded)
    *parts, last = decode(encoded)
    assert last == Batch([1])
    assert all(isinstance(part, ColumnBatch) for part in parts)
    assert [value.number for part in parts for value in part.values] == list(range(5000))  # type: ignore[union-attr]
    assert [time for part in parts for time in part.timestamps] == list(range(5000))  # type: ignore[union-attr]


def test_class_of_the_users_script() -> None:
    """An instance of a class that no module holds, as those of a script run by Spark, travels by value."""

    class Order:
        def __init__(self, number: int) -> None:
            self.number = number

    encoder = codec()
    for number in (1, 2):
        (batch,) = decode(encoder.encode([Batch([Order(number)])]))
        assert isinstance(batch, Batch)
        assert isinstance(batch.values[0], Order)
        assert batch.values[0].number == number
