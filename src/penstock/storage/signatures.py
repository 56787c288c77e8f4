"""Signed checkpoints and savepoints: a job rejects files that others wrote into their directory.

A restore unpickles state, which runs code that the state names, so a checkpoint directory is as powerful as the
program. With a key, metadata ends with an HMAC-SHA256 of itself, and each file begins with an HMAC-SHA256 of its
content. Metadata lists the length and checksum of each file, so a file cannot be exchanged for another signed one.
Without a key, signatures are ignored and nothing is checked.

The checkpoint number and the job are signed. Beyond these, an older signed checkpoint in place of a newer one is not
detected.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from penstock.base.errors import CheckpointError, ConfigurationError
from penstock.base.options import SIGNING_KEY

#: The markers before a signature: at the start of a signed file, and at the end of signed metadata.
FILE_MARK: Final = b"PSTKSIG1"
METADATA_MARK: Final = b"1GISKTSP"
KEY_CHARACTERS_MIN: Final = 16
_MAC_BYTES: Final = 32
_MARK_BYTES: Final = 8


def parse_signing_key(text: str | None) -> bytes | None:
    """Return the key in an option's value.

    Raises:
        ConfigurationError: if the key is too short.
    """
    if text is None:
        return None
    if len(text) < KEY_CHARACTERS_MIN:
        raise ConfigurationError(
            f"{SIGNING_KEY.key()} has {len(text)} characters: take {KEY_CHARACTERS_MIN} or more, such as those of "
            "openssl rand -hex 32"
        )
    return text.encode()


def signed_file(data: bytes, key: bytes | None) -> bytes:
    """Return the stored form of a state file: a signature, then its bytes."""
    return data if key is None else b"".join((FILE_MARK, _mac(key, FILE_MARK, data), data))


def content_of_file(stored: bytes, key: bytes | None, where: str) -> bytes:
    """Return the original bytes of a state file; raises `CheckpointError` unless the signature matches this key."""
    head = _MARK_BYTES + _MAC_BYTES
    is_signed = stored.startswith(FILE_MARK) and len(stored) >= head
    if key is None:
        return stored[head:] if is_signed else stored
    if not is_signed:
        raise _unsigned(where)
    data = stored[head:]
    if not hmac.compare_digest(stored[_MARK_BYTES:head], _mac(key, FILE_MARK, data)):
        raise _foreign(where)
    return data


def signed_metadata(data: bytes, key: bytes | None) -> bytes:
    """Return the stored form of metadata: its bytes, then their signature."""
    return data if key is None else b"".join((data, METADATA_MARK, _mac(key, METADATA_MARK, data)))


def content_of_metadata(stored: bytes, key: bytes | None, where: str) -> bytes:
    """Return the original bytes of metadata; raises `CheckpointError` unless the signature matches this key."""
    tail = _MARK_BYTES + _MAC_BYTES
    is_signed = len(stored) > tail and stored[-tail:-_MAC_BYTES] == METADATA_MARK
    if key is None:
        return stored[:-tail] if is_signed else stored
    if not is_signed:
        raise _unsigned(where)
    data = stored[:-tail]
    if not hmac.compare_digest(stored[-_MAC_BYTES:], _mac(key, METADATA_MARK, data)):
        raise _foreign(where)
    return data


def _mac(key: bytes, purpose: bytes, data: bytes) -> bytes:
    mac = hmac.new(key, purpose, hashlib.sha256)
    mac.update(data)
    return mac.digest()


def _unsigned(where: str) -> CheckpointError:
    return CheckpointError(
        f"{where} is not signed, and {SIGNING_KEY.key()} is set: it was written without the key, or by somebody else. "
        "Sign a savepoint that you trust with penstock.state_processor.sign_savepoint"
    )


def _foreign(where: str) -> CheckpointError:
    return CheckpointError(
        f"{where} has a signature that is not of {SIGNING_KEY.key()}: it was changed, or written with another key"
    )
