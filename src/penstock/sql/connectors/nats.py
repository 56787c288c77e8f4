"""`nats`: tables whose rows are messages of NATS JetStream.

A table reads `stream` by sequence, exactly once, or over the durable consumer `scan.durable`, and writes to `subject`
or to the subject in its METADATA column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from penstock.base.errors import ConfigurationError
from penstock.connectors.nats import (
    ACK_PENDING,
    ACK_WAIT_S,
    SETTINGS,
    NatsPublication,
    NatsSink,
    NatsSource,
    get_data,
)
from penstock.sql.connectors import queue_tables as tables
from penstock.sql.connectors.queue_tables import TEXT, TEXTS, TIME, MetadataField
from penstock.sql.data import types
from penstock.sql.logical.nodes import Scan, Write
from penstock.sql.tables.connector import FORMAT, TableOptions
from penstock.sql.tables.tables import TableReader, TableWriter

URL: Final = tables.text_option("url", "`nats://HOST:PORT`, or `tls://…`; several separated by commas.")
TOKEN: Final = tables.text_option("token", "The token, if the servers ask for one.")
CREDENTIALS: Final = tables.text_option("credentials-file", "The file of credentials, if the servers ask for one.")
CA: Final = tables.text_option("ssl.ca", "The file with the certificates of authorities; it turns on TLS.")
CERT: Final = tables.text_option("ssl.cert", "The file with the client's certificate.")
KEY: Final = tables.text_option("ssl.key", "The file with the key of the client's certificate.")
STREAM: Final = tables.text_option("stream", "The stream to read.")
SUBJECT: Final = tables.text_option("subject", "The subject to write, or the subjects to read of the stream.")
DURABLE: Final = tables.text_option("scan.durable", "The durable consumer; without it, a stream is read by sequence.")
ACK_WAIT: Final = tables.time_option(
    "scan.ack-wait", int(ACK_WAIT_S * 1_000), "After how long a durable consumer delivers a message again."
)
PENDING: Final = tables.number_option(
    "scan.max-ack-pending", ACK_PENDING, "How many unacknowledged messages a durable consumer has at most."
)
STARTUP: Final = tables.word_option(
    "scan.startup.mode", "first", ("first", "last", "next", "sequence"), "Where a stream is read from."
)
SEQUENCE: Final = tables.text_option("scan.startup.sequence", "The first message, for the mode `sequence`.")
BOUNDED: Final = tables.word_option(
    "scan.bounded.mode",
    "unbounded",
    ("unbounded", "latest"),
    "`latest` ends after the messages that the stream has when the job starts.",
)

METADATA: Final = {
    "subject": MetadataField(TEXT, lambda message: message.subject, is_written=True),
    "headers": MetadataField(TEXTS, lambda message: message.headers, is_written=True),
    "sequence": MetadataField(types.BigIntType(), lambda message: message.sequence),
    "timestamp": MetadataField(TIME, lambda message: message.timestamp),
    "delivered": MetadataField(types.IntType(), lambda message: message.delivered),
    "message-id": MetadataField(TEXT, lambda message: message.headers.get("Nats-Msg-Id"), is_written=True),
}


@dataclass(frozen=True, slots=True)
class _Publications:
    """Makes messages of bodies and METADATA columns."""

    subject: str

    def __call__(self, body: bytes, metadata: Mapping[str, Any]) -> NatsPublication:
        subject = metadata.get("subject")
        return NatsPublication(
            self.subject if subject is None else subject,
            body,
            metadata.get("message-id"),
            metadata.get("headers") or {},
        )


def _keep(publication: NatsPublication) -> NatsPublication:
    return publication


class NatsConnector(tables.QueueConnector):
    """See the module docstring."""

    name = "nats"
    metadata = METADATA
    required_options = (URL, FORMAT)
    optional_options = (
        STREAM,
        SUBJECT,
        TOKEN,
        CREDENTIALS,
        CA,
        CERT,
        KEY,
        DURABLE,
        ACK_WAIT,
        PENDING,
        STARTUP,
        SEQUENCE,
        BOUNDED,
        *tables.sink_options(SETTINGS),
    )
    options_up_to_now: ClassVar = {BOUNDED.key(): "latest"}

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader; raise `ValidationError` for contradictory or invalid options."""
        stream = options.required(STREAM)

        def create() -> NatsSource:
            start: str | int = options.read(STARTUP)
            if start == "sequence":
                text = options.required(SEQUENCE)
                if not text.isdecimal():
                    raise ConfigurationError(f"{SEQUENCE.key()} must be a number, not {text!r}")
                start = int(text)
            return NatsSource(
                options.required(URL),
                stream,
                durable=options.read(DURABLE),
                subject=options.read(SUBJECT),
                starts_at=start,
                bounded=options.read(BOUNDED) == "latest",
                ack_wait_s=options.read(ACK_WAIT) / 1_000,
                max_ack_pending=options.read(PENDING),
                **_read_connection(options),
            )

        return self.build_reader(scan, options, stream, create, get_data)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return the writer; raise `ValidationError` for contradictory or invalid options."""
        is_in_rows = any(name == "subject" for _, name in write.metadata)
        subject = "" if is_in_rows else options.required(SUBJECT)

        def create() -> NatsSink[Any]:
            if any(sign in subject for sign in "*>"):
                raise ConfigurationError(f"{subject!r} is no subject to write, which has no wildcards")
            settings = tables.read_settings(SETTINGS, options)
            return NatsSink(options.required(URL), to_message=_keep, settings=settings, **_read_connection(options))

        return self.build_writer(write, options, create, _Publications(subject))


def _read_connection(options: TableOptions) -> dict[str, Any]:
    return {
        "token": options.read(TOKEN),
        "credentials": options.read(CREDENTIALS),
        "ca": options.read(CA),
        "cert": options.read(CERT),
        "key": options.read(KEY),
    }
