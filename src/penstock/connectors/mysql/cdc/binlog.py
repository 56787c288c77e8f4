"""The binary log of MySQL and MariaDB: positions in it, its events, and a connection that receives them.

`LogParser` reads events without a connection and without a clock. It reports events with rows or statements, and
counts them within a transaction. A `LogPosition` is the end of a transaction, and the number of events and rows that
were read from the next one: a restart reads that transaction again from its start and skips them. Both servers send
the log by file and offset, without checksums. After a failover the new server has other files: there, reading
continues after the set of transactions (GTIDs) of the position.

Source: "Binlog Events" and "Replication Protocol" of MySQL's and of MariaDB's documentation.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import total_ordering
from typing import Final, NamedTuple

import pyarrow as pa

from penstock.base.errors import FormatError, OperationError, UnsupportedError
from penstock.connectors.cdc.events import TableId
from penstock.connectors.mysql import client

INSERT, UPDATE, DELETE = 0, 1, 2

_QUERY, _ROTATE, _FORMAT, _XID, _TABLE_MAP, _INCIDENT = 2, 4, 15, 16, 19, 26
_HEARTBEAT, _GTID, _ANONYMOUS, _XA_PREPARE, _PARTIAL_UPDATE, _PAYLOAD, _HEARTBEAT_V2, _GTID_TAGGED = (
    *(27, 33, 34, 38, 39, 40, 41, 42),
)
_MARIADB_GTID: Final = 162
_MARIADB_COMPRESSED: Final = range(165, 172)
#: the kind of change of each rows event, and whether the event has an extension part
_ROWS: Final[Mapping[int, tuple[int, bool]]] = {
    23: (INSERT, False),
    24: (UPDATE, False),
    25: (DELETE, False),
    30: (INSERT, True),
    31: (UPDATE, True),
    32: (DELETE, True),
}
_HEADER: Final = struct.Struct("<IBIIIH")
_QUERY_HEAD: Final = struct.Struct("<IIBHH")
_STANDALONE: Final = 1
_ANSI_QUOTES: Final = 4
_NO_BACKSLASH_ESCAPES: Final = 0x100000
_DESCRIBED_MAX: Final = 10_000
_CONTROL: Final = re.compile(r"\s*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|XA|RELEASE)\b", re.IGNORECASE)
#: the number of metadata bytes of each column type in a table map event
_METADATA: Final[Mapping[int, int]] = {
    **dict.fromkeys((4, 5, 17, 18, 19, 140, 242, 245, 249, 250, 251, 252, 255), 1),
    **dict.fromkeys((15, 16, 141, 246, 247, 248, 253, 254), 2),
}


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class LogPosition:
    """A position in the log of a server. Positions of one server have an order.

    Attributes:
        file: the name of a file.
        offset: the end of a transaction in it, in bytes.
        events: how many events of the next transaction were read.
        rows: how many rows of its next event were read.
        gtids: the transactions up to the position, in the server's notation; empty if they are unknown.
        server: the identity of the server.
    """

    file: str
    offset: int
    events: int = 0
    rows: int = 0
    gtids: str = ""
    server: str = ""

    @property
    def order(self) -> tuple[int, int, int, int]:
        """The sort key of a position."""
        return int(self.file.rpartition(".")[2]), self.offset, self.events, self.rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogPosition) and self.order == other.order

    def __lt__(self, other: LogPosition) -> bool:
        return self.order < other.order

    def __hash__(self) -> int:
        return hash(self.order)

    def __str__(self) -> str:
        within = f", event {self.events}, row {self.rows}" if self.events or self.rows else ""
        return f"{self.file}:{self.offset}{within}"


class LoggedTable(NamedTuple):
    """A table as the log describes it.

    Attributes:
        table_id: its name.
        types: the type of each column.
        metadata: the metadata of each type.
    """

    table_id: TableId
    types: bytes
    metadata: tuple[int, ...]


class RowsEvent(NamedTuple):
    """Rows of a table that have changed.

    Attributes:
        table: the table.
        kind: INSERT, UPDATE or DELETE.
        data: the bytes of the rows; the rows of an update are pairs.
        seconds: when the statement began, in seconds since 1970.
        event: the number of the event within its transaction.
    """

    table: LoggedTable
    kind: int
    data: bytes
    seconds: int
    event: int


class QueryEvent(NamedTuple):
    """A statement.

    Attributes:
        schema: the current database of the statement; may be empty.
        sql: its text.
        has_ansi_quotes: whether double quotes delimit names rather than strings.
        has_backslash_escapes: whether a backslash in a string is an escape character.
        seconds: when it began, in seconds since 1970.
        event: the number of the event within its transaction.
    """

    schema: str
    sql: str
    has_ansi_quotes: bool
    has_backslash_escapes: bool
    seconds: int
    event: int


class LogParser:
    """Reads the events of a log.

    Args:
        position: where the log is read from; the caller skips its `events` and `rows`.
        wants: whether the rows of a table are wanted; others are counted but not reported.
    """

    def __init__(self, position: LogPosition, wants: Callable[[TableId], bool]) -> None:
        self._wants = wants
        self._tables: dict[int, LoggedTable | None] = {}
        #: by their bytes: every transaction describes its tables again
        self._described: dict[bytes, LoggedTable] = {}
        self._offset = position.offset
        self._gtids = GtidSet(position.gtids)
        self._gtid: tuple[str, str] | None = None
        self._is_in_transaction = False
        self._is_standalone = False
        #: the end of the last transaction
        self.boundary = replace(position, events=0, rows=0)
        #: the number of events of the current transaction
        self.events = 0
        #: when the last event was written, in seconds since 1970
        self.seconds = 0
        self._wants_xa = False
        self._has_checksums = False

    def feed(self, packet: bytes) -> tuple[RowsEvent | QueryEvent, ...]:
        """Read an event, which begins at byte 1; return it if it has rows or a statement.

        Raises:
            FormatError: if the event is malformed.
            UnsupportedError: for events that depend on a setting of the server; the message names the setting.
        """
        seconds, code, _, size, end, _ = _HEADER.unpack_from(packet, 1)
        if code in (_HEARTBEAT, _HEARTBEAT_V2):
            return ()
        if len(packet) != size + 1:
            raise FormatError(f"an event of the log says that it has {size} bytes, but {len(packet) - 1} arrived")
        if code == _FORMAT:
            self._has_checksums = packet[-5] == 1
        elif code == _ROTATE and not seconds:
            # The first event, which names the file, has no checksum; one between files may have one.
            packet = packet[:-4] if zlib.crc32(packet[1:-4]) == int.from_bytes(packet[-4:], "little") else packet
        elif self._has_checksums:
            packet = _check(packet)
        if code == _ROTATE:
            self._rotate(packet)
            return ()
        if end and seconds:
            self._move(end)
            self.seconds = seconds
        if code == _PAYLOAD:
            return self._unpack(packet)
        result = self._read(code, packet, 20, seconds)
        if not self._is_in_transaction:
            self._reach()
        return () if result is None else (result,)

    def _move(self, end: int) -> None:
        """Record the end of an event; the log has its lower 32 bits."""
        offset = (self._offset & ~0xFFFFFFFF) | end
        self._offset = offset if offset >= self._offset else offset + (1 << 32)

    def _reach(self) -> None:
        """Record that no transaction is open."""
        self.events = 0
        before = self.boundary
        if before.offset != self._offset:
            self.boundary = LogPosition(before.file, self._offset, 0, 0, before.gtids, before.server)

    def _rotate(self, packet: bytes) -> None:
        (self._offset,) = struct.unpack_from("<Q", packet, 20)
        self._tables.clear()
        self.boundary = replace(self.boundary, file=packet[28:].decode(), offset=self._offset)
        self._is_in_transaction, self.events = False, 0

    def _unpack(self, packet: bytes) -> tuple[RowsEvent | QueryEvent, ...]:
        """Read a compressed transaction."""
        at, size, is_zstd = 20, 0, True
        while (field := packet[at]) != 0:
            length, at = _read_length(packet, at + 1)
            value, _ = _read_length(packet, at)
            if field == 2:
                is_zstd = value == 0
            elif field == 3:
                size = value
            at += length
        data = packet[at + 1 :]
        if is_zstd:
            data = pa.Codec("zstd").decompress(data, size, asbytes=True)
        results, at = [], 0
        while at < len(data):
            seconds, code, _, length, _, _ = _HEADER.unpack_from(data, at)
            result = self._read(code, data[at : at + length], 19, seconds)
            if result is not None:
                results.append(result)
            at += length
        if not self._is_in_transaction:
            self._reach()
        return tuple(results)

    def _read(self, code: int, packet: bytes, at: int, seconds: int) -> RowsEvent | QueryEvent | None:
        rows = _ROWS.get(code)
        if rows is not None:
            return self._read_rows(packet, at, seconds, *rows)
        if code == _TABLE_MAP:
            table_number = int.from_bytes(packet[at : at + 6], "little")
            self._tables[table_number] = self._describe(packet[at + 8 :])
        elif code == _XID:
            self._commit()
        elif code == _QUERY:
            return self._read_query(packet, at, seconds)
        elif code == _GTID:
            number = struct.unpack_from("<Q", packet, at + 17)[0]
            self._begin(str(uuid.UUID(bytes=packet[at + 1 : at + 17])), str(number), False)
        elif code == _ANONYMOUS:
            self._begin("", "", False)
        elif code == _GTID_TAGGED:
            self._begin("", "", False)
            self._gtids = GtidSet("")
        elif code == _MARIADB_GTID:
            number, domain, flags = struct.unpack_from("<QIB", packet, at)
            (server,) = struct.unpack_from("<I", packet, at - 14)
            self._begin(str(domain), f"{server}-{number}", not flags & _STANDALONE)
        elif code == _XA_PREPARE:
            self._end_xa(bool(packet[at]))
        else:
            _check_code(code)
        return None

    def _describe(self, data: bytes) -> LoggedTable | None:
        """Return the described table, the same object for the same description; None if it is not wanted."""
        table = self._described.get(data)
        if table is not None:
            return table if self._wants(table.table_id) else None
        table = _read_table(data, 0, self._wants)
        if table is not None:
            if len(self._described) >= _DESCRIBED_MAX:
                self._described.clear()
            self._described[data] = table
        return table

    def _begin(self, source: str, number: str, is_transaction: bool) -> None:
        self._gtid = (source, number)
        self._is_in_transaction = True
        self._is_standalone = not is_transaction
        self.events = 0
        self._wants_xa = False

    def _commit(self) -> None:
        if self._gtid is not None:
            if self._gtid[0]:
                self._gtids.add(*self._gtid)
                before = self.boundary
                self.boundary = LogPosition(before.file, self._offset, 0, 0, str(self._gtids), before.server)
            elif self.boundary.gtids and not self._gtids:
                self.boundary = replace(self.boundary, gtids="")
            self._gtid = None
        self._is_in_transaction = False

    def _end_xa(self, is_committed: bool) -> None:
        if self._wants_xa and not is_committed:
            raise UnsupportedError(
                f"a distributed transaction (XA PREPARE) after {self.boundary} changes captured tables. It may still "
                "be rolled back, which its rows in the log do not show: write captured tables without XA"
            )
        self._commit()

    def _read_rows(self, packet: bytes, at: int, seconds: int, kind: int, is_extended: bool) -> RowsEvent | None:
        event = self.events
        self.events += 1
        table_number = int.from_bytes(packet[at : at + 6], "little")
        if table_number not in self._tables:
            raise FormatError(f"the log has rows of a table that it does not describe, after {self.boundary}")
        table = self._tables[table_number]
        if table is None:
            return None
        at += 8
        if is_extended:
            at += int.from_bytes(packet[at : at + 2], "little")
        columns, at = _read_length(packet, at)
        size = (columns + 7) // 8
        for _ in range(2 if kind == UPDATE else 1):
            if int.from_bytes(packet[at : at + size], "little") & ((1 << columns) - 1) != (1 << columns) - 1:
                raise UnsupportedError(
                    f"the log has rows of {table.table_id} that lack columns, after {self.boundary}: SET GLOBAL "
                    "binlog_row_image = 'FULL', and begin without the state of the job"
                )
            at += size
        if columns != len(table.types):
            raise FormatError(f"the log has rows of {table.table_id} with another number of columns than the table")
        self._wants_xa = True
        return RowsEvent(table, kind, packet[at:], seconds, event)

    def _read_query(self, packet: bytes, at: int, seconds: int) -> QueryEvent | None:
        _, _, schema_length, _, variables_length = _QUERY_HEAD.unpack_from(packet, at)
        at += _QUERY_HEAD.size
        variables = packet[at : at + variables_length]
        at += variables_length
        schema = packet[at : at + schema_length].decode()
        sql = packet[at + schema_length + 1 :].decode("utf-8", "surrogateescape")
        control = _CONTROL.match(sql)
        if control is not None:
            word = control[1].upper()
            if word == "BEGIN":
                self._is_in_transaction, self._is_standalone = True, False
            elif word == "COMMIT" or (word == "ROLLBACK" and " TO " not in sql.upper()):
                self._commit()
            elif word == "XA":
                self._is_standalone = False
                if re.match(r"\s*XA\s+(COMMIT|ROLLBACK)\b", sql, re.IGNORECASE):
                    self._commit()
            return None
        mode = 0
        if variables[:1] == b"\0" and variables[5:6] == b"\1":
            (mode,) = struct.unpack_from("<Q", variables, 6)
        event = self.events
        self.events += 1
        if self._is_standalone or not self._is_in_transaction:
            self._commit()
        return QueryEvent(schema, sql, bool(mode & _ANSI_QUOTES), not mode & _NO_BACKSLASH_ESCAPES, seconds, event)


def _check(packet: bytes) -> bytes:
    """Verify the checksum of an event, and return the event without it."""
    if zlib.crc32(packet[1:-4]) != int.from_bytes(packet[-4:], "little"):
        raise FormatError("the checksum of an event of the log is wrong: it was damaged in the server or on the way")
    return packet[:-4]


def _check_code(code: int) -> None:
    """Raise an error for an event that cannot be skipped."""
    if code == _INCIDENT:
        raise OperationError(
            "the server has lost events of its log (an INCIDENT event): begin without the state of the job, so that "
            "the tables are read again"
        )
    if code == _PARTIAL_UPDATE:
        raise UnsupportedError(
            "the log has only parts of JSON values: SET GLOBAL binlog_row_value_options = '', and begin without the "
            "state of the job"
        )
    if code in _MARIADB_COMPRESSED:
        raise UnsupportedError("the log is compressed: SET GLOBAL log_bin_compress = OFF, and begin without the state")


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and the offset after it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None:
        raise FormatError("a number of the log is malformed")
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _read_table(packet: bytes, at: int, wants: Callable[[TableId], bool]) -> LoggedTable | None:
    """Return the description of a table; None if it is not wanted."""
    length = packet[at]
    schema = packet[at + 1 : at + 1 + length].decode()
    at += length + 2
    length = packet[at]
    table_id = TableId(schema, packet[at + 1 : at + 1 + length].decode())
    if not wants(table_id):
        return None
    count, at = _read_length(packet, at + length + 2)
    types = packet[at : at + count]
    _, at = _read_length(packet, at + count)
    metadata = []
    for code in types:
        size = _METADATA.get(code, 0)
        metadata.append(int.from_bytes(packet[at : at + size], "little"))
        at += size
    return LoggedTable(table_id, types, tuple(metadata))


class GtidSet:
    """A set of transactions: of MySQL (`uuid:1-5:7,uuid:1`), or the last ones by domain of MariaDB (`0-1-5,1-2-7`)."""

    def __init__(self, text: str) -> None:
        self._intervals: dict[str, list[list[int]]] = {}
        self._last: dict[str, str] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            source, colon, intervals = part.partition(":")
            if not colon:
                domain, _, rest = part.partition("-")
                self._last[domain] = rest
                continue
            for interval in intervals.split(":"):
                first, _, last = interval.partition("-")
                self._intervals.setdefault(source.lower(), []).append([int(first), int(last or first)])

    def __bool__(self) -> bool:
        return bool(self._intervals or self._last)

    def add(self, source: str, number: str) -> None:
        """Add a transaction."""
        if "-" in number:
            self._last[source] = number
            return
        value = int(number)
        intervals = self._intervals.setdefault(source, [])
        for interval in intervals:
            if interval[0] <= value <= interval[1]:
                return
            if value == interval[1] + 1:
                interval[1] = value
                break
        else:
            intervals.append([value, value])
        if len(intervals) > 1:
            intervals.sort()
            merged = [intervals[0]]
            for first, last in intervals[1:]:
                if first <= merged[-1][1] + 1:
                    merged[-1][1] = max(merged[-1][1], last)
                else:
                    merged.append([first, last])
            self._intervals[source] = merged

    def encode(self) -> bytes:
        """Return the set in MySQL's binary form."""
        parts = [struct.pack("<Q", len(self._intervals))]
        for source, intervals in self._intervals.items():
            parts.append(uuid.UUID(source).bytes + struct.pack("<Q", len(intervals)))
            parts.extend(struct.pack("<QQ", first, last + 1) for first, last in intervals)
        return b"".join(parts)

    def __str__(self) -> str:
        if self._last:
            return ",".join(f"{domain}-{rest}" for domain, rest in self._last.items())
        return ",".join(
            ":".join([source, *(f"{first}-{last}" if last > first else f"{first}" for first, last in intervals)])
            for source, intervals in self._intervals.items()
        )


_DUMP, _DUMP_GTID = 0x12, 0x1E
_NON_BLOCKING, _THROUGH_GTID = 1, 4
_RECEIVE_BYTES: Final = 1 << 18


class LogConnection:
    """Receives the log of a server from a position on.

    Args:
        address: the server.
        position: where to begin.
        server_id: the server id of this reader, unique among the replicas of the server.
        heartbeat_s: the idle time (s) after which the server sends a heartbeat.
        is_bounded: whether to stop at the end of the log instead of waiting for more.
        by_gtid: whether to begin after the transactions of the position rather than at its file and offset.

    Raises:
        pymysql.err.OperationalError: if the server is unreachable.
        OperationError: if the server does not send the log, for example because the log was purged.
    """

    def __init__(
        self,
        address: client.MySqlAddress,
        position: LogPosition,
        server_id: int,
        heartbeat_s: float,
        is_bounded: bool = False,
        by_gtid: bool = False,
    ) -> None:
        self._position = position
        self._address = address
        self._connection = client.connect(address, read_timeout=max(30.0, 4 * heartbeat_s))
        try:
            server = client.read_server(self._connection)
            period = int(heartbeat_s * 1_000_000_000)
            client.execute(
                self._connection,
                "SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE', "
                f"@master_heartbeat_period = {period}, @source_heartbeat_period = {period}, "
                f"@slave_uuid = '{uuid.uuid4()}', @mariadb_slave_capability = 4",
            )
            self._request(server, server_id, is_bounded, by_gtid)
        except BaseException:
            self._connection.close()
            raise

    def _request(self, server: client.Server, server_id: int, is_bounded: bool, by_gtid: bool) -> None:
        flags = _NON_BLOCKING if is_bounded else 0
        connection, position = self._connection, self._position
        if by_gtid and server.dialect == client.MYSQL:
            encoded = GtidSet(position.gtids).encode()
            head = struct.pack("<HII", flags | _THROUGH_GTID, server_id, 0) + struct.pack("<QI", 4, len(encoded))
            connection._execute_command(_DUMP_GTID, head + encoded)
            return
        if by_gtid:
            client.execute(connection, f"SET @slave_connect_state = {client.literal(position.gtids)}")
            client.execute(connection, "SET @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0")
        name = b"" if by_gtid else position.file.encode()
        offset = 4 if by_gtid else position.offset
        if offset > 0xFFFFFFFF:
            raise UnsupportedError(f"{position.file} is larger than 4 GiB: SET GLOBAL max_binlog_size to at most 1 GiB")
        connection._execute_command(_DUMP, struct.pack("<IHI", offset, flags, server_id) + name)

    def packets(self) -> Iterator[bytes | None]:
        """Yield the packets of the log, each a zero byte and an event; None if the next packet has not arrived yet.

        Raises:
            pymysql.err.OperationalError: if the connection is lost.
            OperationError: if the server does not send the log.
        """
        buffer, at = b"", 0
        parts: list[bytes] = []
        self._connection._sock.settimeout(self._connection._read_timeout)
        while True:
            end = at + 4
            size = buffer[at] | buffer[at + 1] << 8 | buffer[at + 2] << 16 if len(buffer) >= end else 0
            if len(buffer) < end + size or not size:
                if len(buffer) >= end and not size and parts:
                    size = 0  # an empty part ends a packet whose size is a multiple of the part size
                else:
                    yield None
                    buffer, at = self._receive(buffer[at:], size), 0
                    continue
            packet = buffer[end : end + size]
            at = end + size
            if size == 0xFFFFFF:
                parts.append(packet)
                continue
            if parts:
                packet = b"".join([*parts, packet])
                parts = []
            if packet[0] == 0:
                yield packet
            elif packet[0] == 0xFE and len(packet) < 9:
                return
            else:
                self._refuse(packet)

    def _receive(self, rest: bytes, size: int) -> bytes:
        """Receive bytes until at least `size` are there, and return them after `rest`."""
        library = client.load_library()
        parts, length = [rest], len(rest)
        while True:
            try:
                data = self._connection._sock.recv(max(_RECEIVE_BYTES, size + 4 - length))
            except (OSError, ValueError, AttributeError) as error:
                raise library.err.OperationalError(2013, f"{self._address.shown}: {error}") from error
            if not data:
                raise library.err.OperationalError(2013, f"{self._address.shown} has closed the connection")
            parts.append(data)
            length += len(data)
            if length >= size + 4:
                return b"".join(parts)

    def _refuse(self, packet: bytes) -> None:
        """Raise the error that the server sent."""
        library = client.load_library()
        try:
            library.err.raise_mysql_exception(packet)
        except library.err.MySQLError as error:
            if client.get_error_code(error) != 1236:
                raise
            text = client.describe(error)
            if "same server_uuid" in text or "same server_id" in text:
                raise OperationError(
                    f"{self._address.shown} has another replica with the server id of this reader: give the job a "
                    f"range of its own (server-id). The server says: {text}"
                ) from error
            raise purged(self._position, text) from error

    def interrupt(self) -> None:
        """Wake up a thread that waits for the server. Closing the socket would not wake it."""
        with contextlib.suppress(OSError, AttributeError):
            self._connection._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._connection._force_close()


def purged(position: LogPosition, reason: str) -> OperationError:
    """Return the error for a position that the server's log no longer has."""
    return OperationError(
        f"the log of the server does not have the position {position} any more ({reason}). Changes are lost: begin "
        "without the state of the job, so that the tables are read again; and let the server keep its log longer than "
        "a job may stand still (binlog_expire_logs_seconds)"
    )
