"""Records as bytes: the batches of one message as one pickle, with large buffers in separate frames.

Timestamps are sent as 64-bit integers, little-endian: twice as fast as pickled ints. Values are pickled by plain
pickle, protocol 5. If that fails (a class defined in a function cannot be found by name), records are pickled by value
with cloudpickle from then on.
"""

from __future__ import annotations

import pickle
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import cloudpickle

from penstock.base.errors import ProtocolError
from penstock.base.types import RowKind
from penstock.codecs.column_data import ColumnData
from penstock.wire.errors import RecordSerializationError, describe_record

#: A batch's values, as a list or as columns, its timestamps, and, if it has kinds, a byte for each record.
Records: TypeAlias = tuple[Any, ...]
Frame: TypeAlias = bytes | memoryview

#: The maximum number of frames in one message: the header, the pickle, and large buffers.
FRAMES_MAX: Final = 256
#: Smaller buffers are cheaper inside the pickle than in separate frames.
OUT_OF_BAND_BYTES_MIN: Final = 64 * 1024
_TIMESTAMP_BYTES: Final = 8
_PROTOCOL: Final = 5
#: The bytes that represent row kinds.
_KINDS: Final = bytes(kind.value for kind in RowKind)


class BatchEncoder:
    """Encodes batches as frames. It remembers whether plain pickle has sufficed so far."""

    def __init__(self) -> None:
        self._dumps: Callable[..., bytes] = pickle.dumps

    def encode(self, batches: Sequence[Records]) -> list[Frame]:
        """Return the pickle of these batches, followed by its out-of-band buffers.

        Raises:
            RecordSerializationError: if a record cannot be pickled; the error names it.
        """
        content = [
            (values, None if stamps is None else _pack_timestamps(values, stamps), *kinds)
            for values, stamps, *kinds in batches
        ]
        try:
            return _dump(self._dumps, content)
        except Exception as error:  # pickling runs the records' own code, which may raise anything
            if self._dumps is cloudpickle.dumps:
                raise _explain(batches, error) from error
        try:
            frames = _dump(cloudpickle.dumps, content)
        except Exception as error:
            raise _explain(batches, error) from error
        self._dumps = cloudpickle.dumps
        return frames


def decode_batches(frames: Sequence[Frame], counts: Sequence[int]) -> list[Records]:
    """Unpickle the batches of a message, which have the given numbers of records.

    THIS RUNS CODE that the bytes name: call it only with bytes from a peer that has proved to belong to the job.

    Raises:
        ProtocolError: if the unpickled objects do not match the message's header.
        RecordSerializationError: if the records cannot be unpickled here.
    """
    if not frames:
        raise ProtocolError("a buffer with batches came without its payload")
    try:
        content = pickle.loads(frames[0], buffers=frames[1:])
    except Exception as error:
        raise RecordSerializationError(
            f"records from another worker cannot be unpickled here: {type(error).__name__}: {error}", error
        ) from error
    if type(content) is not list or len(content) != len(counts):
        raise ProtocolError(f"a buffer's payload is not its {len(counts)} batches")
    return [_checked(entry, count) for entry, count in zip(content, counts, strict=True)]


def _dump(dumps: Callable[..., bytes], content: object) -> list[Frame]:
    """Pickle `content`, with large contiguous buffers out of band, up to the maximum number of frames."""
    buffers: list[Frame] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        view = memoryview(buffer)
        if view.nbytes < OUT_OF_BAND_BYTES_MIN or not view.contiguous or len(buffers) >= FRAMES_MAX - 2:
            return True
        buffers.append(buffer.raw())
        return False

    return [dumps(content, _PROTOCOL, buffer_callback=keep_in_band), *buffers]


def _pack_timestamps(values: Any, timestamps: Any) -> bytes:
    if len(timestamps) != len(values):
        raise RecordSerializationError(f"a batch has {len(values)} records, but {len(timestamps)} timestamps")
    try:
        packed = array("q", timestamps.tobytes() if isinstance(values, ColumnData) else timestamps)
    except (TypeError, OverflowError) as error:
        for value, timestamp in zip(values, timestamps, strict=True):
            if not _is_timestamp(timestamp):
                raise RecordSerializationError(
                    f"the timestamp {timestamp!r} is not a 64-bit integer; record of {describe_record(value)}"
                ) from error
        raise RecordSerializationError(f"a batch's timestamps are not 64-bit integers: {error}") from error
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _is_timestamp(value: object) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _checked(entry: object, count: int) -> Records:
    """Check that an unpickled object is a batch with the announced number of records, and return it."""
    match entry:
        case (list() | ColumnData() as values, packed, bytes() as kinds) if len(kinds) == count and not kinds.translate(
            None, _KINDS
        ):
            return *_checked((values, packed), count), kinds
        case (list() | ColumnData() as values, None) if len(values) == count:
            return values, None
        case (list() | ColumnData() as values, bytes() as packed) if (
            len(values) == count and len(packed) == count * _TIMESTAMP_BYTES
        ):
            timestamps = array("q", packed)
            if sys.byteorder == "big":
                timestamps.byteswap()
            return values, timestamps if isinstance(values, ColumnData) else timestamps.tolist()
    raise ProtocolError(f"a buffer's payload is not a batch of {count} records")


def _explain(batches: Sequence[Records], error: Exception) -> RecordSerializationError:
    """Return the error for batches that cannot be pickled, naming the first such record."""
    for values, *_ in batches:
        for value in values:
            try:
                cloudpickle.dumps(value, _PROTOCOL)
            except Exception as cause:  # noqa: BLE001 - as above
                return RecordSerializationError(
                    f"a record cannot be sent to another worker: {type(cause).__name__}: {cause}; "
                    f"record of {describe_record(value)}",
                    cause,
                )
    return RecordSerializationError(f"records cannot be sent to another worker: {type(error).__name__}: {error}", error)
