"""Messages of the log, and what a snapshot sees, without a server."""

from __future__ import annotations

import struct

import pytest

from penstock.base.errors import ProtocolError
from penstock.connectors.postgres.cdc.position import KeyRange, SeenKeys, Snapshot, TablePosition
from penstock.connectors.postgres.cdc.replication import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Relation,
    RelationColumn,
    Truncate,
    Update,
    decode,
    lsn_text,
    parse_lsn,
)


def values(*texts: bytes | None) -> bytes:
    parts = [
        b"n" if one is None else b"u" if one == b"?" else b"t" + struct.pack(">I", len(one)) + one for one in texts
    ]
    return struct.pack(">H", len(texts)) + b"".join(parts)


def test_messages() -> None:
    oid = struct.pack(">I", 7)
    assert decode(b"B" + struct.pack(">QqI", 9, 5, 3)) == Begin(9, 3, 946_684_800_000_005)
    assert decode(b"C\0" + struct.pack(">QQq", 9, 11, 5)) == Commit(9, 11)
    assert decode(b"I" + oid + b"N" + values(b"1", None)) == Insert(7, [b"1", None])
    assert decode(b"U" + oid + b"N" + values(b"1", b"?")) == Update(7, None, False, [b"1", UNCHANGED])
    assert decode(b"U" + oid + b"K" + values(b"1", None) + b"N" + values(b"2", b"x")) == Update(
        7, [b"1", None], True, [b"2", b"x"]
    )
    assert decode(b"D" + oid + b"O" + values(b"1", b"x")) == Delete(7, [b"1", b"x"], False)
    assert decode(b"D" + oid + b"K" + values(b"1", None)) == Delete(7, [b"1", None], True)
    assert decode(b"T" + struct.pack(">IBII", 2, 0, 7, 8)) == Truncate((7, 8))
    column = b"\x01id\0" + struct.pack(">Ii", 23, -1)
    relation = b"R" + oid + b"public\0t\0d" + struct.pack(">H", 1) + column
    assert decode(relation) == Relation(7, "public", "t", "d", (RelationColumn("id", True, 23, -1),))
    assert decode(b"Y...") is None
    with pytest.raises(ProtocolError, match="unknown kind, 'z'"):
        decode(b"z")


def test_positions_as_text() -> None:
    assert lsn_text(parse_lsn("16/B374D848")) == "16/B374D848"


def test_what_a_snapshot_sees() -> None:
    snapshot = Snapshot.parse("10:20:12,15", 5)
    assert [xid for xid in range(9, 22) if snapshot.sees(xid)] == [9, 10, 11, 13, 14, 16, 17, 18, 19]
    # Numbers have 32 bits in the log, and 64 here.
    late = Snapshot(3 * 2**32 + 5, frozenset({3 * 2**32 - 1}), 0)
    assert [late.sees(one) for one in (4, 5, 2**32 - 1, 2**32 - 2, 0)] == [True, False, False, True, True]


def test_ranges_of_one_snapshot_are_one() -> None:
    one, other = Snapshot(10, frozenset(), 5), Snapshot(12, frozenset({11}), 9)
    position = TablePosition().through((3,), one).through((5,), Snapshot(10, frozenset(), 6))
    assert position.ranges == (KeyRange((5,), Snapshot(10, frozenset(), 6)),)
    assert (position.last, position.is_read, position.end_lsn) == ((5,), False, 6)
    position = position.through((9,), other).through(None, other)
    assert len(position.ranges) == 2
    assert position.is_read
    seen = SeenKeys(position)
    # A change of transaction 10 is in the rows behind key 5, and one of 11 nowhere.
    assert [seen.has((key,), 10) for key in (1, 5, 6, 100)] == [False, False, True, True]
    assert not any(seen.has((key,), 11) for key in (1, 6))
    assert (seen.check_visibility(9), seen.check_visibility(10), seen.check_visibility(11)) == (
        (True, True),
        (True, False),
        (False, False),
    )
