"""`mqtt`: tables whose rows are messages of MQTT 5's topics.

A table reads `topic`, one or several filters, as a session that is acknowledged at checkpoints, and writes to `topic`
or to the topic in its METADATA column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import ConfigurationError
from penstock.connectors.mqtt import (
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY_S,
    SETTINGS,
    MqttPublication,
    MqttSink,
    MqttSource,
    get_payload,
    get_user_properties,
)
from penstock.sql.connectors import queue_tables as tables
from penstock.sql.connectors.queue_tables import TEXT, TEXTS, MetadataField
from penstock.sql.data import types
from penstock.sql.logical.nodes import Scan, Write
from penstock.sql.tables.connector import FORMAT, TableOptions
from penstock.sql.tables.tables import TableReader, TableWriter

URL: Final = tables.text_option("url", "`mqtt://HOST:PORT`, or `mqtts://…` with TLS.")
USERNAME: Final = tables.text_option("username", "The user name, if it is not in the URL.")
PASSWORD: Final = tables.text_option("password", "The password, if it is not in the URL.")
CA: Final = tables.text_option("ssl.ca", "The file with the certificates of authorities.")
CERT: Final = tables.text_option("ssl.cert", "The file with the client's certificate.")
KEY: Final = tables.text_option("ssl.key", "The file with the key of the client's certificate.")
TOPIC: Final = tables.text_option("topic", "The filters to read, separated by `;`, or the topic to write.")
CLIENT_ID: Final = tables.text_option("client-id", "The beginning of the client ids of readers; no other job uses it.")
QOS: Final = tables.word_option("qos", "1", ("0", "1", "2"), "`1` or `2`, at least once; `0`, at most once.")
SHARE: Final = tables.text_option(
    "scan.share-group", "The group of shared subscriptions; the readers of a group share the messages."
)
EXPIRY: Final = tables.time_option(
    "scan.session-expiry", SESSION_EXPIRY_S * 1_000, "How long the server keeps messages while the job is away."
)
RECEIVE: Final = tables.number_option(
    "scan.receive-maximum", RECEIVE_MAXIMUM, "How many unacknowledged messages a reader has at most."
)
IGNORES_LOST: Final = tables.flag_option(
    "scan.ignore-lost-sessions", False, "Whether a restored job goes on if the server has lost its session."
)
RETAIN: Final = tables.flag_option("sink.retain", False, "Whether the server keeps the last message of a topic.")


def _get_content_type(raw: Any) -> Any:
    return getattr(raw.properties, "ContentType", None)


METADATA: Final = {
    "topic": MetadataField(TEXT, lambda raw: raw.topic, is_written=True),
    "qos": MetadataField(types.IntType(), lambda raw: raw.qos, is_written=True),
    "retain": MetadataField(types.BooleanType(), lambda raw: bool(raw.retain), is_written=True),
    "duplicate": MetadataField(types.BooleanType(), lambda raw: bool(raw.dup)),
    "content-type": MetadataField(TEXT, _get_content_type, is_written=True),
    "user-properties": MetadataField(TEXTS, lambda raw: dict(get_user_properties(raw)), is_written=True),
}


@dataclass(frozen=True, slots=True)
class _Publications:
    """Makes messages of bodies and METADATA columns."""

    topic: str
    qos: int
    retain: bool

    def __call__(self, body: bytes, metadata: Mapping[str, Any]) -> MqttPublication:
        known = {key: value for key, value in metadata.items() if value is not None}
        content_type = known.get("content-type")
        return MqttPublication(
            known.get("topic", self.topic),
            body,
            known.get("qos", self.qos),
            known.get("retain", self.retain),
            {} if content_type is None else {"content_type": content_type},
            tuple(known.get("user-properties", {}).items()),
        )


def _keep(publication: MqttPublication) -> MqttPublication:
    return publication


class MqttConnector(tables.QueueConnector):
    """See the module docstring."""

    name = "mqtt"
    metadata = METADATA
    required_options = (URL, FORMAT)
    optional_options = (
        TOPIC,
        USERNAME,
        PASSWORD,
        CA,
        CERT,
        KEY,
        QOS,
        CLIENT_ID,
        SHARE,
        EXPIRY,
        RECEIVE,
        IGNORES_LOST,
        RETAIN,
        *tables.sink_options(SETTINGS),
    )

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader; raise `ValidationError` for contradictory or invalid options."""
        filters = [each.strip() for each in options.required(TOPIC).split(";") if each.strip()]
        client_id, group = options.required(CLIENT_ID), options.get(SHARE.key())
        if group is not None:
            filters = [f"$share/{group}/{each}" for each in filters]

        def create() -> MqttSource:
            return MqttSource(
                tables.add_account(options, URL, USERNAME, PASSWORD),
                *filters,
                client_id=client_id,
                qos=int(options.read(QOS)),
                session_expiry_s=options.read(EXPIRY) // 1_000,
                receive_maximum=options.read(RECEIVE),
                ignores_lost_sessions=options.read(IGNORES_LOST),
                **_read_files(options),
            )

        return self.build_reader(scan, options, ", ".join(filters), create, get_payload)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return the writer; raise `ValidationError` for contradictory or invalid options."""
        is_in_rows = any(name == "topic" for _, name in write.metadata)
        topic = "" if is_in_rows else options.required(TOPIC)
        build = _Publications(topic, int(options.read(QOS)), options.read(RETAIN))

        def create() -> MqttSink[Any]:
            if any(sign in topic for sign in "+#;"):
                raise ConfigurationError(f"{topic!r} is no topic to write, which has none of + # ;")
            url = tables.add_account(options, URL, USERNAME, PASSWORD)
            settings = tables.read_settings(SETTINGS, options)
            return MqttSink(url, to_message=_keep, settings=settings, **_read_files(options))

        return self.build_writer(write, options, create, build)


def _read_files(options: TableOptions) -> dict[str, Any]:
    return {"ca": options.read(CA), "cert": options.read(CERT), "key": options.read(KEY)}
