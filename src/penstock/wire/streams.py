"""Buffers and credits on one connection between workers, numbered so that a loss is always detected.

A stream is the sequence of messages on one connection: first a `Hello` that names both ends, then messages numbered
from zero. The receiver delivers a message only if it is the next one. A transport that reconnects by itself loses the
messages in flight. The next message then has the wrong number, which breaks the stream: no more of its messages are
delivered, and the receiver is notified once. Every channel is therefore complete up to the last delivered buffer.

A record that is larger than a message is sent in chunks, ahead of the message that it belongs to. The first chunk
contains the lengths of the payload's frames, so an oversized payload is rejected before any memory is allocated. Memory
is allocated only for bytes that have arrived. No other message of the stream may come between the chunks, and the
message must follow. A stream therefore holds at most one payload, no larger than the maximum record size.

Credit is sent with the next buffer to the same worker or, if there is no buffer to send, for all channels in one
message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from penstock.base.errors import ProtocolError
from penstock.wire import buffers

#: The maximum number of streams whose state is kept; the oldest is dropped first.
STREAMS_MAX: Final = 65_536
#: The maximum number of messages that one buffer is split into.
PARTS_MAX: Final = 65_536
WORKER_ID_CHARS_MAX: Final = 200

T = TypeVar("T")

Channel: TypeAlias = tuple[int, int, int, int]
_Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Channel: TypeAlias = tuple[_Natural, _Natural, _Natural, _Natural]
#: Channels, with the number of additional buffers that each producer may send.
_Credits: TypeAlias = tuple[tuple[_Channel, Annotated[int, msgspec.Meta(ge=1)]], ...]
_Sizes: TypeAlias = Annotated[
    tuple[Annotated[int, msgspec.Meta(ge=1)], ...], msgspec.Meta(max_length=buffers.FRAMES_MAX)
]
_WorkerId: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=WORKER_ID_CHARS_MAX)]


class Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=0):
    """Opens a stream: its number, chosen by the sender, and the ids of the workers at both ends."""

    stream: _Natural
    sender: _WorkerId
    receiver: _WorkerId


class BufferHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """A buffer, or a part of one if `more` is set; its payload is in the frames that follow.

    `credits`: the credits sent along with it.
    """

    stream: _Natural
    sequence: _Natural
    channel: _Channel
    more: bool
    outline: msgspec.Raw
    credits: _Credits = ()


class CreditHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """Credit without a buffer."""

    stream: _Natural
    sequence: _Natural
    credits: _Credits


class ChunkHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """A chunk of the payload of the next buffer or part; it is in the one frame that follows.

    `sizes`: in the first chunk, the lengths of the payload's frames; otherwise empty. No chunk spans two frames.
    """

    stream: _Natural
    sequence: _Natural
    sizes: _Sizes = ()


class BufferArrived(NamedTuple):
    """A complete buffer arrived on a channel, possibly with credit for other channels."""

    channel: Channel
    buffer: list[Any]
    credits: tuple[tuple[Channel, int], ...] = ()


class CreditArrived(NamedTuple):
    """Credit arrived for channels."""

    credits: tuple[tuple[Channel, int], ...]


class StreamBroken(NamedTuple):
    """A message of a sender was lost or is invalid; no more messages of its stream will be delivered."""

    sender: str
    reason: str


Arrival: TypeAlias = BufferArrived | CreditArrived | StreamBroken

_VERSION_BYTE: Final = buffers.VERSION.to_bytes(1, "big")
_encoder = msgspec.msgpack.Encoder()
_Header: TypeAlias = Hello | BufferHeader | CreditHeader | ChunkHeader
_decoder: msgspec.msgpack.Decoder[_Header] = msgspec.msgpack.Decoder(_Header)


class StreamSender:
    """Numbers and encodes the messages of one connection."""

    def __init__(self, stream: int, sender: str, receiver: str) -> None:
        self._stream = stream
        self._hello = Hello(stream, sender, receiver)
        self._sequence = 0
        #: Credit that has not been sent yet.
        self._credits: dict[Channel, int] = {}

    def hello(self) -> bytes:
        """Return the first frame of the stream."""
        return _VERSION_BYTE + _encoder.encode(self._hello)

    def buffer(self, channel: Channel, part: buffers.Part) -> list[buffers.Frame]:
        """Return the frames of one message of a buffer; the last message includes the pending credit."""
        credits = () if part.more else self._take_credits()
        header = BufferHeader(self._stream, self._sequence, channel, part.more, msgspec.Raw(part.outline), credits)
        self._sequence += 1
        return [_VERSION_BYTE + _encoder.encode(header), *part.payload]

    def messages(self, channel: Channel, part: buffers.Part, chunk_bytes: int) -> Iterator[list[buffers.Frame]]:
        """Return the frames of all messages of a large part: the chunks of its payload, and then the part."""
        sizes = tuple(memoryview(frame).nbytes for frame in part.payload)
        for frame in part.payload:
            view = memoryview(frame).cast("B")
            for begin in range(0, view.nbytes, chunk_bytes):
                header = ChunkHeader(self._stream, self._sequence, sizes)
                self._sequence += 1
                sizes = ()
                yield [_VERSION_BYTE + _encoder.encode(header), view[begin : begin + chunk_bytes]]
        yield self.buffer(channel, part._replace(payload=[]))

    def grant(self, channel: Channel, credit: int) -> None:
        """Allow the producer of a channel to send this many more buffers; the next message carries the credit."""
        self._credits[channel] = self._credits.get(channel, 0) + credit

    def credit(self) -> bytes | None:
        """Return a frame with the pending credit, or None if no credit is pending."""
        if not self._credits:
            return None
        header = CreditHeader(self._stream, self._sequence, self._take_credits())
        self._sequence += 1
        return _VERSION_BYTE + _encoder.encode(header)

    def _take_credits(self) -> tuple[tuple[Channel, int], ...]:
        granted = tuple(self._credits.items())
        self._credits.clear()
        return granted


class _Stream:
    """The receiver's state for one stream."""

    __slots__ = ("broken", "channel", "expected", "large", "parts", "sender", "unfinished")

    def __init__(self, sender: str) -> None:
        self.sender = sender
        self.expected = 0
        self.broken = False
        self.unfinished: list[Any] = []
        self.channel: Channel | None = None  # of the unfinished buffer
        self.parts = 0
        self.large: _LargePayload | None = None  # of the next buffer or part


class _LargePayload:
    """The frames of a payload that arrives in chunks."""

    def __init__(self, sizes: Sequence[int], bytes_max: int) -> None:
        if sum(sizes) > bytes_max:
            raise ProtocolError(f"a record of {sum(sizes)} bytes is coming, at most {bytes_max} are allowed")
        self._sizes = sizes
        self._frames = [bytearray()]

    def add(self, chunk: buffers.Frame) -> None:
        size = memoryview(chunk).nbytes
        if self.is_whole:
            raise ProtocolError("a chunk came after the last one")
        if len(self._frames[-1]) == self._sizes[len(self._frames) - 1]:
            self._frames.append(bytearray())
        if not 0 < size <= self._sizes[len(self._frames) - 1] - len(self._frames[-1]):
            raise ProtocolError(f"a chunk of {size} bytes is empty, or more than its frame has left")
        self._frames[-1] += chunk

    @property
    def is_whole(self) -> bool:
        return len(self._frames) == len(self._sizes) and len(self._frames[-1]) == self._sizes[-1]

    def take(self) -> list[buffers.Frame]:
        if not self.is_whole:
            raise ProtocolError("another message arrived between the chunks of a record")
        return [memoryview(frame) for frame in self._frames]


class StreamReceiver(Generic[T]):
    """Decodes the messages of all streams to one worker, and delivers them complete and in order."""

    def __init__(self, worker_id: str, codec: buffers.BufferCodec[T]) -> None:
        self._worker_id = worker_id
        self._codec = codec
        self._streams: dict[int, _Stream] = {}

    def receive(self, frames: Sequence[buffers.Frame]) -> Arrival | None:
        """Receive one message; return None if there is nothing to deliver yet. UNPICKLES: authenticated peers only.

        Raises:
            ProtocolError: if the message belongs to no stream to this worker. Nothing of it was delivered.
            RecordSerializationError: if records cannot be unpickled here. The stream is then broken.
        """
        header = _decode_header(frames)
        if isinstance(header, Hello):
            self._open(header)
            return None
        stream = self._streams.get(header.stream)
        if stream is None:
            raise ProtocolError("a message of a stream that was never opened here")
        if stream.broken:
            return None
        if header.sequence != stream.expected:
            return _break(stream, f"message {header.sequence} arrived where {stream.expected} was expected")
        stream.expected += 1
        if isinstance(header, CreditHeader):
            if len(frames) != 1:
                raise ProtocolError("a credit came with a payload")
            if stream.large is not None:
                return _break(stream, "a credit arrived between the chunks of a record")
            return CreditArrived(header.credits)
        try:
            if isinstance(header, ChunkHeader):
                self._receive_chunk(stream, header, frames[1:])
                return None
            return self._receive_part(stream, header, frames[1:])
        except ProtocolError as error:
            return _break(stream, str(error))
        except buffers.RecordSerializationError:
            _break(stream, "a buffer of it could not be unpickled")
            raise

    def _receive_part(
        self, stream: _Stream, header: BufferHeader, payload: Sequence[buffers.Frame]
    ) -> BufferArrived | None:
        if stream.parts and stream.channel != header.channel:
            raise ProtocolError("a buffer began before the previous one was complete")
        if stream.large is not None:
            if payload:
                raise ProtocolError("a buffer has a payload in addition to its chunks")
            payload, stream.large = stream.large.take(), None
        self._codec.decode(header.outline, payload, stream.unfinished)
        if header.more:
            stream.channel = header.channel
            stream.parts += 1
            if stream.parts >= PARTS_MAX:
                raise ProtocolError(f"a buffer came in more than {PARTS_MAX} parts")
            return None
        arrived = BufferArrived(header.channel, stream.unfinished, header.credits)
        stream.unfinished = []
        stream.parts = 0
        return arrived

    def _receive_chunk(self, stream: _Stream, header: ChunkHeader, payload: Sequence[buffers.Frame]) -> None:
        if len(payload) != 1:
            raise ProtocolError(f"a chunk has {len(payload)} frames instead of one")
        if bool(header.sizes) != (stream.large is None):
            raise ProtocolError("a chunk arrived without the previous one, or a record began between another's chunks")
        if stream.large is None:
            stream.large = _LargePayload(header.sizes, self._codec.record_bytes_max)
        stream.large.add(payload[0])

    def _open(self, hello: Hello) -> None:
        if hello.receiver != self._worker_id:
            raise ProtocolError(f"a stream for worker {hello.receiver!r} came to {self._worker_id!r}")
        if hello.stream in self._streams:
            raise ProtocolError("a stream was opened twice")
        if len(self._streams) >= STREAMS_MAX:
            del self._streams[next(iter(self._streams))]
        self._streams[hello.stream] = _Stream(hello.sender)


def _break(stream: _Stream, reason: str) -> StreamBroken:
    stream.broken = True
    stream.unfinished = []
    stream.large = None
    return StreamBroken(stream.sender, reason)


def _decode_header(frames: Sequence[buffers.Frame]) -> _Header:
    if not 1 <= len(frames) <= buffers.FRAMES_MAX:
        raise ProtocolError(f"a message has {len(frames)} frames, 1 to {buffers.FRAMES_MAX} are allowed")
    head = bytes(frames[0])
    buffers.check_version(head)
    try:
        return _decoder.decode(memoryview(head)[1:])
    except buffers.DECODING_ERRORS as error:
        raise ProtocolError(f"a message's header does not decode: {error}") from error
