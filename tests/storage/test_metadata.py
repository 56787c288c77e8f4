"""The metadata of a checkpoint: round trip, and every damage is found."""

from typing import Any

import msgspec
import pytest

from penstock.base.errors import CheckpointError
from penstock.storage.metadata import (
    FORMAT_VERSION,
    MAGIC,
    CheckpointMetadata,
    KeyedStateHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateFile,
    check_file,
    checksum,
    decode_metadata,
    encode_metadata,
)


def state_file(data=b"state", path=None):
    return StateFile(len(data), checksum(data), path=path, data=None if path else data)


def example():
    keyed: Any = {
        "count": (KeyedStateHandle(0, 63, (state_file(),)), KeyedStateHandle(64, 127, (state_file(path="/x/y"),)))
    }
    lists: Any = {"splits": (OperatorStateHandle("split", 3, state_file(b"three")),)}
    first = OperatorState("a" * 32, "my-uid", "Map", 2, 128, {0: OperatorSubtaskState(keyed, lists)}, (1,))
    second = OperatorState("b" * 32, None, "Sink ä", 1, 128, {}, (0,), state_file(b"coordinator"))
    return CheckpointMetadata(7, "job", "My Job", 1_700_000_000_000, False, (first, second))


def test_round_trip():
    """H3: the metadata comes back as it was."""
    metadata = example()
    assert decode_metadata(encode_metadata(metadata), "here") == metadata
    assert metadata.state_bytes == 5 + 5 + 5 + 11
    assert [o.fully_finished for o in metadata.operators] == [False, True]


def test_every_flipped_byte_is_found():
    """G11: no single damaged byte goes unnoticed, and the error names the file."""
    data = encode_metadata(example())
    for position in range(len(data)):
        for flip in (1, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flip
            with pytest.raises(CheckpointError, match="chk-7/_metadata"):
                decode_metadata(bytes(damaged), "chk-7/_metadata")


def test_every_truncation_is_found():
    """G11: no cut goes unnoticed, and neither does anything appended."""
    data = encode_metadata(example())
    for length in range(len(data)):
        with pytest.raises(CheckpointError):
            decode_metadata(data[:length], "here")
    for more in (b"\0", data):
        with pytest.raises(CheckpointError):
            decode_metadata(data + more, "here")


def test_other_versions_are_named():
    """G11: metadata of another format version says which."""
    data = encode_metadata(example())
    other = MAGIC + (FORMAT_VERSION + 1).to_bytes(2, "big") + data[len(MAGIC) + 2 :]
    with pytest.raises(CheckpointError, match=f"version {FORMAT_VERSION + 1}; this release reads"):
        decode_metadata(other, "here")


def test_valid_checksum_over_nonsense():
    """G11: a body that is whole but is no metadata is refused, too."""
    body = msgspec.msgpack.encode({"checkpoint_id": "seven"})
    data = MAGIC + FORMAT_VERSION.to_bytes(2, "big") + body + checksum(body).to_bytes(8, "big")
    with pytest.raises(CheckpointError):
        decode_metadata(data, "here")


def test_check_file():
    """G11: length and checksum are both looked at, and the error says which does not hold."""
    file = state_file(b"state", path="/x/state")
    assert check_file(file, b"state") == b"state"
    with pytest.raises(CheckpointError, match=r"/x/state: 5 bytes were written, but the file has 4"):
        check_file(file, b"stat")
    with pytest.raises(CheckpointError, match=r"/x/state: the checksum"):
        check_file(file, b"stale")
