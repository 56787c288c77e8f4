"""The replication connection: requests the server's log, receives it, and confirms how far it may be discarded."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from penstock.base.errors import OperationError, ProtocolError
from penstock.connectors.postgres.cdc.pgoutput import EPOCH_US, lsn_text
from penstock.connectors.postgres.client import Address, driver, quoted
from penstock.connectors.postgres.text_columns import literal

_DATA: Final = Struct(">xQQq")
_KEEPALIVE: Final = Struct(">xQqB")
_STATUS: Final = Struct(">cQQQqB")
#: Settings that give values the same text form as in the snapshot's chunks.
_OPTIONS: Final = "-c TimeZone=UTC -c DateStyle=ISO,YMD -c bytea_output=hex -c extra_float_digits=1"


@dataclass(frozen=True, slots=True)
class Keepalive:
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
        except BaseException:
            self._connection.finish()
            raise

    def _message(self) -> str:
        return str(self._connection.get_error_message()).strip()

    def receive(self) -> bytes | Keepalive | None:
        """Return a pgoutput message or the server's position; None if nothing has arrived."""
        connection = self._connection
        count, data = connection.get_copy_data(1)
        if count == 0:
            connection.consume_input()
            count, data = connection.get_copy_data(1)
        if count == 0:
            return None
        if count < 0:
            result = connection.get_result()
            message = self._message() if result is None else result.get_error_message()
            raise driver().OperationalError(f"the server has ended the log: {message.strip() or 'no reason given'}")
        if data[0] == 0x77:  # w
            self.server_lsn = max(self.server_lsn, _DATA.unpack_from(data)[1])
            return bytes(data[_DATA.size :])
        if data[0] == 0x6B:  # k
            lsn, _, wants_answer = _KEEPALIVE.unpack_from(data)
            self.server_lsn = max(self.server_lsn, lsn)
            return Keepalive(lsn, bool(wants_answer))
        raise ProtocolError(f"the server sent a message of an unknown kind in its log, {chr(data[0])!r}")

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
