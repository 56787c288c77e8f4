"""Messages of the log, and what a snapshot sees, without a server."""

from __future__ import annotations

import struct
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ProtocolError
from penstock.connectors.postgres.cdc.position import KeyRange, SeenKeys, Snapshot, TablePosition
from penstock.connectors.postgres.cdc.replication import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Keepalive,
    LogStream,
    Relation,
    RelationColumn,
    Truncate,
    Update,
    decode,
    lsn_text,
    parse_lsn,
)
from penstock.connectors.postgres.text_columns import NULL, parse_column, parse_texts


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


@given(st.lists(st.lists(st.one_of(st.none(), st.binary(max_size=6)), min_size=1, max_size=5), min_size=1, max_size=3))
def test_rows_are_decoded_whatever_ends_them(rows: list[list[Any]]) -> None:
    """The last value of a row may be NULL, or empty, and has another row or nothing after it."""
    oid = struct.pack(">I", 7)
    for row in rows:
        assert decode(b"I" + oid + b"N" + encode(row)) == Insert(7, row)
        assert decode(b"U" + oid + b"O" + encode(row) + b"N" + encode(rows[0])) == Update(7, row, False, rows[0])


def encode(row: list[bytes | None]) -> bytes:
    parts = [b"n" if value is None else b"t" + struct.pack(">I", len(value)) + value for value in row]
    return struct.pack(">H", len(row)) + b"".join(parts)


class Copying:
    """A connection of libpq that has some messages, and then is lost or has nothing more."""

    def __init__(self, messages: list[bytes], is_lost: bool) -> None:
        self.messages, self.is_lost = messages, is_lost

    def get_copy_data(self, _: int) -> tuple[int, memoryview]:
        if self.messages:
            data = self.messages.pop(0)
            return len(data), memoryview(data)
        return (-1 if self.is_lost else 0), memoryview(b"")

    def consume_input(self) -> None:
        pass

    def get_result(self) -> None:
        return None

    def get_error_message(self) -> str:
        return "the link is down"


@pytest.mark.parametrize("is_lost", [True, False])
def test_messages_that_arrived_before_the_connection_was_lost_come_first(is_lost: bool) -> None:
    head = struct.pack(">QQq", 5, 90, 0)
    messages = [b"w" + head + b"first", b"w" + head + b"second", b"k" + struct.pack(">QqB", 95, 0, 1)]
    stream = object.__new__(LogStream)
    stream._connection, stream._error, stream.server_lsn = Copying([*messages, messages[0]], is_lost), None, 0
    assert stream.receive(1) == ([b"first"], None)
    assert stream.receive(10) == ([b"second"], Keepalive(95, True))
    assert stream.server_lsn == 95
    assert stream.receive(10) == ([b"first"], None)
    for _ in range(2):
        if is_lost:
            with pytest.raises(psycopg.OperationalError, match="has ended the log: the link is down"):
                stream.receive(10)
        else:
            assert stream.receive(10) == ([], None)


TEXTS = {
    pa.string(): ["", "a", "ä\n", "\\N", "infinity"],
    pa.bool_(): ["t", "f"],
    pa.int16(): ["-32768", "32767", "0"],
    pa.int64(): ["-9223372036854775808", "9223372036854775807"],
    pa.float32(): ["1.1", "NaN", "-Infinity", "3.4028235e+38"],
    pa.float64(): ["1.1", "NaN", "Infinity", "-0", "1e-300"],
    pa.decimal128(8, 2): ["1.20", "-999999.99", "0.00"],
    pa.date32(): ["2024-02-29", "0001-01-01", "9999-12-31"],
    pa.time64("us"): ["00:00:00", "23:59:59.999999", "10:11:12.5"],
    pa.timestamp("us"): ["2024-02-29 10:11:12", "2024-02-29 10:11:12.5", "0001-01-01 00:00:00"],
    pa.timestamp("us", "UTC"): ["2024-02-29 10:11:12+00", "2024-02-29 10:11:12.123456+00"],
    pa.binary(): ["\\x", "\\x00ff"],
}
CAREFUL = {
    pa.date32(): ["infinity", "0044-03-15 BC", "10000-01-01"],
    pa.time64("us"): ["24:00:00"],
    pa.timestamp("us"): ["-infinity", "0044-03-15 00:00:00 BC", "294276-12-31 23:59:59"],
    pa.timestamp("us", "UTC"): ["infinity", "0044-03-15 00:00:00+00 BC"],
    pa.decimal128(8, 2): ["NaN"],
}


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_values_of_events_are_those_of_columns(kind: pa.DataType) -> None:
    for texts in ([*TEXTS[kind], None], TEXTS[kind], [None], TEXTS[kind][:1]):
        expected = parse_column(pa.array(texts, pa.string()), kind, "v", NULL).to_pylist()
        actual = parse_texts(texts, kind)
        assert actual is None or list(map(repr, actual)) == list(map(repr, expected))
        assert actual is not None or kind == pa.float32()


@pytest.mark.parametrize("kind", CAREFUL, ids=str)
def test_values_that_python_may_lack_are_left_to_columns(kind: pa.DataType) -> None:
    for text in CAREFUL[kind]:
        assert parse_texts([TEXTS[kind][0], text], kind) is None, text


def test_the_position_of_the_server_is_told_if_no_message_follows_it() -> None:
    """The server sends one after each transaction; only the last is of use."""
    head = struct.pack(">QQq", 5, 90, 0)
    told = [b"k" + struct.pack(">QqB", lsn, 0, 0) for lsn in (80, 95)]
    stream = object.__new__(LogStream)
    stream._error, stream.server_lsn = None, 0
    stream._connection = Copying([b"w" + head + b"first", told[0], b"w" + head + b"second"], False)
    assert stream.receive(10) == ([b"first", b"second"], None)
    assert stream.server_lsn == 90
    stream._connection = Copying([b"w" + head + b"third", *told], False)
    assert stream.receive(10) == ([b"third"], Keepalive(95, False))
    assert stream.server_lsn == 95
