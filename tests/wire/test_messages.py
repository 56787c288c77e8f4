"""Control messages: what goes in comes out, and anything else is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import ProtocolError
from penstock.core.protocol import (
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
from penstock.wire.messages import MessageCodec

FRAME_BYTES = 1 << 16
EXECUTION = ExecutionId(1, 2, 3)
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
        (b"\x01", "1 bytes"),
        (b"\x02" + bytes(8) + b"\x80", "protocol version 2"),
        (b"\x01" + bytes(8), "truncated"),
        (b"\x01" + bytes(8) + b"\xc0", "does not decode"),
        (TO_WORKER.encode(CancelTask(EXECUTION), 0) + b"\x00", "trailing"),
        (TO_WORKER.encode(CancelTask(EXECUTION), 0)[:-1], "truncated"),
        (FROM_WORKER.encode(Heartbeat("w"), 0), "Heartbeat"),
        (b"\x01" + bytes(8) + b"\xdd\xff\xff\xff\xff\x01", "does not decode"),
        (b"\x01" + bytes(8) + b"\xc6\xff\xff\xff\xff\x01", "does not decode"),
        (b"\x01" + bytes(8) + b"\x82\xa4type\xaaCancelTask\xa1z" + b"\x91" * 50_000 + b"\x01", "recursion"),
        (b"\x01" + bytes(8) + b"\x91" * 50_000, "does not decode"),
        (b"\x01" + bytes(FRAME_BYTES), "at most 65536"),
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
    for data in (frame, b"\x01" + bytes(8) + frame):
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
