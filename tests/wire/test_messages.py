"""Control messages: what goes in comes out, and anything else is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ProtocolError
from penstock.runtime.protocol import (
    AnnounceWatermark,
    AssignSplits,
    CancelTask,
    ExecutionId,
    Failure,
    FromWorker,
    Heartbeat,
    ReportWatermark,
    ShutDownWorker,
    TaskStateChanged,
    ToMaster,
    ToWorker,
    WorkerLost,
)
from penstock.wire.buffers import (
    FRAME_BYTES_MIN,
    VERSION,
    MessageCodec,
    MessageReceiver,
    MessageTooLargeError,
    OutOfTurnError,
)

FRAME_BYTES = 1 << 16
EXECUTION = ExecutionId(1, 2, 3)
#: What stands ahead of the body of a whole message, the first of its connection.
HEAD = VERSION.to_bytes(1, "big") + bytes(8) + b"\x00"
TO_WORKER: MessageCodec[ToWorker] = MessageCodec(ToWorker, FRAME_BYTES)
FROM_WORKER: MessageCodec[FromWorker] = MessageCodec(FromWorker, FRAME_BYTES)
TO_MASTER: MessageCodec[ToMaster] = MessageCodec(ToMaster, FRAME_BYTES)


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        (TO_WORKER, CancelTask(EXECUTION)),
        (TO_WORKER, AssignSplits(EXECUTION, "source", (b"one", b""), True)),
        (TO_WORKER, AnnounceWatermark(EXECUTION, "source", 2**63 - 1)),
        (TO_MASTER, ReportWatermark(EXECUTION, "source", -(2**63))),
        (TO_WORKER, ShutDownWorker("the job ended")),
        (FROM_WORKER, Heartbeat("w-1")),
        (FROM_WORKER, TaskStateChanged(EXECUTION, "FAILED", Failure("it broke", record="(1, 2)", user_code=True))),
    ],
)
def test_round_trip(codec: MessageCodec, message: object) -> None:
    """A message and its number come back as they were."""
    assert codec.decode(codec.encode(message, 7)) == (7, message)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"", "0 bytes"),
        (HEAD[:1], "1 bytes"),
        (b"\x07" + bytes(9) + b"\x80", "protocol version 7"),
        (HEAD, "truncated"),
        (HEAD[:-1] + b"\x01\xc0", "a part of a message"),
        (HEAD[:-1] + b"\x02\xc0", "the mark"),
        (HEAD + b"\xc0", "does not decode"),
        (TO_WORKER.encode(CancelTask(EXECUTION), 0) + b"\x00", "trailing"),
        (TO_WORKER.encode(CancelTask(EXECUTION), 0)[:-1], "truncated"),
        (FROM_WORKER.encode(Heartbeat("w"), 0), "Heartbeat"),
        (HEAD + b"\xdd\xff\xff\xff\xff\x01", "does not decode"),
        (HEAD + b"\xc6\xff\xff\xff\xff\x01", "does not decode"),
        (HEAD + b"\x82\xa4type\xaaCancelTask\xa1z" + b"\x91" * 50_000 + b"\x01", "recursion"),
        (HEAD + b"\x91" * 50_000, "does not decode"),
        (HEAD + bytes(FRAME_BYTES), "at most 65536"),
    ],
)
def test_anything_else_is_refused(frame: bytes, said: str) -> None:
    """Wrong versions, types, lengths, nesting and sizes raise a ProtocolError that says what is wrong."""
    with pytest.raises(ProtocolError, match=said):
        TO_WORKER.decode(frame)


def test_worker_cannot_speak_for_the_driver() -> None:
    """A message that only the driver itself may say does not decode when it comes over the wire."""
    with pytest.raises(ProtocolError, match="WorkerLost"):
        FROM_WORKER.decode(TO_MASTER.encode(WorkerLost("w-2", "I say so"), 0))


def test_long_message_names_the_option() -> None:
    """A message that is too long is refused where it is made, naming its type and the option to change."""
    with pytest.raises(ProtocolError, match=r"ShutDownWorker.*penstock\.network\.max-frame-bytes allows 65536"):
        TO_WORKER.encode(ShutDownWorker("x" * FRAME_BYTES), 0)


def test_frames_too_short_to_work_with() -> None:
    """A bound that leaves no room for messages is refused at once."""
    with pytest.raises(ValueError, match="at least 4096"):
        MessageCodec(ToWorker, 100)


@given(st.binary(max_size=200))
def test_random_bytes(frame: bytes) -> None:
    """Random bytes decode to a message or raise a ProtocolError; nothing else happens."""
    for data in (frame, HEAD + frame):
        try:
            FROM_WORKER.decode(data)
        except ProtocolError:
            continue


@given(st.data())
def test_mutated_bytes(data: st.DataObject) -> None:
    """A message with any bytes changed, cut or added decodes or raises a ProtocolError; nothing else happens."""
    message = TaskStateChanged(EXECUTION, "FAILED", Failure("it broke", record="(1, 2)"))
    frame = bytearray(FROM_WORKER.encode(message, 1))
    for _ in range(data.draw(st.integers(1, 5))):
        position = data.draw(st.integers(0, len(frame)))
        cut = data.draw(st.integers(0, 3))
        frame[position : position + cut] = data.draw(st.binary(max_size=4))
    try:
        _, decoded = FROM_WORKER.decode(bytes(frame))
    except ProtocolError:
        return
    assert isinstance(decoded, msgspec.Struct)


# --- messages in several frames -------------------------------------------------------------------------------------

SMALL: MessageCodec[ToWorker] = MessageCodec(ToWorker, FRAME_BYTES_MIN, 5 * FRAME_BYTES_MIN)
LONG = ShutDownWorker("x" * 3 * FRAME_BYTES_MIN)


def test_a_long_message_comes_in_several_frames() -> None:
    """No frame is longer than it may be; each has the next number; together they are the message."""
    receiver = MessageReceiver(SMALL)
    short = ShutDownWorker("short")
    frames = [*SMALL.frames(short, 0), *SMALL.frames(LONG, 1), *SMALL.frames(short, 5)]
    assert len(frames) == 6
    assert max(map(len, frames)) <= FRAME_BYTES_MIN
    assert [receiver.receive(frame) for frame in frames] == [short, None, None, None, LONG, short]
    assert receiver.expected == 6


def test_a_message_that_is_longer_than_any_may_be_is_refused_where_it_is_made() -> None:
    """The text names its type and the option; no restart would help."""
    with pytest.raises(MessageTooLargeError, match=r"ShutDownWorker.*penstock\.network\.record-bytes-max") as caught:
        SMALL.frames(ShutDownWorker("x" * 6 * FRAME_BYTES_MIN), 0)
    assert caught.value.suppresses_restart


@pytest.mark.parametrize("lost", range(4))
def test_nothing_is_heard_after_a_frame_that_was_lost(lost: int) -> None:
    """Neither the message it belongs to, nor any other."""
    receiver = MessageReceiver(SMALL)
    frames = SMALL.frames(LONG, 0) + SMALL.frames(LONG, 4)
    del frames[lost]
    assert [receiver.receive(frame) for frame in frames[:lost]] == [None] * lost
    for frame in frames[lost:]:
        with pytest.raises(OutOfTurnError):
            receiver.receive(frame)


def test_parts_that_are_too_many_or_empty_are_refused() -> None:
    """What waits for the rest of its message is bounded, and nothing of it is kept when it is refused."""

    def part(number: int, body: bytes, mark: bytes = b"\x01") -> bytes:
        return VERSION.to_bytes(1, "big") + number.to_bytes(8, "big") + mark + body

    for bodies in ([b""], [b"x", b""], [b"x" * 4_000] * 6):
        receiver = MessageReceiver(SMALL)
        *good, bad = (part(number, body) for number, body in enumerate(bodies))
        assert [receiver.receive(frame) for frame in good] == [None] * len(good)
        with pytest.raises(ProtocolError, match="empty, or more than 20480 bytes together"):
            receiver.receive(bad)
        assert len(receiver._begun) == 0
        with pytest.raises(ProtocolError):
            receiver.receive(part(len(bodies), b"x"))


def test_a_receiver_that_refuses_hears_nothing_more() -> None:
    """A peer that lies is not heard any more."""
    receiver = MessageReceiver(SMALL)
    receiver.refuse()
    with pytest.raises(OutOfTurnError):
        receiver.receive(SMALL.frames(LONG, 0)[0])
