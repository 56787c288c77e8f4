"""The available connectors: built into Penstock, or provided by installed packages."""

from __future__ import annotations

import importlib.metadata
from typing import Final

from penstock.table.connectors.blackhole import BlackholeConnector
from penstock.table.connectors.connector import Connectors
from penstock.table.connectors.datagen.connector import DatagenConnector
from penstock.table.connectors.delta.connector import DeltaConnector
from penstock.table.connectors.filesystem.connector import FilesystemConnector
from penstock.table.connectors.formats.built_in import built_in_formats
from penstock.table.connectors.iceberg.connector import IcebergConnector
from penstock.table.connectors.jdbc.connector import JdbcConnector
from penstock.table.connectors.kafka.connector import KafkaConnector
from penstock.table.connectors.kafka.upsert_connector import UpsertKafkaConnector
from penstock.table.connectors.nexmark.connector import NexmarkConnector
from penstock.table.connectors.postgres_cdc.connector import PostgresCdcConnector
from penstock.table.connectors.print import PrintConnector
from penstock.table.connectors.socket.connector import SocketConnector
from penstock.table.connectors.spark import SparkConnector

#: the entry point group where packages register connectors; each entry is a subclass of `TableConnector`
ENTRY_POINTS: Final = "penstock.table.connectors"


def built_in() -> Connectors:
    """Return all connectors. A package's connector replaces a built-in one of the same name."""
    formats = built_in_formats()
    return Connectors(
        BlackholeConnector(),
        DatagenConnector(),
        DeltaConnector(),
        FilesystemConnector(formats),
        IcebergConnector(),
        JdbcConnector(),
        KafkaConnector(formats),
        NexmarkConnector(),
        PostgresCdcConnector(),
        PrintConnector(),
        SocketConnector(formats),
        SparkConnector(),
        UpsertKafkaConnector(formats),
        *(point.load()() for point in importlib.metadata.entry_points(group=ENTRY_POINTS)),
    )
