"""The connection by which a server sends its log: asks for it, takes what is there, and says how far it may forget."""

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
#: Values are sent as chunks of a snapshot show them.
_OPTIONS: Final = "-c TimeZone=UTC -c DateStyle=ISO,YMD -c bytea_output=hex -c extra_float_digits=1"


@dataclass(frozen=True, slots=True)
class Keepalive:
    """All of the log before `lsn` has been sent."""

    lsn: int
    wants_answer: bool


class LogStream:
    """Changes of a slot from a position on. Never waits, but for the connection itself.

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
            #: where the server's log ends, as far as it has said so
            self.server_lsn = lsn
        except BaseException:
            self._connection.finish()
            raise

    def _message(self) -> str:
        return str(self._connection.get_error_message()).strip()

    def receive(self) -> bytes | Keepalive | None:
        """A message of pgoutput, or how far the server has come; None when there is nothing now."""
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
        """Say how far it was read, and up to where the server may forget. `asks` for how far the server has come."""
        clock = now_ms * 1_000 - EPOCH_US
        self._connection.put_copy_data(_STATUS.pack(b"r", read_lsn, confirmed_lsn, confirmed_lsn, clock, asks))
        self._connection.flush()

    def close(self) -> None:
        """End the connection."""
        self._connection.finish()


class ReplicationRefused(OperationError):
    """The server does not send the log of a slot."""

    def __init__(self, slot: str, reason: str, sqlstate: bytes | None) -> None:
        super().__init__(slot, reason, sqlstate)
        self.sqlstate = b"" if sqlstate is None else bytes(sqlstate)
        self.slot = slot
        self.reason = reason

    def __str__(self) -> str:
        return f"PostgreSQL does not send the log of slot {self.slot!r}: {self.reason}"

    @property
    def is_in_use(self) -> bool:
        """Whether somebody else reads the slot."""
        return self.sqlstate == b"55006"
