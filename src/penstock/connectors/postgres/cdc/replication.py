"""The replication connection to PostgreSQL, and the decoders of pgoutput's messages.

`decode` decodes messages of pgoutput, version 1, which describe changes of tables: bytes in, values out.
`MessageBuffer` finds the values of many rows at once, by arithmetic on arrays of offsets, which takes a fraction of the
time for each row. `LogStream` requests the server's log, receives it, and confirms how far it may be discarded.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.base.errors import OperationError, ProtocolError
from penstock.connectors.postgres.client import Address, driver, quoted
from penstock.connectors.postgres.text_columns import literal


class Unchanged:
    """Placeholder for a large value that a change did not touch and the server does not send."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
#: a value as text, NULL, or the placeholder for an unsent value
Value: TypeAlias = bytes | Unchanged | None
Values: TypeAlias = list[Value]


class Begin(NamedTuple):
    """The start of a transaction: its commit position in the log, its 32-bit number, and its commit time."""

    commit_lsn: int
    xid: int
    committed_us: int


class Commit(NamedTuple):
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


class Insert(NamedTuple):
    """An inserted row."""

    oid: int
    new: Values


class Update(NamedTuple):
    """An updated row. `old`: the previous row, or None; with `has_key_alone` it contains only the key."""

    oid: int
    old: Values | None
    has_key_alone: bool
    new: Values


class Delete(NamedTuple):
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
_MARK_AND_LENGTH: Final = Struct(">BI")
_NO_LENGTH: Final = bytes(4)
_LONG: Final = Struct(">I")
#: microseconds from 1970 to 2000, the server's epoch
EPOCH_US: Final = 946_684_800_000_000
#: messages that do not concern rows: a transaction's origin, types, and application messages
_OTHERS: Final = frozenset(b"OYM")


#: kinds of messages: changes of a row, and those that most messages have
ROWS: Final = frozenset(b"IUD")
INSERT, BEGIN, COMMIT = b"IBC"
#: Returns the OID of the table of a change of a row, in a tuple.
unpack_oid: Final = _OID.unpack_from
#: Returns what BEGIN has: (commit position, commit time in µs since 2000, number of the transaction).
unpack_begin: Final = _BEGIN.unpack_from
#: Returns what COMMIT has: (commit position, position of the next message, time).
unpack_commit: Final = _COMMIT.unpack_from


def to_begin(unpacked: tuple[int, int, int]) -> Begin:
    """Return what `unpack_begin` has returned in the form of `Begin`."""
    commit_lsn, committed_us, xid = unpacked
    return Begin(commit_lsn, xid, committed_us + EPOCH_US)


def decode(data: bytes) -> Message | None:
    """Decode a message; return None if it does not concern rows.

    Raises:
        ProtocolError: for bytes that are not a message of this version.
    """
    kind = data[0]
    if kind == 0x49:  # I
        return Insert(_OID.unpack_from(data)[0], decode_row(data, 6)[0])
    if kind == 0x55:  # U
        return _update(data)
    if kind == 0x44:  # D
        return Delete(_OID.unpack_from(data)[0], decode_row(data, 6)[0], data[5] == 0x4B)
    if kind == 0x42:  # B
        return to_begin(_BEGIN.unpack_from(data))
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
        old, at = decode_row(data, 6)
        at += 1
    return Update(oid, old, mark == 0x4B, decode_row(data, at)[0])


def decode_row(data: bytes, at: int) -> tuple[Values, int]:
    """Decode the values of a row; return them with the offset of the next part."""
    values: Values = []
    append, read = values.append, _MARK_AND_LENGTH.unpack_from
    end = at + 2
    try:
        for _ in range(data[at] << 8 | data[at + 1]):
            mark, length = read(data, end)
            if mark == 0x74:  # t
                begin = end + 5
                end = begin + length
                append(data[begin:end])
            else:
                end += 1
                append(None if mark == 0x6E else UNCHANGED)  # n, u
    except struct.error:  # a NULL at the end, with too few bytes behind it for a length
        if data[len(data) - len(_NO_LENGTH) :] == _NO_LENGTH:
            raise
        return decode_row(data + _NO_LENGTH, at)
    return values, end


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


class ValueRanges(NamedTuple):
    """Where the values of some rows are in a buffer: an item for each row, or for each column and row.

    Attributes:
        starts: the offset of each value.
        lengths: the length of each value; `NULL` or `UNSENT` for those without.
    """

    starts: Any
    lengths: Any


NULL, UNSENT = -1, -2
_TEXT_MARK, _NULL_MARK, _UNSENT_MARK = b"tnu"
_ASCII_END: Final = 0x80


class MessageBuffer:
    """Messages one after another, whose rows are decoded together.

    Args:
        messages: the messages.

    Attributes:
        kinds: the kind of each message.
        marks: the byte of each message that says what its first row is: `N`, `K` or `O`.
        firsts: the offset of the first row of each message.
        ends: the offset after each message.
    """

    def __init__(self, messages: Sequence[bytes]) -> None:
        self._data = b"".join((*messages, _NO_LENGTH))
        self._bytes = np.frombuffer(self._data, np.uint8)
        #: the number at each offset, which need not be aligned
        self._longs = np.ndarray(len(self._data) - 3, ">u4", self._data, 0, (1,))
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        self.ends = np.cumsum(lengths)
        begins = self.ends - lengths
        self.kinds = self._bytes[begins]
        self.marks = self._bytes[begins + 5]
        self.firsts = begins + 6
        #: how many bytes before each offset are not ASCII; None if all bytes are
        is_high = self._bytes >= _ASCII_END
        self._high = np.concatenate(([0], np.cumsum(is_high))) if is_high.any() else None
        self._text: str | None = None

    def find_values(self, rows: Any, columns: int) -> tuple[ValueRanges, Any] | None:
        """Return where the values of rows are, and the offset after each row.

        Args:
            rows: the offset of each row.
            columns: how many values each row has.

        Returns:
            the ranges by column and row; None if rows have other values, or values of an unknown kind.
        """
        counts = self._longs[rows] >> 16
        if (counts != columns).any():
            return None
        at = rows + 2
        starts = np.empty((columns, len(rows)), np.int64)
        lengths = np.empty((columns, len(rows)), np.int64)
        for column in range(columns):
            marks = self._bytes[at]
            starts[column] = at + 5
            lengths[column] = self._longs[at + 1]
            is_text = marks == _TEXT_MARK
            if is_text.all():
                at = starts[column] + lengths[column]
                continue
            is_null = marks == _NULL_MARK
            if not (is_text | is_null | (marks == _UNSENT_MARK)).all():
                return None
            lengths[column][~is_text] = np.where(is_null, NULL, UNSENT)[~is_text]
            at = np.where(is_text, starts[column] + lengths[column], at + 1)
        return ValueRanges(starts, lengths), at

    def read_texts(self, values: ValueRanges) -> list[str | None]:
        """Return the values of a column as texts; None for NULL.

        Raises:
            UnicodeDecodeError: for values that are not UTF-8.
        """
        if self._text is None:
            self._text = self._data.decode("latin-1")  # a character for each byte
        text, starts, ends = self._text, values.starts, values.starts + values.lengths
        texts: list[str | None] = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        is_null = values.lengths == NULL
        if self._high is not None:
            for row in np.flatnonzero((self._high[ends] != self._high[starts]) & ~is_null).tolist():
                texts[row] = self._data[starts[row] : ends[row]].decode()
        if is_null.any():
            for row in np.flatnonzero(is_null).tolist():
                texts[row] = None
        return texts

    def read_column(self, values: ValueRanges) -> pa.Array:
        """Return the values of a column as texts, in Arrow's form.

        Raises:
            pyarrow.ArrowInvalid: for values that are not UTF-8.
        """
        starts, lengths = values
        is_null = lengths == NULL
        ends = starts + np.where(is_null, 0, lengths)
        if (starts[1:] < ends[:-1]).any():  # values of updates that were taken from the rows before
            data = self._data
            slices = [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
            return pa.array(slices, pa.binary(), mask=is_null).cast(pa.string())
        # The items of an array of bytes are the values and the bytes between them, without a copy.
        offsets = np.empty(2 * len(starts), np.int32)
        offsets[0::2], offsets[1::2] = starts, ends
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._data)]
        items = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        chosen = pa.array(np.arange(0, len(offsets), 2), mask=is_null if is_null.any() else None)
        return items.take(chosen).cast(pa.string())


def parse_lsn(text: str) -> int:
    """Parse a log position such as `16/B374D848` into a number."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Format a log position as the server writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


#: Fewer messages than this wait for others, this long (s), and again this many times at most if others have come:
#: small batches cost more than the messages.
FEW_MESSAGES: Final = 256
PAUSES_MAX: Final = 5
PAUSE_S: Final = 0.001
#: before each message: its mark, its position, the end of the server's log, and the server's time
_HEAD_BYTES: Final = Struct(">xQQq").size
_END: Final = Struct(">Q")
_KEEPALIVE: Final = Struct(">xQqB")
_STATUS: Final = Struct(">cQQQqB")
#: Settings that give values the same text form as in the snapshot's chunks.
_OPTIONS: Final = "-c TimeZone=UTC -c DateStyle=ISO,YMD -c bytea_output=hex -c extra_float_digits=1"


class Keepalive(NamedTuple):
    """Reports that the server has sent all of the log before `lsn`."""

    lsn: int
    wants_answer: bool


class LogStream:
    """Streams the changes of a slot from a position on. Only connecting blocks.

    Raises:
        psycopg.OperationalError: when the connection cannot be made or is lost.
        OperationError: when the server refuses to send the log.
    """

    def __init__(self, address: Address, slot: str, publication: str, lsn: int) -> None:
        pq = driver().pq
        self._status = pq.ExecStatus
        keywords = address.keywords(replication="database", options=_OPTIONS)
        info = driver().conninfo.make_conninfo(address.conninfo(), **keywords)
        self._connection: Any = pq.PGconn.connect(info.encode())
        try:
            if self._connection.status != pq.ConnStatus.OK:
                raise driver().OperationalError(self._message())
            started = self._connection.exec_(
                f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {lsn_text(lsn)} "
                f"(proto_version '1', publication_names {literal(quoted(publication))})".encode()
            )
            if started.status != self._status.COPY_BOTH:
                raise ReplicationRefused(slot, self._message(), started.error_field(pq.DiagnosticField.SQLSTATE))
            self._connection.nonblocking = 1
            #: the end of the server's log, as last reported
            self.server_lsn = lsn
            self._error: Exception | None = None
        except BaseException:
            self._connection.finish()
            raise

    def _message(self) -> str:
        return str(self._connection.get_error_message()).strip()

    def receive(self, count_max: int = 1) -> tuple[list[bytes], Keepalive | None]:
        """Return messages of pgoutput, and the server's position behind them if it has told it next.

        What has arrived before the connection is lost comes first; the next call raises the error.
        """
        if self._error is not None:
            raise self._error
        messages: list[bytes] = []
        try:
            return messages, self._receive(messages, count_max)
        except driver().OperationalError as error:
            if not messages:
                raise
            self._error = error
            return messages, None

    def _receive(self, messages: list[bytes], count_max: int) -> Keepalive | None:
        connection, get, append = self._connection, self._connection.get_copy_data, messages.append
        pauses, paused_with, last = PAUSES_MAX, 0, None
        lsn, lsn_after = 0, -1
        try:
            while len(messages) < count_max:
                count, data = get(1)
                if count == 0:
                    connection.consume_input()
                    count, data = get(1)
                    if count == 0:
                        if not pauses or len(messages) == paused_with or len(messages) >= FEW_MESSAGES:
                            break
                        pauses, paused_with = pauses - 1, len(messages)
                        time.sleep(PAUSE_S)
                        continue
                if count < 0:
                    self._raise_end()
                mark = data[0]
                if mark == 0x77:  # w
                    last = data
                    append(bytes(data[_HEAD_BYTES:]))
                elif mark == 0x6B:  # k
                    lsn, _, wants_answer = _KEEPALIVE.unpack_from(data)
                    lsn_after = len(messages)
                    if wants_answer:
                        return Keepalive(lsn, True)
                else:
                    raise ProtocolError(f"the server sent a message of an unknown kind in its log, {chr(mark)!r}")
            return Keepalive(lsn, False) if lsn_after == len(messages) else None
        finally:
            self.server_lsn = max(self.server_lsn, lsn, 0 if last is None else _END.unpack_from(last, 9)[0])

    def _raise_end(self) -> NoReturn:
        result = self._connection.get_result()
        message = self._message() if result is None else result.get_error_message()
        raise driver().OperationalError(f"the server has ended the log: {message.strip() or 'no reason given'}")

    def confirm(self, read_lsn: int, confirmed_lsn: int, now_ms: int, asks: bool = False) -> None:
        """Report how far the log was read and how far it may be discarded. `asks` requests the server's position."""
        clock = now_ms * 1_000 - EPOCH_US
        self._connection.put_copy_data(_STATUS.pack(b"r", read_lsn, confirmed_lsn, confirmed_lsn, clock, asks))
        self._connection.flush()

    def close(self) -> None:
        """Close the connection."""
        self._connection.finish()


class ReplicationRefused(OperationError):
    """The server refuses to send the log of a slot."""

    def __init__(self, slot: str, reason: str, sqlstate: bytes | None) -> None:
        super().__init__(slot, reason, sqlstate)
        self.sqlstate = b"" if sqlstate is None else bytes(sqlstate)
        self.slot = slot
        self.reason = reason

    def __str__(self) -> str:
        return f"PostgreSQL does not send the log of slot {self.slot!r}: {self.reason}"

    @property
    def is_in_use(self) -> bool:
        """Whether another client is reading the slot."""
        return self.sqlstate == b"55006"
