"""Decodes the messages of pgoutput, version 1, which describe changes of tables. Bytes in, values out."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from penstock.base.errors import ProtocolError


class Unchanged:
    """Placeholder for a large value that a change did not touch and the server does not send."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
#: a value as text, NULL, or the placeholder for an unsent value
Value: TypeAlias = bytes | Unchanged | None
Values: TypeAlias = list[Value]


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a transaction: its commit position in the log, its 32-bit number, and its commit time."""

    commit_lsn: int
    xid: int
    committed_us: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction; the next message begins at `end_lsn`."""

    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table definition for the changes after it. `identity`: `d`, `n`, `f` or `i`, the contents of old rows."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column: its name, whether it belongs to the replica identity, and its type's OID and modifier."""

    name: str
    is_key: bool
    type_oid: int
    modifier: int


@dataclass(frozen=True, slots=True)
class Insert:
    """An inserted row."""

    oid: int
    new: Values


@dataclass(frozen=True, slots=True)
class Update:
    """An updated row. `old`: the previous row, or None; with `has_key_alone` it contains only the key."""

    oid: int
    old: Values | None
    has_key_alone: bool
    new: Values


@dataclass(frozen=True, slots=True)
class Delete:
    """A deleted row, or only its key."""

    oid: int
    old: Values
    has_key_alone: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables that were truncated."""

    oids: tuple[int, ...]


Message: TypeAlias = Begin | Commit | Relation | Insert | Update | Delete | Truncate

_BEGIN: Final = Struct(">xQqI")
_COMMIT: Final = Struct(">xxQQq")
_OID: Final = Struct(">xI")
_COLUMN_TYPE: Final = Struct(">Ii")
_SHORT: Final = Struct(">H")
_LONG: Final = Struct(">I")
#: microseconds from 1970 to 2000, the server's epoch
EPOCH_US: Final = 946_684_800_000_000
#: messages that do not concern rows: a transaction's origin, types, and application messages
_OTHERS: Final = frozenset(b"OYM")


def decode(data: bytes) -> Message | None:
    """Decode a message; return None if it does not concern rows.

    Raises:
        ProtocolError: for bytes that are not a message of this version.
    """
    kind = data[0]
    if kind == 0x49:  # I
        return Insert(_OID.unpack_from(data)[0], _values(data, 6)[0])
    if kind == 0x55:  # U
        return _update(data)
    if kind == 0x44:  # D
        return Delete(_OID.unpack_from(data)[0], _values(data, 6)[0], data[5] == 0x4B)
    if kind == 0x42:  # B
        commit_lsn, committed_us, xid = _BEGIN.unpack_from(data)
        return Begin(commit_lsn, xid, committed_us + EPOCH_US)
    if kind == 0x43:  # C
        commit_lsn, end_lsn, _ = _COMMIT.unpack_from(data)
        return Commit(commit_lsn, end_lsn)
    if kind == 0x52:  # R
        return _relation(data)
    if kind == 0x54:  # T
        (count,) = _LONG.unpack_from(data, 1)
        return Truncate(tuple(_LONG.unpack_from(data, 6 + 4 * index)[0] for index in range(count)))
    if kind in _OTHERS:
        return None
    raise ProtocolError(f"pgoutput sent a message of an unknown kind, {chr(kind)!r}")


def _update(data: bytes) -> Update:
    (oid,) = _OID.unpack_from(data)
    old: Values | None = None
    mark, at = data[5], 6
    if mark != 0x4E:  # N
        old, at = _values(data, 6)
        at += 1
    return Update(oid, old, mark == 0x4B, _values(data, at)[0])


def _values(data: bytes, at: int) -> tuple[Values, int]:
    """Decode the values of a row; return them with the offset of the next part."""
    (count,) = _SHORT.unpack_from(data, at)
    at += 2
    values: Values = []
    append, length_at = values.append, _LONG.unpack_from
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t
            (length,) = length_at(data, at)
            at += 4
            append(data[at : at + length])
            at += length
        else:
            append(None if kind == 0x6E else UNCHANGED)  # n, u
    return values, at


def _relation(data: bytes) -> Relation:
    (oid,) = _OID.unpack_from(data)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _SHORT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(data[at] & 1)
        column, at = _text(data, at + 1)
        type_oid, modifier = _COLUMN_TYPE.unpack_from(data, at)
        at += 8
        columns.append(RelationColumn(column, is_key, type_oid, modifier))
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def parse_lsn(text: str) -> int:
    """Parse a log position such as `16/B374D848` into a number."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Format a log position as the server writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
