"""The messages of pgoutput, version 1, by which a server tells the changes of tables. Bytes in, values out."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from penstock.base.errors import ProtocolError


class Unchanged:
    """Stands for a large value that a change did not touch, and that the server does not send."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
#: a value as text, NULL, or one that is not sent
Value: TypeAlias = bytes | Unchanged | None
Values: TypeAlias = list[Value]


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction that was committed at a position of the log, and its number in 32 bits."""

    commit_lsn: int
    xid: int
    committed_us: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction; what follows begins at `end_lsn`."""

    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is in the changes that follow. `identity`: `d`, `n`, `f` or `i`, what old rows have."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column: whether it is of the replica identity, and the number and the modifier of its type."""

    name: str
    is_key: bool
    type_oid: int
    modifier: int


@dataclass(frozen=True, slots=True)
class Insert:
    """A row that came."""

    oid: int
    new: Values


@dataclass(frozen=True, slots=True)
class Update:
    """A row that changed. `old`: None, or the row as it was; with `has_key_alone` only its key is there."""

    oid: int
    old: Values | None
    has_key_alone: bool
    new: Values


@dataclass(frozen=True, slots=True)
class Delete:
    """A row that went, or its key alone."""

    oid: int
    old: Values
    has_key_alone: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables that lost all their rows."""

    oids: tuple[int, ...]


Message: TypeAlias = Begin | Commit | Relation | Insert | Update | Delete | Truncate

_BEGIN: Final = Struct(">xQqI")
_COMMIT: Final = Struct(">xxQQq")
_OID: Final = Struct(">xI")
_COLUMN_TYPE: Final = Struct(">Ii")
_SHORT: Final = Struct(">H")
_LONG: Final = Struct(">I")
#: microseconds from 1970 to 2000, where the server counts from
EPOCH_US: Final = 946_684_800_000_000
#: messages that say nothing of rows: where a change came from first, types, and messages of programs
_OTHERS: Final = frozenset(b"OYM")


def decode(data: bytes) -> Message | None:
    """A message; None for those that say nothing of rows.

    Raises:
        ProtocolError: for bytes that are no message of this version.
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
        return Truncate(tuple(_LONG.unpack_from(data, 6 + 4 * place)[0] for place in range(count)))
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
    """The values of a row, and where the next part begins."""
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


def lsn_of(text: str) -> int:
    """A position of the log, `16/B374D848`, as a number."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """A position as the server writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
